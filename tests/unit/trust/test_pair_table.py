"""Codes between nodes: a node is its address and its keys together, on the days of the keys, and each packet counts once."""

from __future__ import annotations

from datetime import date

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgm.trust.pair_table import PairTable
from pgm.trust.private_keys import PrivateKeys
from pgm.trust.public_keys import PublicKeys
from pgm.units import SECOND
from tests.unit.trust.keys import private_keys

CHILD, OTHER, PARENT, NEXT = (private_keys(number) for number in (1, 2, 3, 4))
FILE = {"10.0.0.1": (CHILD.public,), "10.0.0.2": (OTHER.public,), "10.0.0.3": (PARENT.public,)}
NOW = 1_790_000_000 * SECOND
DAY = 86_400 * SECOND
WINDOW = 5 * SECOND


def table(*own: PrivateKeys, known: dict[str, tuple[PublicKeys, ...]] = FILE) -> PairTable:
    return PairTable(own, known, WINDOW, NOW - DAY, own[0].public.ed25519)


def code(sender: PrivateKeys, to: str = "10.0.0.3", covered: bytes = b"nak", now_ns: int = NOW) -> bytes:
    made = table(sender).make(to, covered, now_ns)
    assert made is not None
    return made


def test_request_is_taken_once_from_its_sender_alone() -> None:
    parent, made = table(PARENT), code(CHILD)
    assert not parent.check_untrusted("10.0.0.2", made, b"nak", NOW)  # the address of another node
    assert not parent.check_untrusted("10.9.9.9", made, b"nak", NOW)
    assert not parent.check_untrusted("10.0.0.1", made, b"other", NOW)
    assert not table(OTHER).check_untrusted("10.0.0.1", made, b"nak", NOW)  # a code for another node
    assert parent.check_untrusted("10.0.0.1", made, b"nak", NOW)
    assert not parent.check_untrusted("10.0.0.1", made, b"nak", NOW)


def test_member_cannot_speak_for_another_one() -> None:
    parent, made = table(PARENT), code(OTHER)
    assert not parent.check_untrusted("10.0.0.1", made, b"nak", NOW)
    assert not parent.check_untrusted("10.0.0.1", CHILD.public.id_octets + made[10:], b"nak", NOW)
    assert not parent.check_untrusted("10.0.0.2", CHILD.public.id_octets + made[10:], b"nak", NOW)


@given(st.binary(max_size=60))
def test_random_codes_are_refused(made: bytes) -> None:
    assert not table(PARENT).check_untrusted("10.0.0.1", made, b"nak", NOW)
    assert not table(PARENT).check_untrusted("10.0.0.1", CHILD.public.id_octets + made, b"nak", NOW)


def test_rotation_needs_no_common_instant() -> None:
    """A node with two keys makes codes with the first, and takes codes for both."""
    file = FILE | {"10.0.0.3": (PARENT.public, NEXT.public)}
    both, finished = table(PARENT, NEXT, known=file), FILE | {"10.0.0.3": (NEXT.public,)}
    for number, known in enumerate((FILE, file, finished)):
        made = table(CHILD, known=known).make("10.0.0.3", b"nak", NOW + number)
        assert made is not None
        assert both.check_untrusted("10.0.0.1", made, b"nak", NOW)
    answer = both.make("10.0.0.1", b"answer", NOW)
    assert answer is not None
    assert table(CHILD, known=file).check_untrusted("10.0.0.3", answer, b"answer", NOW)


def test_keys_count_on_their_days() -> None:
    short = private_keys(5, date(2026, 9, 1), date(2026, 9, 10))
    known = {"10.0.0.5": (short.public,)}
    first = 1_788_220_800 * SECOND  # 2026-09-01
    for now_ns, is_valid in ((first - 1, False), (first, True), (first + 9 * DAY - 1, True), (first + 9 * DAY, False)):
        assert (PairTable([PARENT], known, WINDOW, 0, bytes(32)).make("10.0.0.5", b"", now_ns) is not None) == is_valid
        made = PairTable([short], FILE, WINDOW, 0, bytes(32)).make("10.0.0.3", b"nak", now_ns)
        assert made is not None
        parent = PairTable([PARENT], known, WINDOW, 0, bytes(32))
        assert parent.check_untrusted("10.0.0.5", made, b"nak", now_ns) == is_valid


