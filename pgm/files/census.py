"""Answers of receivers to a source's questions, and the ranges that the source must send again."""

from __future__ import annotations

import attrs

from pgm.files.packets import TransferAnswer, TransferState, covering_ranges


@attrs.define
class _LastAnswer:
    answer: TransferAnswer
    heard_at_ns: int


class Census:
    """Census of at most `most` receivers, in the callers' time. A silent busy receiver is busy for `patience` ns."""

    def __init__(self, ident: bytes, most: int, patience: int) -> None:
        self._ident = ident
        self._most = most
        self._patience = patience
        self._known: dict[str, _LastAnswer] = {}
        self.rejects = 0

    def take(self, answer: TransferAnswer, now_ns: int) -> None:
        """Store an answer. Count one about another transfer, or from a receiver above the limit, as a reject."""
        if answer.ident != self._ident or (answer.who not in self._known and len(self._known) >= self._most):
            self.rejects += 1
            return
        self._known[answer.who] = _LastAnswer(answer, now_ns)

    def is_settled(self, since_question: int) -> bool:
        """Return whether all known receivers have answered since this question, and none is busy."""
        return all(
            last.answer.question >= since_question and last.answer.state is not TransferState.BUSY
            for last in self._known.values()
        )

    def answered(self, since_question: int) -> int:
        """Return the number of receivers that have answered since this question."""
        return sum(last.answer.question >= since_question for last in self._known.values())

    def is_busy(self, now_ns: int) -> bool:
        """Return whether a receiver is busy whose answer is not older than the patience."""
        return any(
            last.answer.state is TransferState.BUSY and now_ns - last.heard_at_ns < self._patience
            for last in self._known.values()
        )

    def missing(self, since_question: int) -> tuple[bool, list[tuple[int, int]]]:
        """Return whether a receiver lacks the manifest, and the octets lacked, by answers since this question."""
        answers = [
            last.answer
            for last in self._known.values()
            if last.answer.question >= since_question and last.answer.state is TransferState.LACKS
        ]
        ranges = covering_ranges([extent for answer in answers for extent in answer.ranges], most=None)
        return any(answer.lacks_manifest for answer in answers), ranges

    @property
    def known(self) -> int:
        """Return the number of receivers that have answered."""
        return len(self._known)

    @property
    def done(self) -> int:
        """Return the number of receivers that have all files."""
        return sum(last.answer.state is TransferState.DONE for last in self._known.values())

    def account(self) -> dict[str, dict[str, object]]:
        """Return each receiver's state and its number of missing octets."""
        return {
            name: {"state": last.answer.state.name.lower(), "missing": last.answer.missing}
            for name, last in sorted(self._known.items())
        }
