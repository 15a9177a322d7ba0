"""The account of one session at one receiver's application: in order, without gaps, exactly once, octet for octet.

This is where "no silent loss" is held: what was delivered and what was reported lost must together be a
continuation, sqn by sqn, from where the session was opened (I1), and every message must be the source's (I2).
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import NoReturn

from pgm.core.effects import CloseCause, Closed, Deliver, LossCause, Lost, Opened
from pgm.core.window.reassembly import LargeMessage, Reassembler, WholeMessages
from pgm.core.window.unordered_reassembly import UnorderedReassembler
from pgm.sim.sent_messages import SentMessages
from pgm.wire.formats import Tsi

Complain = Callable[[str], NoReturn]


class DeliveryCheck:
    """What one application got of one session. `complain` raises with the reason."""

    def __init__(self, opened: Opened, ledger: SentMessages | None, max_apdu: int, complain: Complain) -> None:
        self.tsi: Tsi = opened.tsi
        self.first = opened.first
        self.next_sqn = opened.first
        self.delivered_sqns = 0
        self.delivered_octets = 0
        self.messages = 0
        self.lost: collections.Counter[LossCause] = collections.Counter()  # sqns by cause, as the core reported
        self.broken_messages = 0  # sqns that came, of messages that did not come whole
        self.silences = 0
        self.closed: CloseCause | None = None
        self.ledger = ledger
        self._complain = complain
        self._reassembler: Reassembler | UnorderedReassembler = Reassembler(opened.tsi, max_apdu)

    @property
    def is_over(self) -> bool:
        """Whether the session ended; silence is no end."""
        return self.closed is not None and self.closed is not CloseCause.SILENT

    @property
    def lost_sqns(self) -> int:
        """Sqns reported lost."""
        return sum(self.lost.values())

    @property
    def is_complete(self) -> bool:
        """Whether everything that the source sent since the session was opened has come."""
        return self.ledger is not None and not self.lost and self.ledger.own(self.next_sqn) == self.ledger.end

    @property
    def is_from_start(self) -> bool:
        """Whether the session was opened where the source began."""
        return self.ledger is not None and self.ledger.own(self.first) == self.ledger.first

    @property
    def is_accounted(self) -> bool:
        """Whether everything that the source sent was delivered or reported lost."""
        return self.ledger is not None and self.ledger.own(self.next_sqn) == self.ledger.end

    def resumed(self, opened: Opened) -> None:
        """The session goes on after it was silent."""
        if self.closed is not CloseCause.SILENT or opened.first != self.next_sqn:
            self._complain(f"{opened} resumes a session that is {self.closed} and stands at {self.next_sqn}")
        self.closed = None

    def delivered(self, deliver: Deliver) -> None:
        """Check a delivery."""
        run = deliver.run
        self._pass_unused(run.first)
        if self.is_over or not self._continues(run.first, run.end):
            self._complain(f"delivery of {run.first} to {run.end - 1}, but {self._standing}")
        self._advance(run.first, run.end)
        self.delivered_sqns += run.count
        self.delivered_octets += run.octets
        for part in self._reassembler.add(run):
            self._whole(part)

    def lost_some(self, lost: Lost) -> None:
        """Check a report of loss."""
        self._pass_unused(lost.first)
        if self.is_over or not self._continues(lost.first, lost.first + lost.count):
            self._complain(f"{lost}, but {self._standing}")
        self._advance(lost.first, lost.first + lost.count)
        self.lost[lost.cause] += lost.count
        for part in self._reassembler.add_lost(lost):
            if part is not lost:
                self._whole(part)

    def ended(self, closed: Closed) -> None:
        """Check an end, or a silence."""
        self._pass_unused(closed.next_sqn)
        if self.is_over or closed.next_sqn != self.next_sqn:
            self._complain(f"{closed}, but {self._standing}")
        if closed.cause is CloseCause.EXPIRED and self.closed is not CloseCause.SILENT:
            self._complain(f"{closed} of a session that was not called silent")
        self.closed = closed.cause
        self.silences += closed.cause is CloseCause.SILENT

    def _continues(self, first: int, end: int) -> bool:
        """Whether this may be said of the stream now."""
        return first == self.next_sqn and first < end

    def _advance(self, first: int, end: int) -> None:
        self.next_sqn = end

    def _pass_unused(self, sqn: int) -> None:
        """Behind a short group the stream goes on further on: only sqns that the source never used may be left out."""
        if sqn > self.next_sqn and self.ledger is not None and self.ledger.is_unused(self.next_sqn, sqn):
            self.next_sqn = sqn

    @property
    def _standing(self) -> str:
        return (
            f"the session is {'closed: ' + str(self.closed) if self.is_over else 'open'} and stands at {self.next_sqn}"
        )

    def _whole(self, part: WholeMessages | LargeMessage | Lost) -> None:
        ledger = self.ledger
        if isinstance(part, Lost):
            self.broken_messages += part.count
        elif ledger is None:
            self._complain("delivery of a session that nobody sent")
        elif isinstance(part, WholeMessages):
            self.messages += part.run.count
            if not ledger.has_rows(part.run):
                self._complain(f"octets of {part.run.first} to {part.run.end - 1} are not the source's")
        else:
            self.messages += 1
            if not ledger.has_large(part.first, part.count, part.payload):
                self._complain(f"octets of the large message at {part.first} are not the source's")


class UnorderedDeliveryCheck(DeliveryCheck):
    """The account of a session that is delivered as it arrives: every sqn once, in any order."""

    def __init__(self, opened: Opened, ledger: SentMessages | None, max_apdu: int, complain: Complain) -> None:
        super().__init__(opened, ledger, max_apdu, complain)
        self._reassembler = UnorderedReassembler(opened.tsi, max_apdu)
        self._ahead: set[int] = set()  # sqns at or beyond next_sqn of which something was said
        self.overtakings = 0  # times something came before what was sent earlier

    def _continues(self, first: int, end: int) -> bool:
        return self.next_sqn <= first < end and self._ahead.isdisjoint(range(first, end))

    def _advance(self, first: int, end: int) -> None:
        self.overtakings += first > self.next_sqn
        self._ahead.update(range(first, end))
        while self._ahead:
            if self.next_sqn not in self._ahead:
                self._pass_unused(min(self._ahead))
                if self.next_sqn not in self._ahead:
                    return
            self._ahead.remove(self.next_sqn)
            self.next_sqn += 1
