"""The short way through a source for a NAK: read, confirmed and repaired in one go while data leave.

What `SourceCore.receive` and `SourceCore.handle_deadline` do for whatever comes, in a fraction of their calls. Behind a
stream of data caches hold nothing of what answers a NAK, so that it costs by how much code and memory it goes through.
"""

from __future__ import annotations

import operator

from pgm.core.brakes import Brakes
from pgm.core.channel import Channel
from pgm.core.confirmer import Confirmer, Key
from pgm.core.counters import Counters
from pgm.core.effects import Effect, Effects
from pgm.core.pacer import Pacer
from pgm.core.ranges import Span
from pgm.core.responder import Responder
from pgm.core.source_setup import SourceSetup
from pgm.core.spm_schedule import SpmSchedule
from pgm.core.transmit_window import TransmitWindow
from pgm.core.yielding import Yielding
from pgm.units import NEVER
from pgm.wire.formats import Nla
from pgm.wire.plain_naks import PlainNaks
from pgm.wire.serial import MASK, spans_of, unwrap
from pgm.wire.train import Train

_MOST_PACKETS = 2  # of what one back-off has gathered: a full list, and the rest


class ShortAnswer:
    """What answers NAKs at a source that is not closing, and neither counts them nor tells its children anything with NCFs."""

    def __init__(
        self,
        setup: SourceSetup,
        window: TransmitWindow,
        pacer: Pacer,
        yielding: Yielding,
        schedule: SpmSchedule,
        brakes: Brakes,
        confirmer: Confirmer,
        responder: Responder,
        counters: Counters,
    ) -> None:
        self._segment = segment = setup.segment
        self._naks = PlainNaks(setup.tsi, setup.data_port, segment.address, segment.group)
        self._window = window
        self._pacer = pacer
        self._yielding = yielding
        self._schedule = schedule
        self._brakes = brakes
        self._confirmer = confirmer
        self._responder = responder
        self._counters = counters
        self._repaired_at = -NEVER  # the newest sqn that was sent when the last repair left

    def answer(self, train: Train, channel: Channel, peer: Nla, now_ns: int) -> Effects | None:
        """NCFs and RDATA for what came by unicast while data are about to leave; None, and nothing was noted, where that takes the long way.

        Between two repairs data must have left: a driver whose link takes nothing asks for none, and would hold ever more.
        """
        counters, window, lead = self._counters, self._window, self._window.lead
        if channel.is_group or channel.segment.index != self._segment.index or lead == self._repaired_at:
            return None
        read = self._read_untrusted(train)
        if read is None:
            return None
        effects: list[Effect] = []
        wanted: list[list[Span]] = []
        for octets, key, spans, asked in read:
            if not self._brakes.admit_nak(peer, now_ns, asked, lead):
                continue
            counters.nak_packets_in += 1
            counters.nak_sqns_in += asked
            window.note_nak(spans[0][0], now_ns)
            self._yielding.asked(asked)
            effects += self._confirmer.confirm_first(key, self._segment, self._naks.ncf_for(octets), now_ns)
            wanted.append(spans)
        if not wanted:
            return effects
        repair = self._responder.answer(wanted, self._pacer.repair_room(now_ns), window.trail, now_ns, peer)
        if repair is not None:
            size = len(repair.octets)
            packets = size // repair.stride
            self._pacer.repair_sent(size, now_ns, packets)
            self._yielding.sent(packets, size)
            self._schedule.data_sent(now_ns, window.strategy.elapsed_ns(now_ns))
            effects.append(repair)
            self._repaired_at = lead
        return effects

    def _read_untrusted(self, train: Train) -> list[tuple[bytes, Key, list[Span], int]] | None:
        """Of each packet its octets, what it is remembered by, and its sqns as spans and their number, if all are NAKs for what was sent, in order, and new."""
        length, stride, lead = train.length, train.stride, self._window.lead
        if length >= _MOST_PACKETS * stride:  # two of one length are taken in or refused together
            return None
        read, before = [], -NEVER
        for at in range(train.offset, train.offset + length, stride):
            octets = train.buffer.data[at : min(at + stride, train.offset + length)].tobytes()
            sqns = self._naks.read_untrusted(octets)
            if sqns is None:
                return None
            base = unwrap(sqns[0], lead)
            firsts = [base + (sqn - base & MASK) for sqn in sqns]
            is_ascending = before < base <= firsts[-1] <= lead and all(map(operator.gt, firsts[1:], firsts))
            key = self._confirmer.key_if_new(self._segment, sqns) if is_ascending else None
            if key is None:
                return None
            ends = [sqn + 1 for sqn in firsts]
            are_apart = all(map(operator.ne, firsts[1:], ends))
            spans = list(zip(firsts, ends, strict=True)) if are_apart else spans_of(firsts)
            read.append((octets, key, spans, len(sqns)))
            before = ends[-1]
        return read
