"""State of a session from SPMs and data: path, edges, end (RFC 6.2, 7.1)."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence

import attrs

from pgm.core.effects import Effects
from pgm.core.session.lead_claims import LeadClaims
from pgm.core.session.session_end import SessionEnd
from pgm.core.session.spm_doubts import SpmDoubts
from pgm.core.session_context import SessionContext
from pgm.core.structures.ranges import Span
from pgm.units import SECOND
from pgm.wire.control_packets import Nak, Spm
from pgm.wire.formats import NO_WINDOW_LEAD, NO_WINDOW_TRAIL, Nla
from pgm.wire.naks import Naks, up_to
from pgm.wire.options import Epoch, Fin, Join, NbrUnreach, ParityPrm, Rst, SourceFile, find
from pgm.wire.sequence_numbers import HALF, MASK, SPACE, is_newer, unwrap, wrap

_MOST_UPPER = 1 << 30  # a quarter of all values: sqns beyond it still fit the signed 64 bits of arrays


class SpmVerdict(enum.Enum):
    """Verdict on an SPM."""

    STALE = "stale"  # not newer: dropped whole (RCV-20)
    TAKEN = "taken"
    UNREACHABLE = "unreachable"  # OPT_NBR_UNREACH of the parent; the other fields do not count (IMP-25, IMP-27)
    UNPROVED = "unproved"  # its lead is too far ahead to be believed yet: dropped whole
    JUMPED = "jumped"  # taken; the window is proved to be far ahead, so the edges have jumped there


@attrs.frozen
class SessionEpoch:
    """Start of a session by the source's clock, and the source's own 64-bit numbers."""

    started_ns: int
    shift: int  # sqn + shift is the source's number

    @classmethod
    def of(cls, option: Epoch, shift: int) -> SessionEpoch:
        """Return the epoch that an option describes."""
        return cls(option.start_s * SECOND + option.start_ns, shift)


NO_EPOCH = SessionEpoch(-1, 0)  # no SPM has told it


class SessionState:
    """Path state of one session. Edges are 64-bit sqns. `lead` is the newest sqn known to be sent."""

    def __init__(self, context: SessionContext) -> None:
        self.tsi = context.tsi
        self.data_port = context.data_port
        self._context = context
        self._is_signed = context.is_signed  # then only SPMs, which are verified, move the trail and end the session
        self.spm: Spm | None = None  # the last one taken
        self.group_size = 0  # group size of the parity in the first SPM, 0 without parity
        self.trail = 0
        self.lead = -1
        self._announced_lead = -1  # newest sqn of data or an SPM; an NCF may have moved `lead` beyond it
        self.has_edges = False
        self.join_at: int | None = None  # OPT_JOIN: the oldest sqn that a joiner may request
        self.end = SessionEnd(context.parameters, context.counters)
        self._spm_sqn: int | None = None  # of the last SPM taken that claims no end
        self.epoch = NO_EPOCH
        self.heard_at_ns = 0
        self.asked_at_ns = 0  # when a child was last served, which a cache does also without the source
        self._doubts = SpmDoubts(context.parameters)
        self._claims = LeadClaims(context)
        self._burst = min(context.parameters.jump_burst_sqns, context.parameters.rxw_sqns)

    def verified_ns(self, now_ns: int) -> int:
        """Return for how long the session is verified by signatures, in ns; -1 if it is not."""
        return now_ns - self._context.opened_at_ns if self._is_signed else -1

    @property
    def file(self) -> str:
        """Return the digests of the source's topology file and of its own part, as its last SPM has them."""
        found = find(self.spm.options, SourceFile) if self.spm else None
        return found.text if found else ""

    @property
    def path_nla(self) -> Nla | None:
        """Return the path address of the last SPM taken."""
        return self.spm.path_nla if self.spm else None

    @property
    def keeps_group_size(self) -> bool:
        """Return whether the last SPM has the group size of the first; an SPM with another is in doubt (FEC-02)."""
        return self.spm is None or _group_size_of(self.spm) == self.group_size

    @property
    def agreements(self) -> int:
        """Return how many SPMs fitted the data that had come since the SPM before."""
        return self._doubts.agreements

    @property
    def used_at_ns(self) -> int:
        """Return when a packet of the session last came, or a child was last served."""
        return max(self.heard_at_ns, self.asked_at_ns)

    def unwrap(self, wire_sqn: int) -> int:
        """Return the 64-bit form of a wire sqn, nearest to the lead."""
        return unwrap(wire_sqn, self.lead) if self.has_edges else wire_sqn

    def spans_of(self, nak: Nak) -> list[Span]:
        """Return the spans of a NAK or NCF, in 64 bits."""
        return nak.spans_from(self.unwrap(nak.sqn))

    def sent_part(self, nak: Nak, spans: Sequence[Span]) -> Nak | None:
        """Return the part of a NAK up to the lead if the NAK reaches beyond it; None if it does not, or lies beyond it.

        A child may have believed a false NCF, and its other losses are real.
        """
        if not self.has_edges or not spans[0][0] <= self.lead < spans[-1][1] - 1 or isinstance(nak, Naks):
            return None
        return up_to(nak, self.lead + 1, self.unwrap(nak.sqn))

    def parts_of(self, nak: Nak) -> Iterable[Nak]:
        """Split a train of NCFs for separate checks if its newest sqn is too far ahead. Return others as one."""
        if isinstance(nak, Naks) and not self.reveals(self.spans_of(nak)[-1][1]):
            return nak.singles()
        return (nak,)

    def place(self, wire_sqn: int, wire_trail: int) -> tuple[int, int]:
        """Return a data packet's sqn and trail in 64 bits. In signed streams the trail is that of the SPMs.

        Without known edges the sqn itself is the start of the 64-bit numbers. If the window reaches across 2^32, its
        trail lies one turn of 2^32 below. The numbers then start one turn higher, so that no sqn is negative.
        """
        if self.has_edges:
            low = self.lead - HALF  # two calls of `unwrap`, written out for the fast path
            trail = self.trail if self._is_signed else low + (wire_trail - low & MASK)
            return low + (wire_sqn - low & MASK), trail
        trail = min(unwrap(wire_trail, wire_sqn), wire_sqn)  # never ahead of the packet itself
        turn = SPACE if trail < 0 else 0
        return wire_sqn + turn, trail + turn

    def is_jump(self, sqn: int) -> bool:
        """Return whether a sqn lies further ahead than the largest window."""
        return self.has_edges and sqn > self.lead + self._context.parameters.rxw_sqns

    def is_beyond_burst(self, sqn: int) -> bool:
        """Return whether a sqn lies further ahead than a burst, so that only the rate may allow it."""
        return sqn > self.lead + self._burst and self.has_edges

    def doubts(self, first: int, end: int, now_ns: int) -> bool:
        """Return whether the data packets `first` to `end - 1` lie too far ahead to be believed yet (SEC-07)."""
        if not self.is_beyond_burst(first):
            return False
        return not self._claims.believes_data(first, end, self._announced_lead, self.heard_at_ns, now_ns)

    def report_doubt(self, peer: Nla, now_ns: int) -> Effects:
        """Return a notice that a packet of `peer` is not believed, once an episode."""
        return self._claims.report(peer, now_ns)

    @property
    def reach(self) -> int:
        """Return the sqns of the largest window that is followed at once."""
        return self._context.parameters.rxw_sqns

    @property
    def oldest(self) -> int:
        """Return the oldest sqn a joiner may begin with: the trail, or the edge of the largest window if higher."""
        return max(self.trail, self.lead + 1 - self._context.parameters.rxw_sqns)

    def begin_at(self, sqn: int, trail: int) -> None:
        """Take the edges from the first data packet."""
        self.has_edges = True
        self.lead, self.trail = sqn, trail
        self._announced_lead = sqn

    def saw(self, lead: int, trail: int) -> None:
        """Advance the edges to those of a data packet or SPM, never back."""
        if lead > self._announced_lead:
            self._announced_lead = lead
        if lead > self.lead:
            self.lead = lead
        if trail > self.trail:
            self.trail = max(self.trail, min(trail, self.lead + 1))

    def saw_next(self, trail: int) -> None:
        """Advance the edges by the packet after the lead. Its trail must not lie ahead of that packet."""
        self.lead = self._announced_lead = self.lead + 1
        if trail > self.trail and not self._is_signed:
            self.trail = trail

    def reveals(self, end: int) -> bool:
        """Return whether packets below `end` of an NCF or NAK may exist (RCV-31, SEC-03).

        The bound counts from the lead of data and SPMs, so that a row of false NCFs cannot move the lead step by step.
        In signed streams NCFs reveal nothing: anyone can send them.
        """
        ahead = 0 if self._is_signed else self._context.parameters.ncf_lead_sqns
        return self.has_edges and end <= self._announced_lead + 1 + ahead

    def revealed(self, end: int) -> None:
        """Advance the lead to the newest sqn of an NCF."""
        self.lead = max(self.lead, end - 1)

    def repeats(self, spm: Spm) -> bool:
        """Return whether an SPM is no newer than the last one taken."""
        return self._spm_sqn is not None and not is_newer(spm.spm_sqn, self._spm_sqn)

    def on_spm(self, spm: Spm, now_ns: int) -> SpmVerdict:
        """Take an SPM (RCV-20, RCV-23). The first of a session is always in sequence."""
        if spm.options and find(spm.options, NbrUnreach) is not None:
            return self._on_unreachable(spm)
        if self.repeats(spm):
            if not self._doubts.confirms_old_sqns(spm.spm_sqn):
                self._context.counters.spm_packets_stale += 1
                return SpmVerdict.STALE
            self._context.counters.spm_sqns_followed += 1
        if self._doubts_lead_of(spm, now_ns):
            return SpmVerdict.UNPROVED
        self._doubts.end_old_sqns()
        self._context.counters.spm_packets_in += 1
        if self.spm is None:
            self.group_size = _group_size_of(spm)
        self.spm = spm
        fin, reset = find(spm.options, Fin), find(spm.options, Rst)
        ends = fin is not None or reset is not None
        if not ends:
            # An SPM that claims an end leaves the sequence as it was, so that the source's next SPM can contradict it.
            self._spm_sqn = spm.spm_sqn
            if self.end.is_claimed:
                self.end.contradict()
        if not _has_window(spm):
            return SpmVerdict.TAKEN
        known_lead = self._announced_lead
        verdict = self._take_edges(spm)
        self._claims.on_true_spm(self.lead, now_ns)
        join = find(spm.options, Join)
        if join is not None:
            self.join_at = max(self.unwrap(join.min_sqn), self.oldest)
        if ends:
            self.end.claim(unwrap(spm.lead, self.lead), reset, known_lead, now_ns)
        return verdict

    def was_told_of(self, first: int, end: int) -> bool:
        """Return whether the newest sqn of data or an SPM is one of `first` to `end - 1`."""
        return first <= self._announced_lead < end

    def claim_end(self, lead: int, now_ns: int) -> None:
        """Note that a data packet claims the end of the session at `lead`, and shows that sqn."""
        if self._is_signed:
            return
        self.end.claim(lead, None, max(lead, self._announced_lead), now_ns)

    def _on_unreachable(self, spm: Spm) -> SpmVerdict:
        """Judge an SPM with OPT_NBR_UNREACH (E-10). Its SPM_SQN is that of the last regular SPM."""
        if self.spm is None or is_newer(self.spm.spm_sqn, spm.spm_sqn):
            self._context.counters.spm_packets_stale += 1
            return SpmVerdict.STALE
        if spm.path_nla != self.path_nla:
            self._context.counters.strangers_unreachable += 1
            return SpmVerdict.STALE
        return SpmVerdict.UNREACHABLE

    def for_children(self, spm: Spm) -> Spm | None:
        """Return a taken SPM in the form for children; None while no window is known.

        Edges that describe no window are replaced by the edges known here. Other implementations follow any lead that
        they read (INT-Q11).
        """
        if not self.has_edges:
            return None
        if _has_window(spm):
            return spm
        kept = tuple(
            option for option in spm.options if spm.type in option.CARRIERS and not isinstance(option, (Fin, Join))
        )
        return attrs.evolve(spm, trail=wrap(self.trail), lead=wrap(self.lead), options=kept, octets=b"")

    def _take_edges(self, spm: Spm) -> SpmVerdict:
        epoch = _epoch_of(spm)
        if not self.has_edges:
            self.has_edges = True
            self.trail = spm.trail
            self.lead = unwrap(spm.lead, spm.trail)
            if epoch is not None:
                shift = _next_sqn(epoch, spm) - self.lead - 1
                self.lead, self.trail = self.lead + shift, self.trail + shift
                self.epoch = SessionEpoch.of(epoch, 0)
            self._announced_lead = self.lead
            self._doubts.compare(self.lead, -1)
            return SpmVerdict.TAKEN
        lead = unwrap(spm.lead, self.lead)
        if epoch is not None and self.epoch is NO_EPOCH:
            self.epoch = SessionEpoch.of(epoch, _next_sqn(epoch, spm) - lead - 1)
        trail = unwrap(spm.trail, lead)
        if self.is_jump(lead):
            self.lead, self.trail = lead, max(self.trail, min(trail, lead + 1))
            self._announced_lead = lead
            return SpmVerdict.JUMPED
        self._doubts.compare(lead, self._announced_lead)
        self.saw(lead, trail)
        return SpmVerdict.TAKEN

    def _doubts_lead_of(self, spm: Spm, now_ns: int) -> bool:
        """Return whether the lead of an SPM is too far ahead to be believed yet. A signed SPM is believed."""
        lead = unwrap(spm.lead, self.lead)
        if not self.is_beyond_burst(lead) or not _has_window(spm):
            return False
        if self._is_signed:
            self._context.counters.jumps_followed += self.is_jump(lead)
            return False
        return not self._claims.believes_spm(lead, spm.spm_sqn, self._announced_lead, self.heard_at_ns, now_ns)


def _group_size_of(spm: Spm) -> int:
    offer = find(spm.options, ParityPrm) if spm.options else None
    return offer.tgsize if offer else 0


def _has_window(spm: Spm) -> bool:
    """Return whether the edges form a window of at most 2^31 - 1 sqns (W-18); the pair of RFC 8.1 is none (W-20)."""
    return wrap(spm.lead + 1 - spm.trail) < HALF and (spm.trail, spm.lead) != (NO_WINDOW_TRAIL, NO_WINDOW_LEAD)


def _epoch_of(spm: Spm) -> Epoch | None:
    """Return OPT_EPOCH of an SPM, if a source can have reached its upper half."""
    epoch = find(spm.options, Epoch)
    return epoch if epoch is not None and epoch.next_upper < _MOST_UPPER else None


def _next_sqn(epoch: Epoch, spm: Spm) -> int:
    """Return the source's own 64-bit number of the sqn after SPM_LEAD."""
    return epoch.next_upper * SPACE + wrap(spm.lead + 1)
