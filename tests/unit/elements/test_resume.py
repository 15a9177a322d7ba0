"""A recording repairer that starts again goes on where its archive ends."""

from __future__ import annotations

import random

import attrs
import pytest

from pgm.core.effects import Deliver, Effect, LossCause, Lost
from pgm.core.element.setup import ElementSetup
from pgm.units import SECOND
from pgm.wire.control_packets import Spmr
from pgm.wire.formats import PacketType
from pgm.wire.options import HeldHistory, find
from repairer.core import RepairerCore
from tests.reference import DATA_PORT, TSI
from tests.unit.core.makers import (
    BY_GROUP,
    BY_UNICAST,
    MS,
    SEGMENT,
    SOURCE,
    data_train,
    parameters,
    sends,
    sent_control,
    train_of,
)
from tests.unit.elements.test_warm_restart import epoch, hear_data, hear_spm, missing, saved

SIBLING, KEEPER = "10.0.0.77", "10.0.0.78"
BEGIN_NS = 2 * SECOND


@attrs.frozen
class _At:
    """Archive that ends before a sqn."""

    sqn: int

    def start_of(self, state: object) -> int:
        return self.sqn


def recorder(
    at: int, *, siblings: tuple[str, ...] = (), keepers: tuple[str, ...] = (), **changes: object
) -> RepairerCore:
    """Return a new process of a repairer, whose archive has the sqns before `at`."""
    setup = ElementSetup(SEGMENT, (SEGMENT,), parents=(SOURCE,), siblings=siblings, keepers=keepers, starts=_At(at))
    return RepairerCore(setup, parameters(**changes), random.Random(1), records=True, saves=True)


def run(core: RepairerCore, ms: int, from_ns: int = BEGIN_NS) -> list[Effect]:
    return [effect for at in range(ms) for effect in core.handle_deadline(from_ns + at * MS)]


def asked(effects: list[Effect]) -> dict[str | None, HeldHistory]:
    """Return the questions for history, by the asked node."""
    found = {}
    for send in sends(effects):
        for packet in sent_control([send], PacketType.SPMR):
            held = find(packet.options, HeldHistory)
            if held is not None:
                found[send.to] = held
    return found


def answer(core: RepairerCore, peer: str, first: int | None, now_ns: int = BEGIN_NS + 5 * MS) -> list[Effect]:
    held = HeldHistory(amount=first or 0, answers=True, nothing=first is None)
    packet = Spmr(tsi=TSI, data_port=DATA_PORT, options=(held,))
    return list(core.receive(train_of(packet), BY_UNICAST, peer, now_ns))


def repaired(core: RepairerCore, first: int, end: int, peer: str) -> list[Effect]:
    train = data_train(range(first, end), kind=PacketType.RDATA)
    return list(core.receive(train, BY_GROUP, peer, BEGIN_NS + 50 * MS))


def recorded(effects: list[Effect]) -> list[tuple[int, int, LossCause | None]]:
    """Return what goes into the archive: first sqn, end, and cause of a loss."""
    found: list[tuple[int, int, LossCause | None]] = []
    for effect in effects:
        if isinstance(effect, Deliver):
            found.append((effect.run.first, effect.run.end, None))
        elif isinstance(effect, Lost):
            found.append((effect.first, effect.first + effect.count, effect.cause))
    return found


@pytest.mark.parametrize("data_first", [True, False])
def test_packets_of_the_window_are_requested_behind_the_archive(data_first: bool) -> None:
    core, effects = recorder(40), []
    if data_first:
        effects += hear_data(core, 100, 110)
    effects += hear_spm(core, 109, epoch(), trail=20)
    assert missing(core) == [(40, 100 if data_first else 110)]
    effects += repaired(core, 40, 100 if data_first else 110, SOURCE)
    assert recorded(effects)[0][::2] == (40, None)
    assert recorded(effects)[-1][1:] == (110, None)
    assert asked(effects) == {}


def test_packets_of_the_cache_file_are_not_requested() -> None:
    core = recorder(40)
    core.restore([(SECOND, saved(0, 60))])
    hear_data(core, 100, 110)
    effects = hear_spm(core, 109, epoch(), trail=20)
    assert missing(core) == [(60, 100)]
    assert recorded(list(effects)) == [(40, 60, None)]


