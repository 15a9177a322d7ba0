"""What a node knows of a session from its SPMs and data: path, window edges, end (RFC 6.2, 7.1)."""

from __future__ import annotations

import enum
from collections.abc import Iterable

import attrs

from pgm.core.counters import Counters
from pgm.core.structures.ranges import Span
from pgm.parameters import Parameters
from pgm.units import SECOND
from pgm.wire.control_packets import Nak, Spm
from pgm.wire.formats import NO_WINDOW_LEAD, NO_WINDOW_TRAIL, Nla, Tsi
from pgm.wire.naks import Naks
from pgm.wire.options import Epoch, Fin, Join, NbrUnreach, ParityPrm, Rst, find
from pgm.wire.sequence_numbers import HALF, SPACE, is_newer, unwrap, wrap

_MOST_UPPER = 1 << 30  # a quarter of what there is: behind it sqns still fit 64 bits with a sign, as arrays have them


class SpmVerdict(enum.Enum):
    """What became of an SPM."""

    STALE = "stale"  # not newer: dropped whole (RCV-20)
    TAKEN = "taken"
    UNREACHABLE = "unreachable"  # the parent says that it cannot be heard; nothing else in it counts (IMP-25, IMP-27)
    JUMPED = "jumped"  # taken, and the window lies far ahead: confirmed often enough to be followed


