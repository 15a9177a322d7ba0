"""Thread that keeps the positions of a durable receiver on the disk, off the path of messages."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from pgm.errors import ProcessError
from pgm.net.durable.position_file import PositionFile, SavedSession
from pgm.units import SECOND


class PositionSaver:
    """Saver of one receiver's positions: at most one write in `sync_ivl` ns, and one at the end."""

    def __init__(self, file: PositionFile, snapshot: Callable[[], Sequence[SavedSession]], sync_ivl: int) -> None:
        """Start the thread. `snapshot` returns what the application has taken, in any thread."""
        self._file = file
        self._snapshot = snapshot
        self._sync_s = sync_ivl / SECOND
        self._moved = threading.Event()
        self._ends = threading.Event()
        self._failure: ProcessError | None = None
        self._thread = threading.Thread(target=self._run, name="pgm positions", daemon=True)
        self._thread.start()

    def note(self) -> None:
        """Note that the application has moved. Raises the `ProcessError` of a failed write, once."""
        if not self._moved.is_set():
            self._moved.set()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def close(self) -> None:
        """Write the last positions. Raises `ProcessError`."""
        self._ends.set()
        self._moved.set()
        self._thread.join()
        self._write()

    def _run(self) -> None:
        while True:
            self._moved.wait()
            if self._ends.is_set():
                return
            self._moved.clear()
            try:
                if self._write():
                    self._moved.set()  # an application moves inside a batch without a call
            except ProcessError as error:
                self._failure = error
            self._ends.wait(self._sync_s)

    def _write(self) -> bool:
        """Write the positions if they have changed, and return whether they had."""
        sessions = tuple(self._snapshot())
        if sessions == self._file.sessions:
            return False
        self._file.write(sessions)
        return True
