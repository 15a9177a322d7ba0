"""Rate of an open source: the values that its program or an operator may set."""

from __future__ import annotations

from pgm.core.source.source import SourceCore
from pgm.errors import UsageError
from pgm.parameters import ROWS
from pgm.units import format_rate, parse_rate

START = "start"  # in place of a value: the rate at the start


def checked_rate(core: SourceCore, rate: str | int) -> int:
    """Return a rate in octets a second from a number, `START` or a spelling. Raises `UnitError` or `UsageError`."""
    least, most = int(ROWS["txw_max_rte"].low), core.parameters.txw_max_rte
    if rate == START:
        return most
    wanted = parse_rate(rate) if isinstance(rate, str) else rate
    if not least <= wanted <= most:
        raise UsageError(
            f"rate = {format_rate(wanted)} is out of range: windows, caches and budgets were made for {format_rate(most)} at the start",
            remedy=f"choose from {format_rate(least)} to {format_rate(most)}, or write a higher rate in the file and restart the tree",
        )
    return wanted
