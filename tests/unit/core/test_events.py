"""The table of events: complete, and what the code says is in it."""

from __future__ import annotations

import re
from pathlib import Path

import pgm
from pgm.core.effects import CloseCause, Closed, LossCause, Lost, Notice, Opened
from pgm.core.events import EVENTS, id_of, kind_of
from pgm.core.receiver.setup import ReceiverSetup
from pgm.core.repair.nak_limits import NakLimits
from pgm.units import SECOND
from tests.unit.core.makers import MS, PARENT, REPAIRER, SEGMENT, data_train, parameters, session_context
from tests.unit.core.reader import joined

ROOT = Path(__file__).resolve().parents[3]
TSI = bytes(8)


def test_events_every_cause_has_a_row_with_a_remedy():
    causes = {f"closed-{cause.value}" for cause in CloseCause} | {f"lost-{cause.value}" for cause in LossCause}
    assert set(EVENTS) >= causes
    assert all(row.meaning.endswith(".") and not row.remedy.endswith(",") for row in EVENTS.values())
    assert EVENTS["lost-overrun"].remedy
    assert "could not keep up" in EVENTS["lost-overrun"].meaning


def test_every_notice_of_the_code_has_a_row():
    said = set()
    for folder in ("pgm", "aggregator", "repairer"):
        for file in (ROOT / folder).rglob("*.py"):
            said |= set(re.findall(r'(?:Notice|_notice)\(\s*"([a-z-]+)"', file.read_text()))
    assert len(said) > 10
    assert said <= set(EVENTS)
    assert {"session-evicted", "session-expired"} <= set(EVENTS)


def test_ids():
    assert id_of(Lost(TSI, 1, 2, LossCause.WINDOW)) == "lost-window"
    assert id_of(Closed(TSI, 1, CloseCause.SILENT)) == "closed-silent"
    assert id_of(Opened(TSI, 1, "10.0.0.1", 7500)) == "opened"
    assert id_of(Opened(TSI, 1, "10.0.0.1", 7500, resumed=True)) == "resumed"
    assert pgm.event_of(Notice("excess-naks", "")).remedy
    assert kind_of(Notice("of-the-future", "")).id == "of-the-future"


def notices(effects: list) -> list[str]:  # type: ignore[type-arg]
    return [one.code for one in effects if isinstance(one, Notice)]


def test_a_change_of_parents_is_told_and_the_way_back_too():
    setup = ReceiverSetup(SEGMENT, parents=(REPAIRER, PARENT))
    reader = joined(setup=setup, parent_patience=2, parent_retry_ivl=SECOND)
    reader.hear(data_train([1013]))
    assert notices(reader.until(reader.now + 250 * MS)) == ["parent-changed"]
    assert notices(reader.until(reader.now + 3 * SECOND)) == ["parent-changed"]


def test_events_frequent_parent_changes_are_told_with_their_number():
    """Nobody answers for 25 s; there and back are told at once, and of the rest twice in notice_ivl how many there were."""
    setup = ReceiverSetup(SEGMENT, parents=(REPAIRER, PARENT))
    timers = {"parent_patience": 1, "parent_retry_ivl": 200 * MS, "nak_ncf_retries": 1000, "stall_ivl": 3600 * SECOND}
    reader = joined(setup=setup, notice_ivl=10 * SECOND, peer_expiry=3600 * SECOND, **timers)
    reader.hear(data_train([1013]))
    told = [one for one in reader.until(reader.now + 25 * SECOND) if isinstance(one, Notice)]
    assert {one.code for one in told} == {"parent-changed"}
    assert len(told) == 6
    numbers = [int(one.text.partition("after ")[2].split()[0]) for one in told if "after" in one.text]
    singly = len(told) - len(numbers)
    assert max(numbers) > 10
    changes = reader.core.counters.parent_changes
    assert 0.75 * changes < sum(numbers) + singly <= changes  # those of the last five seconds are still to be told


def test_a_brake_that_holds_is_told_of_now_and_then():
    nak_limits = NakLimits(session_context(parameters(child_nak_rte=10, brake_burst_ivl=SECOND, notice_ivl=5 * SECOND)))
    told = []
    for now in range(0, 12 * SECOND, 10 * MS):
        nak_limits.admit_nak("10.0.0.1", now)
        told += notices(list(nak_limits.handle_deadline(now)))
    assert told == ["storm-brake"] * 3
