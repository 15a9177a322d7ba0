"""Where a late joiner begins, by what repairers answer, and what no answer can do to it."""

from __future__ import annotations

import attrs
import pytest

from pgm.core.effects import LossCause, Notice
from pgm.core.receiver.setup import ReceiverSetup
from pgm.units import SECOND
from pgm.wire.control_packets import Spmr
from pgm.wire.formats import PacketType
from pgm.wire.options import HeldHistory, Join, find
from pgm.wire.sequence_numbers import wrap
from tests.reference import DATA_PORT, TSI
from tests.unit.core.makers import MS, REPAIRER, SEGMENT, SOURCE, data_train, sent_control, spm_packet
from tests.unit.core.reader import Reader

SETUP = ReceiverSetup(SEGMENT, parents=(REPAIRER,), local_repairers=frozenset({REPAIRER}))
HELD_FROM, LEAD = 700, 1009
OTHER, ABOVE = "10.0.0.4", "10.0.0.5"


def begun(setup: ReceiverSetup = SETUP, **wish: object) -> Reader:
    """A receiver that has heard an SPM of a stream that stands at LEAD."""
    reader = Reader(setup, **{"join_from": "oldest", **wish})
    reader.hear(spm_packet(1, 900, LEAD))
    return reader


def answer(first: int = HELD_FROM, **said: bool) -> Spmr:
    return Spmr(tsi=TSI, data_port=DATA_PORT, options=(HeldHistory(amount=wrap(first), answers=True, **said),))


def questions(reader: Reader) -> list[tuple[str | None, HeldHistory]]:
    found = []
    for _, send in reader.sent:
        for packet in sent_control([send], PacketType.SPMR):
            held = find(packet.options, HeldHistory)
            if held is not None:
                found.append((send.to, held))
    return found


@pytest.mark.parametrize(
    ("wish", "asked"),
    [
        ({"join_from": "oldest"}, HeldHistory(amount=0)),
        ({"join_from": "last", "join_sqns": 50}, HeldHistory(amount=50, by_count=True)),
        ({"join_from": "last", "join_secs": 3 * SECOND}, HeldHistory(amount=3000, by_time=True)),
        ({"join_from": "sqn", "join_sqns": 800}, HeldHistory(amount=800, by_sqn=True)),
    ],
)
def test_it_asks_the_repairers_of_its_segment(wish, asked):
    assert questions(begun(**wish)) == [(REPAIRER, asked)]


def test_history_after_answer_is_requested_there_and_in_order():
    reader = begun()
    assert reader.opened() == []
    reader.hear(data_train([LEAD + 1]))
    assert reader.delivered() == []
    reader.hear(answer(), peer=REPAIRER)
    assert reader.opened() == [(HELD_FROM, False)]
    reader.wait(100 * MS)
    assert min(reader.naks()[0]) == HELD_FROM
    reader.hear(data_train(range(HELD_FROM, LEAD + 1), kind=PacketType.RDATA, trail=900), peer=REPAIRER)
    assert reader.delivered() == list(range(HELD_FROM, LEAD + 2))


def test_late_join_with_expired_history_reports_loss_first():
    reader = begun(join_from="sqn", join_sqns=650)
    reader.hear(answer(), peer=REPAIRER)
    assert reader.opened() == [(650, False)]
    assert reader.lost() == dict.fromkeys(range(650, HELD_FROM), LossCause.WINDOW)


@pytest.mark.parametrize(
    ("packet", "peer"),
    [
        (answer(), "10.0.0.66"),
        (answer(nothing=True), OTHER),
        (attrs.evolve(answer(), options=(HeldHistory(amount=HELD_FROM),)), REPAIRER),
    ],
    ids=["a stranger's", "one that has nothing", "a question"],
)
def test_late_join_with_foreign_answer_changes_nothing(packet, peer):
    reader = begun(attrs.evolve(SETUP, local_repairers=frozenset({REPAIRER, OTHER})), open_hold_ivl=SECOND)
    reader.hear(packet, peer=peer)
    assert reader.opened() == []
    reader.hear(answer(), peer=REPAIRER)
    reader.hear(answer(100), peer=REPAIRER)  # a second one comes too late
    assert reader.opened() == [(HELD_FROM, False)]


