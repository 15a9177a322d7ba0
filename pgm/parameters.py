"""The one table of timers and limits.

Every field of `Parameters` is one row: name after the RFC, unit, default with its reason, bounds, the
roles that read it, and the RFC section. The cores read the values, the topology loader reads the table
(so every row has a place in the file), and `docs/reference/topology.md` is printed from it.

RFC 3208 uses NAK_RPT_IVL for two things: the gap between repeats in a receiver and the total time of
repeating in a network element. The element's timers carry the prefix `ne_` here for that reason.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

import attrs

from pgm.errors import UnitError
from pgm.units import (
    GIB,
    KIB,
    MIB,
    MICROSECOND,
    MILLISECOND,
    SECOND,
    format_duration,
    format_fraction,
    format_octets,
    format_rate,
    parse_duration,
    parse_fraction,
    parse_octets,
    parse_rate,
)


class Unit(enum.Enum):
    """What a parameter counts; decides how the topology file spells it."""

    DURATION = "duration"
    OCTETS = "octets"
    RATE = "rate"
    FRACTION = "share"
    COUNT = "number"
    PER_SECOND = "per second"
    SWITCH = "true or false"
    CHOICE = "one of"


@attrs.frozen
class Row:
    """One parameter, as the loader, the docs and the checker see it."""

    key: str
    unit: Unit
    default: int | float | bool | str
    low: int | float
    high: int | float
    roles: tuple[str, ...]
    rfc: str
    doc: str
    choices: tuple[str, ...] = ()

    def read(self, value: object) -> int | float | bool | str:
        """Turn what the file says into what the cores read. Raises `UnitError` with a remedy."""
        return self._bounded(self._parse(value))

    def take(self, value: object) -> int | float | bool | str:
        """The same of what a program says, which may be a number as well: of nanoseconds, of octets (a second), a share.

        Raises `UnitError`.
        """
        if self.unit not in _READ or isinstance(value, bool):
            return self.read(value)
        if isinstance(value, int) or (isinstance(value, float) and self.unit is Unit.FRACTION):
            return self._bounded(value)
        return self.read(value)

    def _bounded(self, value: float | bool | str) -> int | float | bool | str:
        if not isinstance(value, str) and not self.low <= value <= self.high:
            raise UnitError(
                f"{self.key} = {self.spell(value)} is out of range",
                remedy=f"choose from {self.spell(self.low)} to {self.spell(self.high)}",
            )
        return value

    def _parse(self, value: object) -> int | float | bool | str:
        if self.unit is Unit.SWITCH:
            if isinstance(value, bool):
                return value
            raise UnitError(f"{self.key} = {value!r} is neither true nor false", remedy="write true or false")
        if self.unit is Unit.CHOICE:
            if value in self.choices:
                return str(value)
            raise UnitError(f"{self.key} = {value!r} is unknown", remedy=f"choose one of {', '.join(self.choices)}")
        if self.unit in (Unit.COUNT, Unit.PER_SECOND):
            if isinstance(value, int) and not isinstance(value, bool):
                return value
            raise UnitError(
                f"{self.key} = {value!r} is not a whole number", remedy=f"write a number such as {self.default}"
            )
        if isinstance(value, str):
            return _READ[self.unit](value)
        raise UnitError(f"{self.key} = {value!r} has no unit", remedy=f'write it as in "{self.spell(self.default)}"')

    def spell(self, value: Any) -> str:
        """Spell a value the way the file does."""
        if isinstance(value, bool):
            return "true" if value else "false"
        return _SPELL[self.unit](value) if self.unit in _SPELL else str(value)


_READ: dict[Unit, Callable[[str], int | float]] = {
    Unit.DURATION: parse_duration,
    Unit.OCTETS: parse_octets,
    Unit.RATE: parse_rate,
    Unit.FRACTION: parse_fraction,
}
_SPELL: dict[Unit, Callable[[Any], str]] = {
    Unit.DURATION: format_duration,
    Unit.OCTETS: format_octets,
    Unit.RATE: format_rate,
    Unit.FRACTION: format_fraction,
}

_SOURCE = ("source",)
_RECEIVER = ("receiver",)
_ELEMENTS = ("aggregator", "repairer")
_ASKERS = ("receiver", "aggregator", "repairer")
_SERVERS = ("source", "repairer")
_PARENTS = ("source", "aggregator", "repairer")
_ALL = ("source", "receiver", "aggregator", "repairer")
_RECORDERS = ("receiver", "repairer")


def _row(
    unit: Unit,
    default: Any,
    roles: tuple[str, ...],
    rfc: str,
    doc: str,
    *,
    low: float = 0,
    high: float = 0,
    choices: tuple[str, ...] = (),
) -> Any:
    spec = {"unit": unit, "roles": roles, "rfc": rfc, "doc": doc, "low": low, "high": high, "choices": choices}
    return attrs.field(default=default, metadata={"row": spec})


def _ivl(default: int, roles: tuple[str, ...], rfc: str, doc: str, *, low: int = 0, high: int = 3600 * SECOND) -> Any:
    return _row(Unit.DURATION, default, roles, rfc, doc, low=low, high=high)


def _octets(default: int, roles: tuple[str, ...], rfc: str, doc: str, *, low: int = 0, high: int = 1024 * GIB) -> Any:
    return _row(Unit.OCTETS, default, roles, rfc, doc, low=low, high=high)


def _count(default: int, roles: tuple[str, ...], rfc: str, doc: str, *, low: int = 0, high: int = (1 << 31) - 1) -> Any:
    return _row(Unit.COUNT, default, roles, rfc, doc, low=low, high=high)


def _per_s(default: int, roles: tuple[str, ...], rfc: str, doc: str) -> Any:
    return _row(Unit.PER_SECOND, default, roles, rfc, doc, low=1, high=10_000_000)


@attrs.frozen(kw_only=True)
class Parameters:
    """Every timer and limit of one node. Durations are ns, sizes octets, rates octets/s."""

    # One row of the table a line.
    # fmt: off
    # Transmit window and rate (RFC 5.1, 16)
    txw_secs: int = _ivl(10 * SECOND, _SOURCE, "16", "How long a packet stays repairable at the source. Ten seconds outlive a restart of a repairer.", low=MILLISECOND)
    txw_bytes: int = _octets(0, _SOURCE, "16", "Most octets in the transmit window; 0 means txw_max_rte x txw_secs.")
    txw_sqns: int = _count(0, _SOURCE, "16", "Most packets in the transmit window; 0 means no limit of its own. Never above 2^31 - 1 (RFC 3.3).")
    txw_adv_secs: int = _ivl(SECOND, _SOURCE, "16", "Length of the increment window: the step by which the trail moves. A full window moves by an eighth of itself where an increment is more than a quarter.", low=MILLISECOND)
    txw_adv_ivl: int = _ivl(100 * MILLISECOND, _SOURCE, "16.1", "Silence on NAKs that a full window waits for: for its oldest increment when it advances with data, for its oldest third when it advances with time, for as long as txw_hold_share says.")
    txw_hold_share: float = _row(Unit.FRACTION, 1.0, _SOURCE, "-", "How long a window that is full before txw_secs are over waits with its trail and with new data for what was asked for of its oldest part within txw_adv_ivl: at most this share of the time that part took to send, so that one bad receiver slows nobody to less than half. 0: not at all.", low=0, high=1)
    txw_adv_mode: str = _row(Unit.CHOICE, "time", _SOURCE, "16", "Advance of the window: with time, with data, or by the application.", choices=("time", "data", "application"))
    txw_idle_ivl: int = _ivl(0, _SOURCE, "3.5", "A window that advances with data closes when nothing was sent for this long; 0 keeps it open. One that advances with time closes after txw_secs.")
    txw_max_rte: int = _row(Unit.RATE, 25_000_000, _ALL, "5.1.2", "Most octets a second that a source sends, SPMs, data and repairs together. 200 Mbit/s leaves a gigabit link to others.", low=1000, high=125_000_000_000)
    txw_max_pps: int = _count(0, _PARENTS, "5.1.2", "Most packets a second that a source sends, SPMs, data and repairs together, beside the octets of txw_max_rte; 0: no limit of its own. For hosts and switches that drown in small packets.", high=100_000_000)
    txw_min_rte: int = _row(Unit.RATE, 0, _SOURCE, "-", "Least rate to which a source slows down while it is asked for too much, because its receivers or its machine are overrun; 0: it never slows down.", low=0, high=125_000_000_000)
    txw_yield_share: float = _row(Unit.FRACTION, 0.05, _SOURCE, "-", "Packets asked of the source, as a share of those it sends, above which it slows down. Repairers leave it far less, links that lose as much should have one. What one asks for later than his promptest NAKs came counts several times.", low=0.001, high=1)
    txw_yield_ivl: int = _ivl(250 * MILLISECOND, _SOURCE, "-", "How often a source that slows down looks at that share. Longer than a repair takes.", low=10 * MILLISECOND, high=60 * SECOND)
    txw_burst_ivl: int = _ivl(5 * MILLISECOND, _PARENTS, "5.1.2", "Bucket of the rate limits, as time at txw_max_rte and txw_max_pps: over any longer time the rate holds. The longest train is txw_slack_ivl shorter. Five steps of the 1 ms timer.", low=100 * MICROSECOND, high=SECOND)
    txw_slack_ivl: int = _ivl(2500 * MICROSECOND, _PARENTS, "5.1.2", "What a sender may be served late by without losing rate: room in the bucket beside the longest train, half of it at most. Two steps of the driver's 1 ms timer and the time to wake.", low=0, high=SECOND)
    txw_peak_ratio: int = _count(4, _PARENTS, "5.1.2", "Peak rate between successive trains as a multiple of txw_max_rte: the leaky bucket beside the token bucket.", low=1, high=1000)
    txw_peak_ivl: int = _ivl(MILLISECOND, _PARENTS, "5.1.2", "Bucket of the peak rate, as time at it. The step of the driver's timers: a wait between two trains lasts one at least.", low=MICROSECOND, high=SECOND)
    txw_unsent_bytes: int = _octets(4 * MIB, _SOURCE, "-", "Octets accepted from the application and not sent yet; beyond it send() waits.", low=64 * KIB)
    flush_ivl: int = _ivl(MILLISECOND, _SOURCE, "-", "How long a message of a stream with batches waits for others to share its packet; 0: it does not. A step of the driver's timers.", high=10 * SECOND)
    flush_rte: int = _count(200, _SOURCE, "-", "Packets a second up to which no message waits, whatever flush_ivl says: what leaves so rarely gains nothing. 0: all wait.", high=1_000_000_000)
    batch_times: bool = _row(Unit.SWITCH, False, _SOURCE, "-", "Packets of a stream with batches say when they were filled, by the source's clock: an archive has it as the column sent. Off, since it takes 12 octets of each packet, and since receivers before it take such a packet for malformed.", high=1)
    warm_bytes: int = _octets(0, ("source", "repairer"), "-", "Octets of the window or cache whose memory is touched at the start: the first pass through it costs no page faults then. 0 takes memory when it is needed.", low=0, high=64 * GIB)
    max_tpdu: int = _octets(1472, _SOURCE, "-", "Largest PGM packet. 1472 octets are an Ethernet frame over UDP and IPv4; where a stream comes to an IPv6 segment it is 1452.", low=128, high=65_507)
    max_apdu: int = _octets(64 * MIB, ("source", "receiver"), "9.2", "Largest message; also bounds what a receiver reassembles for one session.", low=1, high=GIB)

    # Acknowledged streams (flow = "acked")
    ack_window: int = _count(16_384, _SOURCE, "-", "Packets that an acknowledged stream sends ahead of its slowest member. A fixed size, as memory is: what 200 Mbit/s carry in a second.", low=1, high=1 << 20)
    ack_every: int = _count(0, _SOURCE, "-", "Packets after which a member acknowledges; 0: a quarter of ack_window, so that the window opens again before it is full.", high=1 << 20)
    ack_ivl: int = _ivl(50 * MILLISECOND, _SOURCE, "-", "Time after which a member acknowledges at the latest: how long a message waits to be known as stable, for each tier.", low=MILLISECOND, high=60 * SECOND)
    ack_expiry: int = _ivl(3 * SECOND, _SOURCE, "-", "Silence after which a member is forgotten, and so how long a stopped receiver may hold up its source. Members that have lost their parent find another in half of it.", low=100 * MILLISECOND, high=600 * SECOND)
    ack_stall_ivl: int = _ivl(10 * SECOND, _SOURCE, "-", "How long a member may acknowledge the same packet while there are more: one whose application takes nothing holds up its source no longer.", low=100 * MILLISECOND, high=3600 * SECOND)
    ack_element_ivl: int = _ivl(30 * SECOND, _PARENTS, "-", "How long an element may acknowledge the same packet while there are more; longer than ack_stall_ivl and ack_expiry together in any case, and by ack_expiry longer above each tier of elements. Elements forget stuck receivers themselves, so one that stands still for so long is broken.", low=100 * MILLISECOND)
    ack_child_members: int = _count(65_536, _PARENTS, "-", "Receivers that one element may speak for; what it claims beyond does not count for ack_quorum.", low=1)
    ack_full: str = _row(Unit.CHOICE, "wait", _SOURCE, "-", "What a source does whose window is full: it waits for its slowest member, or goes on and keeps the acks for stable() alone.", choices=("wait", "go-on"))
    ack_quorum: int = _count(1, _SOURCE, "-", "Members below which no message counts as stable.", low=1, high=1_000_000)

    # Congestion control (flow = "pgmcc")
    cc_hysteresis: float = _row(Unit.FRACTION, 0.75, _SOURCE, "12", "A receiver becomes the acker when its throughput would be below this share of the acker's, so that two of about the same do not take turns.", low=0.1, high=1)
    cc_timeout_ivl: int = _ivl(500 * MILLISECOND, _SOURCE, "12", "Least wait for acks before the window begins anew; four round trips where that is longer, of twice this at most each.", low=10 * MILLISECOND, high=60 * SECOND)
    cc_bar_ivl: int = _ivl(30 * SECOND, _SOURCE, "12", "How long an acker that never acknowledged, or whose reports and acks disagreed, is not elected again: reports may name who does not exist.")
    cc_bo_ivl: int = _ivl(250 * MILLISECOND, _RECEIVER, "12", "Bound of the random delay before a receiver offers to be the acker of a stream that has none.", high=60 * SECOND)
    apdu_ivl: int = _ivl(300 * SECOND, _RECEIVER, "9.2", "A large message of which nothing more has come for this long, twice at most, is given up and its memory freed. Longer than session_expiry, so that an outage is outlived.", low=10 * MILLISECOND)

    # SPMs (RFC 5.1.4 - 5.1.6, 13)
    ambient_spm_ivl: int = _ivl(500 * MILLISECOND, _SOURCE, "5.1.4", "Interval of SPMs between data. Half a second lets a late joiner repair at once.", low=MILLISECOND)
    ihb_min: int = _ivl(50 * MILLISECOND, _PARENTS, "5.1.5", "First heartbeat SPM after data, and the least interval between two answers to SPMRs.", low=MILLISECOND)
    ihb_max: int = _ivl(2 * SECOND, _SOURCE, "5.1.5", "Longest heartbeat interval of an idle source.", low=MILLISECOND)
    join_ivl: int = _ivl(SECOND, _SOURCE, "9.4", "Whoever joins within this time of a session's start is not late: OPT_JOIN of the SPMs names the first sqn.")
    mark_ends: bool = _row(Unit.SWITCH, False, _SOURCE, "9.6, 9.7", "Put OPT_SYN on the first data packet and OPT_FIN on the last, where they have room. SPMs say the end anyway; other implementations look at neither.", high=1)
    fin_quiet_ivl: int = _ivl(2 * SECOND, _SOURCE, "9.7.2", "A closing source leaves when it heard no NAK for this long, after txw_secs at the latest.")
    open_hold_ivl: int = _ivl(500 * MILLISECOND, _RECEIVER, "9.4", "A session whose data came before any SPM is delivered after this wait at the latest.")
    spmr_bo_ivl: int = _ivl(250 * MILLISECOND, _RECEIVER, "13.5", "Bound of the random delay before an SPMR.", low=MILLISECOND)
    spmr_spm_ivl: int = _ivl(SECOND, _RECEIVER, "13.5", "Wait for an SPM before the next SPMR.", low=MILLISECOND)

    # Answering NAKs (RFC 5.2, 5.3)
    rdata_hold_ivl: int = _ivl(MILLISECOND, _SERVERS, "5.3", "Delay of RDATA that collects NAKs: about the round trip of the subnet. What is a full train by itself is not held, and the last 1 ms is not waited for where data leave meanwhile.", high=SECOND)
    rdata_ignore_ivl: int = _ivl(10 * MILLISECOND, _SERVERS, "5.3", "After a repair, NAKs for the same sqn are confirmed and not served again for this long: ten subnet round trips, in which a NAK that crossed it arrives. Below every receiver's nak_rdata_ivl.", high=SECOND)
    rdata_share: float = _row(Unit.FRACTION, 0.25, _SERVERS, "5.1.3", "Share of txw_max_rte that repairs may take on each segment.", low=0.001, high=1.0)
    ncf_ivl: int = _ivl(5 * MILLISECOND, _PARENTS, "5.2", "Least interval between NCFs for identical NAKs; the first goes at once.", high=SECOND)

    # Asking for repairs (RFC 6.3)
    nak_bo_ivl: int = _ivl(10 * MILLISECOND, ("receiver", "repairer"), "6.3", "Bound of the random back-off before a NAK. Ten subnet round trips, so that one NAK silences the others.", low=100 * MICROSECOND, high=60 * SECOND)
    reorder_ivl: int = _ivl(MILLISECOND, _ASKERS, "6.3", "Added to the back-off of a new gap, so that reordered packets are not asked for.", high=SECOND)
    ab_hold_ivl: int = _ivl(10 * MILLISECOND, ("receiver", "repairer"), "-", "The same where several lines bring a stream: how long a gap waits for the line that is behind, unless all have passed it. Longer than lines differ.", high=60 * SECOND)
    nak_rpt_ivl: int = _ivl(50 * MILLISECOND, ("receiver", "repairer"), "6.3", "Wait for an NCF before the NAK is repeated.", low=MILLISECOND, high=60 * SECOND)
    nak_rdata_ivl: int = _ivl(200 * MILLISECOND, ("receiver", "repairer"), "6.3", "Wait for RDATA after an NCF: covers a parent that must ask its own parent first.", low=MILLISECOND, high=60 * SECOND)
    nak_rdata_min_ivl: int = _ivl(20 * MILLISECOND, ("receiver", "repairer"), "6.3", "What nak_rdata_ivl may shrink to while repairs come sooner than it says, since repairs get lost too: twice rdata_ignore_ivl, so that no repeat is taken for an echo. As long as nak_rdata_ivl or longer: it does not shrink.", low=MILLISECOND)
    nak_max_ivl: int = _ivl(SECOND, _ASKERS, "6.3", "What nak_rpt_ivl and nak_rdata_ivl may grow to while answers take longer than they say. Soon enough after an outage, rare enough for a parent that is overloaded.", low=MILLISECOND, high=60 * SECOND)
    nak_ncf_retries: int = _count(50, ("receiver", "repairer"), "6.3", "Repeats without an NCF before the packet is given up.", low=1, high=10_000)
    nak_data_retries: int = _count(50, ("receiver", "repairer"), "6.3", "Repeats without RDATA before the packet is given up.", low=1, high=10_000)
    nak_max_outstanding: int = _count(1008, ("receiver", "repairer"), "-", "Most sqns asked for at a time, oldest first: 16 NAK lists; down to a quarter while the own socket drops packets, which repairs would make worse. What is behind waits without using up its retries.", low=63)
    nak_group_copy: bool = _row(Unit.SWITCH, False, _RECEIVER, "6.3", "Also multicast each NAK with a hop limit of 1, for parents that are not on the subnet (RFC 2.2).", high=1)
    parent_patience: int = _count(3, _ASKERS, "-", "Unanswered NAKs before the next parent is asked.", low=1, high=1000)
    parent_retry_ivl: int = _ivl(5 * SECOND, _ASKERS, "-", "After this long the preferred parent is tried again.", low=10 * MILLISECOND)

    # Receive window and sessions
    rxw_bytes: int = _octets(256 * MIB, _RECORDERS, "3.4", "Most octets that wait for a gap or for the application, per session; parity that waits is counted too, and is all that a repairer counts. A second of 2 Gbit/s.", low=64 * KIB)
    rxw_warm_bytes: int = _octets(64 * MIB, _RECEIVER, "-", "Octets for what is received whose memory is touched at the start, rxw_bytes at most, as warm_bytes of a source: what waits behind the first gaps does not wait for page faults too, of which 1 MiB takes 0.1 to 0.5 ms, and 5 where a virtual machine has given its free memory back. What comes at 1 GB/s until a repair has come that was lost once. 0 takes memory when it is needed: enough for slow streams.", low=0, high=64 * GIB)
    rxw_warm_ivl: int = _ivl(100 * MILLISECOND, _RECEIVER, "-", "While rx_bulk_rte or more comes steadily, memory for what comes in so much time, rxw_bytes at most, is touched piece by piece before it is needed: what waits behind the first gaps does not wait for page faults as well. 0: none is. About what repairs take.", high=10 * SECOND)
    join_from: str = _row(Unit.CHOICE, "now", _RECEIVER, "-", "Where a late joiner begins: now, with the oldest that repairers hold, with the last of it (join_sqns or join_secs), or with the packet join_sqns. The nearest repairer that holds enough serves it, never the source.", choices=("now", "oldest", "last", "sqn"))
    join_sqns: int = _count(1000, _RECEIVER, "-", "Packets before now that a late joiner begins with, or the sqn of the first one, as join_from says. Without batches and large messages a packet is a message.", high=1 << 62)
    join_secs: int = _ivl(0, _RECEIVER, "-", "Time before now that a late joiner begins with, where join_from is last; 0: join_sqns counts.")
    join_share: float = _row(Unit.FRACTION, 0.1, ("repairer",), "-", "Share of txw_max_rte that history for late joiners may take on each segment, all of them together, within rdata_share. Others' repairs come first.", low=0.001, high=1.0)
    rxw_sqns: int = _count(1 << 20, _ASKERS, "3.4", "Largest jump of the lead that is followed; a larger one must be confirmed and starts the session anew. Nor does OPT_JOIN reach further back than this.", low=64)
    rxw_gaps: int = _count(8192, ("receiver", "repairer"), "-", "Most ranges of missing packets per session; beyond it the oldest is given up.", low=16, high=1 << 20)
    ncf_lead_sqns: int = _count(4096, ("receiver", "repairer"), "6.3", "How far beyond the newest sqn that data or an SPM told of an NCF may reveal a loss.")
    jump_confirmations: int = _count(2, _ASKERS, "-", "Successive SPMs that must agree before a jump beyond rxw_sqns is followed.", low=1, high=100)
    spm_confirmations: int = _count(8, _ASKERS, "6.2", "SPMs out of sequence that must come in order, with none in sequence among them, before they are believed again: one SPM with a false SPM_SQN is not the session's last.", low=2, high=1000)
    max_sessions: int = _count(64, _ASKERS, "-", "Sources followed at once; one more evicts the session silent for longest.", low=1, high=65_536)
    peer_expiry: int = _ivl(10 * SECOND, _ASKERS, "-", "Silence after which a session is reported silent, or ends if its source said that it leaves. Several ihb_max.", low=10 * MILLISECOND)
    stall_ivl: int = _ivl(4 * SECOND, _ASKERS, "-", "Silence after which nothing is given up: an outage above, not a loss. Two ihb_max or more, below peer_expiry.", low=MILLISECOND)
    session_expiry: int = _ivl(120 * SECOND, _ASKERS, "-", "Silence after which a session's state is dropped and what is missing is reported lost.", low=10 * MILLISECOND)
    inbox_bytes: int = _octets(16 * MIB, _RECEIVER, "-", "Octets delivered and not yet taken by the application; beyond it delivery stops, repair goes on.", low=64 * KIB)

    # Network elements (RFC 7)
    ne_nak_rpt_ivl: int = _ivl(300 * MILLISECOND, _ELEMENTS, "7.3", "How long an aggregator repeats a NAK to one parent before it tries the next.", low=MILLISECOND)
    ne_nak_rpt_rte: int = _per_s(10, _ELEMENTS, "7.3", "Repeats a second of an unconfirmed NAK.")
    ne_nak_max_outstanding: int = _count(3024, ("aggregator",), "-", "Most sqns asked for at a time of what a relay lost itself, oldest first: 48 NAK lists, a quarter of what 8 MiB of a buffer hold in trains. More than a receiver asks for: answers come behind the data that fill the buffer of a relay that was late, and all below wait for them.", low=63)
    ne_nak_rdata_ivl: int = _ivl(2 * SECOND, _ELEMENTS, "7.3", "Life of a confirmed repair state without RDATA.", low=MILLISECOND)
    nak_elim_ivl: int = _ivl(100 * MILLISECOND, _ELEMENTS, "7.4", "How long duplicates of a confirmed NAK are eliminated; a small fraction of ne_nak_rdata_ivl.", low=MILLISECOND)
    repair_states: int = _count(16_384, _PARENTS, "10", "Most ranges of repair state per session.", low=16)
    cache_bytes: int = _octets(256 * MIB, ("repairer",), "-", "Octets a repairer keeps, all sessions together.", low=MIB)
    cache_secs: int = _ivl(60 * SECOND, ("repairer",), "-", "How long a repairer keeps a packet.", low=MILLISECOND)
    assist_on_ncf: bool = _row(Unit.SWITCH, True, ("repairer",), "5.2", "Repair what an NCF of the source reveals as lost, for receivers that know no repairer.", high=1)
    relay_takeover_ivl: int = _ivl(5 * SECOND, _ELEMENTS, "-", "A standby relay speaks after the active one was silent for this long. Above ihb_max.", low=10 * MILLISECOND)

    relay_listen_ivl: int = _ivl(300 * MILLISECOND, _ELEMENTS, "-", "A relay with a standby asks for this long whether the other one speaks before it does.", low=3 * MILLISECOND)

    # Redirection to repairers that offer themselves (RFC 9.5)
    dlr_mode: str = _row(Unit.CHOICE, "off", ("repairer",), "9.5.2", "How a repairer on one segment offers itself: by POLRs to whoever hears its parent's NCFs (upstream), by answers to polls (off-tree), or both. Repairers that the topology names as parents need neither.", choices=("off", "upstream", "off-tree", "both"))
    redirect_ivl: int = _ivl(SECOND, ("repairer",), "9.5.2.1", "Least interval between two offers to the segment; one for each NCF would be a storm.", low=MILLISECOND)
    honour_redirects: bool = _row(Unit.SWITCH, False, ("receiver", "aggregator"), "9.5.3, 9.5.4", "Ask repairers that offer themselves by POLRs; receivers only those outside of their subnet. Off: the topology says whom to ask.", high=1)
    null_naks: bool = _row(Unit.SWITCH, False, ("repairer",), "9.5.2", "Send null NAKs to the source also for repairs that nobody was redirected to ask for. Ours makes nothing of them but a count.", high=1)

    # Polls (RFC 14)
    poll_ivl: int = _ivl(0, _PARENTS, "14.3.1", "How often the children on each segment are counted by a poll; 0: never. Nobody needs the count but the operator and nak_bo_tuning.")
    poll_dlr_ivl: int = _ivl(0, ("aggregator",), "9.5.3.1", "How often an aggregator looks for off-tree repairers below it by a poll of sub-type DLR; 0: never.")
    poll_bo_ivl: int = _ivl(500 * MILLISECOND, _PARENTS, "14.4", "POLL_BO_IVL: answers are spread over this. Long enough to take back a flood of them.", low=MILLISECOND, high=60 * SECOND)
    poll_replies: int = _count(32, _PARENTS, "14.3.1", "Answers that a census wants: an estimate from so many is off by a sixth, as a rule.", low=1, high=1 << 16)
    poll_max_replies: int = _count(512, _PARENTS, "14.4", "Answers beyond which a poll is taken back.", low=1, high=1 << 20)
    poll_first_bits: int = _count(12, _PARENTS, "14.3.1", "Bits that must match in the first round of the first census: one in 4096 answers.", high=32)
    poll_history: int = _count(4, _PARENTS, "14.3.1", "Censuses over which the number of children is averaged.", low=1, high=1000)

    # Implosion prevention (RFC 15)
    nak_bo_tuning: str = _row(Unit.CHOICE, "off", _PARENTS, "15.2.1", "What tunes the back-off of those below, which SPMs and NCFs then advertise: nothing, duplicate NAKs, or polls.", choices=("off", "duplicates", "polls"))
    nak_bo_ivl_default: int = _ivl(10 * MILLISECOND, _PARENTS, "15.2.1", "Back-off that a parent begins to tune from: nak_bo_ivl of its children.", low=100 * MICROSECOND, high=60 * SECOND)
    nak_bo_ivl_min: int = _ivl(MILLISECOND, _ALL, "15.2.1", "Least back-off that is advertised or taken; when polls tune, the back-off for each child counted. A round trip of the subnet.", low=100 * MICROSECOND, high=60 * SECOND)
    nak_bo_ivl_max: int = _ivl(2 * SECOND, _ALL, "15.2.1", "Longest back-off that is advertised or taken. A repair should not wait for seconds.", low=100 * MICROSECOND, high=60 * SECOND)
    nak_probe_num: int = _count(16, _PARENTS, "15.2.1", "Repairs without a duplicate NAK after which the back-off is halved.", low=1)
    dup_nak_max: int = _count(0, _PARENTS, "15.3.1", "Duplicates of one NAK that mean that multicast to a segment has failed, whose NAKs are then confirmed by unicast; 0: never. Above what chance and lost NCFs make.")

    # Parity (RFC appendix A)
    fec_group: int = _count(0, _SOURCE, "11.2", "Packets of a transmission group, a power of two from 2 to 128; 0: no parity. Larger groups need less parity and make losses wait longer.", high=128)
    fec_proactive: int = _count(0, _SOURCE, "11.4", "Parity packets sent with every group, unasked. They spare as many losses in each group a NAK, and take their part of txw_max_rte.", high=127)
    fec_on_demand: bool = _row(Unit.SWITCH, True, _SOURCE, "11.4", "Answer NAKs for numbers of packets of a group by parity. Off, fec_proactive must not be 0.", high=1)
    fec_close_ivl: int = _ivl(20 * MILLISECOND, _SOURCE, "11.4", "A source that has had nothing to send for this long ends its group, so that nobody waits for the rest.", low=MILLISECOND)
    fec_serves_single: bool = _row(Unit.SWITCH, False, _SOURCE, "11.4", "Repair packets of complete groups one by one for whoever asks so, as those do that know no parity. The RFC wants parity then.", high=1)
    fec_hold_ivl: int = _ivl(100 * MILLISECOND, ("receiver", "repairer"), "11.5", "How long a loss in a group that has not ended waits for its end, or for the rest of its parity, before it is asked for. Above fec_close_ivl.", low=MILLISECOND)
    fec_retries: int = _count(3, ("receiver", "repairer"), "11.5", "Parity NAKs in vain after which single packets are asked for, as often, and so in turns: the group may be gone above, or nobody there may know parity.", low=1, high=1000)
    fec_groups: int = _count(512, ("receiver", "repairer"), "11.5", "Groups for which parity is kept at a time; the newest give way.", low=1, high=1 << 16)

    # Brakes (RFC 5.2, 7.6, 10, 13.4)
    child_nak_rte: int = _per_s(2000, _PARENTS, "7.6", "NAKs a second accepted from one child.")
    session_nak_rte: int = _per_s(20_000, _PARENTS, "7.6", "NAKs a second accepted for one session.")
    session_ncf_rte: int = _per_s(20_000, _PARENTS, "5.2", "NCFs a second sent for one session.")
    nagging_window_ivl: int = _ivl(4 * SECOND, _ALL, "-", "Whoever asks for repairs in every window of this length is on the way to be called nagging; one without a request ends it. 0: nobody looks. Distributor's nagging_window_interval, with its default.")
    nagging_check_ivl: int = _ivl(12 * SECOND, _ALL, "-", "How long it must ask so before it counts as nagging. Distributor's nagging_check_interval; its 60 s would let a subnet suffer for a minute.", low=10 * MILLISECOND)
    nagging_max_sqns: int = _count(1000, _ALL, "-", "Packets asked for in that time below which nobody nags. Distributor's nagging_max_retransmissions, which has no default.", low=1)
    nagging_share: float = _row(Unit.FRACTION, 0.2, _ALL, "-", "Packets asked for in that time, as a share of those sent, below which nobody nags: what a lossy line needs is no nagging, however fast the stream.", low=0.001, high=1)
    nagging_policy: str = _row(Unit.CHOICE, "go-on", _RECEIVER, "-", "What a receiver does that nags: it says so and goes on, or lowers its demand to crying_sqn_rte, or closes that source's session. Distributor's stops.", choices=("go-on", "lower", "close"))
    crying_sqn_rte: int = _per_s(100, _ALL, "-", "Packets a second that a child which nags may ask for, until it is quiet; and a receiver that has lowered its demand. A stream that loses less than that gets all of it repaired.")
    notice_ivl: int = _ivl(10 * SECOND, _ALL, "-", "Least interval between two notices of a thing that may happen all the time.", low=MILLISECOND)
    brake_burst_ivl: int = _ivl(SECOND, _PARENTS, "-", "Bucket of these limits, as time at their rate.", low=MILLISECOND)
    max_children: int = _count(4096, _PARENTS, "-", "Children whose budgets are kept; one more forgets the one silent for longest.", low=1)

    # The archive
    record_bytes: int = _octets(64 * GIB, _RECORDERS, "-", "Octets of an archive; beyond it the oldest segment goes.", low=MIB, high=1024 * 1024 * GIB)
    record_secs: int = _ivl(7 * 24 * 3600 * SECOND, _RECORDERS, "-", "How long an archive keeps a segment behind its last row.", low=SECOND, high=100 * 365 * 24 * 3600 * SECOND)
    record_segment_bytes: int = _octets(256 * MIB, _RECORDERS, "-", "A segment of an archive ends at this size: the step of retention by octets.", low=64 * KIB, high=64 * GIB)
    record_segment_ivl: int = _ivl(3600 * SECOND, _RECORDERS, "-", "A segment of an archive ends at this age: the step of retention by age.", low=SECOND, high=24 * 3600 * SECOND)
    record_batch_bytes: int = _octets(MIB, _RECORDERS, "-", "Rows are written as a batch when they have so many octets. Fewer cost more per row, more wait longer for a crash.", low=4 * KIB, high=256 * MIB)
    record_batch_ivl: int = _ivl(100 * MILLISECOND, _RECORDERS, "-", "Rows are written as a batch at this age, however few they are.", low=MILLISECOND, high=60 * SECOND)
    record_sync_bytes: int = _octets(32 * MIB, _RECORDERS, "-", "An archive is synced to the disk after so many octets; only what is synced is told of.", low=4 * KIB, high=GIB)
    record_sync_ivl: int = _ivl(200 * MILLISECOND, _RECORDERS, "-", "An archive is synced to the disk at this age of what was written. A crash of the machine loses no more.", low=MILLISECOND, high=60 * SECOND)
    record_queue_bytes: int = _octets(64 * MIB, _RECORDERS, "-", "Octets that wait to be recorded; what comes beyond it is recorded as lost with cause recorder. Longer than the disk's longest pause.", low=64 * KIB, high=64 * GIB)
    record_retry_ivl: int = _ivl(SECOND, _RECORDERS, "-", "How often an archive that could not be written tries again.", low=10 * MILLISECOND, high=60 * SECOND)
    record_nice: int = _count(0, _RECORDERS, "-", "Niceness of the process that writes an archive, beyond the node's own. It never takes the processor from what wakes up (SCHED_BATCH); with more than 0 it also gets less of a busy one, and what it cannot keep up with is recorded as lost.", low=0, high=19)
    record_restarts: int = _count(5, _RECORDERS, "-", "How often in a row the process that writes an archive is begun anew when it dies, after record_retry_ivl and twice as long each time; then recording ends, and what comes is counted in recorder_lost.", low=0, high=1000)
    record_lock_ivl: int = _ivl(10 * SECOND, _RECORDERS, "-", "How long a recorder waits for the one before to leave the archive: a node that was killed leaves a process that still writes what it got.", low=MILLISECOND, high=600 * SECOND)
    archive_streams: int = _count(64, _RECORDERS, "-", "Ranges that the range service serves at once, to all clients together.", low=1, high=10_000)
    archive_client_streams: int = _count(32, _RECORDERS, "-", "Ranges that the range service serves one client at once.", low=1, high=10_000)
    archive_poll_ivl: int = _ivl(20 * MILLISECOND, _RECORDERS, "-", "How often the range service looks for new rows while a live tail waits for them.", low=MILLISECOND, high=60 * SECOND)
    archive_end_ivl: int = _ivl(2 * SECOND, _RECORDERS, "-", "How long the range service, told to end, waits for what clients are in the middle of; then they are cut off.", low=0, high=600 * SECOND)
    archive_stage_bytes: int = _octets(256 * MIB, _RECORDERS, "-", "Octets that wait at the range service until their batch is published; more are refused.", low=MIB, high=64 * GIB)
    archive_stage_ivl: int = _ivl(600 * SECOND, _RECORDERS, "-", "How long they wait; then whoever put them is taken to be gone.", low=SECOND, high=24 * 3600 * SECOND)

    # Files
    file_block_bytes: int = _octets(MIB, _SOURCE, "-", "Octets of files that are checked by one digest, and that are sent again when it is wrong. What fits a processor's cache.", low=64 * KIB, high=64 * MIB)
    file_digest: str = _row(Unit.CHOICE, "crc32", _SOURCE, "-", "How blocks of files are checked, beside the checksum of every packet. crc32 misses one damaged block in four thousand million; sha256 misses none and takes three times as long.", choices=("crc32", "sha256"))
    file_blocks: int = _count(64, _RECEIVER, "-", "Blocks of files that are put together at a time; the oldest gives way and is asked for again.", low=2, high=1 << 16)
    file_rounds: int = _count(8, _SOURCE, "-", "Times that files, or what is lacking of them, are sent at most.", low=1, high=1000)
    file_questions: int = _count(10, _SOURCE, "-", "Questions behind a round that a receiver may leave without an answer.", low=1, high=1000)
    file_ask_ivl: int = _ivl(200 * MILLISECOND, ("source", "receiver"), "-", "Time between two questions who lacks what of files; answers are spread over the first half of it.", low=MILLISECOND, high=60 * SECOND)
    file_patience: int = _ivl(30 * SECOND, _SOURCE, "-", "How long a receiver that said it is busy, or that still acknowledges packets, may be silent before the source of files goes on without it.", low=MILLISECOND)
    file_receivers: int = _count(4096, _SOURCE, "-", "Receivers of files whose answers are kept; others are served as far as they lack the same.", low=1, high=1_000_000)
    file_entries: int = _count(200_000, ("source", "receiver"), "-", "Most files and folders in a transfer. A list of so many takes some hundred MB while it is read.", low=1, high=10_000_000)
    file_manifest_bytes: int = _octets(64 * MIB, ("source", "receiver"), "-", "Most octets of the list of files.", low=KIB, high=GIB)

    # Sockets and drivers
    so_rcvbuf: int = _octets(16 * MIB, _ALL, "-", "Receive buffer asked of the kernel; what it grants is read back and reported. The kernel doubles it: what comes at 1 GB/s in 30 ms, twice as long as a virtual machine keeps a process from running now and then; at 100 Mbit/s in 2.7 s, after which what was dropped is still repaired. A node that was late has to read faster then, and not to ask again for what its own socket dropped, which makes it later. Only what waits takes memory.", low=16 * KIB, high=GIB)
    so_sndbuf: int = _octets(4 * MIB, _ALL, "-", "Send buffer asked of the kernel.", low=16 * KIB, high=GIB)
    multicast_hops: int = _count(16, _ALL, "-", "Hop limit of multicast packets.", low=1, high=255)
    dscp: int = _count(0, _ALL, "-", "Traffic class of what is sent, data and control alike: the six bits of DSCP, for switches that tell traffic apart by it.", high=63)
    gso: bool = _row(Unit.SWITCH, True, _PARENTS, "-", "Send a train in one call where the kernel can (UDP_SEGMENT).", high=1)
    gro: bool = _row(Unit.SWITCH, True, _ALL, "-", "Read a train in one call where the kernel can (UDP_GRO).", high=1)
    rx_look_ivl: int = _ivl(150 * MICROSECOND, _RECEIVER, "-", "How long a receiver without busy polling whose application waits looks at its socket before it sleeps, where that pays: while answers come sooner than it could be woken, and nobody else wants the processor. Other tasks have their turn before each look, and wait as long at most. 0: it sleeps at once. About what a wake-up takes.", high=10 * MILLISECOND)
    rx_spin_ivl: int = _ivl(0, _RECEIVER, "-", "How long a receiver with busy polling spins while nothing comes before it parks in the kernel; 0: it never parks. The first packet after a pause then costs a wake-up, some tens of microseconds.", high=3600 * SECOND)
    rx_park_ivl: int = _ivl(MILLISECOND, _RECEIVER, "-", "Longest time parked at a turn: what comes wakes it at once, timers wait as long at most.", low=MILLISECOND, high=SECOND)
    rx_rest_ivl: int = _ivl(0, _ALL, "-", "A node that has read its sockets leaves them alone until the next multiple of this, so that it wakes for many packets at once; 0: it reads at once. For processes that share a few cores; every hop takes that much longer, so set rtt too.", high=100 * MILLISECOND)
    rx_bulk_ivl: int = _ivl(2 * MILLISECOND, _ASKERS, "-", "A node that steadily receives rx_bulk_rte or more, and sends and hears no NAKs, leaves its sockets alone for so long after it has read them, 1 ms at most where it has steadily lost a few packets and no child asks, unless more than rx_bulk_share of the receive buffer, ne_bulk_share in an element, would fill meanwhile: it wakes for many trains at once. 0: it reads at once. Two steps of the 1 ms timer.", high=100 * MILLISECOND)
    rx_bulk_rte: int = _row(Unit.RATE, 64_000_000, _ASKERS, "-", "Octets a second from which rx_bulk_ivl counts: about a train in each step of the 1 ms timer.", low=1, high=125_000_000_000)
    rx_bulk_share: float = _row(Unit.FRACTION, 0.0625, _RECEIVER, "-", "The share of the receive buffer that a rest may fill: what waits is missing to the buffer when the process comes late. Of the default 1 MiB, what comes at 500 MB/s in rx_bulk_ivl.", low=0.0, high=1.0)
    ne_bulk_share: float = _row(Unit.FRACTION, 0.25, _ELEMENTS, "-", "The same for an element, whose process sleeps for less than a receiver's when it rests.", low=0.0, high=1.0)
    telemetry_rows: int = _count(100_000, _ALL, "-", "Rows after which a telemetry file is complete. A few MB, which is what Spark likes to read.", low=1, high=10_000_000)
    telemetry_ivl: int = _ivl(5 * SECOND, _ALL, "-", "Age after which a telemetry file is complete, so that streaming jobs are not far behind.", low=10 * MILLISECOND)
    telemetry_sample_ivl: int = _ivl(SECOND, _ALL, "-", "How long what was sent, received and delivered is added up to one telemetry row. The windows of reports are ten times as long.", low=MILLISECOND)
    telemetry_queue: int = _count(200_000, _ALL, "-", "Most telemetry rows that wait to be written; those beyond it are counted and left out. Some 60 MB.", low=100, high=100_000_000)
    telemetry_bytes: int = _octets(GIB, _ALL, "-", "Octets of telemetry that a node keeps on disk; the oldest files go first.", low=64 * KIB)
    private_options: bool = _row(Unit.SWITCH, True, _SOURCE, "-", "Put the session's epoch on SPMs in an option that others skip.", high=1)
    # fmt: on


def _rows() -> dict[str, Row]:
    rows = {}
    for field in attrs.fields(Parameters):
        spec = field.metadata["row"]
        default: Any = field.default
        rows[field.name] = Row(key=field.name, default=default, **spec)
    return rows


ROWS: dict[str, Row] = _rows()


@attrs.frozen
class ProfileInputs:
    """The three facts from which a profile computes its timers."""

    rtt: int = MILLISECOND  # ns, within a subnet and to the next tier
    repair_budget: int = 10 * SECOND  # ns, how long a repair may take before the packet is given up
    rate: int = 25_000_000  # octets/s of the stream


def _timers(inputs: ProfileInputs, *, floor: int) -> dict[str, Any]:
    """Back-off, repeat and data intervals in proportion to the round trip, never below `floor`."""
    bo = max(floor, 4 * inputs.rtt)
    rpt = max(5 * floor, 3 * inputs.rtt + 4 * floor)
    rdata = max(20 * floor, 6 * inputs.rtt + 10 * floor)
    retries = max(3, min(10_000, inputs.repair_budget // (rpt + bo // 2)))
    ignore = min(SECOND, max(floor, inputs.rtt))
    return {
        "nak_bo_ivl": bo,
        "nak_bo_ivl_default": bo,
        "nak_bo_ivl_min": max(MILLISECOND, inputs.rtt),
        "reorder_ivl": max(MILLISECOND, inputs.rtt // 4),
        "nak_rpt_ivl": rpt,
        "nak_rdata_ivl": rdata,
        "nak_rdata_min_ivl": 2 * ignore,
        "nak_ncf_retries": retries,
        "nak_data_retries": max(3, min(10_000, inputs.repair_budget // rdata)),
        "rdata_hold_ivl": min(SECOND, max(MILLISECOND, inputs.rtt // 4)),
        "rdata_ignore_ivl": ignore,
        "ne_nak_rpt_ivl": 6 * rpt,
        "ne_nak_rdata_ivl": 10 * rdata,
        "nak_elim_ivl": rdata // 2,
    }


def lan(inputs: ProfileInputs) -> dict[str, Any]:
    """One site, a round trip around a millisecond, losses rare and in bursts."""
    return _timers(inputs, floor=10 * MILLISECOND)


def wan(inputs: ProfileInputs) -> dict[str, Any]:
    """Tiers joined by long lines: timers follow the round trip, windows last longer."""
    inputs = attrs.evolve(inputs, rtt=max(inputs.rtt, 20 * MILLISECOND))
    return _timers(inputs, floor=10 * MILLISECOND) | {
        "txw_secs": 30 * SECOND,
        "ambient_spm_ivl": SECOND,
        "ihb_min": 100 * MILLISECOND,
        "ihb_max": 5 * SECOND,
        "stall_ivl": 12 * SECOND,
        "peer_expiry": 30 * SECOND,
        "relay_takeover_ivl": 12 * SECOND,
    }


def lossy(inputs: ProfileInputs) -> dict[str, Any]:
    """Wireless or overloaded links: more of the rate for repairs, earlier repeats, more patience."""
    inputs = attrs.evolve(inputs, repair_budget=max(inputs.repair_budget, 20 * SECOND))
    return _timers(inputs, floor=10 * MILLISECOND) | {
        "txw_secs": 30 * SECOND,
        "rdata_share": 0.5,
        "parent_patience": 6,
    }


def legacy(_inputs: ProfileInputs) -> dict[str, Any]:
    """Peers that are OpenPGM or ZeroMQ: their timers, no private options, both ports equal."""
    return {
        "nak_bo_ivl": 50 * MILLISECOND,
        "nak_bo_ivl_default": 50 * MILLISECOND,
        "nak_rpt_ivl": 200 * MILLISECOND,
        "nak_rdata_ivl": 200 * MILLISECOND,
        "ambient_spm_ivl": 500 * MILLISECOND,
        "ihb_min": 100 * MILLISECOND,
        "ihb_max": 30 * SECOND,
        "stall_ivl": 65 * SECOND,
        "peer_expiry": 300 * SECOND,
        "session_expiry": 600 * SECOND,
        "relay_takeover_ivl": 70 * SECOND,
        "nak_elim_ivl": 100 * MILLISECOND,
        "private_options": False,
    }


PROFILES: dict[str, Callable[[ProfileInputs], dict[str, Any]]] = {
    "lan": lan,
    "wan": wan,
    "lossy": lossy,
    "legacy": legacy,
}
