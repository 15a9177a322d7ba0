"""Quantities in human units, parsed and formatted."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pgm.errors import UnitError
from pgm.units import (
    GIB,
    KIB,
    MIB,
    MICROSECOND,
    MILLISECOND,
    NEVER,
    SECOND,
    format_duration,
    format_fraction,
    format_octets,
    format_rate,
    parse_duration,
    parse_fraction,
    parse_octets,
    parse_rate,
)

quantities = st.one_of(
    st.integers(0, 1 << 62),
    st.builds(
        lambda number, unit: number * unit, st.integers(0, 5000), st.sampled_from([1000, 1024, 10**6, MIB, 10**9])
    ),
)


def test_units_are_what_they_are_called():
    assert (MICROSECOND, MILLISECOND, SECOND) == (10**3, 10**6, 10**9)
    assert (KIB, MIB, GIB) == (1024, 1024**2, 1024**3)
    assert NEVER == 2**63 - 1


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("50ms", 50 * MILLISECOND),
        ("10s", 10 * SECOND),
        ("2min", 120 * SECOND),
        ("1h", 3600 * SECOND),
        ("7ns", 7),
        ("1.5us", 1500),
        (" 0.5 ms ", 500 * MICROSECOND),
        ("0s", 0),
    ],
)
def test_durations(text, value):
    assert parse_duration(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1500B", 1500),
        ("64KiB", 64 * KIB),
        ("4GiB", 4 * GIB),
        ("1.5MiB", 1536 * KIB),
        ("3kB", 3000),
        ("2MB", 2_000_000),
    ],
)
def test_sizes(text, value):
    assert parse_octets(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("200Mbit/s", 25_000_000),
        ("25MB/s", 25_000_000),
        ("1Gbit/s", 125_000_000),
        ("8bit/s", 1),
        ("2KiB/s", 2048),
        ("0.1 Mbit/s", 12_500),
    ],
)
def test_rates(text, value):
    assert parse_rate(text) == value


@pytest.mark.parametrize(("text", "value"), [("2%", 0.02), ("0%", 0.0), ("100 %", 1.0), ("0.25%", 0.0025)])
def test_fractions(text, value):
    assert parse_fraction(text) == value


@pytest.mark.parametrize("parse", [parse_duration, parse_octets, parse_rate, parse_fraction])
@pytest.mark.parametrize(
    "text", ["", "50", "ms", "-5ms", "5 parsecs", "1e3ms", "5ms5", "1.ms", ".5s", "5mS", "nan%", "5 5s"]
)
def test_units_nonsense_is_an_error_with_a_remedy(parse, text):
    with pytest.raises(UnitError) as caught:
        parse(text)
    assert caught.value.remedy


def test_fraction_above_100_percent_is_an_error():
    with pytest.raises(UnitError, match="more than 100 %"):
        parse_fraction("100.1%")


def test_fraction_indistinguishable_from_zero_is_an_error():
    """Otherwise a requested loss would silently become none."""
    assert parse_fraction("0.000001%") == 1e-8
    for text in ("0.0000009%", "0.000000000000001%"):
        with pytest.raises(UnitError, match="too small to distinguish from 0 %"):
            parse_fraction(text)
    assert parse_fraction("0.0000000%") == 0


@given(value=quantities)
@example((1 << 53) + 1)
def test_durations_are_spelled_exactly(value):
    assert parse_duration(format_duration(value)) == value


@given(value=quantities)
@example((1 << 53) + 1)
def test_sizes_are_spelled_exactly(value):
    assert parse_octets(format_octets(value)) == value


@given(value=quantities)
@example((1 << 53) + 1)
def test_rates_are_spelled_exactly(value):
    assert parse_rate(format_rate(value)) == value


@given(value=st.integers(0, 10**8))
def test_fractions_are_spelled_to_a_millionth_of_a_percent(value):
    assert parse_fraction(format_fraction(value / 10**8)) == value / 10**8


@pytest.mark.parametrize(
    ("text", "spelled"),
    [
        (format_duration(90 * SECOND), "90s"),
        (format_duration(120 * SECOND), "2min"),
        (format_duration(1500 * MICROSECOND), "1500us"),
        (format_duration(0), "0ns"),
        (format_duration(NEVER), "never"),
        (format_octets(64 * KIB), "64KiB"),
        (format_octets(3_000_000), "3MB"),
        (format_octets(1001), "1001B"),
        (format_rate(25_000_000), "200Mbit/s"),
        (format_rate(1), "8bit/s"),
        (format_fraction(0.25), "25%"),
        (format_fraction(1.0), "100%"),
        (format_fraction(0.001), "0.1%"),
    ],
)
def test_spelling_is_short(text, spelled):
    assert text == spelled
