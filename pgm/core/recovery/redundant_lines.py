"""One stream on several redundant lines.

The first copy of a packet counts, and a packet is lost only if all lines lose it. A line is a segment that carries the
stream down to this node. The lines of one stream carry the same sessions, each through its own relays and with its own
losses. Session, recovery and cache know no lines: packets of a slower line are packets out of order to them, and
`ab_hold_ivl` allows for the delay. This module records the packets and progress of each line, and the parents on each
line. A line is down after `ab_hold_ivl` without progress while another line makes progress. No gap waits for a line
that is down.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from pgm.core.effects import Effects
from pgm.core.recovery.recovery import Recovery
from pgm.core.segment import Channel, Segment
from pgm.core.session.state import SessionState
from pgm.core.session_context import SessionContext
from pgm.core.status import LineStatus
from pgm.units import NEVER
from pgm.wire.control_packets import Spm
from pgm.wire.formats import Nla, PacketType
from pgm.wire.train import Data

_MOST_PARITY = 4096  # remembered parity packets: more than arrive while one line is behind another
_SMOOTHING = 16  # a new measurement of a line's delay has the weight 1/16


@attrs.frozen
class LineSetup:
    """Further segment with the streams of a node, and the parents on it, which rank after those of earlier lines."""

    segment: Segment
    parents: tuple[Nla, ...] = ()
    repairers: tuple[Nla, ...] = ()  # other nodes that answer NAKs on this segment


def all_parents(home: Sequence[Nla], lines: Sequence[LineSetup]) -> tuple[Nla, ...]:
    """Return the parents of all lines, those of the first line first."""
    return (*home, *(parent for line in lines for parent in line.parents))


def lines_of(home: Segment, parents: tuple[Nla, ...], further: tuple[LineSetup, ...]) -> tuple[LineSetup, ...]:
    """Return all lines of a node, the home segment first; none if the node has no further line."""
    return (LineSetup(home, parents), *further) if further else ()


@attrs.define(eq=False)
class _Line:
    """Packets and progress of one session on one line."""

    setup: LineSetup
    first: int = -1  # the first sqn on this line; -1 before that
    end: int = 0  # one more than the newest sqn that has passed on this line
    packets: int = 0  # ODATA
    firsts: int = 0  # ODATA that no other line had brought before
    behind_ns: int = 0  # delay after the fastest line, smoothed
    stands_since_ns: int = NEVER  # start of the current time without progress while another line is ahead
    path_nla: Nla | None = None  # of the last SPM on this line
    heard_at_ns: int = 0

    @property
    def lost(self) -> int:
        """Return the number of packets lost on this line.

        The number is that of sqns that have passed, minus packets that arrived. A late packet lowers the number. A
        packet that arrives twice hides a loss.
        """
        return max(0, self.end - self.first - self.packets) if self.first >= 0 else 0


@attrs.define
class _Mark:
    """Packet whose arrival on the fastest line is compared with other lines."""

    sqn: int
    at_ns: int
    waits_for: list[_Line]


class RedundantLines:
    """Redundant lines of one session; without any, all parents are on the home segment."""

    def __init__(
        self, context: SessionContext, setups: Sequence[LineSetup], state: SessionState, recovery: Recovery
    ) -> None:
        self._lines = [_Line(setup) for setup in setups]
        self._by_index = {line.setup.segment.index: line for line in self._lines}
        self._state = state
        self._recovery = recovery
        self._counters = context.counters
        self._hold_ivl = max(context.parameters.ab_hold_ivl, context.parameters.reorder_ivl)
        if setups:
            recovery.settle_ivl = self._hold_ivl
        self._lead = 0  # one more than the newest sqn of any line
        self._settled = 0  # all sqns below this one have passed on every line that is not down
        self._mark: _Mark | None = None
        self._parity: dict[int, None] = {}  # wire sqns of the latest parity packets, oldest first

    def status(self, now_ns: int) -> list[LineStatus]:
        """Return a row for each line."""
        return [
            LineStatus(
                segment=line.setup.segment.name,
                packets=line.packets,
                first_packets=line.firsts,
                lost_packets=line.lost,
                behind_ns=line.behind_ns,
                is_down=self._is_down(line, now_ns),
                silent_ns=now_ns - line.heard_at_ns,
            )
            for line in self._lines
        ]

    def route(self, parent: Nla | None, home: Segment) -> tuple[Segment, Nla | None]:
        """Return the segment on which to ask a parent, and the session's path address as the parent knows it."""
        line = next((line for line in self._lines if parent in (*line.setup.parents, *line.setup.repairers)), None)
        line = line or next((line for line in self._lines if parent == line.path_nla), None)
        return (home, self._state.path_nla) if line is None else (line.setup.segment, line.path_nla)

    def on_data(self, data: Data, channel: Channel, take: Callable[[], Effects], now_ns: int) -> Effects:
        """Take data of one line. `take` hands the data to the session and returns the session's effects."""
        line = self._by_index.get(channel.segment.index)
        counters = self._counters
        received, duplicates = counters.received_packets, counters.duplicate_packets
        effects = take()
        if line is None or data.type is not PacketType.ODATA or data.parity:
            return effects
        counters.twin_packets += counters.duplicate_packets - duplicates
        counters.duplicate_packets = duplicates
        first, _ = self._state.place(data.wire_sqn, data.wire_trail)
        end = first + data.count
        if end - 1 > self._state.lead:
            return effects  # not taken
        if line.first < 0:
            line.first = first
        line.packets += max(0, end - max(first, line.first))
        line.firsts += counters.received_packets - received
        self._passed(line, end, now_ns)
        return effects

    def is_new_parity(self, data: Data) -> bool:
        """Return whether any of these parity packets is new on all lines."""
        if not self._lines:
            return True
        fresh = [sqn for sqn in range(data.wire_sqn, data.wire_sqn + data.count) if sqn not in self._parity]
        self._parity.update(dict.fromkeys(fresh))
        while len(self._parity) > _MOST_PARITY:
            del self._parity[next(iter(self._parity))]
        return bool(fresh)

    def is_new(self, data: Data, new: int) -> bool:
        """Return whether no other line has brought packets of a train, `new` of which are new."""
        return not self._lines or new == data.count

    def on_spm(self, spm: Spm, channel: Channel, now_ns: int) -> None:
        """Take an SPM of one line, for the path and the progress of that line."""
        line = self._by_index.get(channel.segment.index)
        if line is None:
            return
        line.path_nla = spm.path_nla
        lead = self._state.unwrap(spm.lead)
        if line.first >= 0 and line.end <= lead < self._lead:
            line.end = lead + 1
            self._passed(line, line.end, now_ns)

    def _passed(self, line: _Line, end: int, now_ns: int) -> None:
        line.heard_at_ns = now_ns
        if end <= line.end:
            return
        line.end = end
        mark = self._mark
        if mark is not None and line in mark.waits_for and line.end > mark.sqn:
            mark.waits_for.remove(line)
            line.behind_ns += (now_ns - mark.at_ns - line.behind_ns) // _SMOOTHING
        if mark is None or not mark.waits_for or now_ns - mark.at_ns > self._hold_ivl:
            mark = self._mark = None
        if line.end > self._lead:
            self._lead = line.end
            if mark is None:
                others = [other for other in self._lines if other is not line and other.first >= 0]
                self._mark = _Mark(line.end - 1, now_ns, others)
                line.behind_ns -= line.behind_ns // _SMOOTHING
            for each in self._lines:
                each.stands_since_ns = min(each.stands_since_ns, now_ns)  # also lines without any packet so far
        line.stands_since_ns = NEVER if line.end == self._lead else now_ns
        name = line.setup.segment.name
        self._counters.watch.line_came(self._state.tsi, name, line.end, line.lost, line.behind_ns, now_ns)
        if self._recovery.missing:
            self._restart_back_off(now_ns)

    def _is_down(self, line: _Line, now_ns: int) -> bool:
        return now_ns - line.stands_since_ns > self._hold_ivl

    def _restart_back_off(self, now_ns: int) -> None:
        """Restart the back-off of sqns that have passed on every line that is up: no line can still bring them."""
        passed = min((line.end for line in self._lines if not self._is_down(line, now_ns)), default=0)
        if passed > self._settled:
            self._recovery.restart_back_off(self._settled, passed, now_ns)
            self._settled = passed
