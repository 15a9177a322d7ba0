"""Events as records of the logger `pgm`."""

import logging
import subprocess
import sys

import pytest

from pgm.core.effects import LossCause, Lost, Notice
from pgm.core.events import EVENTS
from pgm.telemetry.logger import FIELDS, EventLog, handler_of, level_of

NOTICE = Notice("parent-changed", "session 85.218.248.33.151.26.4096: asks 10.1.0.1 instead of 10.1.0.2")


def fields_of(record):
    return {key: getattr(record, key) for key in FIELDS}


def test_logger_notice_has_all_fields(caplog):
    with caplog.at_level(logging.INFO, "pgm"):
        EventLog("desk-7", "quotes")(NOTICE)
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("pgm", logging.WARNING)
    assert record.getMessage() == f"parent-changed: {NOTICE.text}"
    assert fields_of(record) == {
        "code": "parent-changed",
        "node": "desk-7",
        "stream": "quotes",
        "tsi": "85.218.248.33.151.26.4096",
        "segment": "",
        "text": NOTICE.text,
        "remedy": EVENTS["parent-changed"].remedy,
    }


def test_logger_loss_is_an_error_with_its_session(caplog):
    with caplog.at_level(logging.INFO, "pgm"):
        EventLog("desk-7")(Lost(bytes(range(8)), 1, 2, LossCause.WINDOW))
    (record,) = caplog.records
    assert (record.levelno, record.code, record.tsi) == (logging.ERROR, "lost-window", "0.1.2.3.4.5.1543")


@pytest.mark.parametrize(
    ("event_id", "level"),
    [("opened", logging.INFO), ("ready", logging.INFO), ("excess-naks", logging.WARNING), ("lost-jump", logging.ERROR)],
)
def test_logger_level_follows_the_event(event_id, level):
    assert level_of(event_id) == level


def test_logger_application_with_a_handler_gets_notices_alone(caplog):
    taken = []
    with caplog.at_level(logging.INFO, "pgm"):
        handler_of(taken.append, "desk-7", None)(NOTICE)
        assert not caplog.records
        handler_of(None, "desk-7", None)(NOTICE)
    assert taken == [NOTICE]
    assert len(caplog.records) == 1


def test_logger_without_configuration_prints_nothing():
    script = (
        "from pgm.core.effects import Notice\nfrom pgm.telemetry.logger import EventLog\n"
        "EventLog('desk')(Notice('excess-naks', 'session 1'))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout + done.stderr == ""
