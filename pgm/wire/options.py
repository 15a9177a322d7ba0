"""The option table of RFC 3208 section 9, and the parser of options.

Each class is a row: type number, the packets that may carry the option, whether it is network-significant, the bits of
its fourth octet, and its fields. The parser is total: it stops at the first invalid octet and gives a reason. Reserved
bits, F and OPX of known options are ignored, because OpenPGM sends uninitialised memory there (INT-Q7).
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, TypeVar

import attrs

from pgm.errors import WireError
from pgm.wire.formats import Layout, Nla, PacketType, bare_nla, nla, pad16, raw, u16, u32, u32s

OPT_LENGTH = 0x00
OPT_INVALID = 0x7F
OPT_END = 0x80
OP_ENCODED = 0x04  # F, third octet (E-06)
OP_ENCODED_NULL = 0x80  # U, fourth octet

MAX_OPTIONS = 16  # after OPT_LENGTH (W-24, E-19); this project never sends more than 15
PROOF_OCTETS = 74  # of OPT_PGM_SIGNATURE: id of keys, and Ed25519 signature (RFC 8032)
CODE_OCTETS = 34  # of OPT_PGM_CODE: id of keys, counter, and keyed BLAKE3
SEGMENT_KEY_OCTETS = 42  # of OPT_PGM_SEGMENT_KEY: id of the key, and the encrypted key
MAX_NAK_LIST = 62  # beyond the header's sqn (W-33)

_HEAD = struct.Struct(">BBBB")
_LENGTH = struct.Struct(">BBH")

_T = PacketType
_NAKS = frozenset({_T.NAK, _T.NNAK, _T.NCF})
_DATA = frozenset({_T.ODATA, _T.RDATA})
_ANY = frozenset(PacketType)


class Opx(enum.IntEnum):
    """Handling of an unknown option by a network element (RFC 9, W-26)."""

    IGNORE = 0
    INVALIDATE = 1
    DISCARD = 2
    RESERVED = 3


@attrs.frozen
class Option:
    """Base of all options. `flags` is the fourth octet without U: option-specific bits."""

    TYPE: ClassVar[int]
    NAME: ClassVar[str]
    CARRIERS: ClassVar[frozenset[PacketType]]
    NETWORK: ClassVar[bool] = False
    FLAGS: ClassVar[dict[str, int]] = {}


OptionClass = TypeVar("OptionClass", bound=type[Option])
OPTIONS: dict[int, type[Option]] = {}
_LAYOUTS: dict[type[Option], Layout] = {}


def _option(cls: OptionClass) -> OptionClass:
    OPTIONS[cls.TYPE] = cls
    _LAYOUTS[cls] = Layout(cls)
    return cls


@_option
@attrs.frozen
class Fragment(Option):
    """OPT_FRAGMENT (9.2): position of a data packet in its message. The option has 16 octets, not 12 (E-02)."""

    TYPE, NAME, CARRIERS = 0x01, "OPT_FRAGMENT", _DATA
    first_sqn: int = u32("sqn of the message's first packet")
    offset: int = u32("octets of the message before this packet")
    apdu_length: int = u32("octets of the whole message")


@_option
@attrs.frozen
class NakList(Option):
    """OPT_NAK_LIST (9.3): further sqns of a NAK. The list has at most 62 sqns, ordered and unique (W-33)."""

    TYPE, NAME, CARRIERS, NETWORK = 0x02, "OPT_NAK_LIST", _NAKS, True
    sqns: tuple[int, ...] = u32s("requested sqns after the header's")


@_option
@attrs.frozen
class Join(Option):
    """OPT_JOIN (9.4): the oldest sqn that late joiners may request."""

    TYPE, NAME, CARRIERS = 0x03, "OPT_JOIN", _DATA | {_T.SPM}
    min_sqn: int = u32("minimum sqn")


@_option
@attrs.frozen
class NakBoIvl(Option):
    """OPT_NAK_BO_IVL (15.4.1): the back-off interval that a parent advertises."""

    TYPE, NAME, CARRIERS, NETWORK = 0x04, "OPT_NAK_BO_IVL", frozenset({_T.NCF, _T.SPM, _T.POLL}), True
    ivl_us: int = u32("back-off interval, microseconds")
    ivl_sqn: int = u32("POLL_SQN it was derived from, or 0")


@_option
@attrs.frozen
class NakBoRng(Option):
    """OPT_NAK_BO_RNG (15.4.2): bounds of the back-off interval, maximum first."""

    TYPE, NAME, CARRIERS, NETWORK = 0x05, "OPT_NAK_BO_RNG", frozenset({_T.SPM}), True
    max_us: int = u32("largest back-off interval, microseconds")
    min_us: int = u32("least back-off interval, microseconds")


@_option
@attrs.frozen
class Redirect(Option):
    """OPT_REDIRECT (9.5.5): the address of a designated local repairer. The option has 8 octets and the NLA (E-03)."""

    TYPE, NAME, CARRIERS, NETWORK = 0x07, "OPT_REDIRECT", frozenset({_T.POLR}), True
    dlr_nla: Nla = nla("address of the repairer")


@_option
@attrs.frozen
class ParityPrm(Option):
    """OPT_PARITY_PRM (11.8.1): parity offer and transmission group size. E-05 gives the order of the bits."""

    TYPE, NAME, CARRIERS, NETWORK = 0x08, "OPT_PARITY_PRM", frozenset({_T.SPM}), True
    FLAGS = {"proactive": 0x02, "on_demand": 0x01}
    tgsize: int = u32("largest transmission group, a power of two")
    proactive: bool = False
    on_demand: bool = False


@_option
@attrs.frozen
class ParityGrp(Option):
    """OPT_PARITY_GRP (11.8.2): the parity group, never 0."""

    TYPE, NAME, CARRIERS = 0x09, "OPT_PARITY_GRP", _DATA
    group: int = u32("parity group number")


@_option
@attrs.frozen
class CurrTgsize(Option):
    """OPT_CURR_TGSIZE (11.8.3): the actual size of a short group. The option is network-significant except on ODATA."""

    TYPE, NAME, CARRIERS, NETWORK = 0x0A, "OPT_CURR_TGSIZE", _DATA | {_T.SPM}, True
    size: int = u32("actual transmission group size")


@_option
@attrs.frozen
class NbrUnreach(Option):
    """OPT_NBR_UNREACH (15.4.3): this neighbour cannot be reached by multicast."""

    TYPE, NAME, CARRIERS, NETWORK = 0x0B, "OPT_NBR_UNREACH", frozenset({_T.SPM, _T.NCF}), True


@_option
@attrs.frozen
class PathNla(Option):
    """OPT_PATH_NLA (15.4.4): the sender's address on its outgoing interface. The address has no AFI (E-04)."""

    TYPE, NAME, CARRIERS, NETWORK = 0x0C, "OPT_PATH_NLA", frozenset({_T.NCF}), True
    path_nla: Nla = bare_nla("address of the sender")


