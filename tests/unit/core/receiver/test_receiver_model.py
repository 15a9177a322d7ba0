"""The promise of a receiver, whatever the network does: delivered and lost together are what was sent, in order, once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from pgm.core.effects import CloseCause
from pgm.core.receiver.setup import ReceiverSetup
from pgm.units import SECOND
from pgm.wire.formats import PacketType
from pgm.wire.options import Epoch, Fin, Join
from pgm.wire.sequence_numbers import unwrap
from pgm.wire.train import Train
from tests.reference import TSI
from tests.unit.core.makers import (
    MS,
    PEER,
    REPAIRER,
    SEGMENT,
    data_train,
    nak_packet,
    ncf_packet,
    payload_of,
    sent_control,
    spm_packet,
    train_of,
)
from tests.unit.core.reader import Reader

T = PacketType


def payload(sqn: int) -> bytes:
    """The same whether numbers count from the source's start or from the wire's."""
    return payload_of(sqn % (1 << 32))


def packets(sqns: list[int], trail: int, kind: PacketType = T.ODATA) -> Train:
    train = data_train([sqn % (1 << 32) for sqn in sqns], trail=trail, kind=kind)
    return Train.of(train.buffer, train.stride)


class Network:
    """A source as its packets tell of it, and a network that holds them back, repeats and loses them."""

    def __init__(self, reader: Reader, first: int, *, has_epoch: bool, joins: bool) -> None:
        self.reader = reader
        self.first = self.trail = self.end = first
        self.has_epoch, self.joins = has_epoch, joins
        self.spm_sqn = 0
        self.under_way: list[Train] = []
        self.answered = 0

    def spm(self, *, is_last: bool = False) -> Train:
        options = []
        if self.has_epoch:
            options.append(Epoch(self.end >> 32, 1, 2))
        if self.joins:
            options.append(Join(self.end % (1 << 32)))
        if is_last:
            options.append(Fin())
        self.spm_sqn += 1
        return train_of(spm_packet(self.spm_sqn, self.trail, self.end - 1, *options))

    def send(self, count: int) -> None:
        self.under_way.append(packets(list(range(self.end, self.end + count)), self.trail))
        self.end += count

    def leave(self, index: int, lost: int, *, again: bool) -> None:
        """Let one of the trains arrive, without some of its packets, perhaps once more later."""
        if not self.under_way:
            return
        index %= len(self.under_way)
        train = self.under_way[index] if again else self.under_way.pop(index)
        gone = np.array([bool(lost >> number % 8 & 1) for number in range(train.count)], np.bool_)
        left = train.without(gone)
        if left is not None:
            self.reader.hear(Train(left.buffer, 0, left.length, left.stride))

    def answer(self, share: int) -> None:
        """Repair some of what was asked for, as long as the window has it."""
        naks = sent_control([send for _, send in self.reader.sent[self.answered :]], T.NAK)
        self.answered = len(self.reader.sent)
        for nak in naks:
            wanted = sorted(unwrap(sqn, self.end - 1) for sqn in nak.sqns)
            assert wanted[0] >= self.first - (1 << 20)
            assert wanted[-1] < self.end, "asked for what was never sent"
            self.reader.hear(ncf_packet(*wanted))
            repairs = [sqn for sqn in wanted if sqn >= self.trail and (sqn * 7 + share) % 4 < share]
            if repairs:
                self.under_way.append(packets(repairs, self.trail, T.RDATA))


steps = st.one_of(
    st.tuples(st.just("send"), st.integers(1, 9), st.just(0)),
    st.tuples(st.just("arrive"), st.sampled_from([0, 0, 0, 1, 2, 5]), st.sampled_from([0, 0, 0, 1, 0x18, 0x7F, 0xFF])),
    st.tuples(st.just("arrive"), st.just(0), st.just(0)),
    st.tuples(st.just("repeat"), st.integers(0, 5), st.sampled_from([0, 0x55])),
    st.tuples(st.just("spm"), st.integers(0, 3), st.just(0)),
    st.tuples(st.just("trail"), st.integers(1, 20), st.just(0)),
    st.tuples(st.just("time"), st.sampled_from([1, 5, 20, 60, 250, 1000, 12_000, 130_000]), st.just(0)),
    st.tuples(st.just("answer"), st.integers(0, 4), st.just(0)),
    st.tuples(st.just("others"), st.integers(0, 12), st.integers(1, 5)),
    st.tuples(st.just("take"), st.sampled_from([0, 40, 1000, 1 << 30]), st.just(0)),
)


def happen(network: Network, what: str, one: int, other: int) -> None:
    """One step of a history."""
    reader = network.reader
    if what == "send":
        network.send(one)
    elif what in ("arrive", "repeat"):
        network.leave(one, other, again=what == "repeat")
    elif what == "spm":
        train = network.spm()
        if one:  # every fourth is lost
            reader.hear(train)
    elif what == "trail":
        network.trail = min(network.trail + one, network.end)
    elif what == "time":
        reader.wait(one * MS)
    elif what == "answer":
        network.answer(one)
    elif what == "others":
        first = network.end - 1 - one
        sqns = [sqn for sqn in range(first, first + other) if network.first <= sqn < network.end]
        if sqns:
            reader.hear(nak_packet(*sqns) if one % 2 else ncf_packet(*sqns), peer=PEER)
    elif what == "take":
        reader.grant(min(one, reader.untaken))


@pytest.mark.rfc("RCV-06", "RCV-07", "RCV-10", "RCV-11", "RCV-39", "RCV-40", "SEC-01")
@given(
    history=st.lists(steps, min_size=30, max_size=120),
    first=st.sampled_from([0, 1000, (1 << 32) - 9, (1 << 32) + 5]),
    has_epoch=st.booleans(),
    joins=st.booleans(),
    begins_with_spm=st.booleans(),
    takes=st.booleans(),
    below_trail=st.booleans(),
    small=st.booleans(),
    at_once=st.sampled_from([1, 2, 5, 1008]),
)
@settings(max_examples=settings.default.max_examples * 4)
def test_delivered_and_lost_are_what_was_sent(
    history, first, has_epoch, joins, begins_with_spm, takes, below_trail, small, at_once
):
    """`Reader` checks order and octets as it goes."""
    limits = {"rxw_bytes": 1200, "rxw_gaps": 4, "inbox_bytes": 400} if small else {}
    reader = Reader(
        ReceiverSetup(SEGMENT, parents=(REPAIRER,), asks_below_trail=below_trail),
        payload=payload,
        takes=takes,
        nak_ncf_retries=5,
        nak_data_retries=5,
        nak_max_outstanding=at_once,
        **limits,
    )
    network = Network(reader, first, has_epoch=has_epoch, joins=joins)
    if begins_with_spm:
        reader.hear(network.spm())
    for what, one, other in history:
        happen(network, what, one, other)
        for session in reader.core.sessions:
            assert len(session.recovery.missing) <= reader.core.parameters.rxw_gaps
            assert session.window.held_octets <= reader.core.parameters.rxw_bytes
    # The source says goodbye, the network gives back what it held, and then there is silence.
    reader.hear(network.spm(is_last=True))
    while network.under_way:
        network.leave(0, 0, again=False)
    while reader.core.sessions and any(not session.is_over for session in reader.core.sessions):
        while reader.untaken:
            reader.grant()
        reader.wait(10 * SECOND)
    reader.takes = True
    fates = reader.fates.get(TSI, {})
    if not fates:
        return
    event(f"closed by {reader.closed()}")
    event(f"lost {len(reader.lost()) > 0}, delivered {len(reader.delivered()) > 0}")
    assert list(fates) == list(range(min(fates), reader.next_sqn()))
    if reader.closed() is CloseCause.FIN:
        # All that the session knew of is accounted for: the last SPM told it the end.
        assert (reader.next_sqn() - network.end) % (1 << 32) == 0
    else:
        # It was told that the source had been silent for too long; what came later belongs to another session.
        assert reader.closed() is CloseCause.EXPIRED
        assert ("time", 130_000, 0) in history
