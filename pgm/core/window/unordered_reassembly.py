"""Large messages of streams that are delivered as they arrive: several may be under way, their fragments in any order.

A message is delivered whole or not at all, and delivered and lost sqns add up to what was sent, as in order
(`pgm.core.window.reassembly`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import attrs

from pgm.core.effects import LossCause, Lost
from pgm.core.window.reassembly import LargeMessage, WholeMessages
from pgm.wire.formats import Tsi
from pgm.wire.options import Fragment
from pgm.wire.sequence_numbers import unwrap
from pgm.wire.train import Run, fragment_of

_LOSSES = 1024  # that are remembered, for fragments which come after the loss of others


@attrs.define(eq=False)
class _Scattered:
    """A message of which some fragments have come; `end` is the sqn behind its last."""

    first: int
    end: int
    length: int
    pieces: dict[int, bytes] = attrs.field(factory=dict)  # by offset
    runs: list[tuple[int, int]] = attrs.field(factory=list)  # sqns that came: first and count
    octets: int = 0

    def whole(self) -> bytes | None:
        """The message, if its pieces make one."""
        octets = b"".join(self.pieces[offset] for offset in sorted(self.pieces))
        at = 0
        for offset in sorted(self.pieces):
            if offset != at:
                return None
            at += len(self.pieces[offset])
        return octets


class UnorderedReassembler:
    """Turns the runs and losses of one session, in any order, into whole messages and losses.

    Bounded by `max_apdu`, all messages under way together: the oldest gives way.
    """

    def __init__(self, tsi: Tsi, max_apdu: int) -> None:
        self._tsi = tsi
        self._max_apdu = max_apdu
        self._partials: dict[int, _Scattered] = {}
        self._octets = 0
        self._losses: deque[tuple[int, int]] = deque(maxlen=_LOSSES)

    @property
    def is_between(self) -> bool:
        """Whether a run without fragments is what it is: here always, since nothing is in order."""
        return True

    def add(self, run: Run) -> Iterator[WholeMessages | LargeMessage | Lost]:
        """Take a run."""
        fragment = fragment_of(run)
        if fragment is None:
            yield WholeMessages(self._tsi, run)
            return
        partial = self._partial_of(run, fragment)
        if partial is None:
            yield Lost(self._tsi, run.first, run.count, LossCause.FRAGMENT)
            return
        piece = run.payloads.tobytes()
        partial.pieces[fragment.offset] = piece
        partial.runs.append((run.first, run.count))
        partial.octets += len(piece)
        self._octets += len(piece)
        if partial.octets >= partial.length:
            payload = partial.whole()
            if payload is None or len(payload) != partial.length:
                yield from self._abandon(partial)
                return
            del self._partials[partial.first]
            self._octets -= partial.octets
            yield LargeMessage(self._tsi, partial.first, partial.end - partial.first, payload)
        while self._octets > self._max_apdu:
            yield from self._abandon(next(iter(self._partials.values())))

    def _partial_of(self, run: Run, fragment: Fragment) -> _Scattered | None:
        """The message that a run belongs to; None if it cannot become whole any more, or makes no sense."""
        first = unwrap(fragment.first_sqn, run.first)
        ahead = run.first - first
        size = fragment.offset // ahead if ahead > 0 else run.payloads.shape[1]
        if ahead < 0 or size < 1 or fragment.offset != ahead * size or fragment.apdu_length > self._max_apdu:
            return None
        end = first + -(-fragment.apdu_length // size)
        if run.end > end or any(low < end and first < high for low, high in self._losses):
            return None
        found = self._partials.get(first)
        if found is None:
            found = self._partials[first] = _Scattered(first, end, fragment.apdu_length)
        is_same = found.end == end and found.length == fragment.apdu_length
        return found if is_same and fragment.offset not in found.pieces else None

    def add_lost(self, lost: Lost) -> Iterator[Lost]:
        """Take a loss, and with it the messages it breaks."""
        end = lost.first + lost.count
        self._losses.append((lost.first, end))
        for partial in [one for one in self._partials.values() if one.first < end and lost.first < one.end]:
            yield from self._abandon(partial)
        yield lost

    @property
    def mark(self) -> tuple[int, int] | None:
        """What has come of the messages under way: while this stays the same none makes progress. None without any."""
        oldest = next(iter(self._partials), None)
        return None if oldest is None else (oldest, self._octets)

    def end(self) -> Iterator[Lost]:
        """The stream ends here."""
        for partial in list(self._partials.values()):
            yield from self._abandon(partial)

    def _abandon(self, partial: _Scattered) -> Iterator[Lost]:
        del self._partials[partial.first]
        self._octets -= partial.octets
        self._losses.append((partial.first, partial.end))
        for first, count in partial.runs:
            yield Lost(self._tsi, first, count, LossCause.FRAGMENT)
