"""A receiver core and an application that checks the stream as it comes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any

from pgm.core.effects import CloseCause, Closed, Conflict, Deliver, Effect, LossCause, Lost, Opened, Send
from pgm.core.receiver.receiver import ReceiverCore
from pgm.core.receiver.setup import ReceiverSetup
from pgm.core.segment import Channel
from pgm.units import KIB, SECOND
from pgm.wire.control_packets import Packet
from pgm.wire.formats import PacketType, Tsi
from pgm.wire.sequence_numbers import unwrap
from pgm.wire.train import Train
from tests.reference import TSI
from tests.unit.core.makers import (
    BY_GROUP,
    SEGMENT,
    SOURCE,
    data_train,
    deadlines,
    parameters,
    payload_of,
    sent_control,
    spm_packet,
    train_of,
)

Fate = bytes | LossCause


class Reader:
    """Everything a core says to its application, in order: `fates` by sqn, and the marks between them."""

    def __init__(
        self,
        setup: ReceiverSetup | None = None,
        *,
        seed: int = 1,
        payload: Callable[[int], bytes] = payload_of,
        takes: bool = True,
        **changes: Any,
    ) -> None:
        self.core = ReceiverCore(setup or ReceiverSetup(SEGMENT), parameters(**changes), random.Random(seed))
        self.now = 1000 * SECOND
        self.fates: dict[Tsi, dict[int, Fate]] = {}
        self.marks: list[Opened | Closed] = []
        self.conflicts: list[tuple[int, int, int, bool]] = []  # next sqn of the stream, then the fields of a Conflict
        self.runs: list[int] = []  # packets of each delivery
        self.sent: list[tuple[int, Send]] = []
        self.takes = takes
        self.untaken = 0
        self._payload = payload
        self._next: dict[Tsi, int] = {}

    # Doing

    def hear(
        self,
        what: Train | Packet,
        *,
        after: int = 0,
        peer: str = SOURCE,
        channel: Channel = BY_GROUP,
    ) -> list[Effect]:
        """Hand something to the core, after its deadlines of the time that passed were served."""
        if after:
            self.until(self.now + after)
        train = what if isinstance(what, Train) else train_of(what)
        return self._take(self.core.receive(train, channel, peer, self.now))

    def until(self, at: int) -> list[Effect]:
        """Serve every deadline up to an instant."""
        found: list[Effect] = []
        for now in deadlines(self.core, self.now, at):
            self.now = now
            effects = self._take(self.core.handle_deadline(now))
            assert effects or self.core.deadline_ns > now, "a deadline that leads nowhere"
            found += effects
        self.now = max(self.now, at)
        return found

    def wait(self, ivl: int) -> list[Effect]:
        """Serve the deadlines of some time."""
        return self.until(self.now + ivl)

    def grant(self, octets: int | None = None) -> list[Effect]:
        """The application takes something from its queue, everything by default."""
        octets = self.untaken if octets is None else octets
        self.untaken -= octets
        return self._take(self.core.grant(octets))

    def _take(self, effects: Iterable[Effect]) -> list[Effect]:
        effects = list(effects)
        freed = 0
        for effect in effects:
            if isinstance(effect, Send):
                self.sent.append((self.now, effect))
            elif isinstance(effect, Deliver):
                freed += effect.run.octets
                self.runs.append(effect.run.count)
                for index, row in enumerate(effect.run.payloads):
                    sqn = effect.run.first + index
                    assert row.tobytes() == self._payload(sqn), sqn
                    self._told(effect.tsi, sqn, row.tobytes())
            elif isinstance(effect, Lost):
                assert effect.count > 0
                assert effect.count < 1 << 22, effect
                for sqn in range(effect.first, effect.first + effect.count):
                    self._told(effect.tsi, sqn, effect.cause)
            elif isinstance(effect, Conflict):
                at = self._next[effect.tsi]
                self.conflicts.append((at, effect.first, effect.count, effect.is_delivered))
            elif isinstance(effect, Opened):
                if effect.resumed:
                    assert effect.first == self._next[effect.tsi]
                else:
                    self._next[effect.tsi] = effect.first
                    self.fates[effect.tsi] = {}
                self.marks.append(effect)
            elif isinstance(effect, Closed):
                assert effect.next_sqn == self._next[effect.tsi]
                self.marks.append(effect)
        if self.takes and freed:
            effects += self._take(self.core.grant(freed))
        else:
            self.untaken += freed
        return effects

    def _told(self, tsi: Tsi, sqn: int, fate: Fate) -> None:
        """In order, each sqn once: the promise."""
        assert sqn == self._next[tsi], (sqn, self._next[tsi])
        self._next[tsi] += 1
        self.fates[tsi][sqn] = fate

    # Looking

    def next_sqn(self, tsi: Tsi = TSI) -> int:
        """Where the stream stands."""
        return self._next[tsi]

    def delivered(self, tsi: Tsi = TSI) -> list[int]:
        """Sqns delivered."""
        return [sqn for sqn, fate in self.fates.get(tsi, {}).items() if isinstance(fate, bytes)]

    def lost(self, tsi: Tsi = TSI) -> dict[int, LossCause]:
        """Sqns lost, and why."""
        return {sqn: fate for sqn, fate in self.fates.get(tsi, {}).items() if isinstance(fate, LossCause)}

    def naks(self, near: int = 0) -> list[list[int]]:
        """The sqns of every NAK sent so far."""
        sends = [send for _, send in self.sent]
        return [[unwrap(sqn, near) for sqn in nak.sqns] for nak in sent_control(sends, PacketType.NAK)]

    def asked(self, near: int = 0) -> set[int]:
        """Every sqn asked for so far."""
        return {sqn for nak in self.naks(near) for sqn in nak}

    def closed(self, tsi: Tsi = TSI) -> CloseCause | None:
        """Why the session ended, if it has."""
        causes = [mark.cause for mark in self.marks if isinstance(mark, Closed) and mark.tsi == tsi]
        return causes[-1] if causes else None

    def opened(self, tsi: Tsi = TSI) -> list[tuple[int, bool]]:
        """Where the session began, and went on."""
        return [(mark.first, mark.resumed) for mark in self.marks if isinstance(mark, Opened) and mark.tsi == tsi]


def joined(first: int = 1000, trail: int = 100, **changes: Any) -> Reader:
    """A reader in the middle of a stream: SPM known, some packets delivered."""
    reader = Reader(**changes)
    reader.hear(spm_packet(1, trail, first - 1))
    reader.hear(data_train(range(first, first + 10), trail=trail))
    assert reader.delivered() == list(range(first, first + 10))
    return reader


def slow_reader(**changes: Any) -> Reader:
    """An application that takes nothing, its queue already full."""
    reader = Reader(takes=False, payload=lambda sqn: payload_of(sqn, 1376), inbox_bytes=64 * KIB, **changes)
    reader.hear(spm_packet(1, 100, 999))
    reader.hear(data_train(range(1000, 1047), size=1376))
    assert reader.untaken >= 64 * KIB
    assert reader.next_sqn() == 1047
    return reader
