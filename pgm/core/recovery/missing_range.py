"""What a recovery works on: ranges of missing sqns, and what is to be done about them."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from pgm.core.recovery.repair_table import RepairState
from pgm.core.structures.ranges import Span, TimedRange, lists_of
from pgm.units import NEVER
from pgm.wire.formats import Nla
from pgm.wire.naks import LIST_SQNS

_ALIKE = 2  # tries by which ranges that become one may differ: none gains much patience by it


@attrs.define(eq=False)
class MissingRange(TimedRange):
    """A range of missing sqns, all in one state. `asked` is the parent that owes an NCF for the last own NAK."""

    state: RepairState = RepairState.BACK_OFF
    ncf_retries: int = 0
    data_retries: int = 0
    data_waits: float = 0.0  # these in waits of nak_rdata_ivl: what the limit counts
    found_at_ns: int = 0
    since_ns: int = 0  # when it came to wait as it does
    promised_ns: int = 0  # when it was first promised
    asked: Nla | None = None

    @property
    def state_name(self) -> str:
        """Its state, for those who watch."""
        return self.state.name

    @property
    def is_parked(self) -> bool:
        """Whether its back-off is over and it waits for room among what is asked for."""
        return self.state is RepairState.BACK_OFF and self.deadline_ns == NEVER

    @property
    def outstanding(self) -> int:
        """Sqns of it that were asked for and may still come."""
        return 0 if self.state is RepairState.BACK_OFF else self.count

    def is_like(self, other: MissingRange) -> bool:
        """Whether both are where the other is, about as often tried."""
        return (
            (self.state, self.deadline_ns, self.asked) == (other.state, other.deadline_ns, other.asked)
            and abs(self.ncf_retries - other.ncf_retries) <= _ALIKE
            and abs(self.data_retries - other.data_retries) <= _ALIKE
        )


@attrs.define
class RecoveryActions:
    """What a deadline asks for: the ranges to ask for, spans given up, which parents did not answer.

    `crowded_out` is what went so that the table had a place for the part of a range that is asked for.
    """

    asking: list[MissingRange]
    given_up: list[Span]
    unanswered: list[Nla | None]
    crowded_out: list[Span] = attrs.field(factory=list)

    @property
    def spans(self) -> list[Span]:
        """What to ask for, in order."""
        return sorted([(one.first, one.end) for one in self.asking])

    @property
    def naks(self) -> list[list[int]]:
        """The same as one list of sqns for each NAK."""
        return lists_of(self.spans, LIST_SQNS)


def parked_in(some: Iterable[MissingRange], room: int) -> list[MissingRange]:
    """Those of some ranges that are parked, as many as `room` sqns hold."""
    found: list[MissingRange] = []
    for one in some:
        if one.is_parked and one.count <= room:
            found.append(one)
            room -= one.count
    return found