@_option
@attrs.frozen
class Syn(Option):
    """OPT_SYN (9.6): this data packet is the session's first."""

    TYPE, NAME, CARRIERS = 0x0D, "OPT_SYN", _DATA


@_option
@attrs.frozen
class Fin(Option):
    """OPT_FIN (9.7): the session ends with this packet, or with SPM_LEAD."""

    TYPE, NAME, CARRIERS = 0x0E, "OPT_FIN", _DATA | {_T.SPM}


@_option
@attrs.frozen
class Rst(Option):
    """OPT_RST (9.8): the source failed. N: the source will answer no NAK. The code is 6 bits, 0 for unknown."""

    TYPE, NAME, CARRIERS = 0x0F, "OPT_RST", frozenset({_T.SPM})
    FLAGS = {"no_naks": 0x40, "error": 0x3F}
    no_naks: bool = False
    error: int = 0


@_option
@attrs.frozen
class Cr(Option):
    """OPT_CR (12.7.1): congestion reports on a NAK. L, P and R say which reports are present."""

    TYPE, NAME, CARRIERS, NETWORK = 0x10, "OPT_CR", frozenset({_T.NAK}), True
    FLAGS = {"has_ne_wl": 0x04, "has_ne_wp": 0x02, "has_rx_wp": 0x01}
    lead: int = u32("transmit window lead known when sent")
    ne_wl: int = u16("worst link loss, 0xFFFF is all")
    ne_wp: int = u16("worst path loss")
    rx_wp: int = u16("worst receiver loss")
    reserved: int = pad16()
    receiver: Nla = nla("the worst receiver")
    has_ne_wl: bool = False
    has_ne_wp: bool = False
    has_rx_wp: bool = False


@_option
@attrs.frozen
class Crqst(Option):
    """OPT_CRQST (12.7.2): the congestion reports that the source requests."""

    TYPE, NAME, CARRIERS, NETWORK = 0x11, "OPT_CRQST", frozenset({_T.SPM}), True
    FLAGS = {"wants_ne_wl": 0x04, "wants_ne_wp": 0x02, "wants_rx_wp": 0x01}
    wants_ne_wl: bool = False
    wants_ne_wp: bool = False
    wants_rx_wp: bool = False


