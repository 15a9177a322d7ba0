"""Queue of a continued receiver: what it cuts, what it fills, and sessions that end and return."""

from __future__ import annotations

from collections import deque
from typing import Any

import attrs

from pgm.core.counters import Counters
from pgm.core.effects import CloseCause, Closed, LossCause, Lost, Opened
from pgm.core.session.state import SessionEpoch
from pgm.core.source_names import NO_NAMES
from pgm.core.window.reassembly import LargeMessage
from pgm.net.durable.memory import Memory
from pgm.net.durable.past import PastMessages, PastRange
from pgm.net.durable.position import Position
from pgm.net.durable.position_file import SavedSession
from pgm.net.endpoint.ack_positions import AckPositions, JointAcks
from pgm.net.endpoint.continuation import Continuation
from pgm.net.endpoint.places import Places
from pgm.net.endpoint.queue_item import QueueItem
from pgm.units import MICROSECOND
from tests.reference import TSI

PORT, EPOCH = 7500, 5_000
LATER = bytes([*TSI[:7], TSI[7] ^ 1])  # another session of the same source


@attrs.define
class _State:
    """What a continuation reads of a session."""

    tsi: bytes
    lead: int = 100
    epoch: SessionEpoch = SessionEpoch(EPOCH, 0)
    reach: int = 1000
    oldest: int = 0


@attrs.define
class _Core:
    """Core whose sessions are set by the test."""

    states: dict[bytes, _State] = attrs.field(factory=dict)
    counters: Counters = attrs.field(factory=Counters)

    @property
    def sessions(self) -> _Core:
        return self

    @property
    def setup(self) -> _Core:
        return self

    names = NO_NAMES

    def state_of(self, tsi: bytes) -> _State | None:
        return self.states.get(tsi)


@attrs.define
class _Inbox:
    """Inbox with what the test puts in."""

    queue: deque[QueueItem] = attrs.field(factory=deque)

    def put(self, *found: Any) -> None:
        self.queue.extend(QueueItem(one, 7) for one in found)

    def pop(self, *, drains: bool) -> QueueItem | None:
        return self.queue.popleft() if self.queue else None


@attrs.define
class _Read:
    """Read of an archive that has some rows."""

    wanted: PastRange
    rows: deque[Any]
    is_closed: bool = False
    next_sqn: int = 0

    @property
    def is_begun(self) -> bool:
        return bool(self.rows)

    @property
    def is_over(self) -> bool:
        return not self.rows

    def take(self) -> Any:
        return self.rows.popleft() if self.rows else None

    def close(self) -> None:
        self.rows.clear()


@attrs.define
class _Past:
    """Archive whose answers the test gives in advance."""

    answers: deque[list[Any]]
    asked: list[PastRange] = attrs.field(factory=list)
    is_closed: bool = False

    def read(self, wanted: PastRange) -> _Read:
        self.asked.append(wanted)
        return _Read(wanted, deque(self.answers.popleft()), self.is_closed, wanted.first)


class _Scene:
    """A continuation of one receiver."""

    def __init__(self, *saved: SavedSession, past: _Past | None = None) -> None:
        self.inbox, self.core, self.memory = _Inbox(), _Core(), Memory(saved)
        core: Any = self.core
        places = Places(AckPositions("auto", (), 10, JointAcks()), core.state_of, 10)
        inbox: Any = self.inbox
        self.entries = Continuation(inbox, core, self.memory, places, past, 0)

    def opens(self, tsi: bytes, first: int, **more: Any) -> None:
        self.core.states[tsi] = _State(tsi, **more)
        self.inbox.put(Opened(tsi, first, "", PORT))

    def taken(self) -> list[Any]:
        found = []
        while (item := self.entries.pop(drains=True)) is not None:
            found.append(item.found)
        return [(one.first, one.count) if isinstance(one, LargeMessage) else one for one in found]


def message(first: int, count: int = 1, tsi: bytes = TSI) -> LargeMessage:
    return LargeMessage(tsi, first, count, memoryview(b""))


def rows(first: int, count: int) -> PastMessages:
    return PastMessages(TSI, first, count, ())


def saved(sqn: int, lead: int = 50, *, tsi: bytes = TSI, is_closed: bool = False) -> SavedSession:
    return SavedSession(Position(tsi, EPOCH, sqn), PORT, lead, is_closed)


