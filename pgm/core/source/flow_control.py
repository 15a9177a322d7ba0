"""Flow control of a source: the limit on its data besides rate and window.

`AckedWindow` waits for the acks of all members, `CongestionControl` for those of one acker. `RateControl` waits for none.
"""

from __future__ import annotations

from typing import Protocol

from pgm.core.acked.acked_window import AckedWindow
from pgm.core.congestion.control import CongestionControl
from pgm.core.effects import NOTHING, Effects
from pgm.core.segment import Segment
from pgm.core.session_context import SessionContext
from pgm.core.source.setup import SourceSetup
from pgm.core.status import SessionStatus
from pgm.units import NEVER
from pgm.wire.control_packets import Ack, Nak
from pgm.wire.formats import Nla
from pgm.wire.options import NO_OPTIONS, Options


class FlowControl(Protocol):
    """Limit on the data of one source, and its feedback from receivers."""

    @property
    def has_feedback(self) -> bool:
        """Return whether packets from receivers decide when data may be sent."""

    @property
    def deadline_ns(self) -> int:
        """Return when `handle_deadline` must be called."""

    @property
    def unstable_from(self) -> int:
        """Return the oldest sqn that must be kept for receivers; NEVER without one."""

    def room(self, lead: int, now_ns: int) -> int:
        """Return how many packets may be sent now; NEVER means no limit."""

    def data_sent(self, first: int, end: int, now_ns: int) -> None:
        """Note ODATA that was sent."""

    def spm_options(self) -> Options:
        """Return the options of an SPM that is sent now."""

    def wants_spm(self, now_ns: int) -> bool:
        """Return whether an SPM must be sent now, at most once in IHB_MIN."""

    def on_ack(self, ack: Ack, lead: int, segment: Segment, peer: Nla, now_ns: int) -> Effects:
        """Take a unicast ack. Only called if there is feedback."""

    def on_nak(self, nak: Nak, lead: int, now_ns: int) -> bool:
        """Take a NAK. Return whether NAKs are feedback."""

    def handle_deadline(self, lead: int, now_ns: int) -> Effects:
        """Run what is due."""

    def with_status(self, row: SessionStatus) -> SessionStatus:
        """Return a status row with the status of the flow control."""


class RateControl:
    """Flow control of a stream by rate: no further limit and no feedback."""

    has_feedback = False
    deadline_ns = NEVER
    unstable_from = NEVER

    def room(self, lead: int, now_ns: int) -> int:
        """Return NEVER: there is no limit."""
        return NEVER

    def data_sent(self, first: int, end: int, now_ns: int) -> None:
        """Do nothing: no packet is in flight."""

    def spm_options(self) -> Options:
        """Return no option."""
        return NO_OPTIONS

    def wants_spm(self, now_ns: int) -> bool:
        """Return False: nothing is announced."""
        return False

    def on_ack(self, ack: Ack, lead: int, segment: Segment, peer: Nla, now_ns: int) -> Effects:
        """Do nothing: the stream has no acks."""
        return NOTHING

    def on_nak(self, nak: Nak, lead: int, now_ns: int) -> bool:
        """Return False: NAKs are no feedback."""
        return False

    def handle_deadline(self, lead: int, now_ns: int) -> Effects:
        """Do nothing: nothing is ever due."""
        return NOTHING

    def with_status(self, row: SessionStatus) -> SessionStatus:
        """Return the row as it is."""
        return row


def flow_control_of(setup: SourceSetup, context: SessionContext, now_ns: int) -> FlowControl:
    """Return the flow control that a source's setup names."""
    if setup.flow == "acked":
        return AckedWindow(context, (setup.segment, *setup.lines), setup.first_sqn, setup.children)
    if setup.flow == "pgmcc":
        return CongestionControl(context, now_ns, is_ipv6=":" in setup.segment.address)
    return RateControl()