def test_earlier_packets_come_from_the_node_that_holds_most() -> None:
    core = recorder(40, siblings=(SIBLING,), keepers=(KEEPER,))
    effects = [*hear_data(core, 100, 110), *hear_spm(core, 109, epoch(), trail=90)]
    assert missing(core) == [(90, 100)]
    effects += run(core, 3)
    assert set(asked(effects)) == {SIBLING, KEEPER}
    assert recorded(effects) == []  # the archive waits for the answers
    effects += answer(core, KEEPER, 70)
    effects += answer(core, SIBLING, 50)
    assert missing(core) == [(50, 100)]
    effects += run(core, 400, BEGIN_NS + 5 * MS)
    naks = {send.to for send in sends(effects) for nak in sent_control([send], PacketType.NAK) if 50 in nak.sqns}
    assert naks == {SIBLING}
    effects = repaired(core, 50, 100, SIBLING)
    assert recorded(effects)[-1] == (100, 110, None)


def test_packets_that_no_node_holds_are_recorded_as_lost() -> None:
    core = recorder(40, siblings=(SIBLING,))
    effects = [*hear_data(core, 100, 110), *hear_spm(core, 109, epoch(), trail=100), *run(core, 3)]
    assert recorded(effects) == []
    effects += [*answer(core, SIBLING, None), *run(core, 3, BEGIN_NS + 6 * MS)]
    assert recorded(effects) == [(40, 100, LossCause.RECORDER), (100, 110, None)]


def test_silent_nodes_are_asked_for_as_long_as_a_restart_takes() -> None:
    core = recorder(40, siblings=(SIBLING,))
    effects = [*hear_data(core, 100, 110), *hear_spm(core, 109, epoch(), trail=100)]
    half_ms, at = parameters().durable_hold_ivl // MS // 2, BEGIN_NS
    effects += run(core, half_ms, at)
    at += half_ms * MS
    while not asked(again := run(core, 1, at)):
        at += MS
    assert recorded([*effects, *again, *answer(core, SIBLING, 40, at)]) == []
    assert missing(core) == [(40, 100)]


def test_archive_goes_on_without_an_answer() -> None:
    core = recorder(40, siblings=(SIBLING,))
    effects = [*hear_data(core, 100, 110), *hear_spm(core, 109, epoch(), trail=100)]
    effects += run(core, parameters().durable_hold_ivl // MS)
    assert recorded(effects) == []
    assert recorded(run(core, 2, BEGIN_NS + parameters().durable_hold_ivl)) == [
        (40, 100, LossCause.RECORDER),
        (100, 110, None),
    ]


def test_archives_of_two_siblings_do_not_wait_for_each_other() -> None:
    """A sibling is told what the cache holds, though this node itself asks."""
    core = recorder(40, siblings=(SIBLING,), keepers=(KEEPER,))
    hear_data(core, 100, 110)
    hear_spm(core, 109, epoch(), trail=100)
    run(core, 3)
    question = Spmr(tsi=TSI, data_port=DATA_PORT, options=(HeldHistory(amount=0),))
    told = list(core.receive(train_of(question), BY_UNICAST, SIBLING, BEGIN_NS + 4 * MS))
    held = asked(told)[SIBLING]
    assert (held.answers, held.amount) == (True, 100)


def test_packets_wait_in_the_cache_until_they_are_recorded() -> None:
    """The cache keeps packets for a second, and a packet before them is missing for longer."""
    core = recorder(0, cache_secs=SECOND)
    effects = [*hear_data(core, 0, 10), *hear_spm(core, 29, epoch()), *hear_data(core, 20, 30)]
    effects += core.receive(data_train(range(30, 40)), BY_GROUP, SOURCE, BEGIN_NS + 2 * SECOND)
    effects += core.receive(data_train(range(40, 50)), BY_GROUP, SOURCE, BEGIN_NS + 4 * SECOND)
    effects += core.receive(data_train(range(10, 20), kind=PacketType.RDATA), BY_GROUP, SOURCE, BEGIN_NS + 5 * SECOND)
    assert {cause for _, _, cause in recorded(effects)} == {None}
    assert recorded(effects)[-1][1] == 50
