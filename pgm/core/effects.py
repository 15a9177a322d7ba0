"""What a core wants done: returned by the call that caused it, in wire order.

`Send` is for the driver. `Deliver`, `Lost`, `Opened` and `Closed` are for the application and come in
stream order. `Notice` is for the log.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

import attrs

from pgm.core.segment import Segment
from pgm.wire.control_packets import Nak, with_addresses
from pgm.wire.formats import Nla, Tsi
from pgm.wire.naks import Naks, rows_with_addresses
from pgm.wire.train import Octets, Run


class LossCause(enum.Enum):
    """Why a packet will never be delivered."""

    RETRIES = "retries"  # nobody answered often enough
    UNREPAIRED = "unrepaired"  # the stream is unreliable: nobody asks for what is missing
    WINDOW = "window"  # the source's window moved past it
    OVERRUN = "overrun"  # the application did not keep up
    OVERLOAD = "overload"  # more gaps or octets than the receive window holds
    FRAGMENT = "fragment"  # arrived, but its message lost another packet
    MALFORMED = "malformed"  # arrived, but what it carries is not in the stream's framing
    SOURCE_GONE = "source_gone"  # the session expired
    JUMP = "jump"  # the stream went on far ahead
    RESYNC = "resync"  # skipped behind another loss, as the application wishes
    NAGGING = "nagging"  # this receiver asked for too much and closed the session, as its nagging_policy says
    RECORDER = "recorder"  # of an archive alone: the disk was full or too slow, or nothing recorded at that time


class CloseCause(enum.Enum):
    """Why a session ended, or fell silent."""

    FIN = "fin"  # the source closed
    RESET = "reset"  # the source failed and said so
    SILENT = "silent"  # nothing heard for peer_expiry; may come back as Opened(resumed=True)
    EXPIRED = "expired"  # nothing heard for session_expiry
    EVICTED = "evicted"  # more sources than max_sessions
    NAGGING = "nagging"  # this receiver asked for repairs all the time, and its nagging_policy says close
    OVERRUN = "overrun"  # the application did not keep up, and its receiver was opened with slow="close"


@attrs.define
class Send:
    """Put packets on a segment: `octets` cut every `stride`, to the group or by unicast to `to`.

    Control is sent at once or dropped and counted; data waits until the link takes it.
    """

    segment: Segment
    octets: bytes | Octets
    stride: int
    to: Nla | None = None
    is_data: bool = False
    hops: int | None = None  # hop limit of a multicast, if not the segment's


@attrs.define
class Deliver:
    """Hand an in-order run to the application."""

    tsi: Tsi
    run: Run


@attrs.define
class Lost:
    """The sqns `first` to `first + count - 1` will never be delivered; the stream goes on behind them."""

    tsi: Tsi
    first: int
    count: int
    cause: LossCause


@attrs.define
class Opened:
    """A session begins, or goes on after it was silent, at sqn `first`.

    `at_start`: the first packet was there and said so (OPT_SYN). Sources mark it with `mark_ends` only; where an SPM opens
    the session before any data came, a notice tells it later.
    """

    tsi: Tsi
    first: int
    peer: Nla
    data_port: int
    resumed: bool = False
    at_start: bool = False


@attrs.define
class Closed:
    """A session ended or fell silent. `next_sqn` is where it stopped; `error` the code of a reset, 0 for unknown."""

    tsi: Tsi
    next_sqn: int
    cause: CloseCause
    error: int = 0


@attrs.define
class Notice:
    """Something an operator wants to know: a stable code and a sentence."""

    code: str
    text: str


Effect = Send | Deliver | Lost | Opened | Closed | Notice
Effects = Sequence[Effect]
NOTHING: Effects = ()


def control(segment: Segment, packet: bytes, to: Nla | None = None, hops: int | None = None) -> Send:
    """A single control packet."""
    return Send(segment, packet, len(packet), to, False, hops)


def alone(segment: Segment, packet: bytes) -> Send:
    """A single data packet for the group."""
    return Send(segment, packet, len(packet), None, True)


def control_train(segment: Segment, rows: Octets, to: Nla | None = None, hops: int | None = None) -> Send:
    """Control packets of one size from a contiguous (count, size) array."""
    return Send(segment, rows.reshape(-1), rows.shape[1], to, False, hops)


def passed_on(
    segment: Segment, nak: Nak, source_nla: Nla, group_nla: Nla, to: Nla | None = None, hops: int | None = None
) -> Send:
    """A NAK, or a train of them, with other addresses."""
    if isinstance(nak, Naks):
        return control_train(segment, rows_with_addresses(nak, source_nla, group_nla), to, hops)
    return control(segment, with_addresses(nak, source_nla, group_nla), to, hops)


def data(segment: Segment, rows: Octets, to: Nla | None = None) -> Send:
    """A train of data packets from a contiguous (count, size) array."""
    return Send(segment, rows.reshape(-1), rows.shape[1], to, True)
