"""State table for the repair of a missing packet (RFC 3208 section 6.3).

The table has three states. BACK_OFF: a random delay runs, so that one receiver's NAK may suppress the others. WAIT_NCF: a
NAK is in flight, from this node or another. WAIT_DATA: a parent has promised a repair.

Three events change the state: the timer of the state, a NAK heard for the same sqn, and an NCF heard for that sqn. The end
of a recovery is not in the table, because it is the same in every state. A recovery ends when the data arrives, the trail
passes the sqn, or a retry count is exceeded.

A NAK heard in BACK_OFF leads to WAIT_NCF, as in the RFC's diagram and unlike the RFC's text (E-08). Only an NCF proves that
the request has arrived.

Each row gives the next state, the interval that starts, and the retry count that grows.
"""

from __future__ import annotations

import enum

import attrs


class RepairState(enum.Enum):
    """State of a missing packet (RFC 6.3)."""

    BACK_OFF = "BACK_OFF_STATE"
    WAIT_NCF = "WAIT_NCF_STATE"
    WAIT_DATA = "WAIT_DATA_STATE"


class RepairEvent(enum.Enum):
    """Event that changes the state of a missing packet."""

    TIMER = "timer"
    NAK_HEARD = "NAK heard"
    NCF_HEARD = "NCF heard"


class Interval(enum.Enum):
    """Timer that starts with a state. NAK_RB_IVL is drawn at random below NAK_BO_IVL."""

    NAK_RB_IVL = "nak_rb_ivl"
    NAK_RPT_IVL = "nak_rpt_ivl"
    NAK_RDATA_IVL = "nak_rdata_ivl"


class Retries(enum.Enum):
    """Retry count that a transition raises."""

    NCF = "nak_ncf_retries"
    DATA = "nak_data_retries"


@attrs.frozen
class Transition:
    """One row of the table."""

    next_state: RepairState
    restarts: Interval
    counts: Retries | None = None


RepairTable = dict[tuple[RepairState, RepairEvent], Transition]

_S, _E, _I = RepairState, RepairEvent, Interval

RECEIVER: RepairTable = {
    (_S.BACK_OFF, _E.TIMER): Transition(_S.WAIT_NCF, _I.NAK_RPT_IVL),  # the NAK is sent here
    (_S.BACK_OFF, _E.NAK_HEARD): Transition(_S.WAIT_NCF, _I.NAK_RPT_IVL),
    (_S.BACK_OFF, _E.NCF_HEARD): Transition(_S.WAIT_DATA, _I.NAK_RDATA_IVL),
    (_S.WAIT_NCF, _E.TIMER): Transition(_S.BACK_OFF, _I.NAK_RB_IVL, Retries.NCF),
    (_S.WAIT_NCF, _E.NAK_HEARD): Transition(_S.WAIT_NCF, _I.NAK_RPT_IVL),
    (_S.WAIT_NCF, _E.NCF_HEARD): Transition(_S.WAIT_DATA, _I.NAK_RDATA_IVL),
    (_S.WAIT_DATA, _E.TIMER): Transition(_S.BACK_OFF, _I.NAK_RB_IVL, Retries.DATA),
    (_S.WAIT_DATA, _E.NAK_HEARD): Transition(_S.WAIT_DATA, _I.NAK_RDATA_IVL),
    (_S.WAIT_DATA, _E.NCF_HEARD): Transition(_S.WAIT_DATA, _I.NAK_RDATA_IVL),
}
