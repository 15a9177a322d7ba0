"""Terms of an acknowledged stream, as announced in SPMs (OPT_PGM_FLOW)."""

from __future__ import annotations

import attrs

from pgm.parameters import ROWS, Parameters
from pgm.units import MICROSECOND, MILLISECOND
from pgm.wire.control_packets import Ack, encode
from pgm.wire.formats import Tsi
from pgm.wire.options import Flow, Members
from pgm.wire.sequence_numbers import MASK, wrap

_LEAST_NS = MILLISECOND  # least interval, for any value on the wire
_ALL_RECEIVED = 0xFFFFFFFF  # the receive map of a cumulative ack
_KEEPALIVES = (
    8  # keepalives in ack_expiry: half of them may be lost before a child moves on, all before it is forgotten
)


def _clipped(key: str, value: int) -> int:
    row = ROWS[key]
    return int(min(max(value, row.low), row.high))


@attrs.frozen
class AckTerms:
    """Terms of acks: when they are due, and the waits for silent and stuck children. Times are in ns."""

    window: int  # packets
    every: int  # packets
    ivl: int
    expiry: int
    stall: int

    @classmethod
    def of_parameters(cls, parameters: Parameters) -> AckTerms:
        """Return the terms of a source."""
        return cls(
            window=parameters.ack_window,
            every=parameters.ack_every or max(1, parameters.ack_window // 4),
            ivl=parameters.ack_ivl,
            expiry=parameters.ack_expiry,
            stall=parameters.ack_stall_ivl,
        )

    @classmethod
    def of_option(cls, flow: Flow) -> AckTerms:
        """Return the terms of an SPM, clipped to values a topology may set: any node can forge an SPM."""
        return cls(
            window=_clipped("ack_window", flow.window),
            every=max(1, _clipped("ack_every", flow.every)),
            ivl=_clipped("ack_ivl", flow.ivl_us * MICROSECOND),
            expiry=_clipped("ack_expiry", flow.expiry_us * MICROSECOND),
            stall=_clipped("ack_stall_ivl", flow.stall_us * MICROSECOND),
        )

    @property
    def option(self) -> Flow:
        """Return the terms as an option of SPMs."""
        return Flow(
            window=self.window,
            every=self.every,
            ivl_us=self.ivl // MICROSECOND,
            expiry_us=self.expiry // MICROSECOND,
            stall_us=self.stall // MICROSECOND,
        )

    @property
    def keepalive(self) -> int:
        """Return the interval of keepalive acks, and the least one of confirmations."""
        return max(_LEAST_NS, self.expiry // _KEEPALIVES)

    @property
    def response_timeout(self) -> int:
        """Return the silence of a parent after which its child changes to another parent.

        The value is half of the time for which the nodes above wait for the silent parent's acks.
        """
        return self.expiry // 2

    @property
    def search(self) -> int:
        """Return how long a parent that never answered is tried: several parents in a row may be dead."""
        return min(self.expiry // 4, max(self.keepalive, 2 * self.ivl))


NOT_ACKED = AckTerms(window=0, every=1, ivl=0, expiry=0, stall=0)  # of a stream without acks


def ack_packet(tsi: Tsi, data_port: int, acked: int, members: Members) -> bytes:
    """Return a cumulative ack, or a parent's confirmation, as octets.

    The number of members saturates at the field's maximum, because children report their numbers and the sum is unbounded.
    """
    said = attrs.evolve(members, members=min(members.members, MASK))
    return encode(
        Ack(
            tsi=tsi,
            data_port=data_port,
            rx_max=wrap(acked),
            bitmap=_ALL_RECEIVED,
            options=(said,),
        )
    )