@pytest.mark.parametrize(("late", "is_taken"), [(WINDOW, True), (WINDOW + 1, False), (-WINDOW - 1, False)])
def test_clocks_must_agree(late: int, is_taken: bool) -> None:
    assert table(PARENT).check_untrusted("10.0.0.1", code(CHILD), b"nak", NOW + late) == is_taken


def test_weak_keys_of_the_file_are_never_used() -> None:
    weak = attrs.evolve(CHILD.public, x25519=bytes(32))
    one = table(PARENT, known={"10.0.0.1": (weak,)})
    assert one.make("10.0.0.1", b"", NOW) is None
    assert not one.check_untrusted("10.0.0.1", weak.id_octets + bytes(24), b"", NOW)
    assert one.make("10.0.0.9", b"", NOW) is None


def test_answers_for_all_are_taken_once_with_their_key() -> None:
    child, parent, other = table(CHILD), table(PARENT), table(OTHER)
    said = parent.make_for_all(b"ncf", NOW)
    assert not child.check_for_all_untrusted("10.0.0.3", said, b"ncf", NOW)
    assert child.lacks_segment_key("10.0.0.3", said)
    assert not child.lacks_segment_key("10.9.9.9", said)
    content = parent.segment_key_for("10.0.0.1", NOW)
    assert content is not None
    assert not other.take_segment_key_untrusted("10.0.0.3", code(PARENT, "10.0.0.2"), content)  # for another node
    given = parent.make("10.0.0.1", b"key", NOW)
    assert given is not None
    assert child.check_untrusted("10.0.0.3", given, b"key", NOW)
    assert child.take_segment_key_untrusted("10.0.0.3", given, content)
    assert not child.lacks_segment_key("10.0.0.3", said)
    assert not child.check_for_all_untrusted("10.0.0.2", said, b"ncf", NOW)
    assert not child.check_for_all_untrusted("10.0.0.3", said, b"rdata", NOW)
    assert child.check_for_all_untrusted("10.0.0.3", said, b"ncf", NOW)
    assert not child.take_segment_key_untrusted("10.0.0.3", given, content)
    assert not child.check_for_all_untrusted("10.0.0.3", said, b"ncf", NOW)


@given(st.binary(max_size=60))
def test_random_segment_keys_are_refused(content: bytes) -> None:
    child, given = table(CHILD), code(PARENT, "10.0.0.1")
    assert child.check_untrusted("10.0.0.3", given, b"nak", NOW)
    assert not child.take_segment_key_untrusted("10.0.0.3", given, content)


def test_segment_keys_of_an_address_are_bounded() -> None:
    """A node has many processes in its life; the newest of them are known."""
    child, lives = table(CHILD), 70
    said = []
    for number in range(lives):
        parent = PairTable([PARENT], FILE, WINDOW, 0, bytes([number]) * 32)
        given, content = parent.make("10.0.0.1", b"", NOW + number), parent.segment_key_for("10.0.0.1", NOW)
        assert given is not None
        assert content is not None
        assert child.check_untrusted("10.0.0.3", given, b"", NOW)
        assert child.take_segment_key_untrusted("10.0.0.3", given, content)
        said.append(parent.make_for_all(b"ncf", NOW + number))
    assert [child.lacks_segment_key("10.0.0.3", one) for one in said] == [True] * 6 + [False] * 64


def test_segment_key_does_not_show() -> None:
    parent = table(PARENT)
    content = parent.segment_key_for("10.0.0.1", NOW)
    assert content is not None
    assert PARENT.public.ed25519 not in content  # the segment key of the test
    assert PARENT.public.ed25519.hex() not in repr(parent)
