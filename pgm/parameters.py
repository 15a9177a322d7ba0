"""Table of all timers and limits.

Every field of `Parameters` is one row: name after the RFC, unit, default with its reason, bounds, the roles that read the
row, and the RFC section. The cores read the values. The topology loader reads the table, so every row has a key in the
file. `docs/reference/topology.md` is printed from the table.

RFC 3208 uses NAK_RPT_IVL for two things: the interval between repeats in a receiver, and the total time of repeats in a
network element. The prefix `ne_` marks the timers of an element for that reason.
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
    """Unit of a parameter, which determines the spelling in the topology file."""

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
    """Description of one parameter for the loader, the docs and the checker."""

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
        """Convert a value of the file into the value for the cores. Raises `UnitError` with a remedy."""
        return self._bounded(self._parse(value))

    def take(self, value: object) -> int | float | bool | str:
        """Convert a value given by a program into the value for the cores.

        The value may be spelled as in the file, or be a number: nanoseconds, octets, octets a second, or a share of one.

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
        """Spell a value as the file does."""
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
    """All timers and limits of one node. Durations are ns, sizes octets, rates octets/s."""

    # Each line is one row of the table.
    # fmt: off
    # Transmit window and rate (RFC 5.1, 16)
    txw_secs: int = _ivl(10 * SECOND, _SOURCE, "16", "How long a packet stays repairable at the source. Ten seconds outlast the restart of a repairer.", low=MILLISECOND)
    txw_bytes: int = _octets(0, _SOURCE, "16", "Maximum octets in the transmit window. 0: txw_max_rte x txw_secs.")
    txw_sqns: int = _count(0, _SOURCE, "16", "Maximum packets in the transmit window. 0: no limit in packets. The limit is never above 2^31 - 1 (RFC 3.3).")
    txw_adv_secs: int = _ivl(SECOND, _SOURCE, "16", "Length of the increment window: the step by which the trail moves. A full window moves by an eighth of itself if its oldest increment is longer than a quarter of the window.", low=MILLISECOND)
    txw_adv_ivl: int = _ivl(100 * MILLISECOND, _SOURCE, "16.1", "A full window holds its trail until the watched part has received no NAK for this long. The watched part is the oldest third if the window advances with time, and the oldest increment if the window advances with data. txw_hold_share bounds the hold of a window that advances with time, txw_adv_secs that of a window that advances with data.")
    txw_hold_share: float = _row(Unit.FRACTION, 1.0, _SOURCE, "-", "Maximum hold of a window that fills before txw_secs have passed, as a share of the time the watched part took to send. During the hold the trail and new data wait for NAKs on that part (txw_adv_ivl). At 100% one bad receiver slows the source to no less than half. 0: no hold.", low=0, high=1)
    txw_adv_mode: str = _row(Unit.CHOICE, "time", _SOURCE, "16", "Advance of the window: with time, with data, or by the application.", choices=("time", "data", "application"))
    txw_idle_ivl: int = _ivl(0, _SOURCE, "3.5", "A window that advances with data closes when nothing was sent for this long. 0 keeps the window open. A window that advances with time closes after txw_secs.")
    txw_max_rte: int = _row(Unit.RATE, 25_000_000, _ALL, "5.1.2", "Maximum octets a second that a source sends: SPMs, data and repairs together. 200 Mbit/s leaves most of a gigabit link to other traffic.", low=1000, high=125_000_000_000)
    txw_max_pps: int = _count(0, _PARENTS, "5.1.2", "Maximum packets a second that a source sends: SPMs, data and repairs together. This limit adds to the octets of txw_max_rte. 0: no limit in packets. Use this limit for hosts and switches that small packets overload.", high=100_000_000)
    txw_min_rte: int = _row(Unit.RATE, 0, _SOURCE, "-", "Minimum rate to which a source slows down when NAKs show that its receivers or its own machine are overloaded. 0: the source never slows down.", low=0, high=125_000_000_000)
    txw_yield_share: float = _row(Unit.FRACTION, 0.05, _SOURCE, "-", "A source slows down when the packets requested from it exceed this share of the packets it sends. Repairers leave far fewer requests than this to the source; a link that loses as much should have a repairer. A request that arrives later than the same receiver's fastest NAKs counts several times.", low=0.001, high=1)
    txw_yield_ivl: int = _ivl(250 * MILLISECOND, _SOURCE, "-", "How often a source that slows down measures the share of txw_yield_share. The interval must be longer than a repair takes.", low=10 * MILLISECOND, high=60 * SECOND)
    txw_burst_ivl: int = _ivl(5 * MILLISECOND, _PARENTS, "5.1.2", "Bucket of the rate limits, as time at txw_max_rte and txw_max_pps. Over any longer time the rate holds. The longest train is shorter by txw_slack_ivl. The default is five steps of the driver's 1 ms timer.", low=100 * MICROSECOND, high=SECOND)
    txw_slack_ivl: int = _ivl(2500 * MICROSECOND, _PARENTS, "5.1.2", "How late the driver may serve a sender without loss of rate: room in the bucket beside the longest train. At most half of the bucket counts. The default is two steps of the driver's 1 ms timer and the time of a wake-up.", low=0, high=SECOND)
    txw_peak_ratio: int = _count(4, _PARENTS, "5.1.2", "Peak rate between successive trains, as a multiple of txw_max_rte. The peak rate is the leaky bucket beside the token bucket.", low=1, high=1000)
    txw_peak_ivl: int = _ivl(MILLISECOND, _PARENTS, "5.1.2", "Bucket of the peak rate, as time at the peak rate. The default is one step of the driver's timers: a wait between two trains lasts at least one step.", low=MICROSECOND, high=SECOND)
    txw_unsent_bytes: int = _octets(4 * MIB, _SOURCE, "-", "Maximum octets accepted from the application and not yet sent. At this limit send() waits.", low=64 * KIB)
    txw_unsent_secs: int = _ivl(SECOND, _SOURCE, "-", "Maximum time, at the current rate, of octets accepted from the application and not yet sent. At this limit send() waits and try_send() returns None. The default lets a send at a low rate wait no longer than a second, and txw_unsent_bytes is the lower limit above 4 MB/s.", low=MILLISECOND)
    proof_ivl: int = _ivl(500 * MICROSECOND, _SOURCE, "-", "Least time between two proofs of a signed stream. Messages wait that long for their proof. A receiver verifies each proof in some 0.15 ms: a proof a millisecond takes 15 % of a core. The time is twice as long after a proof of several packets, and eight times after one of 32 KiB or more.", low=100 * MICROSECOND, high=SECOND)
    key_record_ivl: int = _ivl(10 * SECOND, _SOURCE, "-", "Time after which the source of a sealed stream sends all key records again. A receiver that has missed a record waits that long at most. 10,000 readers take 0.65 MB an interval.", low=100 * MILLISECOND, high=3600 * SECOND)
    flush_ivl: int = _ivl(MILLISECOND, _SOURCE, "-", "How long a message of a stream with batches waits for other messages to share its packet. 0: no wait. The default is one step of the driver's timers.", high=10 * SECOND)
    flush_rte: int = _count(200, _SOURCE, "-", "Packets a second up to which no message waits, whatever the value of flush_ivl. At such a low rate a shared packet saves nothing. 0: every message waits.", high=1_000_000_000)
    batch_times: bool = _row(Unit.SWITCH, False, _SOURCE, "-", "Packets of a stream with batches carry the time of their batch, by the source's clock. An archive stores that time in the column sent. The default is off for two reasons: the time takes 12 octets of each packet, and older receivers reject such a packet as malformed.", high=1)
    max_subjects: int = _count(1000, ("source", "receiver"), "-", "Maximum subjects of a stream whose messages are counted one by one, for `pgm status`. Messages of further subjects are counted together. 0: no counts by subject.", high=1_000_000)
    warm_bytes: int = _octets(0, ("source", "repairer"), "-", "Octets of the window or cache whose memory is touched at the start. The first pass through that memory then costs no page faults. 0: memory is taken when needed.", low=0, high=64 * GIB)
    max_tpdu: int = _octets(1472, _SOURCE, "-", "Largest PGM packet. 1472 octets fill an Ethernet frame over UDP and IPv4. For a stream that reaches an IPv6 segment the default is 1452.", low=128, high=65_507)
    max_apdu: int = _octets(64 * MIB, ("source", "receiver"), "9.2", "Largest message. The same limit bounds the memory that a receiver uses to reassemble messages of one session.", low=1, high=GIB)

    # Acknowledged streams (flow = "acked")
    ack_window: int = _count(16_384, _SOURCE, "-", "Packets that an acknowledged stream sends ahead of its slowest member. The size is fixed, as memory is. The default holds about a second of packets at 200 Mbit/s.", low=1, high=1 << 20)
    ack_every: int = _count(0, _SOURCE, "-", "Packets after which a member acknowledges. 0: a quarter of ack_window, so that the window opens again before it is full.", high=1 << 20)
    ack_ivl: int = _ivl(50 * MILLISECOND, _SOURCE, "-", "Longest time before a member acknowledges. For each tier of the tree, a message may wait this long before the source knows it is stable.", low=MILLISECOND, high=60 * SECOND)
    ack_expiry: int = _ivl(3 * SECOND, _SOURCE, "-", "Silence after which the source forgets a member. A stopped receiver holds up its source no longer than this. A member that has lost its parent finds another parent in half of this time.", low=100 * MILLISECOND, high=600 * SECOND)
    ack_stall_ivl: int = _ivl(10 * SECOND, _SOURCE, "-", "How long a member may acknowledge the same packet while later packets exist. A receiver whose application takes nothing holds up its source no longer than this.", low=100 * MILLISECOND, high=3600 * SECOND)
    ack_least_share: float = _row(Unit.FRACTION, 0.2, _PARENTS, "-", "Least progress of a member that holds up its source, as a share of the packets that the source sends while no member holds it up. A whole ack_window in each ack_stall_ivl suffices in any case, for an element in each ack_element_ivl. A member below both limits no longer holds up its source. With the other defaults an application that takes 1,640 packets a second may slow down any source. 0: any progress suffices.", low=0, high=1)
    ack_element_ivl: int = _ivl(30 * SECOND, _PARENTS, "-", "How long an element may acknowledge the same packet while later packets exist. The effective value is always longer than ack_stall_ivl and ack_expiry together. Each tier of elements below the node adds ack_expiry. Elements forget stuck receivers themselves, so an element that stands still for this long is broken.", low=100 * MILLISECOND)
    ack_child_members: int = _count(65_536, _PARENTS, "-", "Maximum receivers that one element may speak for. Any claim above this limit does not count for ack_quorum.", low=1)
    ack_full: str = _row(Unit.CHOICE, "wait", _SOURCE, "-", "Reaction of a source whose window is full. wait: the source waits for its slowest member. go-on: the source sends on, and acks serve stable() alone.", choices=("wait", "go-on"))
    ack_quorum: int = _count(1, _SOURCE, "-", "Minimum number of members. With fewer members no message counts as stable.", low=1, high=1_000_000)

    # Congestion control (flow = "pgmcc")
    cc_hysteresis: float = _row(Unit.FRACTION, 0.75, _SOURCE, "12", "A receiver becomes the acker if its estimated throughput is below this share of the acker's. The margin keeps two similar receivers from alternating as acker.", low=0.1, high=1)
    cc_timeout_ivl: int = _ivl(500 * MILLISECOND, _SOURCE, "12", "Minimum wait for acks before the window restarts from its initial size. The wait is four round trips if that is longer. A round trip counts as at most twice this value.", low=10 * MILLISECOND, high=60 * SECOND)
    cc_bar_ivl: int = _ivl(30 * SECOND, _SOURCE, "12", "How long a failed acker is barred from election. An acker fails if it never acknowledges, or if its reports and its acks disagree. The bar is needed because a report may name a receiver that does not exist.")
    cc_bo_ivl: int = _ivl(250 * MILLISECOND, _RECEIVER, "12", "Bound of the random delay before a receiver offers itself as the acker of a stream without one.", high=60 * SECOND)
    apdu_ivl: int = _ivl(300 * SECOND, _RECEIVER, "9.2", "A receiver gives up a large message and frees its memory when no further part has come for this long. The check may take up to twice this time. The default is longer than session_expiry, so that a message survives an outage.", low=10 * MILLISECOND)

    # SPMs (RFC 5.1.4 - 5.1.6, 13)
    ambient_spm_ivl: int = _ivl(500 * MILLISECOND, _SOURCE, "5.1.4", "Interval of SPMs between data. With half a second a late joiner can request repairs almost at once.", low=MILLISECOND)
    ihb_min: int = _ivl(50 * MILLISECOND, _PARENTS, "5.1.5", "First heartbeat SPM after data, and the minimum interval between two answers to SPMRs.", low=MILLISECOND)
    ihb_max: int = _ivl(2 * SECOND, _SOURCE, "5.1.5", "Longest heartbeat interval of an idle source.", low=MILLISECOND)
    join_ivl: int = _ivl(SECOND, _SOURCE, "9.4", "A receiver that joins within this time of a session's start is not late: OPT_JOIN of the SPMs names the first sqn.")
    mark_ends: bool = _row(Unit.SWITCH, False, _SOURCE, "9.6, 9.7", "Put OPT_SYN on the first data packet and OPT_FIN on the last, if they have room. SPMs announce the end in any case. Other implementations read neither option.", high=1)
    fin_quiet_ivl: int = _ivl(2 * SECOND, _SOURCE, "9.7.2", "A closing source leaves when no NAK has arrived for this long. The source leaves after txw_secs at the latest.")
    open_hold_ivl: int = _ivl(500 * MILLISECOND, _RECEIVER, "9.4", "Maximum wait before a session is delivered whose data arrived before any SPM.")
    spmr_bo_ivl: int = _ivl(250 * MILLISECOND, _RECEIVER, "13.5", "Bound of the random delay before an SPMR.", low=MILLISECOND)
    spmr_spm_ivl: int = _ivl(SECOND, _RECEIVER, "13.5", "Wait for an SPM before the next SPMR.", low=MILLISECOND)

    # Answering NAKs (RFC 5.2, 5.3)
    rdata_hold_ivl: int = _ivl(MILLISECOND, _PARENTS, "5.3", "Delay of RDATA that collects NAKs: about the round trip of the subnet. Repairs that fill a train are not delayed. While data leave, the last 1 ms of the delay is skipped.", high=SECOND)
    rdata_ignore_ivl: int = _ivl(10 * MILLISECOND, _SERVERS, "5.3", "After a repair, further NAKs for the same sqn are confirmed and not served for this long. Within ten subnet round trips a NAK that crossed the repair arrives. The value must be below every receiver's nak_rdata_ivl.", high=SECOND)
    unicast_repair_min_sqns: int = _count(252, _PARENTS, "-", "Minimum length of a range that one receiver alone requests, such as after its interface was down, to be repaired by unicast to that receiver. Its neighbours have the packets. The default is four NAK lists: a shorter range costs the neighbours little, and is rather the loss of several nodes. Only receivers whose addresses the topology names get unicast repairs. 0: repairs are multicast.", low=0)
    rdata_share: float = _row(Unit.FRACTION, 0.25, _PARENTS, "5.1.3", "Share of txw_max_rte that repairs may take on each segment.", low=0.001, high=1.0)
    ncf_ivl: int = _ivl(5 * MILLISECOND, _PARENTS, "5.2", "Minimum interval between NCFs for identical NAKs. The first NCF goes at once.", high=SECOND)

    # Asking for repairs (RFC 6.3)
    nak_bo_ivl: int = _ivl(10 * MILLISECOND, ("receiver", "repairer"), "6.3", "Bound of the random back-off before a NAK. Ten subnet round trips give one NAK time to suppress the others.", low=100 * MICROSECOND, high=60 * SECOND)
    nak_bo: str = _row(Unit.CHOICE, "uniform", ("receiver", "repairer"), "6.3", "Distribution of the random back-off: that of RFC 3208, or the truncated exponential one of RFC 5401. With thousands of receivers on a segment, the exponential one sends few NAKs where the uniform one sends a share of them all, and a receiver that alone lost a packet waits nearly the whole nak_bo_ivl.", choices=("uniform", "exponential"))
    nak_bo_group: int = _count(1000, ("receiver", "repairer"), "-", "Number of nodes on the segment that may lack the same packet, for the exponential back-off. An estimate ten times too high lengthens the wait by some 5 % of nak_bo_ivl, and one ten times too low nearly doubles the NAKs. The default is that of NORM.", low=1, high=10_000_000)
    reorder_ivl: int = _ivl(MILLISECOND, _ASKERS, "6.3", "Time added to the back-off of a new gap, so that reordered packets are not requested.", high=SECOND)
    ab_hold_ivl: int = _ivl(10 * MILLISECOND, ("receiver", "repairer"), "-", "Time added to the back-off of a new gap if several lines bring the stream. A gap waits this long for the slowest line, unless all lines have passed the gap. The value must be longer than the lines differ in delay.", high=60 * SECOND)
    nak_rpt_ivl: int = _ivl(50 * MILLISECOND, ("receiver", "repairer"), "6.3", "Wait for an NCF before the NAK is repeated.", low=MILLISECOND, high=60 * SECOND)
    nak_rdata_ivl: int = _ivl(200 * MILLISECOND, ("receiver", "repairer"), "6.3", "Wait for RDATA after an NCF. The default covers a parent that must first ask its own parent.", low=MILLISECOND, high=60 * SECOND)
    nak_rdata_min_ivl: int = _ivl(20 * MILLISECOND, ("receiver", "repairer"), "6.3", "Lower bound of the wait for RDATA, which shrinks from nak_rdata_ivl while repairs come sooner. The wait shrinks because repairs get lost too. The default is twice rdata_ignore_ivl, so that a parent does not ignore the repeat. A value of nak_rdata_ivl or more stops the shrinking.", low=MILLISECOND)
    nak_max_ivl: int = _ivl(SECOND, _ASKERS, "6.3", "Upper bound of the waits for NCF and RDATA, which grow from nak_rpt_ivl and nak_rdata_ivl while answers take longer. The default recovers soon after an outage and spares an overloaded parent.", low=MILLISECOND, high=60 * SECOND)
    nak_ncf_retries: int = _count(50, ("receiver", "repairer"), "6.3", "Repeats without an NCF before the packet is given up.", low=1, high=10_000)
    nak_data_retries: int = _count(50, ("receiver", "repairer"), "6.3", "Repeats without RDATA before the packet is given up.", low=1, high=10_000)
    nak_max_outstanding: int = _count(1008, ("receiver", "repairer"), "-", "Maximum sqns in flight as requests, oldest first. The default is 16 NAK lists. The limit falls to a quarter while the node's own socket drops packets, because repairs would add to the drops. Gaps beyond the limit wait and keep their retries.", low=63)
    nak_group_copy: bool = _row(Unit.SWITCH, False, _RECEIVER, "6.3", "Also multicast each NAK with a hop limit of 1, for parents that are not on the subnet (RFC 2.2).", high=1)
    parent_patience: int = _count(6, _ASKERS, "-", "Unanswered NAKs in a row before the next parent is asked. They must span as many nak_rpt_ivl. A single request moves on after a third as many, at least two. With 5 % loss at both ends three in a row come once in a thousand losses, six once in a million.", low=1, high=1000)
    parent_retry_ivl: int = _ivl(5 * SECOND, _ASKERS, "-", "Time after which the preferred parent is tried again.", low=10 * MILLISECOND)

    # Receive window and sessions
    rxw_bytes: int = _octets(256 * MIB, _RECORDERS, "3.4", "Maximum octets per session that wait behind a gap or for the application. Parity that waits counts too; in a repairer only parity counts. The default is a second of 2 Gbit/s.", low=64 * KIB)
    rxw_warm_bytes: int = _octets(64 * MIB, _RECEIVER, "-", "Octets of receive memory that are touched at the start, like warm_bytes of a source. At most rxw_bytes are touched. Packets that wait behind the first gaps then do not wait for page faults as well. The default holds the arrivals at 1 GB/s until a repair that was lost once has come. 0: memory is taken when needed, which suits slow streams.", low=0, high=64 * GIB)
    rxw_warm_ivl: int = _ivl(100 * MILLISECOND, _RECEIVER, "-", "While rx_bulk_rte or more arrives steadily, memory for the arrivals of this long is touched piece by piece in advance. At most rxw_bytes are touched. Packets that wait behind the first gaps then do not wait for page faults as well. The default is about the time of a repair. 0: no memory is touched in advance.", high=10 * SECOND)
    join_from: str = _row(Unit.CHOICE, "now", _RECEIVER, "-", "Start of a late joiner. now: with the next packet. oldest: with the oldest packet that can be had. last: with the last part of the history (join_sqns or join_secs). sqn: with the packet join_sqns. snapshot: with a state of the source's application, and the packet after it. The nearest repairer that holds enough serves the history; the source does only for receivers that know no element.", choices=("now", "oldest", "last", "sqn", "snapshot"))
    join_sqns: int = _count(1000, _RECEIVER, "-", "With join_from last: packets of history before now. With join_from sqn: the sqn of the first packet. A packet is one message in a stream without batches and large messages.", high=1 << 62)
    join_secs: int = _ivl(0, _RECEIVER, "-", "With join_from last: time of history before now. 0: join_sqns counts.")
    join_share: float = _row(Unit.FRACTION, 0.1, ("source", "repairer"), "-", "Share of txw_max_rte that history for all late joiners together may take on each segment. The share lies within rdata_share. Repairs for other receivers come first.", low=0.001, high=1.0)
    snapshot_bytes: int = _octets(16 * MIB, ("source", "receiver"), "-", "Largest state of an application that a source sends to joiners, and that a joiner takes. The default fits a few hundred thousand small records, and bounds the memory of a joiner.", low=1, high=GIB // 2)
    snapshot_ivl: int = _ivl(SECOND, _SOURCE, "-", "Least time from the end of one state to the start of the next. All joiners that ask meanwhile share the next state. Repairs of a state are possible for this long at least.", low=MILLISECOND)
    snapshot_ask_ivl: int = _ivl(250 * MILLISECOND, _ASKERS, "-", "Wait of a joiner before it repeats its request for a state. The request or the start of the state may be lost. A relay passes on equal requests once in half of this time.", low=MILLISECOND)
    snapshot_wait_ivl: int = _ivl(10 * SECOND, _RECEIVER, "-", "How long a joiner waits for a state of which no packet comes. The default outlasts snapshot_ivl, and a source that is busy for some seconds. The joiner then reports that it got no state.", low=MILLISECOND)
    durable_sync_ivl: int = _ivl(100 * MILLISECOND, _RECEIVER, "-", "How often a durable receiver writes the positions of its application to the disk, while they move. A crash of the process or of the machine repeats what the application took in this time.", low=MILLISECOND, high=60 * SECOND)
    durable_hold_ivl: int = _ivl(5 * SECOND, _RECORDERS, "-", "How long a receiver or recorder that continues at a position asks for the SPM and the history of the session. What it lacks then is lost, or comes from an archive. Live packets wait in the receive window meanwhile. The default outlasts the restart of a repairer.", high=600 * SECOND)
    durable_archive_ivl: int = _ivl(10 * SECOND, _RECORDERS, "-", "How long a durable receiver waits for rows that no archive has yet, or that a service does not send. After this time without a row the rest of the range is lost. A call to a service ends after this time, too, and is repeated if rows have come. The default outlasts the restart of a service.", low=10 * MILLISECOND, high=3600 * SECOND)
    durable_gone_ivl: int = _ivl(4 * SECOND, _RECEIVER, "-", "How long a receiver that continues at a position waits for a session whose source has begun another one. The earlier session then counts as ended. The default is two ihb_max, so a session that goes on is heard.", high=600 * SECOND)
    rxw_sqns: int = _count(1 << 20, _ASKERS, "3.4", "Largest jump of the lead that is recovered. A larger jump restarts the session, if SPMs and data prove it and the source has been silent for jump_silence_ivl. OPT_JOIN reaches no further back than this.", low=64)
    rxw_gaps: int = _count(8192, ("receiver", "repairer"), "-", "Maximum ranges of missing packets per session. Beyond this limit the oldest range is given up.", low=16, high=1 << 20)
    conflict_keep_bytes: int = _octets(1 * MIB, _RECEIVER, "-", "Octets per session of delivered packets that are kept, to compare later copies of them. A copy that differs is reported as a conflict. At most 512 reads are kept, long ones in place in two chunks of receive memory. The default holds the last 1 ms at 1 GB/s, and the last 512 packets of a slow stream. 0: only packets that wait for delivery are compared.", high=1 * GIB)
    ncf_lead_sqns: int = _count(4096, ("receiver", "repairer"), "6.3", "How far beyond the newest sqn known from data or SPMs an NCF may reveal a loss.")
    jump_burst_sqns: int = _count(4096, _ASKERS, "-", "How far a lead may jump at once, beyond what the measured rate allows. A larger jump needs jump_confirmations. The default is what a full socket buffer loses at once, and equals ncf_lead_sqns.", low=16)
    jump_rate_factor: int = _count(2, _ASKERS, "-", "How many times faster than measured the source may have sent while nothing came. A lead beyond that needs jump_confirmations.", low=1, high=1000)
    jump_confirmations: int = _count(2, _ASKERS, "-", "SPMs and data packets that must agree on an implausible jump before it is followed. With data among them they must last jump_ivl and win against the source's old position. SPMs alone also need a silence of jump_silence_ivl.", low=1, high=100)
    jump_packets: int = _count(32, _ASKERS, "-", "Data packets that prove an implausible jump after jump_ivl. Fewer packets wait until the source would have sent eight by its rate of late. The default is a train.", low=1)
    jump_ivl: int = _ivl(20 * MILLISECOND, _ASKERS, "-", "Shortest time that the witnesses of an implausible jump must last. Their packets are dropped meanwhile and requested then.", high=60 * SECOND)
    jump_silence_ivl: int = _ivl(2500 * MILLISECOND, _ASKERS, "-", "Silence at the source's old position after which SPMs prove an implausible jump. The value should be above ihb_max: a live source then speaks in time.", high=600 * SECOND)
    spm_confirmations: int = _count(8, _ASKERS, "6.2", "SPMs with an old SPM_SQN that must come in order, with no newer SPM between them, before SPMs are accepted again. One SPM with a false SPM_SQN then does not end SPM processing for the session.", low=2, high=1000)
    max_sessions: int = _count(64, _ASKERS, "-", "Maximum sources followed at once. One more source evicts an ended session, another newcomer, or a session that was silent for peer_expiry. Otherwise it is refused.", low=1, high=65_536)
    session_confirmations: int = _count(3, _ASKERS, "-", "SPMs that must agree with data that came since the SPM before. A session is a newcomer until then, and one more newcomer may evict it. One packet with a new TSI therefore evicts no session in use.", low=1, high=100)
    peer_expiry: int = _ivl(10 * SECOND, _ASKERS, "-", "Silence after which a session is reported as silent. A session whose source announced its end closes then. The default is several ihb_max.", low=10 * MILLISECOND)
    stall_ivl: int = _ivl(4 * SECOND, _ASKERS, "-", "Silence after which no packet is given up: the cause is then an outage above, not a loss. The value must be two ihb_max or more, and below peer_expiry.", low=MILLISECOND)
    end_confirm_ivl: int = _ivl(500 * MILLISECOND, _ASKERS, "-", "Wait before a FIN or RST is believed. Data behind the end, or a later SPM without an end, void it. Receivers request an SPM meanwhile, so the value should be above spmr_bo_ivl. 0 believes every packet.", low=0)
    signature_age: int = _ivl(60 * SECOND, _ALL, "-", "Largest difference between the time at which the first SPM of a session was signed, or a request got its code, and this node's clock. Older packets are replays. The clocks of the nodes must agree that well.", low=SECOND)
    forged_retries: int = _count(8, _RECEIVER, "-", "How often a receiver of a signed stream requests packets again that do not fit their proof. The packets are lost after that. The default asks each of a few parents twice.", low=0, high=1000)
    forged_allowed: int = _count(3, _RECEIVER, "-", "Packets of a parent that differ from those of the source, beyond which the parent is asked last for the rest of the session. Details of proofs show which node gave them. The default pardons single faults of a memory.", low=0, high=1_000_000)
    secret_wait: int = _ivl(30 * SECOND, _RECEIVER, "-", "How long packets of a sealed stream may wait for their secret. The session is closed after that, with the cause `no_secret`. The default covers three rounds of key records.", low=SECOND, high=3600 * SECOND)
    details_ivl: int = _ivl(250 * MILLISECOND, ("source", "receiver"), "-", "Wait of a receiver of a signed stream before it requests details again, and before the first request while a repair may still come. A source answers equal requests once in half of this time.", low=MILLISECOND)
    details_retries: int = _count(3, _RECEIVER, "-", "Repeats of a request for details. Without an answer the packets that cannot be judged are lost, or requested again together with others. The default holds up a stream for a second.", high=1000)
    details_rte: int = _per_s(50, _SOURCE, "-", "Requests for details that a source answers in a second, at most. Details of 32 packets are some 1.7 KB, and two signatures to verify: 50 take 1.5 % of a core at each receiver, whatever a hostile node requests.")
    spm_verify_rte: int = _per_s(100, _ASKERS, "-", "Signatures of SPMs that are verified in a second, for each sender of valid SPMs, and for all other senders together. A verification takes some 0.15 ms, and a source sends fewer SPMs.")
    kernel_refusal_after: int = _count(100, _ALL, "-", "Packets of unlisted senders that a node refuses before the kernel drops them, except one in 64, on UDP sockets. A packet that the kernel drops costs the node no time, and a few stray packets need no filter. 0 leaves all to the node.", low=0, high=1_000_000_000)
    false_proof_rte: int = _per_s(500, _RECEIVER, "-", "Wrong signatures of proofs and key records that a receiver checks in a second, for each session. Beyond, proofs are dropped without a check, and requested again. A check takes some 0.15 ms: the default spends 8 % of a core on forgeries. True proofs have no limit while no forged ones come.")
    session_expiry: int = _ivl(120 * SECOND, _ASKERS, "-", "Silence after which a session's state is dropped and its missing packets are reported lost.", low=10 * MILLISECOND)
    inbox_bytes: int = _octets(16 * MIB, _RECEIVER, "-", "Maximum octets delivered and not yet taken by the application. At this limit delivery stops and repair continues.", low=64 * KIB)

    # Network elements (RFC 7)
    ne_nak_rpt_ivl: int = _ivl(300 * MILLISECOND, _ELEMENTS, "7.3", "How long an aggregator repeats a NAK to one parent before the aggregator tries the next parent.", low=MILLISECOND)
    ne_nak_rpt_rte: int = _per_s(10, _ELEMENTS, "7.3", "Repeats a second of an unconfirmed NAK.")
    ne_nak_max_outstanding: int = _count(3024, ("aggregator",), "-", "Maximum sqns in flight as requests for a relay's own losses, oldest first. The default is 48 NAK lists, a quarter of the trains that an 8 MiB buffer holds. The default is above a receiver's: answers queue behind the data in the buffer of a late relay, and all nodes below wait for them.", low=63)
    ne_nak_rdata_ivl: int = _ivl(2 * SECOND, _ELEMENTS, "7.3", "Life of a confirmed repair state without RDATA.", low=MILLISECOND)
    nak_elim_ivl: int = _ivl(100 * MILLISECOND, _ELEMENTS, "7.4", "How long duplicates of a confirmed NAK are eliminated. The value is a small fraction of ne_nak_rdata_ivl.", low=MILLISECOND)
    repair_states: int = _count(16_384, _PARENTS, "10", "Maximum ranges of repair state per session.", low=16)
    cache_bytes: int = _octets(256 * MIB, ("repairer",), "-", "Maximum octets that a repairer keeps, all sessions together.", low=MIB)
    cache_secs: int = _ivl(60 * SECOND, ("repairer",), "-", "How long a repairer keeps a packet.", low=MILLISECOND)
    relay_cache_ivl: int = _ivl(2 * SECOND, ("aggregator",), "-", "How long a relaying aggregator keeps what it passed down, to answer NAKs itself. The default outlasts the repeats of a receiver whose first NAKs are lost. 0: nothing is kept, as in the RFC, and every loss below is requested upstream.", high=3600 * SECOND)
    relay_cache_bytes: int = _octets(32 * MIB, ("aggregator",), "-", "Maximum octets that a relaying aggregator keeps, all sessions together. The default holds 2 s of 128 Mbit/s, and a small machine bears it.", low=MIB)
    assist_on_ncf: bool = _row(Unit.SWITCH, True, ("repairer",), "5.2", "Repair a loss that an NCF of the source reveals, for receivers that know no repairer.", high=1)
    relay_takeover_ivl: int = _ivl(5 * SECOND, _ELEMENTS, "-", "A standby relay takes over when the active relay has been silent for this long. The value must be above ihb_max.", low=10 * MILLISECOND)

    relay_listen_ivl: int = _ivl(300 * MILLISECOND, _ELEMENTS, "-", "A relay with a standby asks for this long whether the other relay is active, before the relay takes over.", low=3 * MILLISECOND)

    # Redirection to repairers that offer themselves (RFC 9.5)
    dlr_mode: str = _row(Unit.CHOICE, "off", ("repairer",), "9.5.2", "How a repairer on one segment offers itself. upstream: by POLRs to all nodes that hear its parent's NCFs. off-tree: by answers to polls. both: in both ways. A repairer that the topology names as a parent needs no offer.", choices=("off", "upstream", "off-tree", "both"))
    redirect_ivl: int = _ivl(SECOND, ("repairer",), "9.5.2.1", "Minimum interval between two offers to the segment. One offer for each NCF would be a storm.", low=MILLISECOND)
    honour_redirects: bool = _row(Unit.SWITCH, False, ("receiver", "aggregator"), "9.5.3, 9.5.4", "Ask repairers that offer themselves by POLRs. Receivers ask only such repairers outside their own subnet. Off: only the topology says which repairers to ask.", high=1)
    null_naks: bool = _row(Unit.SWITCH, False, ("repairer",), "9.5.2", "Also send null NAKs to the source for repairs that no redirect caused. This project's source only counts null NAKs.", high=1)

    # Polls (RFC 14)
    poll_ivl: int = _ivl(0, _PARENTS, "14.3.1", "How often a poll counts the children on each segment. 0: never. Only the operator and nak_bo_tuning need the count.")
    poll_dlr_ivl: int = _ivl(0, ("aggregator",), "9.5.3.1", "How often an aggregator looks for off-tree repairers below it by a poll of sub-type DLR. 0: never.")
    poll_bo_ivl: int = _ivl(500 * MILLISECOND, _PARENTS, "14.4", "POLL_BO_IVL: children spread their answers over this time. The default leaves time to cancel a poll that draws too many answers.", low=MILLISECOND, high=60 * SECOND)
    poll_replies: int = _count(32, _PARENTS, "14.3.1", "Answers that a census aims for. An estimate from 32 answers is typically off by a sixth.", low=1, high=1 << 16)
    poll_max_replies: int = _count(512, _PARENTS, "14.4", "Answers beyond which a poll is cancelled.", low=1, high=1 << 20)
    poll_first_bits: int = _count(12, _PARENTS, "14.3.1", "Bits that must match in the first round of the first census. With 12 bits one child in 4096 answers.", high=32)
    poll_history: int = _count(4, _PARENTS, "14.3.1", "Censuses over which the number of children is averaged.", low=1, high=1000)

    # Implosion prevention (RFC 15)
    nak_bo_tuning: str = _row(Unit.CHOICE, "off", _PARENTS, "15.2.1", "Source of the back-off that SPMs and NCFs advertise to the nodes below: no tuning, duplicate NAKs, or polls.", choices=("off", "duplicates", "polls"))
    nak_bo_ivl_default: int = _ivl(10 * MILLISECOND, _PARENTS, "15.2.1", "Back-off from which a parent starts to tune: nak_bo_ivl of its children.", low=100 * MICROSECOND, high=60 * SECOND)
    nak_bo_ivl_min: int = _ivl(MILLISECOND, _ALL, "15.2.1", "Minimum back-off that is advertised or accepted. With tuning by polls, the back-off is this value for each child counted. The default is a round trip of the subnet.", low=100 * MICROSECOND, high=60 * SECOND)
    nak_bo_ivl_max: int = _ivl(2 * SECOND, _ALL, "15.2.1", "Maximum back-off that is advertised or accepted. A repair should not wait for seconds.", low=100 * MICROSECOND, high=60 * SECOND)
    nak_probe_num: int = _count(16, _PARENTS, "15.2.1", "Repairs without a duplicate NAK after which the back-off is halved.", low=1)
    dup_nak_max: int = _count(0, _PARENTS, "15.3.1", "Duplicates of one NAK after which multicast to a segment counts as failed. NAKs from that segment are then confirmed by unicast. 0: never. The value must be above the duplicates that chance and lost NCFs cause.")

    # Parity (RFC appendix A)
    fec_group: int = _count(0, _SOURCE, "11.2", "Packets of a transmission group, a power of two from 2 to 128. 0: no parity. Larger groups need less parity and make losses wait longer.", high=128)
    fec_proactive: int = _count(0, _SOURCE, "11.4", "Parity packets sent with every group without a request. Up to this many losses in a group then need no NAK. The parity takes its part of txw_max_rte.", high=127)
    fec_on_demand: bool = _row(Unit.SWITCH, True, _SOURCE, "11.4", "Answer NAKs for a number of packets of a group with parity. If off, fec_proactive must not be 0.", high=1)
    fec_close_ivl: int = _ivl(20 * MILLISECOND, _SOURCE, "11.4", "A source that has sent nothing for this long ends its group, so that no receiver waits for the rest.", low=MILLISECOND)
    fec_serves_single: bool = _row(Unit.SWITCH, False, _SOURCE, "11.4", "Repair packets of complete groups one by one for receivers that request them so, as receivers without parity do. The RFC requires parity in that case.", high=1)
    fec_hold_ivl: int = _ivl(100 * MILLISECOND, ("receiver", "repairer"), "11.5", "How long a loss in an unfinished group waits, for the end of the group or the rest of its parity, before it is requested. The value must be above fec_close_ivl.", low=MILLISECOND)
    fec_retries: int = _count(3, ("receiver", "repairer"), "11.5", "Unanswered parity NAKs after which single packets are requested, as often, and so by turns. The group may no longer exist above, or no parent may support parity.", low=1, high=1000)
    fec_groups: int = _count(512, ("receiver", "repairer"), "11.5", "Maximum groups for which parity is requested and kept at a time. The oldest groups come first.", low=1, high=1 << 16)

    # Brakes (RFC 5.2, 7.6, 10, 13.4)
    child_nak_rte: int = _per_s(2000, _PARENTS, "7.6", "NAKs a second accepted from one child.")
    child_proof_ivl: int = _ivl(5 * SECOND, _PARENTS, "-", "How long a sender of NAKs that the topology does not name shares one budget with all other such senders. The budgets must not be exceeded meanwhile, so a flood from many addresses never gets more than one child. 0: no sender is a newcomer.")
    session_nak_rte: int = _per_s(20_000, _PARENTS, "7.6", "NAKs a second accepted for one session.")
    session_ncf_rte: int = _per_s(20_000, _PARENTS, "5.2", "NCFs a second sent for one session.")
    excess_nak_window_ivl: int = _ivl(4 * SECOND, _ALL, "-", "Window in which requests are counted to detect excessive NAKs. A node that requests repairs in every window may come to count as excessive; a window without a request ends that. 0: no detection. Distributor's nagging_window_interval has the same default.")
    excess_nak_check_ivl: int = _ivl(12 * SECOND, _ALL, "-", "How long the requests of every window must reach excess_nak_share before they count as excessive. Distributor's nagging_check_interval, with a default of 60 s, burdens a subnet for a minute.", low=10 * MILLISECOND)
    excess_nak_min_sqns: int = _count(1000, _ALL, "-", "Packets requested within excess_nak_check_ivl below which NAKs are never excessive. Distributor's nagging_max_retransmissions has no default.", low=1)
    excess_nak_share: float = _row(Unit.FRACTION, 0.2, _ALL, "-", "Packets requested within excess_nak_window_ivl, as a share of those sent, below which NAKs are never excessive. Normal requests of a lossy line stay below this share at any stream rate.", low=0.001, high=1)
    excess_nak_policy: str = _row(Unit.CHOICE, "go-on", _RECEIVER, "-", "Reaction of a receiver to its own excessive NAKs. go-on: the receiver reports them and continues. lower: the receiver reduces its requests to excess_nak_sqn_rte. close: the receiver closes the session, as Distributor does.", choices=("go-on", "lower", "close"))
    excess_nak_sqn_rte: int = _per_s(100, _ALL, "-", "Packets a second that a child with excessive NAKs may request until its NAKs are normal again. The same limit holds for a receiver with excess_nak_policy lower. A stream that loses fewer packets than this is repaired completely.")
    notice_ivl: int = _ivl(10 * SECOND, _ALL, "-", "Minimum interval between two notices about a condition that may recur all the time.", low=MILLISECOND)
    brake_burst_ivl: int = _ivl(SECOND, _PARENTS, "-", "Bucket of the NAK and NCF limits, as time at their rate. Askers share the repairs of such an interval, and as many may wait beyond the shares.", low=MILLISECOND)
    max_children: int = _count(4096, _PARENTS, "-", "Maximum children whose budgets are kept. One more child displaces the child that has been silent longest.", low=1)

    # The archive
    record_bytes: int = _octets(64 * GIB, _RECORDERS, "-", "Maximum octets of an archive. Beyond this limit the oldest segment is deleted.", low=MIB, high=1024 * 1024 * GIB)
    record_secs: int = _ivl(7 * 24 * 3600 * SECOND, _RECORDERS, "-", "How long an archive keeps a segment after its last row.", low=SECOND, high=100 * 365 * 24 * 3600 * SECOND)
    record_segment_bytes: int = _octets(256 * MIB, _RECORDERS, "-", "A segment of an archive ends at this size, which is the step of retention by octets.", low=64 * KIB, high=64 * GIB)
    record_segment_ivl: int = _ivl(3600 * SECOND, _RECORDERS, "-", "A segment of an archive ends at this age, which is the step of retention by age.", low=SECOND, high=24 * 3600 * SECOND)
    record_batch_bytes: int = _octets(MIB, _RECORDERS, "-", "Rows are written as a batch when they reach this size. Smaller batches cost more per row. Larger batches expose more rows to a crash.", low=4 * KIB, high=256 * MIB)
    record_batch_ivl: int = _ivl(100 * MILLISECOND, _RECORDERS, "-", "Rows are written as a batch at this age, however few they are.", low=MILLISECOND, high=60 * SECOND)
    record_sync_bytes: int = _octets(32 * MIB, _RECORDERS, "-", "An archive is synced to the disk after this many octets. Only synced rows are reported as recorded.", low=4 * KIB, high=GIB)
    record_sync_ivl: int = _ivl(200 * MILLISECOND, _RECORDERS, "-", "An archive is synced to the disk when written rows reach this age. A crash of the machine loses no more than this.", low=MILLISECOND, high=60 * SECOND)
    record_queue_bytes: int = _octets(64 * MIB, _RECORDERS, "-", "Maximum octets that wait to be recorded. Any excess is recorded as lost with cause recorder. The queue should outlast the longest pause of the disk.", low=64 * KIB, high=64 * GIB)
    record_retry_ivl: int = _ivl(SECOND, _RECORDERS, "-", "How often an archive retries after a failed write.", low=10 * MILLISECOND, high=60 * SECOND)
    record_nice: int = _count(0, _RECORDERS, "-", "Niceness of the process that writes an archive, added to the node's own. That process runs under SCHED_BATCH and never preempts a process that wakes up. With more than 0 that process also gets a smaller share of a busy processor. Rows that the process cannot write in time are recorded as lost.", low=0, high=19)
    record_restarts: int = _count(5, _RECORDERS, "-", "How often in a row the process that writes an archive is restarted after it dies. The first delay is record_retry_ivl, and each further delay is twice as long. After the last restart recording ends, and recorder_lost counts all further packets.", low=0, high=1000)
    record_lock_ivl: int = _ivl(10 * SECOND, _RECORDERS, "-", "How long a recorder waits for its predecessor to release the archive. A killed node leaves a process that still writes its queue.", low=MILLISECOND, high=600 * SECOND)
    archive_streams: int = _count(64, _RECORDERS, "-", "Maximum ranges that the range service serves at once, for all clients together.", low=1, high=10_000)
    archive_client_streams: int = _count(32, _RECORDERS, "-", "Maximum ranges that the range service serves at once for one client.", low=1, high=10_000)
    archive_request_bytes: int = _octets(MIB, _RECORDERS, "-", "Maximum octets of one request to the range service: a ticket, a command or the body of an action. The default has room for 10,000 attempts of a batch.", low=64 * KIB, high=64 * MIB)
    archive_rte: int = _row(Unit.RATE, 12_500_000, _RECORDERS, "-", "Maximum rate at which the range service sends rows to durable receivers, for all of them together. Live data of the same network go first. The default is 100 Mbit/s.", low=1000, high=1 << 40)
    archive_poll_ivl: int = _ivl(20 * MILLISECOND, _RECORDERS, "-", "How often the range service checks for new rows while a live tail waits for them.", low=MILLISECOND, high=60 * SECOND)
    archive_end_ivl: int = _ivl(2 * SECOND, _RECORDERS, "-", "How long a range service that shuts down waits for requests in progress. The remaining clients are then disconnected.", low=0, high=600 * SECOND)
    archive_stage_bytes: int = _octets(256 * MIB, _RECORDERS, "-", "Maximum octets that wait at the range service until their batch is published. Further octets are refused.", low=MIB, high=64 * GIB)
    archive_stage_ivl: int = _ivl(600 * SECOND, _RECORDERS, "-", "How long staged octets wait for their batch. After this time the client counts as gone.", low=SECOND, high=24 * 3600 * SECOND)

    # Tables of exported rows
    table_commit_bytes: int = _octets(64 * MIB, _RECORDERS, "-", "Octets of rows that an export commits to a table at once. Smaller commits make more and smaller files. The export holds these rows in memory.", low=4 * KIB, high=16 * GIB)
    table_file_bytes: int = _octets(128 * MIB, _RECORDERS, "-", "Size that merged files of a table reach. Files of less than half this size are merged. A merge holds the rows of one file in memory.", low=4 * KIB, high=16 * GIB)
    table_keep_ivl: int = _ivl(24 * 3600 * SECOND, _RECORDERS, "-", "How long merged files and earlier snapshots of an Iceberg table remain for queries that have begun with them.", low=0, high=366 * 24 * 3600 * SECOND)

    # Files
    file_block_bytes: int = _octets(MIB, _SOURCE, "-", "Octets of a file that one digest covers. A block with a wrong digest is sent again. The default fits a processor's cache.", low=64 * KIB, high=64 * MIB)
    file_digest: str = _row(Unit.CHOICE, "crc32", _SOURCE, "-", "Digest of blocks of files, beside the checksum of every packet. crc32 misses one damaged block in four thousand million. sha256 misses none and takes three times as long.", choices=("crc32", "sha256"))
    file_blocks: int = _count(64, _RECEIVER, "-", "Maximum blocks of files in assembly at a time. Beyond this limit the oldest block is dropped and requested again.", low=2, high=1 << 16)
    file_rounds: int = _count(8, _SOURCE, "-", "Maximum times that files, or their missing parts, are sent.", low=1, high=1000)
    file_questions: int = _count(10, _SOURCE, "-", "Questions after a round that a receiver may leave unanswered.", low=1, high=1000)
    file_ask_ivl: int = _ivl(200 * MILLISECOND, ("source", "receiver"), "-", "Time between two questions about missing parts of files. Receivers spread their answers over the first half of this time.", low=MILLISECOND, high=60 * SECOND)
    file_patience: int = _ivl(30 * SECOND, _SOURCE, "-", "How long the source of files waits for a silent receiver that reported itself busy or still acknowledges packets. The source then continues without that receiver.", low=MILLISECOND)
    file_receivers: int = _count(4096, _SOURCE, "-", "Maximum receivers of files whose answers are kept. A further receiver is served only as far as it lacks the same parts.", low=1, high=1_000_000)
    file_entries: int = _count(200_000, ("source", "receiver"), "-", "Maximum files and folders in a transfer, with the folders above them. The read of a list with 200,000 entries takes some hundred MB of memory.", low=1, high=10_000_000)
    file_manifest_bytes: int = _octets(64 * MIB, ("source", "receiver"), "-", "Maximum octets of the list of files.", low=KIB, high=GIB)

    # Sockets and drivers
    so_rcvbuf: int = _octets(16 * MIB, _ALL, "-", "Receive buffer requested from the kernel. The granted size is read back and reported. The kernel doubles the request. At 1 GB/s the default then holds 30 ms of arrivals, twice as long as a virtual machine sometimes stops a process. At 100 Mbit/s the default holds 2.7 s, after which dropped packets can still be repaired. A late node must catch up by reading, because requests for its own drops delay it further. Only waiting packets take memory.", low=16 * KIB, high=GIB)
    so_sndbuf: int = _octets(4 * MIB, _ALL, "-", "Send buffer requested from the kernel.", low=16 * KIB, high=GIB)
    multicast_hops: int = _count(16, _ALL, "-", "Hop limit of multicast packets.", low=1, high=255)
    dscp: int = _count(0, _ALL, "-", "Traffic class of all packets sent, data and control: the six bits of DSCP, for switches that separate traffic by class.", high=63)
    gso: bool = _row(Unit.SWITCH, True, _PARENTS, "-", "Send a train in one call if the kernel can (UDP_SEGMENT).", high=1)
    gro: bool = _row(Unit.SWITCH, True, _ALL, "-", "Read a train in one call if the kernel can (UDP_GRO).", high=1)
    rx_poll_ivl: int = _ivl(150 * MICROSECOND, _RECEIVER, "-", "How long a receiver without busy polling polls its socket before it sleeps. The receiver polls only if that pays: answers arrive sooner than a wake-up takes, and no other task wants the processor. Other tasks run before each poll and are delayed by at most this long. 0: the receiver sleeps at once. The default is about the time of a wake-up.", high=10 * MILLISECOND)
    rx_spin_ivl: int = _ivl(0, _RECEIVER, "-", "How long a receiver with busy polling polls an idle socket before it blocks in the kernel. 0: the receiver never blocks. After a block the first packet costs a wake-up of some tens of microseconds.", high=3600 * SECOND)
    rx_block_ivl: int = _ivl(MILLISECOND, _RECEIVER, "-", "Longest single block in the kernel. A packet ends the block at once. A timer is delayed by at most this long.", low=MILLISECOND, high=SECOND)
    rx_wake_ivl: int = _ivl(0, _ALL, "-", "A node that has read its sockets leaves them until the next multiple of this time, and so wakes for many packets at once. 0: the node reads at once. Use this for processes that share a few cores. Each hop takes that much longer, so raise rtt as well.", high=100 * MILLISECOND)
    rx_bulk_ivl: int = _ivl(2 * MILLISECOND, _ASKERS, "-", "A node that steadily receives rx_bulk_rte or more, without NAKs sent or received, rests this long after it has read its sockets. The node then wakes for many trains at once. The rest is at most 1 ms if the node steadily loses a few packets and no child sends NAKs. No rest exceeds the time that fills rx_bulk_share of the receive buffer, or ne_bulk_share in an element. 0: the node reads at once. The default is two steps of the 1 ms timer.", high=100 * MILLISECOND)
    rx_bulk_rte: int = _row(Unit.RATE, 64_000_000, _ASKERS, "-", "Octets a second from which rx_bulk_ivl applies: about a train in each step of the 1 ms timer.", low=1, high=125_000_000_000)
    rx_bulk_share: float = _row(Unit.FRACTION, 0.0625, _RECEIVER, "-", "Share of the receive buffer that may fill during a rest. The waiting octets reduce the reserve for a process that wakes late. With the default buffer of 16 MiB this is 1 MiB, the arrivals of rx_bulk_ivl at 500 MB/s.", low=0.0, high=1.0)
    ne_bulk_share: float = _row(Unit.FRACTION, 0.25, _ELEMENTS, "-", "Share of the receive buffer that may fill during a rest of an element. The process of an element sleeps for less time than a receiver's when it rests.", low=0.0, high=1.0)
    tape_bytes: int = _octets(256 * MIB, _ALL, "-", "Octets of a tape on disk (docs/guide/replay.md). Beyond this limit the oldest inputs are deleted. A tape takes what the node reads: 256 MiB are 20 s at 100 Mbit/s.", low=512 * KIB)
    tape_secs: int = _ivl(600 * SECOND, _ALL, "-", "Age beyond which the inputs on a tape are deleted.", low=SECOND)
    tapes_kept: int = _count(4, _ALL, "-", "Tapes of earlier runs of a node that stay in the folder; older ones are deleted.", low=0, high=1000)
    telemetry_rows: int = _count(100_000, _ALL, "-", "Rows after which a telemetry file is complete. A file then has a few MB, a good size for Spark.", low=1, high=10_000_000)
    telemetry_ivl: int = _ivl(5 * SECOND, _ALL, "-", "Age after which a telemetry file is complete, so that streaming jobs lag only a little.", low=10 * MILLISECOND)
    telemetry_sample_ivl: int = _ivl(SECOND, _ALL, "-", "Interval of the telemetry rows that total the packets sent, received and delivered. The windows of reports are ten times as long.", low=MILLISECOND)
    telemetry_queue: int = _count(200_000, _ALL, "-", "Maximum telemetry rows that wait to be written. Further rows are counted and dropped. The default takes some 60 MB.", low=100, high=100_000_000)
    telemetry_merge_ivl: int = _ivl(600 * SECOND, _ALL, "-", "Age of telemetry files that are merged into one file. Streaming jobs must have read them by then. A node has a few hundred files of a day then, not 17,000.", low=10 * MILLISECOND)
    telemetry_bytes: int = _octets(GIB, _ALL, "-", "Octets of telemetry that a node keeps on disk. Beyond this limit the oldest files are deleted.", low=64 * KIB)
    ready_ivl: int = _ivl(10 * SECOND, _ALL, "-", "How long a node waits for its first packet before it reports to the service manager that it is ready. A repairer that restarts is ready once it hears its source. The default is five times ihb_max.")
    watchdog_ivl: int = _ivl(30 * SECOND, _ALL, "-", "Silence of the packet loop after which the service manager restarts the unit of a node. The default is far above the longest pause of a loaded host. 0: no watchdog.")
    flight_bytes: int = _octets(16 * MIB, _ALL, "-", "Octets of the flight recorder, in which a node keeps what befell lost packets (docs/guide/explain.md). The oldest records give way. The file lies in the runtime folder and takes memory only as records come: 1 MiB has 16,384. 0: the node records nothing.", high=GIB)
    flight_rte: int = _per_s(5000, _ALL, "-", "Maximum records a second of the flight recorder. Further records are counted and dropped. 5,000 records take less than 2% of a core.")
    flight_sample_ivl: int = _ivl(100 * MILLISECOND, _ALL, "-", "Interval at which the flight recorder reads how far each session has come, and what the sockets dropped. The time at which a packet was sent is known to this interval.", low=MILLISECOND, high=60 * SECOND)
    private_options: bool = _row(Unit.SWITCH, True, _SOURCE, "-", "Put the session's epoch on SPMs in an option that other implementations skip, and derive the global source id from the names of stream, node and topology. Off: the global source id comes from the host's name, as theirs does.", high=1)
    # fmt: on


def _rows() -> dict[str, Row]:
    rows = {}
    for field in attrs.fields(Parameters):
        spec = field.metadata["row"]
        default: Any = field.default
        rows[field.name] = Row(key=field.name, default=default, **spec)
    return rows


ROWS: dict[str, Row] = _rows()
# Parameters of a node's sockets, which all of its endpoints in one process share.
SOCKET_PARAMETERS = ("so_rcvbuf", "so_sndbuf", "gso", "gro", "dscp", "multicast_hops")


@attrs.frozen
class ProfileInputs:
    """Three inputs from which a profile computes its timers."""

    rtt: int = MILLISECOND  # ns, within a subnet and to the next tier
    repair_budget: int = 10 * SECOND  # ns, longest time of a repair before the packet is given up
    rate: int = 25_000_000  # octets/s of the stream


def _timers(inputs: ProfileInputs, *, floor: int) -> dict[str, Any]:
    """Return back-off, repeat and data intervals in proportion to the round trip, never below `floor`, in ns."""
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
    """Timers for one site: a round trip around a millisecond, losses rare and in bursts."""
    return _timers(inputs, floor=10 * MILLISECOND)


def wan(inputs: ProfileInputs) -> dict[str, Any]:
    """Timers for tiers joined by long lines: timers follow the round trip, windows last longer."""
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
    """Timers for wireless or overloaded links: a larger share of the rate for repairs."""
    inputs = attrs.evolve(inputs, repair_budget=max(inputs.repair_budget, 20 * SECOND))
    return _timers(inputs, floor=10 * MILLISECOND) | {
        "txw_secs": 30 * SECOND,
        "rdata_share": 0.5,
    }


def legacy(_inputs: ProfileInputs) -> dict[str, Any]:
    """Timers for OpenPGM or ZeroMQ peers: their values, no private options, both ports equal."""
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
        "unicast_repair_min_sqns": 0,
    }


PROFILES: dict[str, Callable[[ProfileInputs], dict[str, Any]]] = {
    "lan": lan,
    "wan": wan,
    "lossy": lossy,
    "legacy": legacy,
}
