"""Effects: the actions that a core requests from its caller.

Each call of a core returns effects in wire order. `Send` is for the driver. `Deliver`, `Lost`, `Conflict`, `Forged`, `Opened`, `Closed`,
`Snapshot` and `NoSnapshot` are for the application, in stream order. `SnapshotWanted` is for a source's application. `Notice` is for
the log. `Save` is for the node's cache file, and comes last.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

import attrs
import numpy as np

from pgm.core.segment import Segment
from pgm.core.source_names import FromSession
from pgm.wire.control_packets import Nak, with_addresses
from pgm.wire.formats import Nla, Tsi
from pgm.wire.naks import Naks, rows_with_addresses
from pgm.wire.train import Octets, Run, fits_behind, packets_a_train


class LossCause(enum.Enum):
    """The reason why a packet will never be delivered."""

    RETRIES = "retries"  # no repair came after the allowed number of retries
    UNREPAIRED = "unrepaired"  # the stream is unreliable: no NAKs are sent for missing packets
    WINDOW = "window"  # the source's window moved past the packet
    OVERRUN = "overrun"  # the application did not keep up
    OVERLOAD = "overload"  # more gaps or octets than the receive window holds
    FRAGMENT = "fragment"  # arrived, but another packet of its message is lost
    MALFORMED = "malformed"  # arrived, but its contents do not follow the stream's framing
    SOURCE_GONE = "source_gone"  # the session expired
    JUMP = "jump"  # the stream continued far ahead
    RESYNC = "resync"  # skipped after another loss, as the application requested
    EXCESS_NAKS = (
        "excess_naks"  # this receiver sent excessive NAKs and closed the session, as its excess_nak_policy says
    )
    NAGGING = EXCESS_NAKS  # deprecated
    CONFLICT = "conflict"  # different copies of the packet came, and the repair differed again
    UNPROVED = "unproved"  # arrived, but no proof of the source came for it
    FORGED = "forged"  # arrived, again and again with other octets than the source has sent
    SEALED = "sealed"  # arrived, but the source has given this receiver no secret to decrypt it
    RECORDER = "recorder"  # archives only: the disk was full or too slow, or the recorder did not run


class CloseCause(enum.Enum):
    """The reason why a session ended or fell silent."""

    FIN = "fin"  # the source closed
    RESET = "reset"  # the source failed and announced the failure
    UNPROVEN = "unproven"  # a FIN or RST announced packets that never came: perhaps a false one, in an outage
    SILENT = "silent"  # nothing heard for peer_expiry; the session may return as Opened(resumed=True)
    EXPIRED = "expired"  # nothing heard for session_expiry
    EVICTED = "evicted"  # more sources than max_sessions
    EXCESS_NAKS = "excess_naks"  # this receiver sent excessive NAKs, and its excess_nak_policy is to close
    NAGGING = EXCESS_NAKS  # deprecated
    NO_SECRET = "no_secret"  # the source has given this receiver no secret of a sealed stream: it is no reader any more
    OVERRUN = "overrun"  # the application did not keep up, and its receiver was opened with slow="close"


@attrs.define
class Send:
    """Send packets on a segment, to the group or by unicast to `to`.

    The packets are `octets`, cut every `stride` octets. The driver sends control packets at once, or drops and counts
    them. Data packets wait until the link takes them.
    """

    segment: Segment
    octets: bytes | Octets
    stride: int
    to: Nla | None = None
    is_data: bool = False
    hops: int | None = None  # hop limit of a multicast, if different from the segment's


@attrs.define
class Deliver:
    """Hand an in-order run to the application."""

    tsi: Tsi
    run: Run


@attrs.define
class Lost(FromSession):
    """The sqns `first` to `first + count - 1` will never be delivered. The stream continues after them."""

    tsi: Tsi
    first: int
    count: int
    cause: LossCause


@attrs.define
class Conflict(FromSession):
    """Two different copies came of each of the sqns `first` to `first + count - 1`: one of the two is false.

    Without keys no node can know which. With `is_delivered` the first copy was delivered earlier. Otherwise neither copy
    was, and the repair of the packets follows, or their loss. A conflict takes no place in the stream.
    """

    tsi: Tsi
    first: int
    count: int
    is_delivered: bool


@attrs.define
class Forged(FromSession):
    """The sqns `first` to `first + count - 1` were delivered, and cannot be taken for messages of the source.

    With the cause FORGED the source has sent other packets under these sqns, or under some of them if no details of the
    proof came. With the cause UNPROVED no proof came for them. The report takes no place in the stream, and names older
    sqns than that which is delivered next. Streams with `verify = "after"` have such reports.
    """

    tsi: Tsi
    first: int
    count: int
    cause: LossCause


@attrs.define
class Opened(FromSession):
    """A session begins at sqn `first`, or resumes there after it was silent. `peer` is the source, or the last relay.

    `at_start` says that the first packet was received and carried OPT_SYN. Sources mark the first packet only with
    `mark_ends`. If an SPM opens the session before any data, a later notice reports the start.
    """

    tsi: Tsi
    first: int
    peer: Nla
    data_port: int
    resumed: bool = False
    at_start: bool = False


@attrs.define
class Closed(FromSession):
    """A session ended or fell silent at `next_sqn`. `error` is the error code of a reset, 0 for unknown."""

    tsi: Tsi
    next_sqn: int
    cause: CloseCause
    error: int = 0


@attrs.define
class SnapshotWanted:
    """Request to the application of a source: give a state that covers all messages sent so far."""

    tsi: Tsi


@attrs.define
class Snapshot(FromSession):
    """State of the source's application. The state covers all messages before sqn `position`, where the stream goes on."""

    tsi: Tsi
    payload: bytes | memoryview
    position: int


