"""Fast path of a source for NAKs.

NAKs are read and confirmed in one step, and repaired while data is sent. The fast path has the effect of
`SourceCore.receive` and `SourceCore.handle_deadline` in a fraction of their calls. After a stream of data, caches hold
nothing that a NAK needs. The cost of an answer is therefore the amount of code and memory it touches.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence

from pgm.core.effects import Effect, Effects
from pgm.core.repair.nak_limits import NakLimits
from pgm.core.repair.ncf_sender import Key, NcfSender
from pgm.core.repair.responder import Responder
from pgm.core.segment import Channel, Segment
from pgm.core.session_context import SessionContext
from pgm.core.source.send_state import SendState
from pgm.units import NEVER
from pgm.wire.formats import Nla
from pgm.wire.naks import PlainNaks
from pgm.wire.sequence_numbers import unwrap
from pgm.wire.train import Train

_MOST_PACKETS = 2  # packets that one back-off gathers: a full list and the rest


class ShortAnswer:
    """Fast answers to NAKs at a source that is not closing.

    The source neither counts NAKs by child, nor sends its children options with NCFs.
    """

    def __init__(
        self,
        context: SessionContext,
        segment: Segment,
        sending: SendState,
        nak_limits: NakLimits,
        ncf_sender: NcfSender,
        responder: Responder,
    ) -> None:
        self._segment = segment
        self._naks = PlainNaks(context.tsi, context.data_port, segment.address, segment.group)
        self._window = sending.window
        self._pacer = sending.pacer
        self._adaptive_rate = sending.adaptive_rate
        self._schedule = sending.schedule
        self._nak_limits = nak_limits
        self._ncf_sender = ncf_sender
        self._responder = responder
        self._counters = context.counters
        self._repaired_at = -NEVER  # the lead when the last repair was sent

    def answer(self, train: Train, channel: Channel, peer: Nla, now_ns: int, *, is_ready: bool) -> Effects | None:
        """Return NCFs for unicast NAKs, and RDATA if `is_ready`.

        `is_ready` says that data is about to be sent. Repairs that cannot be sent at once are owed. Return None and
        note nothing if the NAKs need the general path.

        Data must have been sent between two repairs. A driver whose link is blocked requests no data, and would queue
        ever more repairs.
        """
        if channel.is_group or channel.segment.index != self._segment.index:
            return None
        counters, window = self._counters, self._window
        lead = window.lead
        read = self._read_untrusted(train, lead)
        if read is None:
            return None
        effects: list[Effect] = []
        wanted: list[Sequence[int]] = []
        for octets, key, sqns in read:
            asked = len(sqns)
            if not self._nak_limits.admit_nak(peer, now_ns, asked, lead):
                continue
            counters.nak_packets_in += 1
            counters.nak_sqns_in += asked
            window.note_nak(sqns[0], now_ns)
            self._adaptive_rate.asked(asked, sqns[-1], peer)
            effects += self._ncf_sender.confirm_first(key, self._segment, self._naks.ncf_for(octets), now_ns)
            wanted.append(sqns)
        if not wanted:
            return effects
        may_go = is_ready and lead != self._repaired_at and now_ns < self._nak_limits.deadline_ns
        room = self._pacer.repair_room(now_ns) if may_go else 0
        repair = self._responder.answer(wanted, room, window.rdata_of, now_ns, peer)
        if repair is not None:
            size = len(repair.octets)
            packets = size // repair.stride
            self._pacer.repair_sent(size, now_ns, packets)
            self._adaptive_rate.repaired(packets, size)
            self._schedule.data_sent(now_ns, window.strategy.elapsed_ns(now_ns))
            effects.append(repair)
            self._repaired_at = lead
        return effects

    def _read_untrusted(self, train: Train, lead: int) -> list[tuple[bytes, Key, Sequence[int]]] | None:
        """Return octets, key and sqns of each packet.

        Return None unless all packets are new NAKs for sent sqns, each list in ascending order.
        """
        length, stride, at = train.length, train.stride, train.offset
        if length >= _MOST_PACKETS * stride:  # two packets of one length are accepted or refused together
            return None
        read: list[tuple[bytes, Key, Sequence[int]]] = []
        for begin in range(at, at + length, stride):
            octets = train.buffer.data[begin : min(begin + stride, at + length)].tobytes()
            wire_sqns = self._naks.read_untrusted(octets)
            if wire_sqns is None or not all(map(operator.lt, wire_sqns, wire_sqns[1:])):
                return None
            upper = unwrap(wire_sqns[0], lead) - wire_sqns[0]
            sqns = [upper + sqn for sqn in wire_sqns] if upper else wire_sqns
            key = self._ncf_sender.key_if_new(self._segment, self._naks.list_key(octets))
            if key is None or sqns[-1] > lead:
                return None
            read.append((octets, key, sqns))
        return read
