"""Outlets of one session: repairs and history of one node, each at its own rate."""

from __future__ import annotations

import attrs

from pgm.core.named_children import NO_CHILDREN
from pgm.core.pacing.pacer import Pacer
from pgm.core.repair.outlets import Outlets
from pgm.core.structures.run_store import RunStore
from tests.unit.core.makers import MS, SEGMENT, parameters, run_of, session_context

DESK = "10.0.0.11"
STORED = 2000


def outlets() -> Outlets:
    """Return outlets whose history takes a thousandth of the rate."""
    settings = parameters(txw_max_rte=100_000_000)
    store = RunStore()
    store.add(run_of(0, STORED))
    slow = Pacer(attrs.evolve(settings, txw_max_rte=100_000))
    return Outlets(session_context(settings), store, (SEGMENT,), (Pacer(settings),), lambda _: slow, NO_CHILDREN)


def send(made: Outlets, until_ns: int) -> None:
    """Send every train that is due until an instant."""
    while (now_ns := made.ready_ns) <= until_ns:
        assert made.next_train(0, now_ns) is not None


def test_repairs_of_a_late_joiner_do_not_wait_for_its_history() -> None:
    made = outlets()
    made.responder(SEGMENT, DESK, is_history=True).request([(0, 1000)], 0)
    send(made, MS)
    own = made.responder(SEGMENT, DESK, is_history=False)
    own.request([(1000, 1300)], MS)
    send(made, 20 * MS)
    assert own.pending_sqns == 0 < made.pending_sqns


def test_history_does_not_follow_repairs_at_their_rate() -> None:
    made = outlets()
    made.responder(SEGMENT, DESK, is_history=False).request([(0, 300)], 0)
    made.responder(SEGMENT, DESK, is_history=True).request([(300, 2000)], 0)
    send(made, 20 * MS)
    assert made.pending_sqns > 1000


def test_history_is_not_owed_as_repairs_are() -> None:
    made = outlets()
    made.responder(SEGMENT, DESK, is_history=True).request([(0, 10)], 0)
    made.responder(SEGMENT, DESK, is_history=False).request([(10, 20)], 0)
    assert not made.owes(0, 10)
    assert made.owes(0, 11)
    assert not made.owes(20, 30)
