"""Invariants that hold at every event of every run, whichever faults occur.

`pgm.sim.delivery_check` checks order and content of deliveries. `pgm.sim.checks.nak_timing_check` checks the timing of
NAKs. This module checks NCF before RDATA, rates, memory, and the one active node for each session of a segment. Every
checker uses only the wire and the parameters, keeps its own accounts, and raises `InvariantBroken`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import attrs

from pgm.core.effects import Send
from pgm.core.receiver.receiver import ReceiverCore
from pgm.core.segment import Channel
from pgm.core.source.source import SourceCore
from pgm.core.structures.arena import CHUNK_OCTETS
from pgm.parameters import Parameters
from pgm.sim.checks.checker import Checker
from pgm.sim.checks.nak_timing_check import NakTimingCheck
from pgm.sim.node import SimulatedNode
from pgm.topology.node_plan import Role
from pgm.units import SECOND
from pgm.wire.control_packets import Nak, Spm
from pgm.wire.formats import Nla, PacketType, Tsi, tsi_text
from pgm.wire.sequence_numbers import wrap
from pgm.wire.train import Data, Train

_MAX_NAK_OCTETS = 1024  # more than the longest NAK list with the longest addresses
_MAX_SPM_OCTETS = 128  # an SPM with every option that these sources use


def data_of(train: Train) -> Iterator[Data]:
    """Yield the data packets of a train."""
    return (item for item in train.parse_untrusted()[0] if isinstance(item, Data))


def wire_sqns(data: Data) -> Iterator[int]:
    """Yield the sqns of data packets as they are on the wire."""
    return (wrap(data.wire_sqn + index) for index in range(data.count))


_SessionPlace = tuple[int, int, Tsi]  # node, segment, session


class NcfFirst(Checker):
    """RDATA in answer to a NAK follows an NCF for that sqn on the NAK's segment.

    RFC 5.1.3, 7.2. An NCF sent less than `ncf_ivl` before the NAK also confirms the NAK, since the next NCF is
    postponed. A NAK refused by a limit is not served, nor is one for a session that the node does not know (NE-17). A
    full line drops the NCF of a NAK. The checker forgets the sqns of all three.
    """

    def __init__(self) -> None:
        self._requested: dict[_SessionPlace, dict[int, bool]] = {}  # requested wire sqns -> whether they are confirmed
        self._confirmed_ns: dict[_SessionPlace, dict[int, int]] = {}
        self._requested_now: list[tuple[_SessionPlace, int]] = []
        self._refused = self._dropped = 0

    def started(self, node: SimulatedNode) -> None:
        """Forget the requests to the former process."""
        for place in [place for place in self._requested if place[0] == node.index]:
            del self._requested[place]
            self._confirmed_ns.pop(place, None)

    def received(self, node: SimulatedNode, train: Train, channel: Channel, peer: Nla) -> None:
        """Record the requested sqns."""
        if node.is_receiver or train.stride > _MAX_NAK_OCTETS:
            return
        if channel.is_group:
            self._heard(node, train, channel)
            return
        self._refused, self._dropped = _refused(node), _dropped(node)
        for item in train.parse_untrusted()[0]:
            if isinstance(item, Nak) and item.kind is PacketType.NAK:
                place = (node.index, channel.segment.index, item.tsi)
                requested = self._requested.setdefault(place, {})
                confirmed = self._confirmed_ns.get(place, {})
                recent_ns = self.world.now_ns - node.parameters.ncf_ivl
                for sqn in _requested_by(item, node):
                    if sqn not in requested:
                        requested[sqn] = confirmed.get(sqn, -1) > recent_ns
                        self._requested_now.append((place, sqn))

    def _heard(self, node: SimulatedNode, train: Train, channel: Channel) -> None:
        """Count NCFs of other nodes on the segment: an on-LAN repairer repairs what its parent has confirmed."""
        for item in train.parse_untrusted()[0]:
            if isinstance(item, Nak) and item.kind is PacketType.NCF:
                requested = self._requested.get((node.index, channel.segment.index, item.tsi), {})
                requested.update((sqn, True) for sqn in _requested_by(item, node) if sqn in requested)

    def called(self, node: SimulatedNode) -> None:
        """Forget requests that the node refused. To the node, an NCF that the line dropped counts as sent."""
        if not self._requested_now:
            return
        was_dropped = _dropped(node) != self._dropped
        if was_dropped or _refused(node) != self._refused:
            for place, sqn in self._requested_now:
                self._requested[place].pop(sqn, None)
                if was_dropped:
                    self._confirmed_ns.setdefault(place, {})[sqn] = self.world.now_ns
        self._requested_now.clear()

    def sent(self, node: SimulatedNode, send: Send, train: Train) -> None:
        """Record NCFs as confirmations; fail for RDATA without one."""
        if node.is_receiver:
            return
        for item in train.parse_untrusted()[0]:
            is_rdata = isinstance(item, Data) and item.type is PacketType.RDATA
            is_ncf = isinstance(item, Nak) and item.kind is PacketType.NCF
            if not is_rdata and not is_ncf:
                continue
            place = (node.index, send.segment.index, item.tsi)
            requested = self._requested.get(place)
            if requested is None:
                continue
            if isinstance(item, Nak):
                requested.update((sqn, True) for sqn in _requested_by(item, node) if sqn in requested)
                confirmed = self._confirmed_ns.setdefault(place, {})
                confirmed.update((sqn, self.world.now_ns) for sqn in _requested_by(item, node))
                continue
            assert isinstance(item, Data)
            for sqn in _groups_of(wire_sqns(item), node) if item.parity else wire_sqns(item):
                if requested.pop(sqn, True) is False:
                    what = f"parity group {-1 - sqn}" if sqn < 0 else f"wire sqn {sqn}"
                    node.fail(f"RDATA for {what} of {tsi_text(item.tsi)} without an NCF before it")


def _requested_by(nak: Nak, node: SimulatedNode) -> Iterable[int]:
    """Return the sqns or groups of a NAK or NCF; groups are negative."""
    return _groups_of(nak.sqns, node) if nak.parity else nak.sqns


def _groups_of(sqns: Iterable[int], node: SimulatedNode) -> list[int]:
    size = node.parameters.fec_group or 1
    return [-1 - sqn // size for sqn in sqns]


def _refused(node: SimulatedNode) -> int:
    if node.core is None:
        return 0
    counters = node.core.counters
    return (
        counters.nak_packets_braked
        + counters.excess_nak_packets
        + counters.nak_packets_late
        + counters.nak_packets_foreign
        + counters.foreign_packets
        + counters.ncf_packets_braked
    )


def _dropped(node: SimulatedNode) -> int:
    return 0 if node.core is None else node.core.counters.sends_dropped


@attrs.define
class _ExactBucket:
    """Exact token bucket, in octets times nanoseconds. Over any interval at most `bucket` + `rate` x time may pass."""

    rate: int
    bucket: int
    level: int = 0
    at_ns: int = 0

    def add(self, octets: int, now_ns: int) -> bool:
        """Add octets; return whether they were within the limit. A queued packet may be reported after a later one."""
        passed_ns = max(0, now_ns - self.at_ns)
        self.level = max(0, self.level - self.rate * passed_ns) + octets * SECOND
        self.at_ns += passed_ns
        return self.level <= self.bucket


class RateLimits(Checker):
    """RDATA of every node within its share, data of a source within TXW_MAX_RTE.

    SRC-03. Both limits hold on every segment and over any interval. SPMs are control: they go at once and are charged
    afterwards, so a source may be ahead by one SPM. Packets that wait for a slower line were within the limit when they
    were made, and may leave closer together.
    """

    def __init__(self) -> None:
        self._repairs: dict[tuple[int, int], _ExactBucket] = {}  # by node and segment
        self._all: dict[tuple[int, int], _ExactBucket] = {}  # of sources, by node and segment

    def started(self, node: SimulatedNode) -> None:
        """Start with full buckets for a new process."""
        parameters = node.parameters
        share = max(1, round(parameters.txw_max_rte * parameters.rdata_share))
        for segment in range(len(node.plan.segments)):
            self._repairs[node.index, segment] = _ExactBucket(share, _repair_bucket(parameters, share))
            spm = _MAX_SPM_OCTETS * SECOND
            rate = parameters.txw_max_rte
            self._all[node.index, segment] = _ExactBucket(rate, _bucket(parameters, rate) + spm)

    def sent(self, node: SimulatedNode, send: Send, train: Train) -> None:
        """Charge the octets that leave."""
        role = node.plan.role
        if role in (Role.RECEIVER, Role.AGGREGATOR):
            return  # an aggregator forwards packets that others paced
        now_ns = node.handed_ns
        repairs = sum(data.count * data.stride for data in data_of(train) if data.type is PacketType.RDATA)
        if repairs and not self._repairs[node.index, send.segment.index].add(repairs, now_ns):
            node.fail(f"{repairs} octets of RDATA exceed rdata_share")
        if role is not Role.SOURCE or not (send.is_data or _is_spm(train)):
            return
        if not self._all[node.index, send.segment.index].add(train.length, now_ns):
            node.fail(f"{train.length} octets exceed txw_max_rte")


def _bucket(parameters: Parameters, rate: int) -> int:
    """Return the bucket of a rate, octets times ns: txw_burst_ivl, but at least one packet and the slack."""
    slack_ns = min(parameters.txw_slack_ivl, parameters.txw_burst_ivl // 2)
    return max(parameters.txw_burst_ivl * rate, parameters.max_tpdu * SECOND + rate + rate * slack_ns)


def _repair_bucket(parameters: Parameters, share: int) -> int:
    """Return the bucket of repairs, octets times ns: that of the full rate, up to a second of the share."""
    full = _bucket(parameters, parameters.txw_max_rte)
    return max(min(full, share * SECOND), parameters.max_tpdu * SECOND + share)


def _is_spm(train: Train) -> bool:
    return any(isinstance(item, Spm) for item in train.parse_untrusted()[0])


class OneSpeaker(Checker):
    """One node at a time sends a segment's SPMs; the order A, B, A within an ambient_spm_ivl means two nodes."""

    def __init__(self) -> None:
        self._now: dict[tuple[str, Tsi], str] = {}
        self._last_ns: dict[tuple[str, Tsi, str], int] = {}

    def started(self, node: SimulatedNode) -> None:
        """Forget the SPMs of the former process."""
        for key in [key for key in self._last_ns if key[2] == node.name]:
            del self._last_ns[key]

    def sent(self, node: SimulatedNode, send: Send, train: Train) -> None:
        """Record the sender of each SPM."""
        if send.is_data or send.to is not None or node.is_receiver:
            return
        segment = send.segment.name
        if node.attachments[send.segment.index].egress.is_cut:
            return  # no node receives the SPM
        for item in train.parse_untrusted()[0]:
            if isinstance(item, Spm):
                self._spm_sent(node, (segment, item.tsi))

    def _spm_sent(self, node: SimulatedNode, key: tuple[str, Tsi]) -> None:
        now_ns = self.world.now_ns
        previous = self._now.get(key)
        last_ns = self._last_ns.get((*key, node.name))
        if previous not in (None, node.name) and last_ns is not None:
            since = now_ns - last_ns
            if since < node.parameters.ambient_spm_ivl:
                node.fail(f"sends SPMs of {tsi_text(key[1])} on {key[0]}, so did {previous}, and itself {since} ns ago")
        self._now[key] = node.name
        self._last_ns[*key, node.name] = now_ns