@_option
@attrs.frozen
class PgmccData(Option):
    """OPT_PGMCC_DATA (OpenPGM): time stamp and acker of a data packet."""

    TYPE, NAME, CARRIERS = 0x12, "OPT_PGMCC_DATA", frozenset({_T.ODATA, _T.RDATA})
    timestamp_ms: int = u32("sender's clock, milliseconds modulo 2^32")
    acker: Nla = nla("elected acker, 0.0.0.0 for none")


@_option
@attrs.frozen
class PgmccFeedback(Option):
    """OPT_PGMCC_FEEDBACK (OpenPGM): echoed time stamp, loss rate and reporter of an ACK: AFI, loss rate, NLA."""

    TYPE, NAME, CARRIERS = 0x13, "OPT_PGMCC_FEEDBACK", frozenset({_T.ACK, _T.NAK})
    timestamp_ms: int = u32("echoed time stamp plus the time held here")
    afi: int = u16("family of the reporter")
    loss_rate: int = u16("loss rate, 0xFFFF is all")
    reporter: Nla = bare_nla("address of the reporter")


@_option
@attrs.frozen
class Epoch(Option):
    """Private option: upper half of the sqn after SPM_LEAD, and the session's start; others skip the option."""

    TYPE, NAME, CARRIERS = 0x65, "OPT_PGM_EPOCH", frozenset({_T.SPM})
    next_upper: int = u32("upper 32 bits of SPM_LEAD + 1")
    start_s: int = u32("start of the session, seconds since 1970")
    start_ns: int = u32("nanoseconds of that second")


@_option
@attrs.frozen
class Flow(Option):
    """Private option: the stream is acknowledged, with these terms.

    Receivers that do not know the option send no acks, and the source does not wait for them.
    """

    TYPE, NAME, CARRIERS = 0x66, "OPT_PGM_FLOW", frozenset({_T.SPM})
    window: int = u32("packets that the source sends ahead of the slowest member")
    every: int = u32("packets after which a member acknowledges")
    ivl_us: int = u32("longest time between acks of a member, microseconds")
    expiry_us: int = u32("silence after which a member is dropped, microseconds")
    stall_us: int = u32("time after which the source does not wait for a member without progress, microseconds")


@_option
@attrs.frozen
class HeldHistory(Option):
    """Private option: a late joiner's request for history (on a NAK too), or an answer: the oldest held sqn."""

    TYPE, NAME, CARRIERS = 0x69, "OPT_PGM_HELD", frozenset({_T.SPMR, _T.NAK})
    FLAGS = {"answers": 0x01, "by_count": 0x02, "by_time": 0x04, "by_sqn": 0x08, "nothing": 0x10}
    amount: int = u32("requests: packets or milliseconds back, or a sqn, as the bits say; answers: the oldest sqn")
    number: int = u32(
        "answers: with `by_time` the requested time; with `nothing` and `by_sqn` the count of sqns from `amount` that are gone",
        default=0,
    )
    answers: bool = False
    by_count: bool = False
    by_time: bool = False
    by_sqn: bool = False
    nothing: bool = False


@_option
@attrs.frozen
class StateOffer(Option):
    """Private option: a source offers states of its application; a joiner requests one (`pgm.core.late_join.states`).

    On the session of proofs a receiver requests details by it (`pgm.core.session.proofs`).
    """

    TYPE, NAME, CARRIERS = 0x6A, "OPT_PGM_STATE", frozenset({_T.SPM, _T.SPMR})
    FLAGS = {"details": 0x01}
    sqn: int = u32(
        "requests: the sqn from which the joiner has the stream; with `details` a sqn of the stream, in the group of packets; "
        "SPMs of states: the sqn after the newest state; other SPMs: 0",
        default=0,
    )
    details: bool = False


@_option
@attrs.frozen
class Members(Option):
    """Private option: members that a cumulative ACK speaks for; from a parent to children, it confirms acks."""

    TYPE, NAME, CARRIERS = 0x67, "OPT_PGM_MEMBERS", frozenset({_T.ACK})
    FLAGS = {"is_element": 0x01, "confirms": 0x02, "leaves": 0x04, "joins": 0x08}
    members: int = u32("receivers that the ACK speaks for")
    holder: Nla = nla("the receiver that is furthest behind; in confirmations the sender")
    is_element: bool = False
    confirms: bool = False
    leaves: bool = False
    joins: bool = False


