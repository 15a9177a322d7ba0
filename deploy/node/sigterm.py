"""SIGTERM in a process that is ending by itself: the account is written first.

While a node runs, trio handles signals. After the run, the default action of SIGTERM would end the process before the
account is written.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class SigtermHandler:
    """Handler of SIGTERM that ends the process like the default action until `has_ended` is set, and then ignores it."""

    def __init__(self) -> None:
        self.has_ended = False  # the node has ended; only the account remains to be written

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Handle SIGTERM during a block, except while trio handles the signal."""
        before = signal.signal(signal.SIGTERM, self._on_sigterm)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, before)

    def _on_sigterm(self, number: int, _: FrameType | None) -> None:
        if not self.has_ended:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)


SIGTERM_HANDLER = SigtermHandler()  # the one handler of this process
