"""A source that began anew is told of, once, and never while the earlier session may go on."""

from __future__ import annotations

from pgm.core.effects import Notice
from pgm.units import SECOND
from tests.reference import TSI
from tests.unit.core.makers import data_train, spm_packet
from tests.unit.core.reader import joined

NEXT = TSI[:6] + b"\x01\x02"


def codes(effects: list) -> list[str]:  # type: ignore[type-arg]
    return [one.code for one in effects if isinstance(one, Notice)]


def test_behind_one_that_is_silent():
    reader = joined(peer_expiry=5 * SECOND)
    assert codes(reader.until(reader.now + 6 * SECOND)) == []
    assert codes(reader.hear(spm_packet(1, 1000, 1009, tsi=NEXT))) == ["source-restarted"]


def test_before_the_earlier_one_is_silent():
    reader = joined(peer_expiry=5 * SECOND)
    assert codes(reader.hear(spm_packet(1, 1000, 1009, tsi=NEXT), after=SECOND)) == []
    told = []
    for index in range(8):
        told += codes(reader.until(reader.now + SECOND))
        told += codes(reader.hear(spm_packet(index + 2, 1000, 1009, tsi=NEXT)))
    assert told == ["source-restarted"]


def test_not_of_two_that_live_side_by_side():
    reader = joined(peer_expiry=5 * SECOND)
    told = []
    for index in range(8):
        told += codes(reader.until(reader.now + SECOND))
        told += codes(reader.hear(data_train([1010 + index])))
        told += codes(reader.hear(spm_packet(index + 2, 1000, 1009, tsi=NEXT)))
    assert told == []
