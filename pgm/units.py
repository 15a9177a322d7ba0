"""Quantities: integer nanoseconds, octets and octets per second, with their human spellings.

Inside the project a time is an integer of nanoseconds, a size an integer of octets, and a rate an integer of octets per
second. Files and command lines spell quantities as "50ms", "2GiB", "200Mbit/s", "2%".
"""

from __future__ import annotations

import re
from fractions import Fraction

from pgm.errors import UnitError

MICROSECOND = 1_000
MILLISECOND = 1_000_000
SECOND = 1_000_000_000
NEVER = (1 << 63) - 1  # ns: later than any instant that a driver passes

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30
FRACTIONS = 10**8  # resolution of a share of one: a millionth of a per cent

TIME_UNITS = {"ns": 1, "us": MICROSECOND, "ms": MILLISECOND, "s": SECOND, "min": 60 * SECOND, "h": 3600 * SECOND}
SIZE_UNITS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": KIB, "MiB": MIB, "GiB": GIB}
_BITS = {"bit/s": 1, "kbit/s": 10**3, "Mbit/s": 10**6, "Gbit/s": 10**9}
_RATES = {"B/s": 1, "kB/s": 10**3, "MB/s": 10**6, "GB/s": 10**9, "KiB/s": KIB, "MiB/s": MIB, "GiB/s": GIB}
RATE_UNITS = (*_BITS, *_RATES)

MOST_CHARACTERS = 40  # of a quantity; a longer text is a mistake
_QUANTITY = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z/%]+)\s*")


def _split(text: str, noun: str, units: dict[str, int] | tuple[str, ...], example: str) -> tuple[Fraction, str]:
    match = _QUANTITY.fullmatch(text) if len(text) <= MOST_CHARACTERS else None
    if match is None or match[2] not in units:
        choice = f"one of {', '.join(units)}" if len(units) > 1 else " ".join(units)
        raise UnitError(
            f"{text[:MOST_CHARACTERS]!r} is not a {noun}",
            remedy=f'write a number and {choice}, such as "{example}"',
        )
    return Fraction(match[1]), match[2]


def parse_duration(text: str) -> int:
    """Read "50ms", "10s", "2min" into nanoseconds. Raises `UnitError`."""
    number, unit = _split(text, "duration", TIME_UNITS, "50ms")
    return round(number * TIME_UNITS[unit])


def parse_octets(text: str) -> int:
    """Read "4GiB", "64KiB", "1500B" into octets. Raises `UnitError`."""
    number, unit = _split(text, "size", SIZE_UNITS, "64MiB")
    return round(number * SIZE_UNITS[unit])


def parse_rate(text: str) -> int:
    """Read "200Mbit/s" or "25MB/s" into octets per second. Raises `UnitError`."""
    number, unit = _split(text, "rate", RATE_UNITS, "200Mbit/s")
    return round(number * _RATES[unit]) if unit in _RATES else round(number * _BITS[unit] / 8)


def parse_fraction(text: str) -> float:
    """Read "2%" into 0.02. Raises `UnitError`.

    The percentage is 0, or between a millionth of a per cent and 100 %.
    """
    number, _ = _split(text, "percentage", ("%",), "2%")
    if number > 100:
        raise UnitError(f"{text!r} is more than 100 %", remedy='write a percentage up to "100%"')
    if 0 < number * FRACTIONS < 100:
        raise UnitError(f"{text!r} is too small to distinguish from 0 %", remedy='write "0%", or "0.000001%" or more')
    return float(number / 100)


def format_duration(value_ns: int) -> str:
    """Spell nanoseconds in the syntax of `parse_duration`, exactly and as short as possible."""
    if value_ns == NEVER:
        return "never"
    for unit in ("h", "min", "s", "ms", "us"):
        if value_ns and value_ns % TIME_UNITS[unit] == 0:
            return f"{value_ns // TIME_UNITS[unit]}{unit}"
    return f"{value_ns}ns"


def format_octets(value: int) -> str:
    """Spell octets in the syntax of `parse_octets`."""
    for unit in ("GiB", "MiB", "KiB", "GB", "MB", "kB"):
        if value and value % SIZE_UNITS[unit] == 0:
            return f"{value // SIZE_UNITS[unit]}{unit}"
    return f"{value}B"


def format_rate(octets_per_s: int) -> str:
    """Spell octets per second in the largest bit unit that is exact."""
    bits = octets_per_s * 8
    for unit in ("Gbit/s", "Mbit/s", "kbit/s"):
        if bits and bits % _BITS[unit] == 0:
            return f"{bits // _BITS[unit]}{unit}"
    return f"{bits}bit/s"


def format_fraction(value: float) -> str:
    """Spell a share of one as a percentage."""
    return f"{value * 100:.6f}".rstrip("0").rstrip(".") + "%"