@_option
@attrs.frozen
class Acker(Option):
    """Private option: the stream has congestion control with this acker."""

    TYPE, NAME, CARRIERS = 0x68, "OPT_PGM_ACKER", frozenset({_T.SPM})
    acker: Nla = nla("elected acker, 0.0.0.0 or :: for none")


@_option
@attrs.frozen
class SpmSignature(Option):
    """Private option: the source's Ed25519 signature of an SPM; others skip the option.

    `proof` is the id of the source's keys, 10 octets, and the signature, 64 octets (`pgm.wire.signed_spm`).
    """

    TYPE, NAME, CARRIERS = 0x6B, "OPT_PGM_SIGNATURE", frozenset({_T.SPM})
    signed_s: int = u32("time of the signature, seconds since 1970")
    signed_ns: int = u32("nanoseconds of that second")
    proof: bytes = raw("id of the keys (10), Ed25519 signature (64)")


@_option
@attrs.frozen
class ControlCode(Option):
    """Private option: a code that authenticates a control packet between two nodes; others skip the option.

    The option is the last one of its packet. The code covers the packet without it (`pgm.wire.option_rewriting`).
    """

    TYPE, NAME = 0x6C, "OPT_PGM_CODE"
    CARRIERS = frozenset({_T.NAK, _T.NNAK, _T.NCF, _T.SPMR, _T.POLL, _T.POLR, _T.ACK})
    proof: bytes = raw("id of the sender's keys, or of its segment key (10), counter (8), code (16)")


@_option
@attrs.frozen
class SegmentKey(Option):
    """Private option: the key with which a node authenticates what it says to all, for one other node; or a request."""

    TYPE, NAME, CARRIERS = 0x6D, "OPT_PGM_SEGMENT_KEY", frozenset({_T.SPMR})
    content: bytes = raw("requests: nothing; answers: id of the key (10), the encrypted key (32)")


@_option
@attrs.frozen
class SourceFile(Option):
    """Private option: digests of the topology file of a source, and of its own part; others skip the option."""

    TYPE, NAME, CARRIERS = 0x6E, "OPT_PGM_FILE", frozenset({_T.SPM})
    file_high: int = u32("digest of the file, its upper half")
    file_low: int = u32("its lower half")
    part_high: int = u32("digest of the source's plan, its upper half")
    part_low: int = u32("its lower half")

    @classmethod
    def of(cls, file: str, part: str) -> SourceFile:
        """Return the option for two digests of 16 hexadecimal digits."""
        return cls(int(file[:8], 16), int(file[8:], 16), int(part[:8], 16), int(part[8:], 16))

    @property
    def text(self) -> str:
        """Return both digests in hexadecimal digits."""
        return f"{self.file_high:08x}{self.file_low:08x} {self.part_high:08x}{self.part_low:08x}"


@_option
@attrs.frozen
class ForAsker(Option):
    """Private option: the promised repair goes to the asker alone. Another node that lacks the packets asks, too; others skip it."""

    TYPE, NAME, CARRIERS = 0x6F, "OPT_PGM_ASKER", frozenset({_T.NCF})


@attrs.frozen
class UnknownOption(Option):
    """An option without a row in the table, kept octet for octet."""

    TYPE, NAME, CARRIERS = -1, "unknown", _ANY
    number: int = 0
    octet2: int = 0
    octet3: int = 0
    value: bytes = raw("as found", default=b"")

    @property
    def opx(self) -> Opx:
        """The handling that the option requests from elements."""
        return Opx(self.octet2 & 0x03)


Options = tuple[Option, ...]
NO_OPTIONS: Options = ()

T = TypeVar("T", bound=Option)


def find(options: Options, cls: type[T]) -> T | None:
    """Return the first option of a class, or None."""
    for option in options:
        if isinstance(option, cls):
            return option
    return None


def _flags_of(option: Option) -> int:
    bits = 0
    for name, mask in option.FLAGS.items():
        value = getattr(option, name)
        bits |= (mask if value else 0) if isinstance(value, bool) else value & mask
    return bits


def _flag_values(cls: type[Option], octet: int) -> dict[str, Any]:
    kinds = {field.name: field.default for field in attrs.fields(cls)}
    return {
        name: bool(octet & mask) if isinstance(kinds[name], bool) else octet & mask for name, mask in cls.FLAGS.items()
    }


