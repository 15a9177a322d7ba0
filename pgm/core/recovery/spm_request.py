"""SPMR: asking for an SPM when data came first (RFC 13)."""

from __future__ import annotations

import random

from pgm.core.counters import Counters
from pgm.core.effects import NOTHING, Effects, control
from pgm.core.segment import Segment
from pgm.parameters import Parameters
from pgm.units import NEVER
from pgm.wire.control_packets import Spmr, encode
from pgm.wire.formats import Nla, Tsi


class SpmRequest:
    """One session's wish for an SPM: a random delay, one request, a pause, and again."""

    def __init__(self, parameters: Parameters, rng: random.Random, counters: Counters) -> None:
        self._parameters = parameters
        self._rng = rng
        self._counters = counters
        self._is_delaying = False
        self.deadline_ns = NEVER

    def want(self, now_ns: int) -> None:
        """Begin, unless a request is already under way."""
        if self.deadline_ns == NEVER:
            self._delay(now_ns)

    def _delay(self, now_ns: int) -> None:
        self._is_delaying = True
        self.deadline_ns = now_ns + self._rng.randint(0, self._parameters.spmr_bo_ivl)

    def heard_request(self, now_ns: int) -> None:
        """Another receiver asked first: wait for the SPM as if we had (SPMR-04)."""
        if self._is_delaying:
            self._counters.spmrs_suppressed += 1
            self._pause(now_ns)

    def _pause(self, now_ns: int) -> None:
        self._is_delaying = False
        self.deadline_ns = now_ns + self._parameters.spmr_spm_ivl

    def heard_spm(self) -> None:
        """The SPM is here (SPMR-05)."""
        self._is_delaying = False
        self.deadline_ns = NEVER

    def handle_deadline(self, tsi: Tsi, data_port: int, segment: Segment, source: Nla, now_ns: int) -> Effects:
        """Ask the group with hop limit 1, then the sender of the data (SPMR-03); or start the next delay (SPMR-06)."""
        if now_ns < self.deadline_ns:
            return NOTHING
        if not self._is_delaying:
            self._delay(now_ns)
            return NOTHING
        self._pause(now_ns)
        packet = encode(Spmr(tsi=tsi, data_port=data_port))
        self._counters.spmr_packets += 1
        return (control(segment, packet, hops=1), control(segment, packet, to=source))
