"""Start position of a receiver, converted to rows of the parameter table."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from pgm.errors import UnitError, UsageError
from pgm.units import parse_duration

# An editor offers the words; the others, such as "last:30s", are texts.
Start: TypeAlias = Literal["now", "oldest"] | str | int | None  # noqa: PYI051

_REMEDY = 'write "now", "oldest", "last:1000", "last:30s" or a sqn'


def start_parameters(start: Start) -> dict[str, Any]:
    """Return the parameters for a start position; none for None, left to the topology. Raises `UsageError`."""
    if start is None:
        return {}
    text = str(start)
    if text in ("now", "oldest"):
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