class NoSnapshotCause(enum.Enum):
    """The reason why a joiner gets no state."""

    NOT_OFFERED = "not_offered"  # the source's application offers no state
    SILENT = "silent"  # no packet of a state came for snapshot_wait_ivl
    LOST = "lost"  # packets of several states in a row were lost
    TOO_LARGE = "too_large"  # the state exceeds snapshot_bytes of the source or of the receiver


@attrs.define
class NoSnapshot(FromSession):
    """A session begins at sqn `first` without the state that was requested."""

    tsi: Tsi
    first: int
    cause: NoSnapshotCause


@attrs.define
class Save:
    """Save a cached run for the next process of this node.

    The sqns of the run are those of the source if it has told an epoch, which is in ns; otherwise they are the node's
    own, and the epoch is negative.
    """

    tsi: Tsi
    data_port: int
    epoch_ns: int
    run: Run


@attrs.define
class Notice:
    """A message for operators: a stable code and a sentence."""

    code: str
    text: str


@attrs.define
class Evidence:
    """Packets, losses or the end of a session of proofs, for an archive that keeps them."""

    effect: Deliver | Lost | Closed


Effect = (
    Send
    | Deliver
    | Evidence
    | Lost
    | Conflict
    | Forged
    | Opened
    | Closed
    | Snapshot
    | NoSnapshot
    | SnapshotWanted
    | Save
    | Notice
)
Effects = Sequence[Effect]
NOTHING: Effects = ()


def control(segment: Segment, packet: bytes, to: Nla | None = None, hops: int | None = None) -> Send:
    """Return the effect that sends a single control packet."""
    return Send(segment, packet, len(packet), to, False, hops)


def alone(segment: Segment, packet: bytes) -> Send:
    """Return the effect that sends a single data packet to the group."""
    return Send(segment, packet, len(packet), None, True)


def control_train(segment: Segment, rows: Octets, to: Nla | None = None, hops: int | None = None) -> Send:
    """Return the effect that sends control packets of one size. `rows` is a contiguous (count, size) array."""
    return Send(segment, rows.reshape(-1), rows.shape[1], to, False, hops)


def passed_on(
    segment: Segment, nak: Nak, source_nla: Nla, group_nla: Nla, to: Nla | None = None, hops: int | None = None
) -> Send:
    """Return the effect that sends a NAK, or a train of NAKs, with other addresses."""
    if isinstance(nak, Naks):
        return control_train(segment, rows_with_addresses(nak, source_nla, group_nla), to, hops)
    return control(segment, with_addresses(nak, source_nla, group_nla), to, hops)


def data(segment: Segment, rows: Octets, to: Nla | None = None) -> Send:
    """Return the effect that sends a train of data packets. `rows` is a contiguous (count, size) array."""
    return Send(segment, rows.reshape(-1), rows.shape[1], to, True)


def with_tail(train: Send, tail: Send) -> list[Send]:
    """Return effects that send a train of data, and a packet of the same source, by as few system calls as possible.

    A system call sends packets of one size, and a shorter one behind them. The last call for the train takes the packet.
    A single packet that is shorter than the other one goes behind it.
    """
    octets, stride, length = train.octets, train.stride, len(train.octets)
    if (train.segment, train.to, train.hops) != (tail.segment, tail.to, tail.hops) or len(tail.octets) > tail.stride:
        return [train, tail]
    if length == stride < tail.stride:
        return [attrs.evolve(tail, octets=bytes(tail.octets) + bytes(octets))]
    full = packets_a_train(stride) * stride
    begin = (length - 1) // full * full
    if tail.stride > stride or length % stride or not fits_behind(length - begin, stride, tail.stride):
        return [train, tail]
    last = attrs.evolve(train, octets=bytes(octets[begin:]) + bytes(tail.octets))
    return [attrs.evolve(train, octets=octets[:begin]), last] if begin else [last]


def closed_up(effects: Sequence[Effect]) -> list[Effect]:
    """Return the effects of one read, with adjacent octets on each segment in one effect.

    Packets of one size and a shorter one behind them, which came together, thus leave together.
    """
    found: list[Effect] = []
    newest: dict[int, int] = {}  # place of the last data by segment, behind the last other effect
    for effect in effects:
        if not isinstance(effect, Send) or not effect.is_data:
            newest.clear()
            found.append(effect)
            continue
        at = newest.get(effect.segment.index)
        before = None if at is None else found[at]
        if isinstance(before, Send) and (joined := _joined(before, effect)) is not None:
            found[newest.pop(effect.segment.index)] = joined
        else:
            newest[effect.segment.index] = len(found)
            found.append(effect)
    return found


def _joined(train: Send, tail: Send) -> Send | None:
    """Return one effect for a train and a shorter packet that lies behind it in memory; None for others."""
    octets, more, stride = train.octets, tail.octets, train.stride
    if isinstance(octets, bytes) or isinstance(more, bytes):
        return None
    memory = octets.base
    if not isinstance(memory, np.ndarray) or memory is not more.base or memory.ndim != 1:
        return None
    if (train.to, train.hops) != (tail.to, tail.hops) or not len(more) == tail.stride <= stride or len(octets) % stride:
        return None
    at, end = octets.ctypes.data, octets.ctypes.data + len(octets)
    if end != more.ctypes.data:
        return None
    begin = memory.ctypes.data
    return attrs.evolve(train, octets=memory[at - begin : end - begin + len(more)])
