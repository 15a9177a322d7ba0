"""Large messages whose fragments come in any order: whole or not at all, and every sqn accounted for once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgm.core.effects import LossCause, Lost
from pgm.core.window.reassembly import LargeMessage, WholeMessages
from pgm.core.window.transmit_window import TransmitWindow
from pgm.core.window.unordered_reassembly import UnorderedReassembler
from pgm.wire.train import Run
from tests.reference import DATA_PORT, TSI
from tests.unit.core.makers import parameters
from tests.unit.core.window.test_reassembly import accounted

SIZES = st.lists(st.integers(0, 9000), min_size=1, max_size=8)


def packets_of(payloads: list[bytes]) -> list[Run]:
    """Every packet as a run of its own, as they come when others are between them."""
    window = TransmitWindow(TSI, DATA_PORT, parameters())
    window.append(payloads)
    found = []
    while window.has_unsent:
        first = window.lead + 1
        rows = window.next_train(1, 0)
        assert rows is not None
        found += list(window.parts(first, window.lead + 1))
    return [one.part(sqn, sqn + 1) for one in found for sqn in range(one.first, one.end)]


@pytest.mark.rfc("RCV-08")
@given(SIZES, st.randoms(use_true_random=False), st.floats(0, 0.3))
def test_every_packet_is_in_a_message_or_lost(sizes: list[int], rng: object, loss: float) -> None:
    payloads = [bytes([at + 1]) * size for at, size in enumerate(sizes)]
    packets = packets_of(payloads)
    rng.shuffle(packets)  # type: ignore[attr-defined]
    reassembler = UnorderedReassembler(TSI, 1 << 20)
    found: list[WholeMessages | LargeMessage | Lost] = []
    missing = set()
    for packet in packets:
        if rng.random() < loss:  # type: ignore[attr-defined]
            missing.add(packet.first)
            found += reassembler.add_lost(Lost(TSI, packet.first, 1, LossCause.UNREPAIRED))
        else:
            found += reassembler.add(packet)
    found += reassembler.end()
    fates = accounted(found)
    counts = sum(one.run.count if isinstance(one, WholeMessages) else one.count for one in found)
    assert counts == len(fates) == len(packets)
    assert {sqn for sqn, fate in fates.items() if fate is LossCause.UNREPAIRED} == missing
    whole = [fate for sqn, fate in sorted(fates.items()) if not isinstance(fate, LossCause)]
    if not missing:
        assert list(dict.fromkeys(one for one in whole if one)) == [one for one in payloads if one]
    assert set(whole) <= set(payloads)


def test_messages_that_never_become_whole_take_bounded_memory() -> None:
    payloads = [bytes([at]) * 9000 for at in range(100)]
    by_message: dict[int, list[Run]] = {}
    for at, packet in enumerate(packets_of(payloads)):
        by_message.setdefault(at // 7, []).append(packet)
    reassembler = UnorderedReassembler(TSI, 30_000)
    lost = []
    for packets in by_message.values():
        for packet in packets[:-1]:
            lost += [one for one in reassembler.add(packet) if isinstance(one, Lost)]
        assert reassembler.mark is None or reassembler.mark[1] <= 30_000
    lost += reassembler.end()
    assert sum(one.count for one in lost) == sum(len(packets) - 1 for packets in by_message.values())