class SessionState:
    """Path state of one session. Edges are 64-bit sqns; `lead` is the newest known to have been sent."""

    def __init__(self, tsi: Tsi, data_port: int, parameters: Parameters, counters: Counters) -> None:
        self.tsi = tsi
        self.data_port = data_port
        self._parameters = parameters
        self._counters = counters
        self.spm: Spm | None = None  # the last one taken
        self.path_nla: Nla | None = None
        self.group_size = 0  # of the parity that the first SPM offered; 0 for none
        self.keeps_group_size = True  # whether the last SPM taken offers the same
        self.trail = 0
        self.lead = -1
        self._told_lead = -1  # the newest that data or an SPM told of; an NCF may have moved `lead` further
        self.has_edges = False
        self.join_at: int | None = None  # OPT_JOIN: the oldest sqn a joiner may ask for
        self.fin_lead: int | None = None
        self.reset: Rst | None = None
        self.epoch_shift: int | None = None  # add to a sqn to get the source's own 64-bit number; None: never heard
        self.started_ns: int | None = None  # the session's epoch: when it began, by the source's clock
        self.heard_at_ns = 0
        self.asked_at_ns = 0  # when a child was last served, which a cache does whether the source is there or not
        self._claim: tuple[int, int] | None = None  # a far lead and how often it was confirmed
        self._behind: tuple[int, int] | None = None  # SPMs out of sequence: the newest SPM_SQN, and how many in order

    @property
    def used_at_ns(self) -> int:
        """When the session was last of use to anybody."""
        return max(self.heard_at_ns, self.asked_at_ns)

    def unwrap(self, wire_sqn: int) -> int:
        """The 64-bit form of a wire sqn, nearest to the lead."""
        return unwrap(wire_sqn, self.lead) if self.has_edges else wire_sqn

    def spans_of(self, nak: Nak) -> list[Span]:
        """What a NAK or NCF is about, in 64 bits."""
        return nak.spans_from(self.unwrap(nak.sqn))

    def parts_of(self, nak: Nak) -> Iterable[Nak]:
        """What to judge by itself: a train of NCFs as one, unless it speaks of packets that lie too far ahead."""
        if isinstance(nak, Naks) and not self.reveals(self.spans_of(nak)[-1][1]):
            return nak.singles()
        return (nak,)

    def place(self, wire_sqn: int, wire_trail: int) -> tuple[int, int]:
        """A data packet's sqn and trail in 64 bits.

        Before any edge is known the sqn decides where counting starts. A window that reaches across 2^32 has its
        trail in the turn before, and counting starts one turn later, so that no sqn is negative.
        """
        if self.has_edges:
            lead = self.lead
            return unwrap(wire_sqn, lead), unwrap(wire_trail, lead)
        trail = min(unwrap(wire_trail, wire_sqn), wire_sqn)  # never ahead of what was just sent
        turn = SPACE if trail < 0 else 0
        return wire_sqn + turn, trail + turn

    def is_jump(self, sqn: int) -> bool:
        """Whether a sqn lies further ahead than the window can be."""
        return self.has_edges and sqn > self.lead + self._parameters.rxw_sqns

    @property
    def oldest(self) -> int:
        """The oldest sqn that a joiner may begin with: the trail, and no further back than the window can be, whatever trail was told."""
        return max(self.trail, self.lead + 1 - self._parameters.rxw_sqns)

    def begin_at(self, sqn: int, trail: int) -> None:
        """Take edges from the first data packet."""
        self.has_edges = True
        self.lead, self.trail = sqn, trail
        self._told_lead = sqn

    def saw(self, lead: int, trail: int) -> None:
        """Advance the edges by what a data packet says; never back."""
        if lead > self._told_lead:
            self._told_lead = lead
        if lead > self.lead:
            self.lead = lead
        if trail > self.trail:
            self.trail = max(self.trail, min(trail, self.lead + 1))

    def saw_next(self, trail: int) -> None:
        """The same for the packet behind the lead, whose trail is not ahead of it."""
        self.lead = self._told_lead = self.lead + 1
        if trail > self.trail:
            self.trail = trail

    def reveals(self, end: int) -> bool:
        """Whether an NCF or NAK for what lies before `end` may be believed to speak of packets that exist (RCV-31, SEC-03).

        The bound counts from what data or an SPM told of: a row of false NCFs must not walk the lead ahead.
        """
        return self.has_edges and end <= self._told_lead + 1 + self._parameters.ncf_lead_sqns

    def revealed(self, end: int) -> None:
        """Advance the lead to what an NCF has revealed."""
        self.lead = max(self.lead, end - 1)

    def on_spm(self, spm: Spm, now_ns: int) -> SpmVerdict:
        """Take an SPM (RCV-20, RCV-23). The first of a session is always in sequence."""
        if spm.options and find(spm.options, NbrUnreach) is not None:
            return self._on_unreachable(spm)
        if self.spm is not None and not is_newer(spm.spm_sqn, self.spm.spm_sqn):
            if not self._goes_on_behind(spm.spm_sqn):
                self._counters.spm_packets_stale += 1
                return SpmVerdict.STALE
            self._counters.spm_sqns_followed += 1
        self._behind = None
        self._counters.spm_packets_in += 1
        self._note_group_size(spm)
        self.spm = spm
        self.path_nla = spm.path_nla
        if not _has_window(spm):
            return SpmVerdict.TAKEN
        verdict = self._take_edges(spm)
        join = find(spm.options, Join)
        if join is not None:
            self.join_at = max(self.unwrap(join.min_sqn), self.oldest)
        if find(spm.options, Fin) is not None:
            self.fin_lead = max(unwrap(spm.lead, self.lead), self.lead)
        self.reset = find(spm.options, Rst)
        return verdict

    def _note_group_size(self, spm: Spm) -> None:
        """The group size is constant for the session (FEC-02), so the first SPM settles it, and one that differs is in doubt."""
        offer = find(spm.options, ParityPrm) if spm.options else None
        size = 0 if offer is None else offer.tgsize
        if self.spm is None:
            self.group_size = size
        self.keeps_group_size = size == self.group_size

    def was_told_of(self, first: int, end: int) -> bool:
        """Whether the newest sqn that data or an SPM told of is one of `first` to `end - 1`."""
        return first <= self._told_lead < end

    def _goes_on_behind(self, spm_sqn: int) -> bool:
        """Whether so many SPMs out of sequence have come in order, and none in sequence, that the newest was not the source's.

        Copies, and those that were overtaken by a few, count for nothing.
        """
        enough = self._parameters.spm_confirmations
        last, times = self._behind or (spm_sqn, 0)
        if times and not is_newer(spm_sqn, last):
            if wrap(last - spm_sqn) < enough:
                return False
            times = 0
        self._behind = (spm_sqn, times + 1)
        return times + 1 >= enough

    def _on_unreachable(self, spm: Spm) -> SpmVerdict:
        """An SPM with OPT_NBR_UNREACH repeats the SPM_SQN of the last regular one, so it is judged by itself (E-10)."""
        if self.spm is None or is_newer(self.spm.spm_sqn, spm.spm_sqn):
            self._counters.spm_packets_stale += 1
            return SpmVerdict.STALE
        if spm.path_nla != self.path_nla:
            self._counters.strangers_unreachable += 1
            return SpmVerdict.STALE
        return SpmVerdict.UNREACHABLE

    def for_children(self, spm: Spm) -> Spm | None:
        """An SPM that was taken as it may be passed down; None while no window is known.

        Edges that describe no window, and a jump that is not followed, give way to the edges known here: other
        implementations walk up to whatever lead they read (INT-Q11).
        """
        if not self.has_edges:
            return None
        if _has_window(spm) and unwrap(spm.lead, self.lead) <= self.lead:
            return spm
        kept = tuple(one for one in spm.options if spm.type in one.CARRIERS and not isinstance(one, (Fin, Join)))
        return attrs.evolve(spm, trail=wrap(self.trail), lead=wrap(self.lead), options=kept, octets=b"")

    def _take_edges(self, spm: Spm) -> SpmVerdict:
        epoch = _epoch_of(spm)
        if epoch is not None and self.started_ns is None:
            self.started_ns = epoch.start_s * SECOND + epoch.start_ns
        if not self.has_edges:
            self.has_edges = True
            self.trail = spm.trail
            self.lead = unwrap(spm.lead, spm.trail)
            if epoch is not None:
                shift = _next_sqn(epoch, spm) - self.lead - 1
                self.lead, self.trail = self.lead + shift, self.trail + shift
                self.epoch_shift = 0
            self._told_lead = self.lead
            return SpmVerdict.TAKEN
        lead = unwrap(spm.lead, self.lead)
        if epoch is not None and self.epoch_shift is None:
            self.epoch_shift = _next_sqn(epoch, spm) - lead - 1
        trail = unwrap(spm.trail, lead)
        if self.is_jump(lead):
            return self._weigh_jump(lead, trail)
        self._claim = None
        self.saw(lead, trail)
        return SpmVerdict.TAKEN

    def _weigh_jump(self, lead: int, trail: int) -> SpmVerdict:
        """Follow a jump only when successive SPMs agree on it (SEC-07)."""
        self._counters.jumps_rejected += 1
        previous, times = self._claim or (lead, 0)
        agrees = previous <= lead <= previous + self._parameters.rxw_sqns
        self._claim = (lead, times + 1 if agrees else 1)
        if self._claim[1] <= self._parameters.jump_confirmations - 1:
            return SpmVerdict.TAKEN
        self._claim = None
        self._counters.jumps_followed += 1
        self.lead, self.trail = lead, max(self.trail, min(trail, lead + 1))
        self._told_lead = lead
        return SpmVerdict.JUMPED


def _has_window(spm: Spm) -> bool:
    """Whether the edges describe a window, of 2^31 - 1 sqns at most (W-18). The pair of RFC 8.1 does not (W-20)."""
    return wrap(spm.lead + 1 - spm.trail) < HALF and (spm.trail, spm.lead) != (NO_WINDOW_TRAIL, NO_WINDOW_LEAD)


def _epoch_of(spm: Spm) -> Epoch | None:
    """What an SPM says of the upper half, if a source can have come so far."""
    epoch = find(spm.options, Epoch)
    return epoch if epoch is not None and epoch.next_upper < _MOST_UPPER else None


def _next_sqn(epoch: Epoch, spm: Spm) -> int:
    """The source's own 64-bit number of the sqn behind SPM_LEAD."""
    return epoch.next_upper * SPACE + wrap(spm.lead + 1)
