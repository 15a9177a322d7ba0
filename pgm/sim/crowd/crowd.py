"""Crowd: many receivers of one segment as one vectorised model of their losses and requests.

The packets, the segment and the elements above are those of the simulator: real NAKs leave, real NCFs and repairs come.
The model replaces the core of a receiver by the rows of `repair_table`, in arrays: gap detection, one shared back-off
for each member, suppression by NCFs, repeats after adaptive timeouts. Members join with the first SPM, and never give up,
change parents or fall silent. Real receivers beside the crowd have all the rest, such as requests for SPMs.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import NoReturn

import attrs
import numpy as np
import numpy.typing as npt

from pgm.core.effects import control
from pgm.core.polling.back_off import draw_back_off
from pgm.core.segment import Channel, Segment
from pgm.impairments import seeded
from pgm.sim.crowd.crowd_plan import CrowdPlan
from pgm.sim.crowd.losses import CrowdLosses, Members
from pgm.sim.crowd.missing_table import BACK_OFF, WAIT_DATA, WAIT_NCF, MissingTable, Rows, Times
from pgm.sim.crowd.timeouts import CrowdTimeouts
from pgm.sim.links import LinkSetup, SimulatedLink
from pgm.sim.network import Attachment, Network
from pgm.sim.run_log import RunLog
from pgm.sim.scheduler import Scheduler
from pgm.units import NEVER
from pgm.wire.control_packets import Nak, Spm, encode, encode_list
from pgm.wire.formats import Nla, PacketType, Tsi
from pgm.wire.naks import LIST_SQNS
from pgm.wire.options import Fin, find
from pgm.wire.sequence_numbers import HALF, MASK, unwrap
from pgm.wire.train import Data, Train


@attrs.define
class CrowdCounters:
    """Totals of all members, named as the counters of receivers."""

    missing_sqns: int = 0
    nak_packets: int = 0
    nak_sqns: int = 0
    naks_suppressed: int = 0
    repaired_sqns: int = 0
    repaired_locally: int = 0
    late_sqns: int = 0


@attrs.frozen
class CrowdContext:
    """Parts of a world that a crowd needs."""

    scheduler: Scheduler
    log: RunLog
    network: Network
    seed: int
    expected: int  # data packets of the run, to draw as many losses at once


@attrs.define
class _Session:
    """Session that the members receive: its first sqn, and the path of requests."""

    tsi: Tsi
    data_port: int
    first: int
    path_nla: Nla


def _are_distinct(members: Members) -> bool:
    """Return whether no member comes twice. A set of a dozen members takes a tenth of the time of `np.unique`."""
    return len(members) == 1 or len(set(members.tolist())) == len(members)


def _distinct(members: Members) -> tuple[Members, Rows]:
    """Return the different members in any order, and where each comes first."""
    if _are_distinct(members):
        return members, np.arange(len(members))
    different, at = np.unique(members, return_index=True)
    return different, at


@attrs.frozen(eq=False)
class _Piece:
    """Consecutive data packets, and which members lost which of them."""

    data: Data
    lost_rows: Rows
    lost_by: Members

    def continues_with(self, data: Data) -> bool:
        """Return whether a core takes `data` as a further part of the same item: later sqns, and no options."""
        own = self.data
        ahead = (data.wire_sqn - own.wire_sqn) & MASK
        return data.type is own.type and data.tsi == own.tsi and not data.options and own.count <= ahead <= HALF


@attrs.define
class _Member:
    """Member as the sender of a train: trains of one instant go in the order of their senders' names."""

    crowd: Crowd
    name: str
    may_share_address = True

    @property
    def host(self) -> str:
        """Return the name of the crowd."""
        return self.crowd.name

    def hear(self, train: Train, channel: Channel, peer: Nla) -> None:
        """Take a train as the crowd."""
        self.crowd.hear(train, channel, peer)


