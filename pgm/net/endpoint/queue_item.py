"""One entry of the queue for the application."""

from __future__ import annotations

import attrs

from pgm.core.effects import Lost, NoSnapshot
from pgm.core.window.reassembly import LargeMessage, WholeMessages
from pgm.net.durable.past import PastMessages
from pgm.net.framing.items import StreamMark
from pgm.wire.formats import Tsi
from pgm.wire.train import Run

QueueContent = WholeMessages | LargeMessage | PastMessages | Lost | StreamMark


@attrs.define(eq=False)
class QueueItem:
    """Entry for the application, and the octets that its removal frees."""

    found: QueueContent | NoSnapshot
    frees_octets: int

    @property
    def is_message(self) -> bool:
        """Return whether the entry is one message or more."""
        return isinstance(self.found, (WholeMessages, LargeMessage))

    def is_continued_by(self, tsi: Tsi, run: Run) -> bool:
        """Return whether a run continues this entry in sqns and memory."""
        found = self.found
        return isinstance(found, WholeMessages) and found.run.is_continued_by(run) and found.tsi == tsi

    def extend(self, run: Run) -> None:
        """Append a run that continues this entry."""
        assert isinstance(self.found, WholeMessages)
        self.found = WholeMessages(self.found.tsi, self.found.run.with_more(run))
        self.frees_octets += run.octets
