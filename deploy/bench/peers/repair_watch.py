"""Cores wrapped in clocks for losses and repairs.

A receiver's wrapper measures from the detection of a loss to its repair. A source's wrapper measures from the first NAK
to the last repair sent.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from pgm.core.control_codes import ControlCodes
from pgm.core.effects import Effects, Send
from pgm.core.interface import Core
from pgm.core.segment import Channel
from pgm.core.status import SessionEdges, SessionStatus
from pgm.impairments import Impairment, Injector, Lost
from pgm.wire.control_packets import Nak
from pgm.wire.formats import TYPE_AT, Nla, PacketType
from pgm.wire.train import Data, DataWithGaps, Train

_MASK = 0xFFFFFFFF


class _CoreWrapper:
    """Wrapper of a core that forwards every call."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self.counters = core.counters

    @property
    def control_codes(self) -> ControlCodes:
        """Return the codes of the core."""
        return self._core.control_codes

    @property
    def deadline_ns(self) -> int:
        """Return the deadline of the core."""
        return self._core.deadline_ns

    def status(self, now_ns: int) -> list[SessionStatus]:
        """Return the status of the core."""
        return self._core.status(now_ns)

    def edges(self) -> list[SessionEdges]:
        """Return the edges of the core's sessions."""
        return self._core.edges()

    def receive(self, train: Train, channel: Channel, peer: Nla, now_ns: int) -> Effects:
        """Forward packets to the core."""
        return self._core.receive(train, channel, peer, now_ns)

    def handle_deadline(self, now_ns: int) -> Effects:
        """Forward a deadline to the core."""
        return self._core.handle_deadline(now_ns)


class ReceiverWatch(_CoreWrapper):
    """Clock from the packet that reveals a loss to the repair, for each packet."""

    def __init__(self, core: Core) -> None:
        super().__init__(core)
        self._next: int | None = None
        self._missing: dict[int, int] = {}
        self._times_ns: list[int] = []

    def receive(self, train: Train, channel: Channel, peer: Nla, now_ns: int) -> Effects:
        """Read the train before the core; the core reuses the parsed train."""
        for item in train.parse_scattered_untrusted()[0]:
            if isinstance(item, Data):
                self._note_packets(item.type, item.wire_sqn, item.wire_sqn + item.count, now_ns)
            elif isinstance(item, DataWithGaps):
                for low, end in item.spans:
                    self._note_packets(item.data.type, item.data.wire_sqn + low, item.data.wire_sqn + end, now_ns)
        return super().receive(train, channel, peer, now_ns)

    def _note_packets(self, kind: PacketType, first: int, end: int, now_ns: int) -> None:
        if kind is PacketType.ODATA:
            if self._next is not None and 0 < (first - self._next) & _MASK < 1 << 31:
                for sqn in range(self._next, self._next + ((first - self._next) & _MASK)):
                    self._missing[sqn & _MASK] = now_ns
            self._next = end & _MASK
        elif self._missing:
            for sqn in range(first, end):
                since_ns = self._missing.pop(sqn & _MASK, None)
                if since_ns is not None:
                    self._times_ns.append(now_ns - since_ns)

    def result(self) -> dict[str, Any]:
        """Return percentiles in milliseconds, or {} if nothing was repaired."""
        if not self._times_ns:
            return {}
        p50, p99 = (np.percentile(self._times_ns, (50, 99)) / 1e6).tolist()
        return {"repair_p50_ms": round(p50, 3), "repair_p99_ms": round(p99, 3), "repairs_timed": len(self._times_ns)}


class SourceWatch(_CoreWrapper):
    """Clock from the first NAK received to the last RDATA sent."""

    def __init__(self, core: Core) -> None:
        super().__init__(core)
        self._first_nak_ns = 0
        self._last_rdata_ns = 0

    @property
    def deadline_ns(self) -> int:
        """Return the deadline of the core, and note the time if a repair was sent.

        The driver reads the deadline right after it has sent the effects. The next call may come a heartbeat later.
        """
        self._note_repairs_sent()
        return self._core.deadline_ns

    def receive(self, train: Train, channel: Channel, peer: Nla, now_ns: int) -> Effects:
        """Look for a NAK, and for a repair sent in immediate response."""
        self._note_repairs_sent()
        if not self._first_nak_ns and any(isinstance(item, Nak) for item in train.parse_runs_untrusted()[0]):
            self._first_nak_ns = now_ns
        return self._check_effects(super().receive(train, channel, peer, now_ns))

    def handle_deadline(self, now_ns: int) -> Effects:
        """Look for repairs among the effects."""
        self._note_repairs_sent()
        return self._check_effects(super().handle_deadline(now_ns))

    def _check_effects(self, effects: Effects) -> Effects:
        for effect in effects:
            if isinstance(effect, Send) and effect.is_data and effect.octets[TYPE_AT] == PacketType.RDATA:
                self._last_rdata_ns = -1
        return effects

    def _note_repairs_sent(self) -> None:
        if self._last_rdata_ns < 0:
            self._last_rdata_ns = time.monotonic_ns()

    def result(self) -> dict[str, Any]:
        """Return the seconds from the first NAK to the last repair, and the repairs sent; {} without any repair."""
        self._note_repairs_sent()
        if not self._first_nak_ns or not self._last_rdata_ns:
            return {}
        seconds = (self._last_rdata_ns - self._first_nak_ns) / 1e9
        return {"repair_s": seconds, "rdata_packets": self.counters.rdata_packets}


class OneBurst(Injector):
    """Injector that drops consecutive packets once, from the next read after `begin`."""

    def __init__(self) -> None:
        super().__init__(Impairment(), "burst")
        self._left = 0

    def begin(self, count: int) -> None:
        """Drop the next `count` packets."""
        self._left = count

    def draw(self, count: int) -> Lost | None:
        """Return an array of `count` booleans, true for a drop, or None without any."""
        losing = min(self._left, count)
        self._left -= losing
        self.seen += count
        self.lost += losing
        return np.arange(count) < losing if losing else None
