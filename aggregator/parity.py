"""Parity at an aggregator: merges NAKs by count, and relays parity (RFC 11.6).

An aggregator encodes and decodes nothing. In a stream with parity, a relay does not request gaps of its own. A relay
cannot distinguish lost packets from packets that a short group leaves out. The nodes below request both.
"""

from __future__ import annotations

from collections.abc import Sequence

from aggregator.elimination import Elimination
from aggregator.nak_routes import NakRoutes
from aggregator.parity_elimination import ParityElimination, Request
from pgm.core.effects import NOTHING, Effect, Effects, Send, control
from pgm.core.element.setup import ElementSetup
from pgm.core.recovery.nak_packets import forwarded, nak_packet, with_sqns
from pgm.core.repair.ncf_sender import NcfSender
from pgm.core.segment import Segment
from pgm.core.session.state import SessionState
from pgm.core.session_context import SessionContext
from pgm.wire.control_packets import Nak, Spm
from pgm.wire.formats import Nla
from pgm.wire.options import MAX_NAK_LIST, CurrTgsize, find
from pgm.wire.parity import counts_of, group_of, request_sqn
from pgm.wire.sequence_numbers import unwrap
from pgm.wire.train import Data


class ParityElement:
    """The parity of one session. `size` is 0 until an SPM announces parity."""

    def __init__(
        self,
        context: SessionContext,
        state: SessionState,
        setup: ElementSetup,
        ncf_sender: NcfSender,
        single: Elimination,
        routes: NakRoutes,
    ) -> None:
        self.size = 0
        self._state = state
        self._setup = setup
        self._ncf_sender = ncf_sender
        self._single = single
        self._upstream = routes.upstream
        self._routes = routes.by_segment
        self._homes = setup.homes
        self._parameters = context.parameters
        self._counters = context.counters
        self._shorts: dict[int, int] = {}  # by group: the number of packets by which the group is short
        self.elimination = ParityElimination(context)

    def on_spm(self, spm: Spm) -> None:
        """Learn the group size, settled by the first SPM, and the size of a short group that ends with SPM_LEAD."""
        self.size = self._state.group_size
        short = find(spm.options, CurrTgsize)
        if short is not None and self.size:
            self._learn(group_of(unwrap(spm.lead, self._state.lead), self.size), short.size)

    def _learn(self, group: int, actual: int) -> None:
        if 0 < actual < self.size:
            self._shorts[group] = self.size - actual
            if len(self._shorts) > self._parameters.repair_states:
                del self._shorts[next(iter(self._shorts))]

    def _asked(self, nak: Nak) -> list[tuple[int, int]]:
        return counts_of([self._state.unwrap(sqn) for sqn in nak.sqns], self.size)

    # From below

    def may_be(self, nak: Nak) -> bool:
        """Return whether a request is about groups that were sent (SEC-01)."""
        return bool(self.size) and all(group <= self._state.lead for group, _ in self._asked(nak))

    def on_nak(self, nak: Nak, segment: Segment, peer: Nla, now_ns: int, *, is_cut_off: bool) -> list[Effect]:
        """Confirm a NAK with the segment's largest count, and forward requests for more (FEC-41 - FEC-43)."""
        self._counters.nak_packets_in += 1
        self._counters.parity_naks_in += 1
        index = self._setup.downs.index(segment)
        asked = self._asked(nak)
        self._counters.nak_sqns_in += sum(count for _, count in asked)
        known = [(group, max(count, self.elimination.known(group, index))) for group, count in asked]
        effects: list[Effect] = [
            *self._ncf_sender.confirm(
                with_sqns(nak, [request_sqn(group, count) for group, count in known]), segment, now_ns
            )
        ]
        if is_cut_off:
            return effects
        route = self._upstream if peer in self._homes else self._routes[index]
        requests: list[Request] = []
        for group, count in asked:
            if group < self._state.trail and route is self._upstream and not self._setup.asks_below_trail:
                self._counters.nak_packets_late += 1
                continue
            if peer in self._homes:
                self.elimination.forwarder.redirect_up(group, group + 1, peer, self._upstream, now_ns)
            requests += self.elimination.admit(group, count, index, route, now_ns)
        self._counters.nak_packets_eliminated += not requests
        return [*effects, *self._ask(requests)]

    def _ask(self, requests: Sequence[Request]) -> list[Send]:
        """Return NAKs for requests, with one list for each target."""
        sends = []
        for target in dict.fromkeys(request[0] for request in requests):
            sqns = sorted(request_sqn(group, count) for to, group, count in requests if to == target)
            home = self._homes.get(target, self._setup.up)
            for at in range(0, len(sqns), MAX_NAK_LIST + 1):
                part = sqns[at : at + MAX_NAK_LIST + 1]
                self._counters.nak_packets += 1
                self._counters.parity_naks += 1
                self._counters.nak_sqns += sum(count for _, count in counts_of(part, self.size))
                sends.append(control(home, nak_packet(self._state, home.group, part, parity=True), to=target))
        return sends

    def on_null_nak(self, nak: Nak, peer: Nla) -> Effects:
        """Forward a null NAK unless a larger count was requested (DLR-41)."""
        self._counters.nnak_packets_in += 1
        to = self._upstream.current
        if not to or all(self.elimination.largest(group) > count for group, count in self._asked(nak)):
            self._counters.nnak_packets_eliminated += 1
            return NOTHING
        self._counters.nnak_packets += 1
        return (forwarded(nak, self._state, self._setup.up, to),)

    def on_rdata_below(self, data: Data, segment: Segment) -> None:
        """Note that a local repairer sent parity on its segment."""
        for group, offset in self._packets(data):
            self.elimination.repaired_below(group, self._setup.downs.index(segment), offset)

    # From above

    def on_ncf(self, ncf: Nak, now_ns: int, of: Nla) -> None:
        """Take an NCF for counts of packets. It answers requests to node `of`, to any upstream node if `NOBODY`."""
        for group, count in self._asked(ncf) if self.size else ():
            if self._state.reveals(group + 1):
                self.elimination.confirm(group, count, now_ns, of)

    def on_rdata(self, data: Data) -> list[Send]:
        """Relay on-demand parity, packet by packet (FEC-44, FEC-45).

        Each packet goes to the segments that lack more packets than came. A source may also answer single-packet NAKs
        with parity (RFC 11.4). That parity goes to the segments that sent these NAKs.
        """
        sends: list[Send] = []
        for at, (group, offset) in enumerate(self._packets(data)):
            if self.elimination.has_state(group):
                segments = self.elimination.repaired(group, offset)
            else:
                bits = self._single.segments_of([(group, group + self.size)])
                segments = [index for index in range(len(self._setup.downs)) if bits >> index & 1]
            if not segments:
                self._counters.rdata_unwanted += 1
                continue
            octets = data.octets[at * data.stride : (at + 1) * data.stride]
            for index in segments if self._setup.is_relay else ():
                self._counters.rdata_forwarded += 1
                sends.append(Send(self._setup.downs[index], octets, data.stride, is_data=True))
        return sends

    def _packets(self, data: Data) -> list[tuple[int, int]]:
        """Return the group of each parity packet, and by how many packets it is short."""
        if not self.size:
            return []
        first = self._state.unwrap(data.wire_sqn)
        groups = [group_of(first + at, self.size) for at in range(data.count)]
        short = find(data.options, CurrTgsize)
        if short is not None:
            for group in groups:
                self._learn(group, short.size)
        return [(group, self._shorts.get(group, 0)) for group in groups]

    # Time

    @property
    def deadline_ns(self) -> int:
        """When `handle_deadline` has something to do."""
        return self.elimination.forwarder.deadline_ns

    def handle_deadline(self, now_ns: int) -> list[Send]:
        """Repeat NAKs that were not confirmed."""
        return self._ask(self.elimination.take_repeats(now_ns))
