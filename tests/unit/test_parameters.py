"""The parameter table: every row is valid, reads its own spelling, and the profiles keep the rules between rows."""

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgm.errors import UnitError
from pgm.parameters import PROFILES, ROWS, Parameters, ProfileInputs, Unit
from pgm.units import MILLISECOND, SECOND

ROLES = {"source", "receiver", "aggregator", "repairer"}
rows = pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)


def test_rows_and_fields_are_the_same():
    assert list(ROWS) == [field.name for field in attrs.fields(Parameters)]
    for name, row in ROWS.items():
        assert row.default == getattr(Parameters(), name)
        assert row.key == name


@rows
def test_row_is_complete(row):
    assert row.doc.endswith(".")
    assert row.roles
    assert set(row.roles) <= ROLES
    assert row.rfc
    if row.unit is Unit.CHOICE:
        assert row.default in row.choices
    else:
        assert row.low < row.high
        assert row.low <= row.default <= row.high


@rows
def test_row_reads_what_it_spells(row):
    values = row.choices if row.unit is Unit.CHOICE else (row.default, row.low, row.high)
    for value in values:
        native = row.unit in (Unit.COUNT, Unit.PER_SECOND, Unit.CHOICE)
        as_written = bool(value) if row.unit is Unit.SWITCH else value if native else row.spell(value)
        assert row.read(as_written) == value


@rows
def test_row_refuses_what_is_out_of_range(row):
    if row.unit in (Unit.CHOICE, Unit.SWITCH, Unit.FRACTION):
        return
    native = row.unit in (Unit.COUNT, Unit.PER_SECOND)
    for value in (row.high + max(1, row.high // 10), *([row.low - 1] if row.low >= 1 else [])):
        with pytest.raises(UnitError, match="out of range") as caught:
            row.read(value if native else row.spell(value))
        assert "choose from" in caught.value.remedy


@rows
def test_row_refuses_another_type(row):
    wrong = {
        Unit.SWITCH: (1, "true", None),
        Unit.CHOICE: ("nonsense", 1, None),
        Unit.COUNT: ("5", 5.0, True, None),
        Unit.PER_SECOND: ("5", 5.0, True, None),
    }.get(row.unit, (5, 5.0, True, None, "5", "5 parsecs"))
    for value in wrong:
        with pytest.raises(UnitError) as caught:
            row.read(value)
        assert caught.value.remedy


def test_fractions_have_their_range_too():
    row = ROWS["rdata_share"]
    assert row.read("50%") == 0.5
    with pytest.raises(UnitError, match=r"0\.01%"):
        row.read("0.01%")


def test_spelling():
    assert ROWS["nak_bo_ivl"].spell(10 * MILLISECOND) == "10ms"
    assert ROWS["txw_max_rte"].spell(25_000_000) == "200Mbit/s"
    assert ROWS["gso"].spell(True) == "true"
    assert ROWS["rdata_share"].spell(0.25) == "25%"
    assert ROWS["txw_adv_mode"].spell("data") == "data"


def assert_rules_hold(parameters):
    """Assert the inequalities in the sentences of the table."""
    assert parameters.stall_ivl >= 2 * parameters.ihb_max
    assert parameters.stall_ivl < parameters.peer_expiry < parameters.session_expiry
    assert parameters.relay_takeover_ivl > parameters.ihb_max >= parameters.ihb_min
    assert parameters.rdata_ignore_ivl < parameters.nak_rdata_ivl
    assert parameters.nak_elim_ivl < parameters.ne_nak_rdata_ivl
    assert parameters.rdata_hold_ivl < parameters.nak_rdata_ivl
    assert parameters.ncf_ivl < parameters.nak_rpt_ivl
    assert parameters.reorder_ivl < parameters.nak_rpt_ivl


def test_defaults_keep_the_rules():
    assert_rules_hold(Parameters())


@pytest.mark.parametrize("name", PROFILES)
@given(
    rtt=st.integers(0, 2 * SECOND),
    budget=st.integers(10 * MILLISECOND, 3600 * SECOND),
    rate=st.integers(1000, 10**10),
)
def test_profiles_stay_in_range_and_keep_the_rules(name, rtt, budget, rate):
    chosen = PROFILES[name](ProfileInputs(rtt=rtt, repair_budget=budget, rate=rate))
    for key, value in chosen.items():
        row = ROWS[key]
        assert isinstance(value, type(row.default)), key
        assert row.low <= value <= row.high, key
    assert_rules_hold(Parameters(**chosen))


def test_profiles_follow_the_round_trip():
    near, far = (PROFILES["wan"](ProfileInputs(rtt=rtt)) for rtt in (20 * MILLISECOND, 200 * MILLISECOND))
    for key in ("nak_bo_ivl", "nak_rpt_ivl", "nak_rdata_ivl"):
        assert near[key] < far[key]
        assert far[key] > 200 * MILLISECOND


@pytest.mark.parametrize(
    ("key", "value", "taken"),
    [
        ("nak_bo_ivl", "20ms", 20_000_000),
        ("nak_bo_ivl", 20_000_000, 20_000_000),
        ("rxw_bytes", 1 << 20, 1 << 20),
        ("rdata_share", 0.5, 0.5),
        ("nak_ncf_retries", 3, 3),
        ("private_options", False, False),
        ("excess_nak_policy", "lower", "lower"),
    ],
)
def test_row_accepts_numbers_of_a_program(key, value, taken):
    assert ROWS[key].take(value) == taken


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("nak_bo_ivl", 20),
        ("nak_bo_ivl", -5),
        ("nak_bo_ivl", 0.02),
        ("rxw_bytes", True),
        ("rxw_bytes", None),
        ("rdata_share", 1.5),
        ("rdata_share", float("nan")),
        ("nak_ncf_retries", "3"),
        ("private_options", 1),
        ("excess_nak_policy", "weep"),
    ],
)
def test_row_refuses_unsuitable_numbers(key, value):
    with pytest.raises(UnitError) as caught:
        ROWS[key].take(value)
    assert key in caught.value.message
    assert caught.value.remedy


def test_legacy_profile_has_no_repairs_by_unicast():
    """Other implementations skip OPT_PGM_ASKER, so a second receiver would wait in vain."""
    assert PROFILES["legacy"](ProfileInputs())["unicast_repair_min_sqns"] == 0
