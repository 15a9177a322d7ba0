"""Large messages: whole or not at all, and every sqn accounted for."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgm.core.effects import LossCause, Lost
from pgm.core.structures.arena import BlockPool
from pgm.core.window import reassembly as fragments_module
from pgm.core.window.reassembly import LargeMessage, Reassembler, WholeMessages, fragment_options
from pgm.core.window.transmit_window import TransmitWindow
from pgm.units import MIB
from pgm.wire.options import Fragment
from pgm.wire.train import Data, Train
from tests.reference import DATA_PORT, TSI, data_packet
from tests.unit.core.makers import MS, data_train, parameters, run_of
from tests.unit.core.structures.test_arena import resident_octets

MOST = 1 << 20
HUGE_PAGE = 2 * MIB  # of what a kernel gives at once where memory is long enough


def accounted(found):
    """What became of each sqn: the payload of a message and its first sqn, or a cause."""
    fates = {}
    for one in found:
        if isinstance(one, WholeMessages):
            for index, row in enumerate(one.payloads):
                fates[one.run.first + index] = row.tobytes()
        elif isinstance(one, LargeMessage):
            for sqn in range(one.first, one.first + one.count):
                fates[sqn] = one.payload
        else:
            assert one.count > 0
            for sqn in range(one.first, one.first + one.count):
                fates[sqn] = one.cause
    return fates


def runs_of(packets, first):
    """Runs as a session would deliver them, the train cut where it must be."""
    items, rejects = Train.of(b"".join(packets), len(packets[0])).parse_untrusted()
    assert rejects == []
    at, runs = first, []
    for item in items:
        assert isinstance(item, Data)
        runs.append(item.run(at))
        at += item.count
    return runs


def fragments(first, payload, size=10):
    return [
        data_packet(first + i, payload[at : at + size], options=(Fragment(first, at, len(payload)),))
        for i, at in enumerate(range(0, len(payload), size))
    ]


@pytest.mark.rfc("RCV-09", "SRC-47")
@given(
    lengths=st.lists(st.integers(0, 700), min_size=1, max_size=12),
    seed=st.integers(0, 1 << 30),
    loss=st.sampled_from([0.0, 0.1, 0.5]),
    start=st.sampled_from([0, 5, (1 << 32) - 7]),
    skip=st.integers(0, 5),
)
def test_messages_come_whole_or_not_at_all(lengths, seed, loss, start, skip):
    """What a source cuts, with losses, with runs cut anywhere, joined in the middle."""
    rng = random.Random(seed)
    settings = parameters(max_tpdu=128)
    window = TransmitWindow(TSI, DATA_PORT, settings, start)
    messages = [rng.randbytes(length) for length in lengths]
    whole, at = {}, start
    for message in messages:
        window.append([message])
        for sqn in range(at, window.end):
            whole[sqn] = (message, range(at, window.end))
        at = window.end
    while window.has_unsent:
        window.next_train(1 << 16, MS)
    # Lost spans and runs in order, as a receive window gives them.
    begin = min(start + skip, window.end)
    lost = {sqn for sqn in range(begin, window.end) if rng.random() < loss}
    made = Reassembler(TSI, MOST)
    found, at = [], begin
    while at < window.end:
        if at in lost:
            end = at + 1
            while end in lost and rng.random() < 0.7:
                end += 1
            found += made.add_lost(Lost(TSI, at, end - at, LossCause.WINDOW))
            at = end
            continue
        run = next(window.parts(at, window.end))
        end = at + 1
        while end < run.end and end not in lost and rng.random() < 0.7:
            end += 1
        found += made.add(run.part(at, end))
        at = end
    found += made.end()
    fates = accounted(found)
    assert sorted(fates) == list(range(begin, window.end))
    for sqn, fate in fates.items():
        message, span = whole[sqn]
        is_whole = span.start >= begin and not lost.intersection(span)
        expected = message if is_whole else LossCause.WINDOW if sqn in lost else LossCause.FRAGMENT
        assert fate == expected
    order = [one.run.first if isinstance(one, WholeMessages) else one.first for one in found]
    assert order == sorted(order)


def test_plain_runs_pass_through_as_they_lie():
    made = Reassembler(TSI, MOST)
    run = run_of(5, 10)
    [found] = made.add(run)
    assert isinstance(found, WholeMessages)
    assert found.run is run
    assert found.payloads.base is not None


def test_a_message_across_many_runs():
    payload = bytes(range(256)) * 3
    made = Reassembler(TSI, MOST)
    [run] = runs_of(fragments(7, payload, 16), 7)
    found = [one for sqn in range(7, 55) for one in made.add(run.part(sqn, sqn + 1))]
    assert found == [found[0]]
    assert (found[0].first, found[0].count, found[0].payload) == (7, 48, payload)


@pytest.mark.rfc("RCV-09", "RCV-10")
@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_loss_takes_the_whole_message_with_it(missing):
    """First, middle or last fragment."""
    made = Reassembler(TSI, MOST)
    [run] = runs_of(fragments(7, bytes(30)), 7)
    found = []
    for sqn in range(7, 10):
        if sqn == 7 + missing:
            found += made.add_lost(Lost(TSI, sqn, 1, LossCause.RETRIES))
        else:
            found += made.add(run.part(sqn, sqn + 1))
    found += made.add(run_of(10, 2))
    fates = accounted(found)
    assert sorted(fates) == [7, 8, 9, 10, 11]
    assert [fates[sqn] for sqn in (7, 8, 9)] == [
        LossCause.RETRIES if sqn == 7 + missing else LossCause.FRAGMENT for sqn in (7, 8, 9)
    ]


@pytest.mark.rfc("RCV-09")
def test_two_messages_of_the_same_shape_stay_two():
    """Neighbours in sqns, of equal length."""
    made = Reassembler(TSI, MOST)
    packets = fragments(7, b"a" * 30) + fragments(10, b"b" * 30)
    found = [one for run in runs_of(packets, 7) for one in made.add(run)]
    assert [one.payload for one in found] == [b"a" * 30, b"b" * 30]


@pytest.mark.rfc("RCV-09")
@pytest.mark.parametrize(
    "options",
    [
        (Fragment(7, 0, 30), Fragment(7, 10, 30), Fragment(7, 10, 30)),  # an offset twice
        (Fragment(7, 0, 30), Fragment(7, 20, 30), Fragment(7, 10, 30)),  # out of order
        (Fragment(7, 0, 30), Fragment(7, 10, 40), Fragment(7, 20, 30)),  # another length
        (Fragment(7, 0, 30), Fragment(6, 10, 30), Fragment(7, 20, 30)),  # another message
        (Fragment(7, 10, 30), Fragment(7, 20, 30), Fragment(7, 0, 30)),  # does not begin at 0
        (Fragment(7, 0, 25), Fragment(7, 10, 25), Fragment(7, 20, 25)),  # more than it says
    ],
)
def test_fragments_that_do_not_fit_together_are_lost(options):
    """Offset continuity, same first sqn and length."""
    made = Reassembler(TSI, MOST)
    packets = [data_packet(7 + i, bytes(10), options=(one,)) for i, one in enumerate(options)]
    found = [one for run in runs_of(packets, 7) for one in made.add(run)]
    found += made.add(run_of(10, 1))
    fates = accounted(found)
    assert sorted(fates) == [7, 8, 9, 10]
    assert {fates[sqn] for sqn in (7, 8, 9)} == {LossCause.FRAGMENT}


@pytest.mark.rfc("RCV-09")
def test_a_message_that_begins_ends_an_unfinished_one():
    """Keep going; the whole one is not lost for the broken one before it."""
    made = Reassembler(TSI, MOST)
    broken = fragments(7, bytes(30))[:2]
    found = [one for run in runs_of(broken, 7) for one in made.add(run)]
    found += [one for run in runs_of(fragments(9, b"b" * 20), 9) for one in made.add(run)]
    fates = accounted(found)
    assert fates == {7: LossCause.FRAGMENT, 8: LossCause.FRAGMENT, 9: b"b" * 20, 10: b"b" * 20}


@pytest.mark.rfc("RCV-10", "SEC-01")
def test_message_over_max_apdu_is_lost_and_uses_no_memory():
    """Bounded by MAX_APDU."""
    made = Reassembler(TSI, 29)
    found = [one for run in runs_of(fragments(7, bytes(30)), 7) for one in made.add(run)]
    assert accounted(found) == dict.fromkeys((7, 8, 9), LossCause.FRAGMENT)
    assert made.is_between
    found = [one for run in runs_of(fragments(10, bytes(29)), 10) for one in made.add(run)]
    assert [one.payload for one in found] == [bytes(29)]


def test_large_messages_that_are_dropped_lend_their_memory():
    """Fresh memory costs a page fault for each 4 KB, as much as the copy."""
    made, payloads = Reassembler(TSI, MIB, BlockPool().take), [b"a" * 100_000, b"b" * 100_000, b"c" * 100_000]
    found, at = [], 7
    for payload in payloads:
        for run in runs_of(fragments(at, payload, 1000), at):
            found += made.add(run)
        at += 100
    assert [one.payload for one in found] == payloads
    place = address_of(found[0].payload)
    assert len({address_of(one.payload) for one in found}) == 3
    del found[0]
    for run in runs_of(fragments(at, b"d" * 100_000, 1000), at):
        found += made.add(run)
    assert [one.payload for one in found] == [*payloads[1:], b"d" * 100_000]
    assert address_of(found[-1].payload) == place


def address_of(payload):
    return np.frombuffer(payload, np.uint8).ctypes.data


@pytest.mark.rfc("SEC-01")
def test_claimed_message_length_uses_no_memory():
    """Hostile sources begin the longest message there may be in each of many sessions: 4 GiB, of which a packet each comes."""
    made = [Reassembler(TSI, 64 * MIB) for _ in range(64)]
    begun = Fragment(first_sqn=7, offset=0, apdu_length=64 * MIB)
    [run] = runs_of([data_packet(7, bytes(1000), options=[begun])], 7)
    before = resident_octets()
    for one in made:
        assert list(one.add(run)) == []
        assert one.mark == (7, 1000)
    assert resident_octets() - before < len(made) * HUGE_PAGE + 16 * MIB


def test_a_message_for_which_there_is_no_memory_is_lost(monkeypatch):
    """A process whose address space is limited (`ulimit -v`, or a kernel that promises no more than it has) goes on."""
    made = Reassembler(TSI, 64 * MIB)
    with monkeypatch.context() as patch:
        patch.setattr(fragments_module.np, "empty", no_memory)
        found = [one for run in runs_of(fragments(7, bytes(30)), 7) for one in made.add(run)]
    assert accounted(found) == dict.fromkeys((7, 8, 9), LossCause.FRAGMENT)
    found = [one for run in runs_of(fragments(10, b"a" * 29), 10) for one in made.add(run)]
    assert [one.payload for one in found] == [b"a" * 29]


def no_memory(*_):
    raise MemoryError


def test_the_end_of_a_stream_ends_an_unfinished_message():
    made = Reassembler(TSI, MOST)
    for run in runs_of(fragments(7, bytes(30))[:2], 7):
        assert list(made.add(run)) == []
    assert accounted(made.end()) == {7: LossCause.FRAGMENT, 8: LossCause.FRAGMENT}
    assert list(made.end()) == []


def test_a_gap_in_sqns_ends_an_unfinished_message():
    """A session that jumped or began anew goes on elsewhere."""
    made = Reassembler(TSI, MOST)
    [run] = runs_of(fragments(7, bytes(30)), 7)
    found = [*made.add(run.part(7, 8)), *made.add(run.part(9, 10))]
    assert accounted(found) == {7: LossCause.FRAGMENT, 9: LossCause.FRAGMENT}


def test_plain_packets_with_other_options_are_messages():
    made = Reassembler(TSI, MOST)
    items, _ = data_train([5], options=()).parse_untrusted()
    assert isinstance(items[0], Data)
    assert isinstance(next(iter(made.add(items[0].run(5)))), WholeMessages)


@pytest.mark.rfc("W-34")
def test_options_of_fragments():
    """Covers E-02: 16 octets behind OPT_LENGTH."""
    octets = fragment_options((1 << 32) + 7, 1000)
    assert octets == bytes.fromhex("00040014 81100000 00000007 00000000 000003e8")