def is_network_significant(option: Option, carrier: PacketType) -> bool:
    """Return whether the option makes network elements process the packet (W-06)."""
    return option.NETWORK and not (isinstance(option, CurrTgsize) and carrier is PacketType.ODATA)


def encode_options(options: Sequence[Option], carrier: PacketType) -> tuple[bytes, bool]:
    """Return OPT_LENGTH and the options, network-significant ones first (W-23).

    Also return whether any option is significant. Raise ValueError for an option that may not be sent on this packet
    type, which is a programming error.
    """
    if not options:
        return b"", False
    ordered = sorted(options, key=lambda option: not is_network_significant(option, carrier))
    parts = []
    for index, option in enumerate(ordered):
        if carrier not in option.CARRIERS:
            raise ValueError(f"{option.NAME} does not belong on {carrier.name}")
        end = OPT_END if index == len(ordered) - 1 else 0
        if isinstance(option, UnknownOption):
            head = (option.number | end, 4 + len(option.value), option.octet2, option.octet3)
            parts.append(_HEAD.pack(*head) + option.value)
            continue
        value = _LAYOUTS[type(option)].encode(option)
        parts.append(_HEAD.pack(option.TYPE | end, 4 + len(value), 0, _flags_of(option)) + value)
    body = b"".join(parts)
    return _LENGTH.pack(OPT_LENGTH, 4, 4 + len(body)) + body, is_network_significant(ordered[0], carrier)


def options_end_untrusted(octets: memoryview, at: int, end: int) -> int:
    """Return the offset after the options at `at`, by OPT_LENGTH. Raise `WireError`."""
    if at + 4 > end:
        raise WireError("truncated")
    number, size, total = _LENGTH.unpack_from(octets, at)
    if number & 0x7F != OPT_LENGTH or size != 4:
        raise WireError("no_opt_length")
    if total < 8 or at + total > end:
        raise WireError("option_total")
    return at + int(total)


def decode_options_untrusted(octets: memoryview, at: int, end: int) -> tuple[Options, int]:
    """Return all options at `at`, and the offset after them. Raise `WireError`. The parser never loops (SEC-06)."""
    stop = options_end_untrusted(octets, at, end)
    found: list[Option] = []
    at += 4
    while True:
        if at + 4 > stop:
            raise WireError("no_opt_end")
        number, size, octet2, octet3 = _HEAD.unpack_from(octets, at)
        if size < 4 or at + size > stop:
            raise WireError("option_length")
        if len(found) == MAX_OPTIONS:
            raise WireError("too_many_options")
        found.append(_decode_one_untrusted(octets, at, number & 0x7F, size, octet2, octet3))
        at += size
        if number & OPT_END:
            if at != stop:
                raise WireError("option_total")
            return tuple(found), stop


def _decode_one_untrusted(octets: memoryview, at: int, number: int, size: int, octet2: int, octet3: int) -> Option:
    cls = OPTIONS.get(number)
    if cls is None:
        return UnknownOption(number=number, octet2=octet2, octet3=octet3, value=bytes(octets[at + 4 : at + size]))
    try:
        values, stop = _LAYOUTS[cls].decode_untrusted(octets, at + 4, at + size)
    except WireError as error:
        raise WireError("option_length" if error.reason == "truncated" else error.reason) from None
    if stop != at + size:
        raise WireError("option_length")
    if cls is NakList and not 0 < len(values[0]) <= MAX_NAK_LIST:
        raise WireError("nak_list")
    if cls is SpmSignature and len(values[2]) != PROOF_OCTETS:
        raise WireError("option_length")
    if cls is ControlCode and len(values[0]) != CODE_OCTETS:
        raise WireError("option_length")
    if cls is SegmentKey and len(values[0]) not in (0, SEGMENT_KEY_OCTETS):
        raise WireError("option_length")
    if cls in _PARITY and not _is_sound(cls, values[0], octet3):
        raise WireError("parity")
    return cls(**dict(zip(_LAYOUTS[cls].names, values, strict=True)), **_flag_values(cls, octet3))


_PARITY = frozenset({ParityPrm, ParityGrp, CurrTgsize})


def _is_sound(cls: type[Option], value: int, octet3: int) -> bool:
    """Return whether a parity option (FEC-02, FEC-04, FEC-07) has a number above 0, and any offer if it offers."""
    if cls is not ParityPrm:
        return value > 0
    return value.bit_count() == 1 and bool(octet3 & (cls.FLAGS["proactive"] | cls.FLAGS["on_demand"]))


def names(options: Iterable[Option]) -> list[str]:
    """Return names of options, for traces."""
    return [option.NAME for option in options]
