"""End of a session that an FIN or RST claims.

One packet is easy to forge. A claimed end is therefore believed only if nothing contradicts it for `end_confirm_ivl`:
neither data behind the end, nor a later SPM without an end. Receivers ask the source for an SPM meanwhile.
"""

from __future__ import annotations

from pgm.core.counters import Counters
from pgm.parameters import Parameters
from pgm.units import NEVER
from pgm.wire.options import Rst


class SessionEnd:
    """Claimed end of one session. `lead` and `reset` are None until the end is believed."""

    def __init__(self, parameters: Parameters, counters: Counters) -> None:
        self._ivl = parameters.end_confirm_ivl
        self._counters = counters
        self.is_claimed = False  # remains True once the end is believed
        self.has_fin = False  # a FIN has claimed this end, perhaps before an RST
        self.is_witnessed = False  # data or an SPM without an end has shown the last sqn
        self.deadline_ns = NEVER  # when the claim is believed
        self.lead: int | None = None  # the last sqn of the session
        self.reset: Rst | None = None
        self._claimed_lead = -1
        self._claimed_reset: Rst | None = None

    def claim(self, lead: int, reset: Rst | None, known_lead: int, now_ns: int) -> None:
        """Note an end at `lead`. `known_lead` is the newest sqn that other packets have shown.

        An end below that sqn is false. A repeated claim does not delay its belief.
        """
        if lead < known_lead:
            self._counters.ends_refuted += 1
            return
        if self.lead is not None:
            return
        if self.deadline_ns == NEVER or lead != self._claimed_lead:
            self.deadline_ns = now_ns + self._ivl
            self.is_witnessed = lead == known_lead
        self.has_fin = reset is None or (self.has_fin and lead == self._claimed_lead)
        self.is_claimed, self._claimed_lead, self._claimed_reset = True, lead, reset

    def on_data(self, sqn: int) -> None:
        """Take the newest sqn of data that came after a claim."""
        if sqn > self._claimed_lead:
            self.contradict()
        elif sqn == self._claimed_lead:
            self.is_witnessed = True

    def contradict(self) -> None:
        """Drop the claim, or the belief: the source goes on."""
        self._counters.ends_refuted += 1
        self.is_claimed, self.has_fin, self.deadline_ns = False, False, NEVER
        self.lead = self.reset = None

    def believe(self) -> None:
        """Believe the claim: nothing has contradicted it."""
        self.deadline_ns = NEVER
        self.lead, self.reset = self._claimed_lead, self._claimed_reset
