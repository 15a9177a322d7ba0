"""Ranges of missing sqns, and the actions that a recovery wants taken for them."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from pgm.core.recovery.repair_table import RepairState
from pgm.core.structures.ranges import Span, TimedRange, lists_of
from pgm.units import NEVER
from pgm.wire.formats import Nla
from pgm.wire.naks import LIST_SQNS

_MOST_TRY_DIFFERENCE = 2  # between ranges that are joined: neither gains many retries by it


@attrs.define(eq=False)
class MissingRange(TimedRange):
    """Range of missing sqns in one state. `asked` is the node that owes an NCF for this node's last NAK."""

    state: RepairState = RepairState.BACK_OFF
    ncf_retries: int = 0
    data_retries: int = 0
    data_waits: float = 0.0  # data retries in units of nak_rdata_ivl: nak_data_retries limits this number
    found_at_ns: int = 0
    since_ns: int = 0  # when the range entered its state
    promised_ns: int = 0  # when an NCF first promised the data
    asked: Nla | None = None
    unanswered: int = 0  # NAKs of this node in a row that no NCF confirmed
    tried: Nla | None = None  # the parent that left the last one of them unanswered
    sibling_tries: int = 0  # NAKs to repairers of the same segment
    asks_sibling: bool = False  # whether `asked` is one

    @property
    def state_name(self) -> str:
        """Return the name of the state, for a `LossObserver`."""
        return self.state.name

    @property
    def is_parked(self) -> bool:
        """Return whether the back-off is over and the limit on outstanding sqns leaves no room for the request."""
        return self.state is RepairState.BACK_OFF and self.deadline_ns == NEVER

    @property
    def outstanding(self) -> int:
        """Return how many sqns were requested and may still arrive."""
        return 0 if self.state is RepairState.BACK_OFF else self.count

    def is_like(self, other: MissingRange) -> bool:
        """Return whether both ranges have the same state, deadline, parent, and close numbers of tries."""
        return (
            (self.state, self.deadline_ns, self.asked, self.sibling_tries)
            == (other.state, other.deadline_ns, other.asked, other.sibling_tries)
            and abs(self.ncf_retries - other.ncf_retries) <= _MOST_TRY_DIFFERENCE
            and abs(self.data_retries - other.data_retries) <= _MOST_TRY_DIFFERENCE
        )


@attrs.define
class RecoveryActions:
    """Actions due at a deadline: requests, spans given up, unanswered parents.

    `crowded_out` holds spans that were dropped because the table needed a place for a part of a requested range.
    """

    asking: list[MissingRange]
    given_up: list[Span]
    unanswered: list[Nla | None]
    crowded_out: list[Span] = attrs.field(factory=list)

    @property
    def spans(self) -> list[Span]:
        """Return the spans to request, in order."""
        return sorted([(missing.first, missing.end) for missing in self.asking])

    @property
    def naks(self) -> list[list[int]]:
        """Return the sqns to request, as one list for each NAK."""
        return lists_of(self.spans, LIST_SQNS)


def parked_in(candidates: Iterable[MissingRange], room: int) -> list[MissingRange]:
    """Return parked ranges among `candidates` that together have at most `room` sqns."""
    parked: list[MissingRange] = []
    for missing in candidates:
        if missing.is_parked and missing.count <= room:
            parked.append(missing)
            room -= missing.count
    return parked
