"""SPMR: request for an SPM when data came first (RFC 13)."""

from __future__ import annotations

from pgm.core.effects import NOTHING, Effects, control
from pgm.core.segment import Segment
from pgm.core.session_context import SessionContext
from pgm.units import NEVER
from pgm.wire.control_packets import Spmr, encode
from pgm.wire.formats import Nla


class SpmRequest:
    """Request of one session for an SPM: a random delay, an SPMR and a pause, repeated until an SPM."""

    def __init__(self, context: SessionContext, segment: Segment) -> None:
        self._packet = encode(Spmr(tsi=context.tsi, data_port=context.data_port))
        self._segment = segment
        self._source: Nla = segment.address  # the sender of the data
        self._parameters = context.parameters
        self._rng = context.rng
        self._counters = context.counters
        self._is_delaying = False
        self.deadline_ns = NEVER

    def want(self, source: Nla, now_ns: int) -> None:
        """Start a request to the sender of the data, unless one is already under way."""
        self._source = source
        if self.deadline_ns == NEVER:
            self._delay(now_ns)

    def _delay(self, now_ns: int) -> None:
        self._is_delaying = True
        self.deadline_ns = now_ns + self._rng.randint(0, self._parameters.spmr_bo_ivl)

    def heard_request(self, now_ns: int) -> None:
        """Note another receiver's SPMR, and wait as after an own one (SPMR-04)."""
        if self._is_delaying:
            self._counters.spmrs_suppressed += 1
            self._pause(now_ns)

    def _pause(self, now_ns: int) -> None:
        self._is_delaying = False
        self.deadline_ns = now_ns + self._parameters.spmr_spm_ivl

    def heard_spm(self) -> None:
        """End the request: the SPM is here (SPMR-05)."""
        self._is_delaying = False
        self.deadline_ns = NEVER

    def handle_deadline(self, now_ns: int) -> Effects:
        """Send SPMRs to group (1 hop, SPMR-03) and data's sender, or start a delay after the pause (SPMR-06)."""
        if now_ns < self.deadline_ns:
            return NOTHING
        if not self._is_delaying:
            self._delay(now_ns)
            return NOTHING
        self._pause(now_ns)
        self._counters.spmr_packets += 1
        return (control(self._segment, self._packet, hops=1), control(self._segment, self._packet, to=self._source))
