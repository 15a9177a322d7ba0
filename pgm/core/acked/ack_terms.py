"""What the source of an acknowledged stream asks of everybody below, as its SPMs say it (OPT_PGM_FLOW)."""

from __future__ import annotations

import attrs

from pgm.parameters import ROWS, Parameters
from pgm.units import MICROSECOND, MILLISECOND
from pgm.wire.control_packets import Ack, encode
from pgm.wire.formats import Tsi
from pgm.wire.options import Flow, Members
from pgm.wire.sequence_numbers import MASK, wrap

_LEAST_NS = MILLISECOND  # of an interval, whatever the wire says
_ALL_RECEIVED = 0xFFFFFFFF  # the receive map of a cumulative ack
_KEEPALIVES = (
    8  # signs of life in ack_expiry: half of them may be lost before a child moves on, all before it is forgotten
)


def _mended(key: str, value: int) -> int:
    row = ROWS[key]
    return int(min(max(value, row.low), row.high))


@attrs.frozen
class AckTerms:
    """When to acknowledge, and for how long to wait for those who do not. Times in ns."""

    window: int  # packets
    every: int  # packets
    ivl: int
    expiry: int
    stall: int

    @classmethod
    def of_parameters(cls, parameters: Parameters) -> AckTerms:
        """The terms of a source."""
        return cls(
            window=parameters.ack_window,
            every=parameters.ack_every or max(1, parameters.ack_window // 4),
            ivl=parameters.ack_ivl,
            expiry=parameters.ack_expiry,
            stall=parameters.ack_stall_ivl,
        )

    @classmethod
    def of_option(cls, flow: Flow) -> AckTerms:
        """The terms that an SPM carries; what no source may be told by its topology is mended, for anybody can send an SPM."""
        return cls(
            window=_mended("ack_window", flow.window),
            every=max(1, _mended("ack_every", flow.every)),
            ivl=_mended("ack_ivl", flow.ivl_us * MICROSECOND),
            expiry=_mended("ack_expiry", flow.expiry_us * MICROSECOND),
            stall=_mended("ack_stall_ivl", flow.stall_us * MICROSECOND),
        )

    @property
    def option(self) -> Flow:
        """The same for an SPM."""
        return Flow(
            window=self.window,
            every=self.every,
            ivl_us=self.ivl // MICROSECOND,
            expiry_us=self.expiry // MICROSECOND,
            stall_us=self.stall // MICROSECOND,
        )

    @property
    def keepalive(self) -> int:
        """How often whoever has nothing to say says that, and parents say that they heard something."""
        return max(_LEAST_NS, self.expiry // _KEEPALIVES)

    @property
    def response_timeout(self) -> int:
        """Silence of a parent after which another is found: half of what the parent above waits for that one's acks."""
        return self.expiry // 2

    @property
    def search(self) -> int:
        """How long a parent that was never heard is asked: it would answer at once, and several may be dead in a row."""
        return min(self.expiry // 4, max(self.keepalive, 2 * self.ivl))


def ack_packet(tsi: Tsi, data_port: int, acked: int, members: Members) -> bytes:
    """A cumulative ack, or a parent's confirmation, as octets. Members beyond what the field holds are not told.

    Children say for how many they speak, and their sum may be anything.
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
