"""Check of one session at one receiver's application.

The session must arrive in order, without gaps or duplicates, octet for octet. This check enforces "no silent loss".
Deliveries and reported losses together must continue, sqn by sqn, from the sqn at which the session was opened (I1).
Every message must equal the source's (I2).
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import NoReturn

from pgm.core.effects import (
    CloseCause,
    Closed,
    Conflict,
    Deliver,
    Forged,
    LossCause,
    Lost,
    NoSnapshotCause,
    Opened,
    Snapshot,
)
from pgm.core.window.reassembly import LargeMessage, Reassembler, WholeMessages
from pgm.core.window.unordered_reassembly import UnorderedReassembler
from pgm.sim.sent_messages import SentMessages
from pgm.wire.formats import Tsi

Fail = Callable[[str], NoReturn]


class DeliveryCheck:
    """Deliveries of one session to one application. `fail` raises an error with the given reason."""

    def __init__(self, opened: Opened, ledger: SentMessages | None, max_apdu: int, fail: Fail) -> None:
        self.tsi: Tsi = opened.tsi
        self.first = opened.first
        self.next_sqn = opened.first
        self.delivered_sqns = 0
        self.delivered_octets = 0
        self.messages = 0
        self.lost: collections.Counter[LossCause] = collections.Counter()  # sqns by cause, as the core reported
        self.broken_messages = 0  # sqns that arrived, of messages that did not arrive in full
        self.conflicts: list[Conflict] = []
        self.forged: list[Forged] = []
        self.silences = 0
        self.closed: CloseCause | None = None
        self.ledger = ledger
        self.snapshot: Snapshot | None = None
        self.no_snapshot: NoSnapshotCause | None = None
        self._fail = fail
        self._reassembler: Reassembler | UnorderedReassembler = Reassembler(opened.tsi, max_apdu)

    def began_with(self, snapshot: Snapshot) -> None:
        """Compare a state with that of the source. The state comes once, at the start."""
        ledger = self.ledger
        if self.snapshot is not None or not self.first == self.next_sqn == snapshot.position:
            self._fail(f"a state at {snapshot.position} of a session that is at {self.next_sqn}")
        if ledger is None or ledger.states.get(ledger.own(snapshot.position)) != snapshot.payload:
            self._fail(f"the state at {snapshot.position} is not that of the source")
        self.snapshot = snapshot

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
        """Whether all data since the session was opened arrived."""
        return self.ledger is not None and not self.lost and self.ledger.own(self.next_sqn) == self.ledger.end

    @property
    def is_from_start(self) -> bool:
        """Whether the session was opened at the source's first sqn."""
        return self.ledger is not None and self.ledger.own(self.first) == self.ledger.first

    @property
    def is_accounted(self) -> bool:
        """Whether all data of the source was delivered or reported lost."""
        return self.ledger is not None and self.ledger.own(self.next_sqn) == self.ledger.end

    def resumed(self, opened: Opened) -> None:
        """Check that a silent session resumes at the right sqn."""
        if self.closed is not CloseCause.SILENT or opened.first != self.next_sqn:
            self._fail(f"{opened} resumes a session that is {self.closed} and stands at {self.next_sqn}")
        self.closed = None

    def delivered(self, deliver: Deliver) -> None:
        """Check a delivery."""
        run = deliver.run
        self._skip_unused(run.first)
        if self.is_over or not self._continues(run.first, run.end):
            self._fail(f"delivery of {run.first} to {run.end - 1}, but {self._position}")
        self._advance(run.first, run.end)
        self.delivered_sqns += run.count
        self.delivered_octets += run.octets
        for part in self._reassembler.add(run):
            self._check_message(part)

    def lost_some(self, lost: Lost) -> None:
        """Check a report of loss."""
        self._skip_unused(lost.first)
        if self.is_over or not self._continues(lost.first, lost.first + lost.count):
            self._fail(f"{lost}, but {self._position}")
        self._advance(lost.first, lost.first + lost.count)
        self.lost[lost.cause] += lost.count
        for part in self._reassembler.add_lost(lost):
            if part is not lost:
                self._check_message(part)

    def ended(self, closed: Closed) -> None:
        """Check an end, or a silence."""
        self._skip_unused(closed.next_sqn)
        if self.is_over or closed.next_sqn != self.next_sqn:
            self._fail(f"{closed}, but {self._position}")
        if closed.cause is CloseCause.EXPIRED and self.closed is not CloseCause.SILENT:
            self._fail(f"{closed} of a session that was not called silent")
        self.closed = closed.cause
        self.silences += closed.cause is CloseCause.SILENT

    def _continues(self, first: int, end: int) -> bool:
        """Return whether the sqns from `first` to `end - 1` may come next."""
        return first == self.next_sqn and first < end

    def _advance(self, first: int, end: int) -> None:
        self.next_sqn = end

    def _skip_unused(self, sqn: int) -> None:
        """Skip sqns that the source never used, as after a short parity group."""
        if sqn > self.next_sqn and self.ledger is not None and self.ledger.is_unused(self.next_sqn, sqn):
            self.next_sqn = sqn

    @property
    def _position(self) -> str:
        return (
            f"the session is {'closed: ' + str(self.closed) if self.is_over else 'open'} and stands at {self.next_sqn}"
        )

    def _check_message(self, part: WholeMessages | LargeMessage | Lost) -> None:
        ledger = self.ledger
        if isinstance(part, Lost):
            self.broken_messages += part.count
        elif ledger is None:
            self._fail("delivery of a session without a source")
        elif isinstance(part, WholeMessages):
            self.messages += part.run.count
            if not ledger.has_rows(part.run):
                self._fail(f"octets of {part.run.first} to {part.run.end - 1} are not the source's")
        else:
            self.messages += 1
            if not ledger.has_large(part.first, part.count, part.payload):
                self._fail(f"octets of the large message at {part.first} are not the source's")


class UnorderedDeliveryCheck(DeliveryCheck):
    """Check of a session that is delivered on arrival: every sqn once, in any order."""

    def __init__(self, opened: Opened, ledger: SentMessages | None, max_apdu: int, fail: Fail) -> None:
        super().__init__(opened, ledger, max_apdu, fail)
        self._reassembler = UnorderedReassembler(opened.tsi, max_apdu)
        self._ahead: set[int] = set()  # sqns at or beyond next_sqn that were delivered or reported lost
        self.overtakings = 0  # deliveries that came before older sqns

    def _continues(self, first: int, end: int) -> bool:
        return self.next_sqn <= first < end and self._ahead.isdisjoint(range(first, end))

    def _advance(self, first: int, end: int) -> None:
        self.overtakings += first > self.next_sqn
        self._ahead.update(range(first, end))
        while self._ahead:
            if self.next_sqn not in self._ahead:
                self._skip_unused(min(self._ahead))
                if self.next_sqn not in self._ahead:
                    return
            self._ahead.remove(self.next_sqn)
            self.next_sqn += 1
