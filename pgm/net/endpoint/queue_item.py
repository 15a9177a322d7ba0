"""One thing that waits for the application."""

from __future__ import annotations

import attrs

from pgm.core.effects import Closed, Lost, Opened
from pgm.core.window.reassembly import LargeMessage, WholeMessages
from pgm.wire.formats import Tsi
from pgm.wire.train import Run


@attrs.define(eq=False)
class QueueItem:
    """Something for the application, and the octets that taking it sets free."""

    found: WholeMessages | LargeMessage | Lost | Opened | Closed
    frees_octets: int

    @property
    def is_message(self) -> bool:
        """Whether it is one message or more."""
        return isinstance(self.found, (WholeMessages, LargeMessage))

    def is_continued_by(self, tsi: Tsi, run: Run) -> bool:
        """Whether a run goes on in sqns and memory where this ends."""
        found = self.found
        return isinstance(found, WholeMessages) and found.run.is_continued_by(run) and found.tsi == tsi

    def extend(self, run: Run) -> None:
        """Take in a run that goes on where this ends."""
        assert isinstance(self.found, WholeMessages)
        self.found = WholeMessages(self.found.tsi, self.found.run.with_more(run))
        self.frees_octets += run.octets
