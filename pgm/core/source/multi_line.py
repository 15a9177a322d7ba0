"""Source on several lines: every line carries the same packets and takes NAKs.

The rate applies to each line. A NAK on one line is confirmed and repaired on all lines. A receiver with several lines
takes the first copy, and a receiver with one line is spared a NAK. Acks come on the line that a member has chosen, and
are confirmed there.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

import numpy as np

from pgm.core.effects import Effect, Effects, Send, control, passed_on
from pgm.core.segment import Channel, Segment
from pgm.core.source.companions import CompanionSource, NewCompanion
from pgm.core.source.setup import SourceSetup
from pgm.parameters import Parameters
from pgm.wire.control_packets import Nak, Spm, with_path
from pgm.wire.formats import Nla, PacketType
from pgm.wire.train import Train

_TYPE_AT = 4  # offset of the packet type in the PGM header
_TYPE_BITS = 0x3F


class MultiLineSource(CompanionSource):
    """A `CompanionSource` that sends on more segments than the one of its setup."""

    def __init__(
        self,
        setup: SourceSetup,
        parameters: Parameters,
        now_ns: int,
        companions: Sequence[NewCompanion] = (),
        rng: random.Random | None = None,
    ) -> None:
        super().__init__(setup, parameters, now_ns, companions, rng)
        self._all = (setup.segment, *setup.lines)

    def receive(self, train: Train, channel: Channel, peer: Nla, now_ns: int) -> Effects:
        """Take NAKs and SPMRs of any line; a NAK names its line's address and group."""
        self._segment = channel.segment
        try:
            return self._on_all(super().receive(train, channel, peer, now_ns))
        finally:
            self._segment = self.setup.segment

    def handle_deadline(self, now_ns: int) -> Effects:
        """Return one SPM and one train of data for every line."""
        return self._on_all(super().handle_deadline(now_ns))

    def abort(self, now_ns: int, *, error: int = 0, no_naks: bool = False) -> Effects:
        """Abort the stream on every line."""
        return self._on_all(super().abort(now_ns, error=error, no_naks=no_naks))

    def close_window(self, now_ns: int) -> Effects:
        """Close the window, and announce it on every line."""
        return self._on_all(super().close_window(now_ns))

    def _on_all(self, effects: Iterable[Effect]) -> list[Effect]:
        copies: list[Effect] = []
        for effect in effects:
            copies.append(effect)
            if isinstance(effect, Send) and effect.to is None and not _is_ack(effect):
                copies += [self._copy(effect, line) for line in self._all if line != effect.segment]
        return copies

    def _copy(self, send: Send, line: Segment) -> Send:
        count = -(-len(send.octets) // send.stride)
        kind = int(send.octets[_TYPE_AT]) & _TYPE_BITS
        if send.is_data:
            if kind == PacketType.ODATA:
                self.counters.odata_packets += count
                self.counters.odata_octets += len(send.octets)
            else:
                self.counters.rdata_packets += count
                self.counters.rdata_octets += len(send.octets)
            return Send(line, send.octets, send.stride, None, True, send.hops)
        [packet], _ = Train.of(np.frombuffer(send.octets, np.uint8), send.stride).parse_runs_untrusted()
        if isinstance(packet, Spm):
            self.counters.spm_packets += 1
            return control(line, with_path(packet, line.address), hops=send.hops)
        if isinstance(packet, Nak):
            self.counters.ncf_packets += packet.packets
            return passed_on(line, packet, line.address, line.group, hops=send.hops)
        return control(line, bytes(send.octets), hops=send.hops)


def _is_ack(send: Send) -> bool:
    """Return whether a packet confirms acks, which concerns only members on its line."""
    return not send.is_data and int(send.octets[_TYPE_AT]) & _TYPE_BITS == PacketType.ACK
