"""A receiver whose own socket drops packets, which are lost to it for good, is told that it does not keep up."""

from __future__ import annotations

import random

import pytest

from pgm.core.effects import Effect, Lost, Notice
from pgm.core.receiver.receiver import ReceiverCore
from pgm.core.receiver.setup import ReceiverSetup
from pgm.units import SECOND
from pgm.wire.train import Train
from tests.reference import DATA_PORT
from tests.unit.core.makers import BY_GROUP, SEGMENT, SOURCE, data_train, parameters, spm_packet, train_of


class Loser:
    """A receiver that can be made to lose packets for good."""

    def __init__(self, *, unordered: bool, drops: int = 0) -> None:
        ports = frozenset((DATA_PORT,) if unordered else ())
        self.core = ReceiverCore(ReceiverSetup(SEGMENT, unordered_ports=ports), parameters(), random.Random(1))
        self.core.counters.socket_drops = drops
        self._next = 1000
        self._hear(train_of(spm_packet(1, 100, 999)))
        self._hear(data_train(range(1000, 1010)))

    def _hear(self, train: Train) -> list[Effect]:
        return list(self.core.receive(train, BY_GROUP, SOURCE, 1000 * SECOND))

    def lose(self) -> list[Effect]:
        """Lose ten packets, since the trail passes them."""
        self._next += 20
        return self._hear(data_train(range(self._next, self._next + 10), trail=self._next))


@pytest.mark.parametrize("unordered", [False, True])
def test_too_slow_notice_follows_loss_and_repeats_at_double_drops(unordered: bool) -> None:
    loser = Loser(unordered=unordered)
    told = {}
    for drops in (0, 7, 8, 13, 14, 27, 28):
        loser.core.counters.socket_drops = drops
        effects = loser.lose()
        [at] = [index for index, one in enumerate(effects) if isinstance(one, Lost)]
        told[drops] = [one.code for one in effects[at:] if isinstance(one, Notice)]
    assert [drops for drops, codes in told.items() if codes == ["too-slow"]] == [7, 14, 28]
    assert [drops for drops, codes in told.items() if not codes] == [0, 8, 13, 27]


def test_drops_before_session_start_cause_no_notice() -> None:
    loser = Loser(unordered=False, drops=100)
    assert not any(isinstance(one, Notice) for one in loser.lose())
    loser.core.counters.socket_drops += 1
    [notice] = [one for one in loser.lose() if isinstance(one, Notice)]
    assert "dropped 1 at this receiver's own socket" in notice.text