def test_without_an_answer_it_begins_now():
    reader = begun(open_hold_ivl=200 * MS)
    effects = reader.until(reader.now + 300 * MS)
    assert [one.code for one in effects if isinstance(one, Notice)] == ["late-join"]
    assert reader.opened() == [(LEAD + 1, False)]
    assert 3 <= len(questions(reader)) <= 6
    reader.hear(answer(), peer=REPAIRER)
    assert reader.opened() == [(LEAD + 1, False)]


def test_without_repairers_nobody_is_asked():
    reader = begun(ReceiverSetup(SEGMENT))
    reader.until(reader.now + 10 * MS)
    assert questions(reader) == []
    assert reader.opened() == [(LEAD + 1, False)]


def test_an_absurd_answer_asks_for_nothing_below_zero():
    reader = begun()
    reader.hear(answer(-1000), peer=REPAIRER)
    assert reader.opened() == [(0, False)]


def asked(reader: Reader) -> list[str | None]:
    return [to for to, held in questions(reader) if not held.answers]


NOTHING_HERE = Spmr(tsi=TSI, data_port=DATA_PORT, options=(HeldHistory(amount=0, answers=True, nothing=True),))
TWO_TIERS = attrs.evolve(SETUP, keepers=(ABOVE, REPAIRER))


def test_those_above_are_asked_when_nobody_near_has_anything():
    reader = begun(TWO_TIERS)
    assert asked(reader) == [REPAIRER]
    reader.hear(NOTHING_HERE, peer=REPAIRER)
    reader.until(reader.now + MS)
    assert asked(reader) == [REPAIRER, ABOVE]
    reader.hear(answer(), peer=ABOVE)
    assert reader.opened() == [(HELD_FROM, False)]


def test_those_above_are_asked_when_nobody_near_answers():
    reader = begun(TWO_TIERS, open_hold_ivl=200 * MS)
    reader.until(reader.now + 150 * MS)
    assert asked(reader)[-1] == ABOVE
    assert reader.opened() == []
    reader.hear(answer(), peer=ABOVE)
    assert reader.opened() == [(HELD_FROM, False)]


@pytest.mark.parametrize("setup", [TWO_TIERS, ReceiverSetup(SEGMENT)], ids=["nobody has it", "nobody to ask"])
def test_late_join_from_sqn_without_holder_reports_loss_at_once(setup):
    reader = begun(setup, join_from="sqn", join_sqns=800, open_hold_ivl=10 * SECOND)
    for peer in (REPAIRER, ABOVE):
        reader.hear(NOTHING_HERE, peer=peer)
        reader.until(reader.now + MS)
    assert reader.opened() == [(800, False)]
    assert reader.lost() == dict.fromkeys(range(800, LEAD + 1), LossCause.WINDOW)
    reader.hear(data_train([LEAD + 1]))
    assert reader.delivered() == [LEAD + 1]


def test_history_reported_gone_is_lost_at_once():
    reader = begun()
    reader.hear(answer(), peer=REPAIRER)
    reader.wait(100 * MS)

    def gone(first: int, number: int) -> Spmr:
        said = HeldHistory(wrap(first), number, answers=True, nothing=True, by_sqn=True)
        return Spmr(tsi=TSI, data_port=DATA_PORT, options=(said,))

    reader.hear(gone(HELD_FROM, 5), peer="10.0.0.66")
    assert reader.lost() == {}
    reader.hear(gone(HELD_FROM, 5), peer=REPAIRER)
    assert reader.lost() == dict.fromkeys(range(HELD_FROM, HELD_FROM + 5), LossCause.WINDOW)
    reader.hear(gone(LEAD - 1, 1 << 31), peer=REPAIRER)  # of history alone
    reader.hear(data_train(range(HELD_FROM + 5, LEAD - 1), kind=PacketType.RDATA, trail=900), peer=REPAIRER)
    reader.hear(data_train([LEAD + 2]))
    assert reader.lost() == dict.fromkeys(
        [*range(HELD_FROM, HELD_FROM + 5), *range(LEAD - 1, LEAD + 1)], LossCause.WINDOW
    )


