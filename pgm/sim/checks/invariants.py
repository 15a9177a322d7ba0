"""Invariants that hold at every event of every run, whatever goes wrong.

Order and content of deliveries are checked by `pgm.sim.delivery_check`, the rhythm of NAKs by `pgm.sim.checks.nak_timing_check`.
Here: NCF before RDATA, rates, memory, and who speaks for a session. Every checker works from what is on the
wire and from the parameters, by an accounting of its own, and complains by `InvariantBroken`.
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
from pgm.sim.invariant_broken import InvariantBroken
from pgm.sim.node import SimulatedNode
from pgm.topology.node_plan import Role
from pgm.units import SECOND
from pgm.wire.control_packets import Nak, Spm
from pgm.wire.formats import Nla, PacketType, Tsi, tsi_text
from pgm.wire.sequence_numbers import wrap
from pgm.wire.train import Data, Train

__all__ = [
    "InvariantBroken",
    "MemoryBounds",
    "NakTimingCheck",
    "NcfFirst",
    "OneSpeaker",
    "RateLimits",
    "all_checkers",
    "cheap_checkers",
]

_MOST_NAK_OCTETS = 1024  # more than the longest list of the longest addresses takes
_MOST_SPM_OCTETS = 128  # an SPM with every option that our sources put on it


def data_of(train: Train) -> Iterator[Data]:
    """The data packets of a train."""
    return (item for item in train.parse_untrusted()[0] if isinstance(item, Data))


def wire_sqns(data: Data) -> Iterator[int]:
    """The sqns of data packets as they are on the wire."""
    return (wrap(data.wire_sqn + index) for index in range(data.count))


_Ward = tuple[int, int, Tsi]  # node, segment, session


class NcfFirst(Checker):
    """RDATA that answers a NAK is preceded by an NCF for that sqn on the segment of the NAK (RFC 5.1.3, 7.2).

    An NCF that left less than `ncf_ivl` before the NAK confirms it too: the next one is put off. A NAK that a brake
    refused is not being served, and a full line loses its NCF; what it asked for is forgotten.
    """

    def __init__(self) -> None:
        self._owed: dict[_Ward, dict[int, bool]] = {}  # wire sqns that were asked for -> confirmed
        self._confirmed_ns: dict[_Ward, dict[int, int]] = {}
        self._asked_now: list[tuple[_Ward, int]] = []
        self._refused = self._dropped = 0

    def started(self, node: SimulatedNode) -> None:
        """A new process owes nothing."""
        for ward in [ward for ward in self._owed if ward[0] == node.index]:
            del self._owed[ward]
            self._confirmed_ns.pop(ward, None)

    def received(self, node: SimulatedNode, train: Train, channel: Channel, peer: Nla) -> None:
        """Note what is asked for."""
        if node.is_receiver or channel.is_group or train.stride > _MOST_NAK_OCTETS:
            return
        self._refused, self._dropped = _refused(node), _dropped(node)
        for item in train.parse_untrusted()[0]:
            if isinstance(item, Nak) and item.kind is PacketType.NAK:
                ward = (node.index, channel.segment.index, item.tsi)
                owed = self._owed.setdefault(ward, {})
                confirmed = self._confirmed_ns.get(ward, {})
                long_ago = self.world.now_ns - node.parameters.ncf_ivl
                for sqn in _asked_for(item, node):
                    if sqn not in owed:
                        owed[sqn] = confirmed.get(sqn, -1) > long_ago
                        self._asked_now.append((ward, sqn))

    def called(self, node: SimulatedNode) -> None:
        """Forget what a brake refused. What the line lost has been confirmed as far as the node knows."""
        if not self._asked_now:
            return
        was_dropped = _dropped(node) != self._dropped
        if was_dropped or _refused(node) != self._refused:
            for ward, sqn in self._asked_now:
                self._owed[ward].pop(sqn, None)
                if was_dropped:
                    self._confirmed_ns.setdefault(ward, {})[sqn] = self.world.now_ns
        self._asked_now.clear()

    def sent(self, node: SimulatedNode, send: Send, train: Train) -> None:
        """NCFs confirm, RDATA must have been confirmed."""
        if node.is_receiver:
            return
        for item in train.parse_untrusted()[0]:
            is_rdata = isinstance(item, Data) and item.type is PacketType.RDATA
            is_ncf = isinstance(item, Nak) and item.kind is PacketType.NCF
            if not is_rdata and not is_ncf:
                continue
            ward = (node.index, send.segment.index, item.tsi)
            owed = self._owed.get(ward)
            if owed is None:
                continue
            if isinstance(item, Nak):
                owed.update((sqn, True) for sqn in _asked_for(item, node) if sqn in owed)
                confirmed = self._confirmed_ns.setdefault(ward, {})
                confirmed.update((sqn, self.world.now_ns) for sqn in _asked_for(item, node))
                continue
            assert isinstance(item, Data)
            for sqn in _groups_of(wire_sqns(item), node) if item.parity else wire_sqns(item):
                if owed.pop(sqn, True) is False:
                    node.fail(f"RDATA for wire sqn {sqn} of {tsi_text(item.tsi)} without an NCF before it")


def _asked_for(nak: Nak, node: SimulatedNode) -> Iterable[int]:
    """What a NAK or NCF is about: sqns, or groups, which are told from sqns by being negative."""
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
        + counters.nak_packets_of_crying
        + counters.nak_packets_late
        + counters.nak_packets_foreign
        + counters.ncf_packets_braked
    )


def _dropped(node: SimulatedNode) -> int:
    return 0 if node.core is None else node.core.counters.sends_dropped


@attrs.define
class _Level:
    """A bucket kept exactly, in octets times nanoseconds: over any interval at most `bucket` + `rate` x time."""

    rate: int
    bucket: int
    level: int = 0
    at_ns: int = 0

    def add(self, octets: int, now_ns: int) -> bool:
        """Note octets; says whether they were within the limit. What waited may be told of behind what came later."""
        passed_ns = max(0, now_ns - self.at_ns)
        self.level = max(0, self.level - self.rate * passed_ns) + octets * SECOND
        self.at_ns += passed_ns
        return self.level <= self.bucket


class RateLimits(Checker):
    """RDATA of every node on every segment within its share, all of a source on each within TXW_MAX_RTE, over any time (SRC-03).

    SPMs are control: they go at once and are charged afterwards, so a source may be ahead by one of them. What waits for a
    line that is slower than that was within the limit when it was made, and may leave more closely.
    """

    def __init__(self) -> None:
        self._repairs: dict[tuple[int, int], _Level] = {}  # by node and segment
        self._all: dict[tuple[int, int], _Level] = {}  # of sources, by node and segment

    def started(self, node: SimulatedNode) -> None:
        """A new process begins with full buckets."""
        parameters = node.parameters
        share = max(1, round(parameters.txw_max_rte * parameters.rdata_share))
        for segment in range(len(node.plan.segments)):
            self._repairs[node.index, segment] = _Level(share, _repair_bucket(parameters, share))
            spm = _MOST_SPM_OCTETS * SECOND
            rate = parameters.txw_max_rte
            self._all[node.index, segment] = _Level(rate, _bucket(parameters, rate) + spm)

    def sent(self, node: SimulatedNode, send: Send, train: Train) -> None:
        """Account for what leaves."""
        role = node.plan.role
        if role in (Role.RECEIVER, Role.AGGREGATOR):
            return  # an aggregator passes on what others paced
        now_ns = node.handed_ns
        repairs = sum(one.count * one.stride for one in data_of(train) if one.type is PacketType.RDATA)
        if repairs and not self._repairs[node.index, send.segment.index].add(repairs, now_ns):
            node.fail(f"{repairs} octets of RDATA exceed rdata_share")
        if role is not Role.SOURCE or not (send.is_data or _is_spm(train)):
            return
        if not self._all[node.index, send.segment.index].add(train.length, now_ns):
            node.fail(f"{train.length} octets exceed txw_max_rte")


def _bucket(parameters: Parameters, rate: int) -> int:
    """Octets times nanoseconds that may leave at once: txw_burst_ivl, but always one packet and the slack."""
    slack_ns = min(parameters.txw_slack_ivl, parameters.txw_burst_ivl // 2)
    return max(parameters.txw_burst_ivl * rate, parameters.max_tpdu * SECOND + rate + rate * slack_ns)


def _repair_bucket(parameters: Parameters, share: int) -> int:
    """As many octets as the bucket of the whole rate, up to a second of the share."""
    whole = _bucket(parameters, parameters.txw_max_rte)
    return max(min(whole, share * SECOND), parameters.max_tpdu * SECOND + share)


def _is_spm(train: Train) -> bool:
    return any(isinstance(item, Spm) for item in train.parse_untrusted()[0])


class OneSpeaker(Checker):
    """Per (segment, TSI) one node sends SPMs at a time: it may hand over, but A, B, A within an interval is two speakers."""

    def __init__(self) -> None:
        self._now: dict[tuple[str, Tsi], str] = {}
        self._last_ns: dict[tuple[str, Tsi, str], int] = {}

    def started(self, node: SimulatedNode) -> None:
        """A new process has not spoken yet."""
        for key in [key for key in self._last_ns if key[2] == node.name]:
            del self._last_ns[key]

    def sent(self, node: SimulatedNode, send: Send, train: Train) -> None:
        """Note who speaks."""
        if send.is_data or send.to is not None or node.is_receiver:
            return
        segment = send.segment.name
        if node.attachments[send.segment.index].egress.is_cut:
            return  # nobody hears it
        for item in train.parse_untrusted()[0]:
            if isinstance(item, Spm):
                self._spoke(node, (segment, item.tsi))

    def _spoke(self, node: SimulatedNode, key: tuple[str, Tsi]) -> None:
        now_ns = self.world.now_ns
        before = self._now.get(key)
        spoken_ns = self._last_ns.get((*key, node.name))
        if before not in (None, node.name) and spoken_ns is not None:
            since = now_ns - spoken_ns
            if since < node.parameters.ambient_spm_ivl:
                node.fail(f"speaks for {tsi_text(key[1])} on {key[0]}, so did {before}, and itself {since} ns ago")
        self._now[key] = node.name
        self._last_ns[*key, node.name] = now_ns


class MemoryBounds(Checker):
    """Every table and every store within its parameter. Every `stride`th call of a node is looked at."""

    def __init__(self, stride: int = 1) -> None:
        self._stride = stride
        self._calls = 0

    def called(self, node: SimulatedNode) -> None:
        """Measure a core."""
        self._calls += 1
        if self._calls % self._stride:
            return
        core, limits = node.core, node.parameters
        if isinstance(core, ReceiverCore):
            for session in core.sessions:
                self._hold(node, "rxw_bytes", session.window.held_octets)
                self._hold(node, "rxw_gaps", session.missing_ranges)
        elif isinstance(core, SourceCore):
            # What the application may hand over beyond the limit is one burst; chunks are pinned whole.
            most = _window_octets(limits) + limits.txw_unsent_bytes + 3 * CHUNK_OCTETS
            if core.window.held_octets > most:
                node.fail(f"{core.window.held_octets} octets in the transmit window, over {most}")
        elif core is not None:
            self._element(node, core)

    def _element(self, node: SimulatedNode, core: Any) -> None:
        sessions = getattr(core, "sessions", ())
        self._hold(node, "max_sessions", len(sessions))
        for session in sessions:
            elimination = getattr(session, "elimination", None)
            if elimination is not None:
                self._hold(node, "repair_states", len(elimination.repairs))
        cache = getattr(core, "cache", None)
        if cache is not None:
            self._hold(node, "cache_bytes", cache.pinned_octets)

    def _hold(self, node: SimulatedNode, limit: str, value: int) -> None:
        most = getattr(node.parameters, limit)
        if value > most:
            node.fail(f"{value} is over {limit}, {most}")


def _window_octets(limits: Parameters) -> int:
    return limits.txw_bytes or limits.txw_max_rte * (limits.txw_secs + limits.txw_adv_secs) // SECOND


def cheap_checkers() -> list[Checker]:
    """What large runs can afford."""
    return [RateLimits(), OneSpeaker(), MemoryBounds(stride=64)]


def all_checkers() -> list[Checker]:
    """Every checker there is."""
    return [NcfFirst(), RateLimits(), OneSpeaker(), MemoryBounds(), NakTimingCheck()]
