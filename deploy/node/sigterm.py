"""SIGTERM at the moment when a process ends by itself: what it has to say comes first.

While a node runs, trio hears signals. Behind that Python's default would end the process before its account is written, as if
it had nothing to say.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class SigtermHandler:
    """A handler of SIGTERM that ends the process, as the default does, until `has_ended` is set."""

    def __init__(self) -> None:
        self.has_ended = False  # the node: what is left is its account

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Handle SIGTERM for the length of a block wherever nothing else does."""
        before = signal.signal(signal.SIGTERM, self._heard)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, before)

    def _heard(self, number: int, _: FrameType | None) -> None:
        if not self.has_ended:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)


LAST_WORD = SigtermHandler()  # of this process
