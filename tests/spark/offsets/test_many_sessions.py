"""Receive times of more sessions than a range service takes in one request."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from pgm.archive.requests import ACTION_BLOCKS
from pgm.spark.errors import RecorderRefused
from pgm.spark.offsets.received_times import ReceivedTimes
from pgm.spark.offsets.time_order import ReadLimits
from pgm.spark.option_table import READ
from pgm.spark.options import read_options
from pgm.spark.ranges import SessionSpan
from pgm.spark.recorders import ask
from pgm.spark.sessions import ArchivedSession, SessionReplica
from tests.spark.support.archives import at, served, session, writing
from tests.unit.archive.makers import messages

_TSIS = [f"1.1.1.1.{number >> 8}.{number & 255}.1" for number in range(10_001)]


def _span(location: str, tsi: str, node: str) -> SessionSpan:
    place = SessionReplica(location, node, 0, 20)
    return SessionSpan(ArchivedSession(f"{tsi}@1", tsi, 1, (place,), 0, closed=False), 0, 20)


@pytest.mark.parametrize(
    ("node", "refusal"),
    [("n", "no list of at most 10,000"), ("n" * 100, r"a request of [\d,]+ octets")],
    ids=["sessions", "octets"],
)
def test_times_of_more_sessions_than_a_request_takes(tmp_path: Path, node: str, refusal: str) -> None:
    held = [session(node, tsi=tsi, epoch_us=1) for tsi in (_TSIS[0], _TSIS[-1])]
    with writing(tmp_path) as add, served(tmp_path) as service:
        add([messages(0, 10, at_us=100)], held[0])
        add([messages(10, 10, at_us=200)], held[0])
        add([messages(0, 20, at_us=150)], held[1])
        options = read_options({"recorders": at(service)}, READ)
        spans = {span.session.key: span for span in (_span(at(service), tsi, node) for tsi in _TSIS)}
        whole = [{"tsi": tsi, "epoch_us": 1, "first": 0, "end": 20, "node": node} for tsi in _TSIS]
        with pytest.raises(RecorderRefused, match=refusal):
            ask(options, at(service), ACTION_BLOCKS, {"sessions": whole})
        found = ReceivedTimes(options).cut(spans, ReadLimits(sqns=15), None)
        ends = dict.fromkeys(spans, 20) | {f"{_TSIS[0]}@1": 10, f"{_TSIS[-1]}@1": 5}
        assert attrs.asdict(found) == {"ends": ends, "reached_us": 150}
