"""Who answered which question, and what they lack: what a source sends once more."""

from __future__ import annotations

import attrs

from pgm.files.packets import TransferAnswer, TransferState, few


@attrs.define
class _Known:
    answer: TransferAnswer
    heard_at_ns: int


class Census:
    """The receivers that have answered. Knows no clock but the times it is given; holds `most` receivers."""

    def __init__(self, ident: bytes, most: int, patience: int) -> None:
        self._ident = ident
        self._most = most
        self._patience = patience
        self._known: dict[str, _Known] = {}
        self.rejects = 0

    def take(self, answer: TransferAnswer, now_ns: int) -> None:
        """Take an answer in. What is not about this transfer, or of one receiver too many, is counted."""
        if answer.ident != self._ident or (answer.who not in self._known and len(self._known) >= self._most):
            self.rejects += 1
            return
        self._known[answer.who] = _Known(answer, now_ns)

    def is_settled(self, since_question: int) -> bool:
        """Whether everybody known has answered a question since then, and nobody is busy."""
        return all(
            one.answer.question >= since_question and one.answer.state is not TransferState.BUSY
            for one in self._known.values()
        )

    def answered(self, since_question: int) -> int:
        """How many have answered a question since then."""
        return sum(one.answer.question >= since_question for one in self._known.values())

    def is_busy(self, now_ns: int) -> bool:
        """Whether somebody who was heard not long ago needs time."""
        return any(
            one.answer.state is TransferState.BUSY and now_ns - one.heard_at_ns < self._patience
            for one in self._known.values()
        )

    def missing(self, since_question: int) -> tuple[bool, list[tuple[int, int]]]:
        """What those lack who have answered since then: whether the manifest, and which octets."""
        lacking = [
            one.answer
            for one in self._known.values()
            if one.answer.question >= since_question and one.answer.state is TransferState.LACKS
        ]
        ranges = few([one for answer in lacking for one in answer.ranges], most=None)
        return any(answer.lacks_manifest for answer in lacking), ranges

    @property
    def known(self) -> int:
        """Receivers that have answered."""
        return len(self._known)

    @property
    def done(self) -> int:
        """Receivers that have everything."""
        return sum(one.answer.state is TransferState.DONE for one in self._known.values())

    def account(self) -> dict[str, dict[str, object]]:
        """Each receiver's state and how many octets it lacks."""
        return {
            who: {"state": one.answer.state.name.lower(), "missing": one.answer.missing}
            for who, one in sorted(self._known.items())
        }
