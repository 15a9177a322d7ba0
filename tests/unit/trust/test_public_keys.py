"""Lines of public keys: every line is read as it was written, and no damaged line is read."""

from __future__ import annotations

from datetime import date, timedelta

import attrs
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from hypothesis import given
from hypothesis import strategies as st

from pgm.errors import UnitError
from pgm.trust.node_identity import NodeIdentity
from pgm.trust.public_keys import KeyState, PublicKeys, is_key_id, parse_line
from tests.unit.trust.keys import END, FIRST, days, private_keys, public_keys

PRIME = (1 << 255) - 19
# Order 1, 2, 4 and 8, and other spellings of the same (RFC 7748, section 6.1).
LOW_ORDER = (
    0,
    1,
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
    PRIME - 1,
    PRIME,
    PRIME + 1,
)
LINE = private_keys().public.line


@given(public_keys)
def test_line_of_keys_is_read_as_written(keys: PublicKeys) -> None:
    assert parse_line(keys.line) == keys
    assert is_key_id(keys.id)


@given(public_keys, st.data())
def test_line_with_another_character_is_refused(keys: PublicKeys, data: st.DataObject) -> None:
    line = keys.line
    at = data.draw(st.integers(0, len(line) - 1))
    other = data.draw(st.characters(codec="ascii").filter(lambda one: one != line[at]))
    damaged = line[:at] + other + line[at + 1 :]
    words = damaged.split(" ")
    if len(words) == 5 and words[2:4] != line.split(" ")[2:4]:
        return  # another day is another statement of the file's owner, and no damage of the keys
    with pytest.raises(UnitError):
        parse_line(damaged)


@given(st.text())
def test_any_text_is_read_or_refused_with_a_remedy(text: str) -> None:
    with pytest.raises(UnitError) as caught:
        parse_line(text)
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("pgm1 ", "pgm2 ", "is not a line of public keys"),
        ("2026-01-01", "2026-13-01", "'2026-13-01' is not a day"),
        ("2026-01-01", "20260101", "'20260101' is not a day"),
        ("2028-01-01", "2026-01-01", "end on 2026-01-01, not after their first day 2026-01-01"),
        (LINE[-4:], "", "is not 64 octets in base64url"),
        (LINE.split()[1], "a" * 16, "the id 'aaaaaaaaaaaaaaaa' does not fit the keys, whose id is"),
    ],
)
def test_line_with_a_wrong_word_names_the_word(old: str, new: str, says: str) -> None:
    with pytest.raises(UnitError, match="remedy") as caught:
        parse_line(LINE.replace(old, new, 1))
    assert says in caught.value.message


@pytest.mark.parametrize("value", [7, None, ["x"], {"a": 1}, b"pgm1"])
def test_value_that_is_no_text_is_refused(value: object) -> None:
    with pytest.raises(UnitError, match="is not a line of public keys"):
        parse_line(value)


@given(public_keys, days)
def test_keys_are_valid_from_their_first_day_to_the_end(keys: PublicKeys, day: date) -> None:
    assert (keys.state_on(day) is KeyState.VALID) == (keys.first_day <= day < keys.end_day)
    assert keys.state_on(day, {keys.id}) is KeyState.REVOKED


def test_node_signs_with_its_first_valid_keys() -> None:
    current = private_keys(1, FIRST, END).public
    following = private_keys(2, END - timedelta(days=30), END + timedelta(days=700)).public
    both = NodeIdentity((current, following))
    assert both.valid_on(FIRST) == (current,)
    assert both.valid_on(END - timedelta(days=1)) == (current, following)
    assert both.valid_on(END) == (following,)
    assert NodeIdentity((current, following), frozenset({current.id})).valid_on(FIRST) == ()
    assert both.states_on(FIRST) == (KeyState.VALID, KeyState.EARLY)


def test_keys_of_low_order_are_those_that_share_no_secret() -> None:
    own = X25519PrivateKey.generate()
    for number in (*LOW_ORDER, *(one + (1 << 255) for one in LOW_ORDER)):
        octets = number.to_bytes(32, "little")
        with pytest.raises(ValueError, match=r"[Ee]rror|shared"):
            own.exchange(X25519PublicKey.from_public_bytes(octets))
        weak = attrs.evolve(private_keys().public, x25519=octets)
        with pytest.raises(UnitError, match="has low order") as caught:
            parse_line(weak.line)
        assert "pgm keys new" in caught.value.remedy
    for number in (2, 9, 1 << 254):
        fine = attrs.evolve(private_keys().public, x25519=number.to_bytes(32, "little"))
        assert parse_line(fine.line) == fine
