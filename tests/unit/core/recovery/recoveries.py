"""Recoveries in every state, with exact timers, and the figure of the RFC that they follow."""

from __future__ import annotations

import random

from pgm.core.recovery.parents import Parents
from pgm.core.recovery.recovery import Recovery
from pgm.core.recovery.repair_table import RepairEvent, RepairState
from pgm.units import SECOND
from tests.unit.core.makers import MS, parameters, session_context

S, E = RepairState, RepairEvent
REORDER, RPT, RDATA = 1 * MS, 50 * MS, 200 * MS
# A back-off drawn from 1 to 1 ns is exact; the drawing has tests of its own.
BACK_OFF = 1
EXACT = parameters(
    reorder_ivl=REORDER,
    nak_bo_ivl=BACK_OFF,
    nak_rpt_ivl=RPT,
    nak_rdata_ivl=RDATA,
    nak_max_ivl=MS,  # intervals that do not grow: see test_patience
)


def recovery(settings=EXACT, seed=1, counters=None):
    context = session_context(settings, counters=counters, rng=random.Random(seed))
    made = Recovery(context, Parents(context, ()).response_timeout)
    made.may_ask = True
    return made


def only(made):
    [found] = made.missing
    return found


def due(made, now, **changes):
    return made.handle_deadline(now, **{"may_give_up": True} | changes)


def in_state(state, first=10, end=13, counters=None):
    """A recovery whose range has just entered a state, and when that was."""
    made, now = recovery(counters=counters), SECOND
    made.detect(first, end, now)
    if state is not S.BACK_OFF:
        now = made.deadline_ns
        due(made, now)
    if state is S.WAIT_DATA:
        now += 5 * MS
        made.confirmed([(first, end)], now)
    found = only(made)
    assert found.state is state
    return made, found, now


# The RFC's figure (6.3), written down a second time: state, event, next state, its timer, what is counted.
FIGURE = [
    (S.BACK_OFF, E.TIMER, S.WAIT_NCF, RPT, (0, 0)),
    (S.BACK_OFF, E.NAK_HEARD, S.WAIT_NCF, RPT, (0, 0)),
    (S.BACK_OFF, E.NCF_HEARD, S.WAIT_DATA, RDATA, (0, 0)),
    (S.WAIT_NCF, E.TIMER, S.BACK_OFF, BACK_OFF, (1, 0)),
    (S.WAIT_NCF, E.NAK_HEARD, S.WAIT_NCF, RPT, (0, 0)),
    (S.WAIT_NCF, E.NCF_HEARD, S.WAIT_DATA, RDATA, (0, 0)),
    (S.WAIT_DATA, E.TIMER, S.BACK_OFF, BACK_OFF, (0, 1)),
    (S.WAIT_DATA, E.NAK_HEARD, S.WAIT_DATA, RDATA, (0, 0)),
    (S.WAIT_DATA, E.NCF_HEARD, S.WAIT_DATA, RDATA, (0, 0)),
]
