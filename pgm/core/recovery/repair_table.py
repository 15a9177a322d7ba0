"""RFC 3208 section 6.3 as a table: what becomes of a missing packet.

Three states. BACK_OFF: missing, and a random delay is running so that one receiver's NAK may silence the
others. WAIT_NCF: a NAK is under way, ours or another's. WAIT_DATA: somebody above has promised a repair.

Three events move between them: the state's timer, a NAK heard for the same sqn, an NCF heard for it.
What ends a recovery is not in the table since it ends in every state alike: the data arrives, the
trail passes, or a retry count is exceeded.

A NAK heard in BACK_OFF leads to WAIT_NCF, as the RFC's diagram has it and its prose does not (E-08): only
an NCF proves that the request has arrived.

Each row says the next state, the interval that starts, and which retry count it raises.
"""

from __future__ import annotations

import enum

import attrs


class RepairState(enum.Enum):
    """States of a missing packet (RFC 6.3)."""

    BACK_OFF = "BACK_OFF_STATE"
    WAIT_NCF = "WAIT_NCF_STATE"
    WAIT_DATA = "WAIT_DATA_STATE"


class RepairEvent(enum.Enum):
    """What moves a missing packet from state to state."""

    TIMER = "timer"
    NAK_HEARD = "NAK heard"
    NCF_HEARD = "NCF heard"


class Interval(enum.Enum):
    """Which timer starts on entering a state. NAK_RB_IVL is drawn at random below NAK_BO_IVL."""

    NAK_RB_IVL = "nak_rb_ivl"
    NAK_RPT_IVL = "nak_rpt_ivl"
    NAK_RDATA_IVL = "nak_rdata_ivl"


class Retries(enum.Enum):
    """Which count a transition raises."""

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
    (_S.BACK_OFF, _E.TIMER): Transition(_S.WAIT_NCF, _I.NAK_RPT_IVL),  # and the NAK is sent
    (_S.BACK_OFF, _E.NAK_HEARD): Transition(_S.WAIT_NCF, _I.NAK_RPT_IVL),
    (_S.BACK_OFF, _E.NCF_HEARD): Transition(_S.WAIT_DATA, _I.NAK_RDATA_IVL),
    (_S.WAIT_NCF, _E.TIMER): Transition(_S.BACK_OFF, _I.NAK_RB_IVL, Retries.NCF),
    (_S.WAIT_NCF, _E.NAK_HEARD): Transition(_S.WAIT_NCF, _I.NAK_RPT_IVL),
    (_S.WAIT_NCF, _E.NCF_HEARD): Transition(_S.WAIT_DATA, _I.NAK_RDATA_IVL),
    (_S.WAIT_DATA, _E.TIMER): Transition(_S.BACK_OFF, _I.NAK_RB_IVL, Retries.DATA),
    (_S.WAIT_DATA, _E.NAK_HEARD): Transition(_S.WAIT_DATA, _I.NAK_RDATA_IVL),
    (_S.WAIT_DATA, _E.NCF_HEARD): Transition(_S.WAIT_DATA, _I.NAK_RDATA_IVL),
}