@attrs.frozen
class _Reached:
    """Application that had taken everything before a sqn."""

    sqn: int

    def start_of(self, state: object) -> int:
        return self.sqn


def continued(at: int, *, join: int | None = None, data_first: bool = False) -> Reader:
    """A receiver whose application has a position in the stream, though it would begin now."""
    reader = Reader(attrs.evolve(SETUP, starts=_Reached(at)))
    if data_first:
        reader.hear(data_train([LEAD]))
    reader.hear(spm_packet(1, 900, LEAD, *(() if join is None else (Join(min_sqn=join),))))
    return reader


@pytest.mark.parametrize("data_first", [False, True])
def test_session_with_a_position_asks_for_it(data_first: bool) -> None:
    reader = continued(800, data_first=data_first)
    assert questions(reader) == [(REPAIRER, HeldHistory(amount=800, by_sqn=True))]
    reader.hear(answer(800), peer=REPAIRER)
    assert reader.opened() == [(800, False)]


@pytest.mark.parametrize("data_first", [False, True])
def test_position_in_the_joinable_part_needs_no_history(data_first: bool) -> None:
    reader = continued(1000, join=950, data_first=data_first)
    assert questions(reader) == []
    assert reader.opened() == [(1000, False)]


def test_position_behind_the_newest_packet_begins_with_the_next() -> None:
    assert continued(LEAD + 1).opened() == [(LEAD + 1, False)]
    assert continued(LEAD + 9).opened() == [(LEAD + 1, False)]  # a late SPM shows an older lead


def test_position_that_no_node_holds_is_reported_lost() -> None:
    reader = continued(650)
    reader.hear(answer(), peer=REPAIRER)
    assert reader.opened() == [(650, False)]
    assert reader.lost() == dict.fromkeys(range(650, HELD_FROM), LossCause.WINDOW)


def test_position_is_requested_for_longer_than_a_wish() -> None:
    reader = continued(800)
    reader.wait(4 * SECOND)
    assert reader.opened() == []
    reader.hear(answer(800), peer=REPAIRER)
    assert reader.opened() == [(800, False)]


@pytest.mark.parametrize("first", [950, 980])
def test_window_has_what_a_position_lacks_without_its_keeper(first: int) -> None:
    """The keeper has begun behind the position, or dies after its answer."""
    setup = attrs.evolve(SETUP, parents=(REPAIRER, SOURCE), starts=_Reached(950))
    reader = Reader(setup)
    reader.hear(spm_packet(1, 900, LEAD))
    reader.hear(answer(first), peer=REPAIRER)
    assert reader.lost() == {}
    reader.wait(SECOND)
    assert 950 in {sqn for to, sqn in requested(reader) if to == SOURCE}


def test_late_joiner_asks_its_keeper_alone_for_history() -> None:
    reader = begun(attrs.evolve(SETUP, parents=(REPAIRER, SOURCE)), join_from="sqn", join_sqns=950)
    reader.hear(answer(), peer=REPAIRER)
    reader.wait(SECOND)
    assert {to for to, sqn in requested(reader) if sqn == 950} == {REPAIRER}


def requested(reader: Reader) -> list[tuple[str | None, int]]:
    return [
        (send.to, sqn) for _, send in reader.sent for nak in sent_control([send], PacketType.NAK) for sqn in nak.sqns
    ]
