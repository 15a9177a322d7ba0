"""Beginning a session before now: what repairers of the subnet still hold, asked for by one question to each of them.

The question is an SPMR by unicast with OPT_PGM_HELD; a repairer answers with the same, and names the oldest sqn of what is wanted
that it has. From there to where the session would have begun is history: NAKs for it go to that repairer alone, never to a parent,
so the source hears nothing of it. Nobody to ask, or no answer in `open_hold_ivl`: the session begins now, and a notice says so.
"""

from __future__ import annotations

from pgm.core.channel import Segment
from pgm.core.effects import Effects, Notice, control
from pgm.core.path import Path
from pgm.parameters import Parameters
from pgm.units import MILLISECOND, NEVER
from pgm.wire.formats import Nla, tsi_text
from pgm.wire.options import Held
from pgm.wire.packets import Spmr, encode
from pgm.wire.serial import unwrap, wrap


class LateJoin:
    """One session's wish to begin earlier. `is_wanted` until it was answered or given up."""

    def __init__(self, path: Path, segment: Segment, repairers: frozenset[Nla], parameters: Parameters) -> None:
        self._path = path
        self._segment = segment
        self._repairers = repairers
        self._parameters = parameters
        self.is_wanted = parameters.join_from != "now"
        self.deadline_ns = NEVER
        self.until_ns = NEVER  # it is given up

    @property
    def wanted_sqn(self) -> int | None:
        """The sqn to begin with, if it is named."""
        return self._parameters.join_sqns if self._parameters.join_from == "sqn" else None

    def begin(self, now_ns: int) -> None:
        """The path is known: ask at once, and again until an answer comes. Without anybody to ask it is over."""
        if self.until_ns == NEVER:
            self.deadline_ns = now_ns
            self.until_ns = now_ns + (self._parameters.open_hold_ivl if self._repairers else 0)

    def handle_deadline(self, now_ns: int) -> Effects:
        """The question, to every repairer of the segment; or the notice that it is given up."""
        if not self.is_wanted or now_ns < self.deadline_ns:
            return ()
        if now_ns >= self.until_ns:
            self.is_wanted, self.deadline_ns = False, NEVER
            return (self._told("nobody near says that it keeps the stream: it begins now"),)
        self.deadline_ns = min(now_ns + self._parameters.nak_rpt_ivl, self.until_ns)
        packet = encode(Spmr(tsi=self._path.tsi, data_port=self._path.data_port, options=(self._question(),)))
        return [control(self._segment, packet, to=repairer) for repairer in sorted(self._repairers)]

    def _question(self) -> Held:
        wanted = self._parameters
        if wanted.join_from == "oldest":
            return Held(amount=0)
        if wanted.join_from == "sqn":
            return Held(amount=wrap(wanted.join_sqns), by_sqn=True)
        if wanted.join_secs:
            return Held(amount=min(wanted.join_secs // MILLISECOND, (1 << 32) - 1), by_time=True)
        return Held(amount=min(wanted.join_sqns, (1 << 32) - 1), by_count=True)

    def answered(self, held: Held, peer: Nla) -> tuple[int, Notice] | None:
        """The sqn that history begins with, by an answer; None for one that is none, or that comes too late."""
        if not self.is_wanted or not held.answers or peer not in self._repairers:
            return None
        if held.nothing:
            return None  # perhaps another one has something
        self.is_wanted, self.deadline_ns = False, NEVER
        first = max(0, unwrap(held.amount, self._path.lead))
        return first, self._told(f"{peer} keeps it from sqn {first} on")

    def _told(self, text: str) -> Notice:
        return Notice("late-join", f"session {tsi_text(self._path.tsi)}: {text}")
