"""Start position of a receiver, converted to rows of the parameter table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

from pgm.errors import UnitError, UsageError
from pgm.net.durable.position import Position
from pgm.units import parse_duration

# An editor offers the words; the others, such as "last:30s", are texts.
Start: TypeAlias = Literal["now", "oldest", "snapshot"] | str | int | Position | Sequence[Position | str] | None  # noqa: PYI051

_REMEDY = 'write "now", "oldest", "last:1000", "last:30s", "snapshot", a sqn, or a position'


def start_parameters(start: Start) -> dict[str, Any]:
    """Return the parameters for a start position; none for None, left to the topology. Raises `UsageError`."""
    if start is None or positions_of(start) is not None:
        return {}
    text = str(start)
    if text in ("now", "oldest", "snapshot"):
        return {"join_from": text}
    if text.isdecimal():
        return {"join_from": "sqn", "join_sqns": int(text)}
    how, _, amount = text.partition(":")
    if how != "last" or not amount:
        raise UsageError(f"start={start!r} is no place in a stream", remedy=_REMEDY)
    if amount.isdecimal():
        return {"join_from": "last", "join_sqns": int(amount), "join_secs": 0}
    try:
        return {"join_from": "last", "join_secs": parse_duration(amount)}
    except UnitError as error:
        raise UsageError(f"start={start!r}: {error.message}", remedy=_REMEDY) from None


def positions_of(start: Start) -> tuple[Position, ...] | None:
    """Return the positions that a start names, one for each session; None for another start. Raises `UsageError`."""
    if isinstance(start, Position):
        return (start,)
    if isinstance(start, str):
        return (Position.parse(start),) if "@" in start else None
    if start is None or isinstance(start, int | float):
        return None
    return tuple(one if isinstance(one, Position) else Position.parse(one) for one in start)