class MemoryBounds(Checker):
    """Every table and every store within its parameter. Only every `stride`th call of a node is checked."""

    def __init__(self, stride: int = 1) -> None:
        self._stride = stride
        self._calls = 0

    def called(self, node: SimulatedNode) -> None:
        """Compare the stores of a core with its parameters."""
        self._calls += 1
        if self._calls % self._stride:
            return
        core, limits = node.core, node.parameters
        if isinstance(core, ReceiverCore):
            for session in core.sessions:
                self._check_limit(node, "rxw_bytes", session.window.held_octets)
                self._check_limit(node, "rxw_gaps", len(session.recovery.missing))
        elif isinstance(core, SourceCore):
            # The application may exceed the limit by one burst; chunks stay pinned in full.
            limit_value = _window_octets(limits) + limits.txw_unsent_bytes + 3 * CHUNK_OCTETS
            if core.window.held_octets > limit_value:
                node.fail(f"{core.window.held_octets} octets in the transmit window exceed {limit_value}")
        elif core is not None:
            self._element(node, core)

    def _element(self, node: SimulatedNode, core: Any) -> None:
        sessions = getattr(core, "sessions", ())
        self._check_limit(node, "max_sessions", len(sessions))
        for session in sessions:
            elimination = getattr(session, "elimination", None)
            if elimination is not None:
                self._check_limit(node, "repair_states", len(elimination.repairs))
        cache = getattr(core, "cache", None)
        if cache is not None:
            self._check_limit(node, "cache_bytes", cache.pinned_octets)

    def _check_limit(self, node: SimulatedNode, limit: str, value: int) -> None:
        limit_value = getattr(node.parameters, limit)
        if value > limit_value:
            node.fail(f"{value} exceeds {limit}, {limit_value}")


def _window_octets(limits: Parameters) -> int:
    return limits.txw_bytes or limits.txw_max_rte * (limits.txw_secs + limits.txw_adv_secs) // SECOND


def cheap_checkers() -> list[Checker]:
    """Return the checkers that are cheap enough for large runs."""
    return [RateLimits(), OneSpeaker(), MemoryBounds(stride=64)]


def all_checkers() -> list[Checker]:
    """Return all checkers."""
    return [NcfFirst(), RateLimits(), OneSpeaker(), MemoryBounds(), NakTimingCheck()]
