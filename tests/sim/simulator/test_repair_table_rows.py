"""Every row of the receiver's repair table matters.

The model of NAK timing detects each broken row from outside.
"""

import attrs
import pytest

from deploy.node.roles import build_core
from pgm.core.receiver.receiver import ReceiverCore
from pgm.core.recovery.repair_table import (
    RECEIVER,
    Interval,
    RepairEvent,
    RepairState,
    RepairTable,
    Retries,
    Transition,
)
from pgm.sim.invariant_broken import InvariantBroken
from pgm.sim.runs.swarm import run
from pgm.sim.world import CoreFactory
from pgm.topology.node_plan import Role
from pgm.units import MILLISECOND

# Scenarios with losses, several receivers on a segment, and NAKs that are also multicast. The first is short and
# detects most.
SEEDS = (13, 1, 8, 6)

S, E, T = RepairState, RepairEvent, Interval

# Each row twice: with a wrong next state, and with a wrong timer.
BROKEN: dict[tuple[RepairState, RepairEvent], tuple[Transition, Transition]] = {
    (S.BACK_OFF, E.TIMER): (Transition(S.BACK_OFF, T.NAK_RB_IVL), Transition(S.WAIT_NCF, T.NAK_RB_IVL)),
    (S.BACK_OFF, E.NAK_HEARD): (Transition(S.WAIT_DATA, T.NAK_RDATA_IVL), Transition(S.WAIT_NCF, T.NAK_RB_IVL)),
    (S.BACK_OFF, E.NCF_HEARD): (Transition(S.WAIT_NCF, T.NAK_RPT_IVL), Transition(S.WAIT_DATA, T.NAK_RB_IVL)),
    (S.WAIT_NCF, E.TIMER): (
        Transition(S.WAIT_NCF, T.NAK_RPT_IVL, Retries.NCF),
        Transition(S.BACK_OFF, T.NAK_RDATA_IVL, Retries.NCF),
    ),
    (S.WAIT_NCF, E.NAK_HEARD): (Transition(S.BACK_OFF, T.NAK_RB_IVL), Transition(S.WAIT_NCF, T.NAK_RB_IVL)),
    (S.WAIT_NCF, E.NCF_HEARD): (Transition(S.WAIT_NCF, T.NAK_RPT_IVL), Transition(S.WAIT_DATA, T.NAK_RB_IVL)),
    (S.WAIT_DATA, E.TIMER): (
        Transition(S.WAIT_DATA, T.NAK_RDATA_IVL, Retries.DATA),
        Transition(S.BACK_OFF, T.NAK_RDATA_IVL, Retries.DATA),
    ),
    (S.WAIT_DATA, E.NAK_HEARD): (Transition(S.BACK_OFF, T.NAK_RB_IVL), Transition(S.WAIT_DATA, T.NAK_RPT_IVL)),
    (S.WAIT_DATA, E.NCF_HEARD): (Transition(S.BACK_OFF, T.NAK_RB_IVL), Transition(S.WAIT_DATA, T.NAK_RPT_IVL)),
}


def factory_with(table: RepairTable) -> CoreFactory:
    """Return a factory whose receivers use another table.

    Their intervals do not grow.
    """

    def build(plan, rng, tsi, now_ns):
        core = build_core(plan, rng, tsi, now_ns)
        if plan.role is not Role.RECEIVER:
            return core
        strict = attrs.evolve(plan.parameters, nak_max_ivl=MILLISECOND)
        return ReceiverCore(attrs.evolve(core.setup, repair_table=table), strict, rng)

    return build


def is_caught(table: RepairTable) -> bool:
    for seed in SEEDS:
        try:
            run(seed, factory_with(table))
        except InvariantBroken:
            return True
    return False


def test_every_row_is_broken_below():
    assert BROKEN.keys() == RECEIVER.keys()
    for row, (wrong_state, wrong_timer) in BROKEN.items():
        assert wrong_state.next_state is not RECEIVER[row].next_state
        assert wrong_timer.next_state is RECEIVER[row].next_state
        assert wrong_timer.restarts is not RECEIVER[row].restarts


@pytest.mark.parametrize("row", BROKEN, ids=lambda row: f"{row[0].name}-{row[1].name}")
@pytest.mark.parametrize("which", ["state", "timer"])
def test_a_broken_row_is_caught(row, which):
    wrong = BROKEN[row][which == "timer"]
    assert is_caught(RECEIVER | {row: wrong}), f"{row} -> {wrong} passes for right"


def test_the_intact_table_passes():
    assert not is_caught(RECEIVER)
