"""Memory of a durable receiver: the positions of its application at the opening."""

from __future__ import annotations

from collections.abc import Iterable

from pgm.core.session.state import NO_EPOCH, SessionState
from pgm.core.source_names import GSI_OCTETS
from pgm.net.durable.position import Position
from pgm.net.durable.position_file import MOST_SESSIONS, SavedSession
from pgm.wire.formats import Tsi
from pgm.wire.sequence_numbers import HALF

_FARTHEST = HALF >> 1  # sqns back from the lead that a request can name; archives have the earlier ones


class Memory:
    """Sessions of an earlier life. Each is forgotten when it is heard, or when its end is certain."""

    def __init__(self, sessions: Iterable[SavedSession]) -> None:
        self._by_tsi = {session.position.tsi: session for session in sessions}
        self._origins = dict.fromkeys(map(_origin, self._by_tsi))  # in the order of their notes

    @property
    def sessions(self) -> tuple[SavedSession, ...]:
        """Return the sessions that were not taken yet."""
        return tuple(self._by_tsi.values())

    def start_of(self, state: SessionState) -> int | None:
        """Return the sqn at which a session is to begin.

        A known session begins at its position. A new session of a known source begins with its first packet. Other
        sessions begin where the parameters say.
        """
        saved = self._by_tsi.get(state.tsi)
        if saved is not None and saved.position.is_of(state):
            return max(saved.position.local_sqn(state), state.lead - _FARTHEST)
        if _origin(state.tsi) not in self._origins:
            return None
        return state.oldest if state.epoch is NO_EPOCH else max(0, -state.epoch.shift)

    def take(self, state: SessionState) -> Position | None:
        """Return the position in a session that has opened, and forget it; None for another session."""
        saved = self._by_tsi.get(state.tsi)
        if saved is None or not saved.position.is_of(state):
            return None
        del self._by_tsi[state.tsi]
        return saved.position

    def replaced_by(self, tsi: Tsi) -> list[SavedSession]:
        """Return the unfinished sessions of the source that has begun session `tsi`. Forget its finished ones."""
        known = [saved for saved in self._by_tsi.values() if _origin(saved.position.tsi) == _origin(tsi)]
        for saved in known:
            if saved.is_done:
                self.forget(saved.position.tsi)
        return [saved for saved in known if not saved.is_done]

    def put_back(self, session: SavedSession) -> None:
        """Keep a session that has ended. It may be heard again, though its silence was too long."""
        self._by_tsi[session.position.tsi] = session
        if len(self._by_tsi) > MOST_SESSIONS:
            del self._by_tsi[next(iter(self._by_tsi))]

    def forget(self, tsi: Tsi) -> None:
        """Forget a session that was taken to its end."""
        self._by_tsi.pop(tsi, None)

    def with_current(self, current: list[SavedSession]) -> list[SavedSession]:
        """Return the sessions to save: those of this life, behind those that wait for their source."""
        tsis = {saved.position.tsi for saved in current}
        return [saved for saved in tuple(self._by_tsi.values()) if saved.position.tsi not in tsis] + current

    def note(self, tsi: Tsi) -> None:
        """Note the source of a session. After a restart, everything of that source is wanted, from its first packet on."""
        self._origins[_origin(tsi)] = None
        if len(self._origins) > MOST_SESSIONS:
            del self._origins[next(iter(self._origins))]


def _origin(tsi: Tsi) -> bytes:
    """Return the part of a TSI that a restarted source keeps."""
    return bytes(tsi[:GSI_OCTETS])