def test_messages_of_the_earlier_life_are_cut() -> None:
    scene = _Scene(saved(10))
    scene.opens(TSI, 8)
    scene.inbox.put(message(8), message(9), message(10), message(11))
    assert scene.taken() == [Opened(TSI, 10, "", PORT), (10, 1), (11, 1)]
    assert scene.entries.free() == 14


def test_session_that_opens_too_late_has_lost_the_packets_between() -> None:
    scene = _Scene(saved(10))
    scene.opens(TSI, 15)
    assert scene.taken() == [Opened(TSI, 10, "", PORT), Lost(TSI, 10, 5, LossCause.WINDOW)]


def test_loss_is_filled_and_what_the_archive_gave_is_cut() -> None:
    past = _Past(deque([[rows(10, 3), Lost(TSI, 13, 1, LossCause.RETRIES), rows(14, 6)]]))
    scene = _Scene(saved(10), past=past)
    scene.opens(TSI, 10)
    scene.inbox.put(
        Lost(TSI, 10, 5, LossCause.WINDOW), Lost(TSI, 15, 2, LossCause.FRAGMENT), message(17, 3), message(20)
    )
    opened, *filled, last = scene.taken()
    assert opened == Opened(TSI, 10, "", PORT)
    assert [(one.first, one.count) for one in filled] == [(10, 3), (13, 1), (14, 6)]
    assert last == (20, 1)
    assert [(one.first, one.end) for one in past.asked] == [(10, 15)]


def test_session_of_other_numbers_is_asked_for_by_its_source_numbers() -> None:
    past = _Past(deque([[rows(10, 5)]]))
    scene = _Scene(past=past)
    scene.opens(TSI, 10, epoch=SessionEpoch(EPOCH, 1 << 32))
    scene.inbox.put(Lost(TSI, 10, 5, LossCause.RETRIES))
    scene.taken()
    assert [(one.first, one.end, one.shift, one.epoch_ns) for one in past.asked] == [(10, 15, 1 << 32, EPOCH)]


def test_session_that_expired_continues_when_it_is_heard_again() -> None:
    scene = _Scene()
    scene.opens(TSI, 0)
    scene.inbox.put(message(0), message(1), Closed(TSI, 2, CloseCause.EXPIRED))
    scene.taken()
    state: Any = scene.core.states[TSI]
    assert scene.memory.start_of(state) == 2
    scene.opens(TSI, 4)
    scene.inbox.put(message(4))
    assert scene.taken() == [Opened(TSI, 2, "", PORT), Lost(TSI, 2, 2, LossCause.WINDOW), (4, 1)]


def test_later_session_of_the_source_begins_with_its_first_packet() -> None:
    scene = _Scene()
    scene.opens(TSI, 30)
    scene.taken()
    later: Any = _State(LATER, epoch=SessionEpoch(EPOCH + 1, 0))
    assert scene.memory.start_of(later) == 0
    stranger: Any = _State(bytes(8))
    assert scene.memory.start_of(stranger) is None


def test_session_with_the_same_tsi_and_another_start_is_another_one() -> None:
    scene = _Scene(saved(40))
    again: Any = _State(TSI, epoch=SessionEpoch(EPOCH + MICROSECOND, 0))
    assert scene.memory.start_of(again) == 0


def test_rest_of_a_replaced_session_comes_before_its_successor() -> None:
    scene = _Scene(saved(10, lead=17), past=_Past(deque([[], [rows(10, 5)]])))
    assert scene.taken() == []  # no archive has its end, and its source may go on
    scene.opens(LATER, 0, epoch=SessionEpoch(EPOCH + 1, 0))
    found = scene.taken()
    assert found[0] == Opened(TSI, 10, "", PORT)
    assert (found[1].first, found[1].count) == (10, 5)
    assert found[2:] == [
        Lost(TSI, 15, 3, LossCause.SOURCE_GONE),
        Closed(TSI, 18, CloseCause.EXPIRED),
        Opened(LATER, 0, "", PORT),
    ]


def test_session_that_is_heard_needs_no_rest() -> None:
    scene = _Scene(saved(10, lead=17), past=_Past(deque([[], [rows(10, 5)]])))
    scene.taken()
    scene.core.states[TSI] = _State(TSI)
    scene.opens(LATER, 0, epoch=SessionEpoch(EPOCH + 1, 0))
    assert scene.taken() == [Opened(LATER, 0, "", PORT)]