class Crowd:
    """Station on a segment that stands for all members of a crowd."""

    may_share_address = True

    def __init__(self, context: CrowdContext, plan: CrowdPlan, delay: int) -> None:
        self.plan = plan
        self.name = plan.pattern
        self.counters = CrowdCounters()
        self._context = context
        seat, limits, seed = plan.plan.segments[0], plan.plan.parameters, context.seed
        self._segment = self._segment_of(0)
        self._egress = SimulatedLink(LinkSetup(delay=0), f"{seed}:{self.name}:out")
        ingress = SimulatedLink(LinkSetup(delay=delay), f"{seed}:{self.name}:in")
        self.attachment = Attachment(self, self._segment, self._egress, ingress, further=plan.addresses[1:])
        links = [f"{seed}:{plan.name_of(member)}:{seat.name}:in:loss" for member in range(plan.count)]
        self._losses = CrowdLosses(links, seat.impairment.loss, 4 * context.expected)
        self._rngs = [seeded(seed, plan.name_of(member), "core", "0") for member in range(plan.count)]
        self._may_ask = np.zeros(plan.count, np.bool_)  # members that have heard an SPM
        self._is_closing = np.zeros(plan.count, np.bool_)  # members that have heard that the source closes
        self._flags = np.zeros(plan.count, np.bool_)  # all False between two uses
        self._end: Times = np.zeros(plan.count, np.int64)  # one more than the newest sqn that each member knows
        self._shared_end: Times = np.full(plan.count, -NEVER, np.int64)
        self._missing = MissingTable(plan.count)
        most = limits.nak_max_ivl
        self._ncf = CrowdTimeouts(plan.count, limits.nak_rpt_ivl, max(limits.nak_rpt_ivl, most), limits.nak_rpt_ivl)
        least = min(limits.nak_rdata_ivl, limits.nak_rdata_min_ivl)
        self._data = CrowdTimeouts(plan.count, limits.nak_rdata_ivl, max(limits.nak_rdata_ivl, most), least)
        self._session: _Session | None = None
        self._armed_ns = NEVER
        self._armed_since_ns = 0

    @property
    def host(self) -> str:
        """Return the name of the crowd: its address is that of no process."""
        return self.name

    def _segment_of(self, member: int) -> Segment:
        seat, address = self.plan.plan.segments[0], self.plan.addresses[member]
        return Segment(0, seat.name, address, seat.group, seat.upstream, seat.downstream, seat.peers)

    def _fail(self, problem: str) -> NoReturn:
        self._context.log.fail(self.name, f"{problem}; leave out --real, and all receivers have the production core")

    # Packets

    def hear(self, train: Train, channel: Channel, peer: Nla) -> None:
        """Take a train: each member loses some of its packets."""
        if not channel.is_group:
            self._fail("a packet came by unicast to a member of the model")
        now_ns = self._context.scheduler.now_ns
        if self._armed_ns <= now_ns and self._armed_since_ns < now_ns:
            self._wake(self._armed_ns)  # a node scheduled this deadline before the train left for it
        rows, losers = self._losses.take(train.count)
        at = 0
        data: list[_Piece] = []  # consecutive data of one type, which a core takes as one item
        for item in train.parse_runs_untrusted()[0]:
            count = item.count if isinstance(item, Data) else item.packets
            lost_rows, lost_by = rows, losers
            if count < train.count:
                inside = slice(*np.searchsorted(rows, (at, at + count)))
                lost_rows, lost_by = rows[inside] - at, losers[inside]
            at += count
            if isinstance(item, Data):
                if data and not data[-1].continues_with(item):
                    self._on_data(data, peer, now_ns)
                    data = []
                data.append(_Piece(item, lost_rows, lost_by))
            elif isinstance(item, Spm):
                self._on_spm(item, lost_by, now_ns)
            elif item.type is PacketType.NCF:
                assert isinstance(item, Nak)
                self._on_ncf(item, lost_rows, lost_by, peer, now_ns)
        if data:
            self._on_data(data, peer, now_ns)
        self._arm()

    def _on_spm(self, spm: Spm, lost_by: Members, now_ns: int) -> None:
        session = self._session
        if session is None or session.tsi != spm.tsi:
            if spm.data_port not in {stream.data_port for stream in self.plan.plan.streams}:
                return
            if session is not None:
                self._fail("a second session came")
            first = unwrap(spm.lead, 1 << 32) + 1
            session = self._session = _Session(spm.tsi, spm.data_port, first, spm.path_nla)
            self._end[:] = first
        session.path_nla = spm.path_nla
        heard = ~self._may_ask
        heard[lost_by] = False
        for member in heard.nonzero()[0].tolist():  # a core draws a back-off when it may ask, for gaps that it knows
            self._draw(member)
        self._may_ask |= heard
        self._reveal(unwrap(spm.lead, int(self._end.max())) + 1, lost_by, now_ns)
        if find(spm.options, Fin) is not None:
            told = ~self._is_closing
            told[lost_by] = False
            if told.any():
                self._is_closing |= told
                self._close(told, now_ns)

    def _close(self, told: npt.NDArray[np.bool_], now_ns: int) -> None:
        """Shorten every wait of some members to its lower bound, as receivers do when their source closes."""
        missing = self._missing
        for timeouts in (self._ncf, self._data):
            timeouts.close(told.nonzero()[0])
        is_told, is_promised = told[missing.member], missing.state == WAIT_DATA
        for of_state, timeouts in (~is_promised, self._ncf), (is_promised, self._data):
            chosen = (is_told & of_state).nonzero()[0]
            sooner = now_ns + timeouts.ivl(missing.member[chosen])
            missing.deadline[chosen] = np.minimum(missing.deadline[chosen], sooner)

    def _on_data(self, pieces: list[_Piece], peer: Nla, now_ns: int) -> None:
        session, log = self._session, self._context.log
        head = pieces[0].data
        if session is None or head.tsi != session.tsi:
            return
        log.last_activity_ns = log.last_delivery_ns = now_ns
        newest = int(self._end.max())
        if len(self._missing):
            got = [self._rows_of(piece, unwrap(piece.data.wire_sqn, newest)) for piece in pieces]
            arrived = got[0] if len(got) == 1 else np.concatenate(got)
            if len(arrived):
                self._arrived(arrived, head.type is PacketType.RDATA, peer, now_ns)
        for piece in pieces:
            self._advance(piece, unwrap(piece.data.wire_sqn, newest), now_ns)

    def _advance(self, piece: _Piece, first: int, now_ns: int) -> None:
        """Let all members that got a packet of a piece know of the packets before it."""
        count, lost_rows, lost_by = piece.data.count, piece.lost_rows, piece.lost_by
        end = first + count
        if not (self._end < end).any():
            return
        reached = np.full(self.plan.count, end, np.int64)
        tail, row = lost_by[lost_rows == count - 1], count - 1
        while len(tail):  # members that lost the last packets of the train do not know of these yet
            reached[tail] = first + row if row else 0
            row -= 1
            tail = np.intersect1d(tail, lost_by[lost_rows == row]) if row >= 0 else tail[:0]
        known = self._end
        is_new = (first + lost_rows >= known[lost_by]) & (first + lost_rows < reached[lost_by])
        members, sqns = lost_by[is_new], first + lost_rows[is_new]
        gaps = ((known < first) & (reached > first)).nonzero()[0]
        if len(gaps):
            members, sqns = self._with_gaps(gaps, first, members, sqns)
        np.maximum(known, reached, out=known)
        self._detect(members, sqns, now_ns)

    def _with_gaps(self, gaps: Members, end: int, members: Members, sqns: Times) -> tuple[Members, Times]:
        """Add all sqns of some members from the newest that each knows up to `end`."""
        counts = end - self._end[gaps]
        more = np.repeat(gaps, counts)
        starts = np.repeat(self._end[gaps] - (np.cumsum(counts) - counts), counts)
        return np.concatenate([members, more]), np.concatenate([sqns, starts + np.arange(len(more))])

    def _reveal(self, end: int, lost_by: Members, now_ns: int) -> None:
        """Let all members but `lost_by` know that the sqns below `end` were sent."""
        behind = (self._end < end).nonzero()[0]
        if not len(behind):
            return
        gaps = np.setdiff1d(behind, lost_by)
        if not len(gaps):
            return
        members, sqns = self._with_gaps(gaps, end, gaps[:0], np.zeros(0, np.int64))
        self._end[gaps] = end
        self._detect(members, sqns, now_ns)

    def _detect(self, members: Members, sqns: Times, now_ns: int) -> None:
        if len(members):
            self.counters.missing_sqns += len(members)
            settled_ns = now_ns + self.plan.plan.parameters.reorder_ivl
            self._missing.add(members, sqns, self._back_off_ends(members, settled_ns), now_ns)

    def _back_off_ends(self, members: Members, begins_ns: int) -> Times:
        """Return the end of each member's back-off: that of the running one if it is in the allowed range."""
        bound = self.plan.plan.parameters.nak_bo_ivl
        ends = self._shared_end[members]
        stale = _distinct(members[(ends < begins_ns) | (ends > begins_ns + bound)])[0]
        if len(stale):
            self._shared_end[stale] = [begins_ns + self._draw(member) for member in stale.tolist()]
            ends = self._shared_end[members]
        return ends

    def _draw(self, member: int) -> int:
        parameters = self.plan.plan.parameters
        return draw_back_off(parameters, parameters.nak_bo_ivl, self._rngs[member])

    def _rows_of(self, piece: _Piece, first: int) -> Rows:
        """Return the rows of the packets of a piece, at members that got the packet."""
        missing, width = self._missing, piece.data.count
        got: Rows = ((missing.sqn >= first) & (missing.sqn < first + width)).nonzero()[0]
        if not len(got) or not len(piece.lost_by):
            return got
        if self.plan.count * width > len(self._flags):
            self._flags = np.zeros(self.plan.count * width, np.bool_)
        lost = piece.lost_by * width + piece.lost_rows
        self._flags[lost] = True
        kept: Rows = got[~self._flags[missing.member[got] * width + missing.sqn[got] - first]]
        self._flags[lost] = False
        return kept

    def _arrived(self, got: Rows, is_repair: bool, peer: Nla, now_ns: int) -> None:
        """Remove rows whose packets came."""
        missing = self._missing
        counters, plan = self.counters, self.plan.plan
        if is_repair:
            counters.repaired_sqns += len(got)
            counters.repaired_locally += len(got) if peer in plan.local_repairers or peer in plan.local_relays else 0
        else:
            counters.late_sqns += len(got)
        fresh = self._measure_repairs(got, now_ns)
        idle = missing.remove(got)
        if len(fresh):
            self._shorten(fresh, now_ns)
        self._data.relax(idle)

    def _measure_repairs(self, got: Rows, now_ns: int) -> Members:
        """Measure the promised ones of rows that came. Return the members whose first answers these are."""
        missing = self._missing
        rows: Rows = got[missing.state[got] == WAIT_DATA]
        if not len(rows):
            return rows
        members = missing.member[rows]
        took, is_repeated = now_ns - missing.promised[rows], missing.data_tries[rows] > 0
        if _are_distinct(members):  # the usual case
            return self._data.answered(members, took, is_repeated)
        different, at, counts = np.unique(members, return_index=True, return_counts=True)
        alone = at[counts == 1]
        fresh = [self._data.answered(members[alone], took[alone], is_repeated[alone])]
        several = got[np.isin(missing.member[got], different[counts > 1])]
        for _, same in itertools.groupby(sorted(several.tolist(), key=self._place), self._promise_of):
            alike = list(same)
            one = np.array(alike[:1])
            if missing.state[one] == WAIT_DATA:
                times = sum(not at or not self._are_joined(alike[at - 1], row) for at, row in enumerate(alike))
                took, is_repeated = now_ns - missing.promised[one], missing.data_tries[one] > 0
                fresh.append(self._data.answered(missing.member[one], took, is_repeated, times))
        return np.concatenate(fresh)

    def _are_joined(self, row: int, other: int) -> bool:
        """Return whether two rows of a member are one range of a core."""
        missing = self._missing
        return bool(missing.sqn[row] + 1 == missing.sqn[other] and missing.joined[row] == missing.joined[other])

    def _place(self, row: int) -> tuple[int, int]:
        return int(self._missing.member[row]), int(self._missing.sqn[row])

    def _promise_of(self, row: int) -> tuple[int, ...]:
        missing = self._missing
        fields = (missing.member, missing.state, missing.promised, missing.data_tries)
        return tuple(int(field[row]) for field in fields)

    def _shorten(self, members: Members, now_ns: int) -> None:
        """Shorten waits for data to the first measured interval."""
        missing = self._missing
        self._flags[members] = True
        chosen = ((missing.state == WAIT_DATA) & self._flags[missing.member]).nonzero()[0]
        self._flags[members] = False
        if len(chosen):
            sooner = np.maximum(0, self._data.floor_ns - self._data.ivl(missing.member[chosen]))
            missing.deadline[chosen] = np.maximum(now_ns, missing.deadline[chosen] - sooner)

    def _on_ncf(self, ncf: Nak, lost_rows: Rows, lost_by: Members, peer: Nla, now_ns: int) -> None:
        session = self._session
        if session is None or ncf.tsi != session.tsi:
            return
        newest = int(self._end.max())
        sqns = np.array([unwrap(sqn, newest) for sqn in ncf.sqns], np.int64)
        lists = sqns.reshape(ncf.packets, -1)
        for packet in reversed(range(len(lists))):  # the newest first, for one gap at each member
            lost = lost_by if len(lists) == 1 else lost_by[lost_rows == packet]
            self._reveal(min(int(lists[packet].max()) + 1, newest), lost, now_ns)
        missing = self._missing
        heard = self._heard_rows(lists, lost_rows, lost_by)
        if not len(heard):
            return
        asked = heard[missing.is_asked[heard]]
        if len(asked) and peer in self._parents:
            self._measure_ncf(asked[missing.ncf_tries[asked] == 0], now_ns)
            missing.is_asked[asked] = False
        states = missing.state[heard]
        self.counters.naks_suppressed += int((states == BACK_OFF).sum())
        changed = heard[states != WAIT_DATA]
        if len(changed):
            missing.state[changed] = WAIT_DATA
            missing.since[changed] = now_ns
            missing.promised[changed[missing.data_tries[changed] == 0]] = now_ns
        missing.deadline[heard] = now_ns + self._data.ivl(missing.member[heard])
        missing.join(heard)

    def _measure_ncf(self, rows: Rows, now_ns: int) -> None:
        """Measure an NCF that answers NAKs for some rows. All rows of one NAK together are one answer."""
        missing = self._missing
        if not _are_distinct(missing.member[rows]):
            rows = rows[np.lexsort((missing.sqn[rows], missing.member[rows]))]
            changes = (np.diff(missing.member[rows]) != 0) | (np.diff(missing.since[rows]) != 0)
            rows = rows[np.append(True, changes)]
        while len(rows):  # once, unless the NCF answers several NAKs of a member
            members, at = _distinct(missing.member[rows])
            took, no = now_ns - missing.since[rows[at]], np.zeros(len(at), np.bool_)
            self._ncf.answered(members, took, no)
            rows = np.delete(rows, at) if len(at) < len(rows) else rows[:0]

    def _heard_rows(self, lists: Times, lost_rows: Rows, lost_by: Members) -> Rows:
        """Return the rows of the sqns of some packets, without those that a member lost."""
        missing = self._missing
        if len(lists) > 1:
            heard: Rows = np.isin(missing.sqn, lists).nonzero()[0]
            packets = np.searchsorted(lists[:, 0], missing.sqn[heard], "right") - 1
            lost = np.isin(missing.member[heard] * len(lists) + packets, lost_by * len(lists) + lost_rows)
            return heard[~lost]
        is_named = missing.sqn == lists[0, 0] if lists.size == 1 else (missing.sqn == lists[0][:, None]).any(axis=0)
        heard = is_named.nonzero()[0]
        if not len(lost_by) or not len(heard):
            return heard
        self._flags[lost_by] = True
        kept: Rows = heard[~self._flags[missing.member[heard]]]
        self._flags[lost_by] = False
        return kept

    @property
    def _parents(self) -> Sequence[Nla]:
        return self.plan.plan.parents

    # Timers

    def _arm(self) -> None:
        if not len(self._missing):
            return
        at_ns = int(self._missing.deadline.min())
        if at_ns < self._armed_ns:
            scheduler = self._context.scheduler
            self._armed_ns, self._armed_since_ns = max(at_ns, scheduler.now_ns), scheduler.now_ns
            scheduler.at(self._armed_ns, functools.partial(self._wake, self._armed_ns), self.name)

    def _wake(self, armed_ns: int) -> None:
        if armed_ns != self._armed_ns:
            return  # an earlier deadline came in between, and armed again
        self._armed_ns = NEVER
        now_ns, missing = self._context.scheduler.now_ns, self._missing
        due = (missing.deadline <= now_ns).nonzero()[0]
        if len(due):
            is_ready = missing.state[due] == BACK_OFF
            ready, late = due[is_ready], due[~is_ready]
            states = missing.state[late]
            if len(late):
                self._back_off_again(late, states, now_ns)
            if len(ready):
                self._ask(ready, now_ns)
            for state, timeouts in ((WAIT_NCF, self._ncf), (WAIT_DATA, self._data)):
                chosen = late[states == state]
                if len(chosen):
                    timeouts.timed_out(_distinct(missing.member[chosen])[0], now_ns)
        self._arm()

    def _back_off_again(self, late: Rows, states: npt.NDArray[np.int8], now_ns: int) -> None:
        """Start a new back-off for rows whose NCF or packet did not come."""
        missing, limits = self._missing, self.plan.plan.parameters
        missing.deadline[late] = self._back_off_ends(missing.member[late], now_ns)
        unconfirmed, promised = late[states == WAIT_NCF], late[states == WAIT_DATA]
        missing.ncf_tries[unconfirmed] += self._ncf.retries(missing.member[unconfirmed])
        missing.data_tries[promised] += self._data.retries(missing.member[promised])
        missing.data_waits[promised] += self._data.retries_worth(missing.member[promised])
        most_waits = missing.data_waits[late].max()
        if missing.ncf_tries[late].max() > limits.nak_ncf_retries or most_waits > limits.nak_data_retries:
            self._fail("a request has no answer, and the model knows no other parent")
        missing.state[late], missing.since[late], missing.is_asked[late] = BACK_OFF, now_ns, False
        missing.join(late)

    def _ask(self, ready: Rows, now_ns: int) -> None:
        missing, session, counters = self._missing, self._session, self.counters
        assert session is not None
        members = missing.member[ready]
        missing.state[ready], missing.since[ready], missing.is_asked[ready] = WAIT_NCF, now_ns, True
        missing.deadline[ready] = now_ns + self._ncf.ivl(members)
        missing.join(ready)
        for member in sorted(set(members.tolist())):
            sqns = sorted(missing.sqn[ready[members == member]].tolist())
            if missing.has_outstanding(member, self.plan.plan.parameters.nak_max_outstanding):
                self._fail("a member has more requests in flight than nak_max_outstanding")
            counters.nak_sqns += len(sqns)
            naks = [self._nak(session, sqns[at : at + LIST_SQNS]) for at in range(0, len(sqns), LIST_SQNS)]
            counters.nak_packets += len(naks)
            full = len(sqns) // LIST_SQNS
            if full > 1:  # a core sends several full lists as one train
                naks[:full] = [b"".join(naks[:full])]
                self._send(member, naks.pop(0), now_ns, full)
            for nak in naks:
                self._send(member, nak, now_ns)
        self._context.log.last_activity_ns = now_ns

    def _nak(self, session: _Session, sqns: list[int]) -> bytes:
        wire_sqns, group = [sqn & MASK for sqn in sqns], self._segment.group
        fields = (session.tsi, session.data_port, session.path_nla, group)
        if len(sqns) > 1:
            return encode_list(PacketType.NAK, *fields, wire_sqns)
        tsi, data_port, path_nla, group_nla = fields
        return encode(Nak(tsi=tsi, data_port=data_port, sqn=wire_sqns[0], source_nla=path_nla, group_nla=group_nla))

    def _send(self, member: int, packets: bytes, now_ns: int, count: int = 1) -> None:
        segment = self._segment_of(member)
        sender = _Member(self, self.plan.name_of(member))
        attachment = Attachment(sender, segment, self._egress, self.attachment.ingress)
        parent, train = self._parents[0], Train.of(packets, len(packets) // count)
        self._context.log.add_send(self.name, control(segment, packets, to=parent), train)
        self._context.network.leave(attachment, parent, train, now_ns)

    # Account

    @property
    def delivered_sqns(self) -> int:
        """Return how many packets all members have received of the session, in any order."""
        if self._session is None:
            return 0
        return int((self._end - self._session.first).sum()) - len(self._missing)

    def is_complete(self, sqns: int) -> bool:
        """Return whether all members have received the `sqns` packets of the session."""
        session = self._session
        return session is not None and not len(self._missing) and bool((self._end == session.first + sqns).all())
