"""Memory of a recording node: the ends of the rows in its archive are the positions at which sessions go on."""

from __future__ import annotations

from pgm.archive.recording.recorder import Recorder
from pgm.archive.session import ReachedSession
from pgm.core.effects import Effect
from pgm.core.session.state import SessionState
from pgm.net.durable.memory import Memory
from pgm.net.durable.position import Position
from pgm.net.durable.position_file import SavedSession
from pgm.units import MICROSECOND


class ArchiveMemory:
    """Positions of one recorder, which also takes the effects to record."""

    def __init__(self, recorder: Recorder) -> None:
        """Begin where the archive ends, as the recorder found it at its start."""
        self._recorder = recorder
        self._memory = Memory(map(_saved, recorder.reached))

    def start_of(self, state: SessionState) -> int | None:
        """Return the sqn at which a session is to begin, as for a durable receiver."""
        return self._memory.start_of(state)

    def take(self, effect: Effect) -> None:
        """Record an effect. A session that ends is remembered: it may be heard again."""
        ended = self._recorder.take(effect)
        if ended is not None:
            self._memory.put_back(_saved(ended))


def _saved(reached: ReachedSession) -> SavedSession:
    epoch_ns = (reached.epoch_us or 0) * MICROSECOND
    end = ".end" if reached.is_closed else ""
    position = Position.parse(f"{reached.tsi}@{epoch_ns}:{reached.next_sqn}.0{end}")
    return SavedSession(position, 0, reached.next_sqn - 1, reached.is_closed)
