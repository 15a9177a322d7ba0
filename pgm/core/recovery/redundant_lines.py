"""One stream from several lines: the first copy of a packet counts, and only what all lines miss is asked for.

A line is a segment that carries the stream down to this node; the lines of one stream carry the same sessions, each by
relays and losses of its own. Session, recovery and cache know nothing of them: a line that lags behind is packets
out of order to them, which `ab_hold_ivl` waits for. Here is kept what each line has brought, how far it has come, and
whom to ask there. A line that stands still for `ab_hold_ivl` while another goes on is down, and nothing waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from pgm.core.counters import Counters
from pgm.core.effects import Effects
from pgm.core.recovery.recovery import Recovery
from pgm.core.segment import Channel, Segment
from pgm.core.session.state import SessionState
from pgm.core.status import LineStatus
from pgm.parameters import Parameters
from pgm.units import NEVER
from pgm.wire.control_packets import Spm
from pgm.wire.formats import Nla, PacketType
from pgm.wire.train import Data

_MOST_PARITY = 4096  # parity packets that are remembered: more than come while one line is behind another
_SMOOTHING = 16  # of the time that a line is behind: a sixteenth of each new measurement counts


@attrs.frozen
class LineSetup:
    """A further segment that brings the streams of a node, and whom to ask there, behind the parents before."""

    segment: Segment
    parents: tuple[Nla, ...] = ()
    repairers: tuple[Nla, ...] = ()  # others who answer there


def all_parents(home: Sequence[Nla], lines: Sequence[LineSetup]) -> tuple[Nla, ...]:
    """Everybody to ask, those of the first line first."""
    return (*home, *(parent for line in lines for parent in line.parents))


@attrs.define(eq=False)
class _Line:
    """What one line has brought of one session."""

    setup: LineSetup
    first: int = -1  # the sqn it began with; -1 before
    end: int = 0  # behind the newest that it is known to have passed
    packets: int = 0  # ODATA
    firsts: int = 0  # of those, packets that no other line had brought
    behind_ns: int = 0  # behind the first line to bring a packet, smoothed
    stands_since_ns: int = NEVER  # since when it has not moved although another line is ahead
    path_nla: Nla | None = None  # of the last SPM that came here
    heard_at_ns: int = 0

    @property
    def lost(self) -> int:
        """Packets that it has passed and not brought. One that comes late is no longer among them; one that comes twice hides another."""
        return max(0, self.end - self.first - self.packets) if self.first >= 0 else 0


@attrs.define
class _Mark:
    """A packet that one line brought first, until all others have passed it."""

    sqn: int
    at_ns: int
    waits_for: list[_Line]


class RedundantLines:
    """The lines of one session."""

    def __init__(
        self,
        setups: Sequence[LineSetup],
        state: SessionState,
        recovery: Recovery,
        parameters: Parameters,
        counters: Counters,
    ) -> None:
        self._lines = [_Line(setup) for setup in setups]
        self._by_index = {line.setup.segment.index: line for line in self._lines}
        self._state = state
        self._recovery = recovery
        self._counters = counters
        self._hold_ivl = max(parameters.ab_hold_ivl, parameters.reorder_ivl)
        recovery.settle_ivl = self._hold_ivl
        self._lead = 0  # behind the newest sqn of any line
        self._settled = 0  # behind what every line that is not down has passed
        self._mark: _Mark | None = None
        self._parity: dict[int, None] = {}  # wire sqns of the parity packets that came last, oldest first

    def status(self, now_ns: int) -> list[LineStatus]:
        """A row for each line."""
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
        """The segment on which to ask a parent, and the path address that it knows the session by."""
        line = next((one for one in self._lines if parent in (*one.setup.parents, *one.setup.repairers)), None)
        line = line or next((one for one in self._lines if parent == one.path_nla), None)
        return (home, self._state.path_nla) if line is None else (line.setup.segment, line.path_nla)

    def on_data(self, data: Data, channel: Channel, take: Callable[[], Effects], now_ns: int) -> Effects:
        """Data of one line, which `take` hands to the session."""
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
        if self._state.is_jump(end - 1):
            return effects
        if line.first < 0:
            line.first = first
        line.packets += max(0, end - max(first, line.first))
        line.firsts += counters.received_packets - received
        self._passed(line, end, now_ns)
        return effects

    def is_new_parity(self, data: Data) -> bool:
        """Whether any of these parity packets has come by no line so far."""
        fresh = [sqn for sqn in range(data.wire_sqn, data.wire_sqn + data.count) if sqn not in self._parity]
        self._parity.update(dict.fromkeys(fresh))
        while len(self._parity) > _MOST_PARITY:
            del self._parity[next(iter(self._parity))]
        return bool(fresh)

    def on_spm(self, spm: Spm, channel: Channel, now_ns: int) -> None:
        """An SPM of one line: it tells the path there, and up to where that line has come."""
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
                others = [one for one in self._lines if one is not line and one.first >= 0]
                self._mark = _Mark(line.end - 1, now_ns, others)
                line.behind_ns -= line.behind_ns // _SMOOTHING
            for one in self._lines:
                one.stands_since_ns = min(one.stands_since_ns, now_ns)  # those that have not begun too
        line.stands_since_ns = NEVER if line.end == self._lead else now_ns
        watch = self._counters.watch
        if watch is not None:
            watch.line_came(self._state.tsi, line.setup.segment.name, line.end, line.lost, line.behind_ns, now_ns)
        if self._recovery.missing:
            self._settle(now_ns)

    def _is_down(self, line: _Line, now_ns: int) -> bool:
        return now_ns - line.stands_since_ns > self._hold_ivl

    def _settle(self, now_ns: int) -> None:
        """What every line has passed and none has brought is missing: back off from now on."""
        passed = min((line.end for line in self._lines if not self._is_down(line, now_ns)), default=0)
        if passed > self._settled:
            self._recovery.restart_back_off(self._settled, passed, now_ns)
            self._settled = passed
