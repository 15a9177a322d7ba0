"""Codes of control packets: each is taken once, in its direction, from its sender, and near its time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgm.trust.control_macs import MAC_OCTETS, MacReceiver, MacSender, keys_between
from pgm.units import SECOND
from tests.unit.trust import independent
from tests.unit.trust.keys import private_keys
from tests.unit.trust.test_private_keys import spellings

CHILD, PARENT, STRANGER = private_keys(1), private_keys(2), private_keys(3)
NOW = 1_800_000_000 * SECOND
UP, DOWN = keys_between(CHILD, PARENT.public)


def receiver(most: int = 256, floor: int = NOW - SECOND) -> MacReceiver:
    return MacReceiver(UP, 5 * SECOND, floor, most)


def test_both_nodes_have_the_keys_of_both_directions() -> None:
    assert keys_between(PARENT, CHILD.public) == (DOWN, UP)
    assert UP != DOWN
    assert keys_between(STRANGER, PARENT.public)[0] != UP


@given(st.binary(max_size=100), st.integers(0, 2**63))
def test_code_is_that_of_the_independent_program(covered: bytes, now_ns: int) -> None:
    code = MacSender(UP).code(covered, now_ns)
    secret = CHILD.secret_octets()[32:]
    assert code == independent.control_code(secret, CHILD.public.line, PARENT.public.line, max(now_ns, 1), covered)
    assert len(code) == MAC_OCTETS


def test_packet_is_taken_once() -> None:
    one, sender = receiver(), MacSender(UP)
    codes = [sender.code(b"nak", NOW) for _ in range(3)]
    assert len(set(codes)) == 3
    assert [one.take_untrusted(code, b"nak", NOW) for code in (*codes, *codes)] == [True] * 3 + [False] * 3


@given(st.data())
def test_changed_packet_is_refused_and_leaves_no_state(data: st.DataObject) -> None:
    one, covered = receiver(), data.draw(st.binary(min_size=1, max_size=40))
    code = bytearray(MacSender(UP).code(covered, NOW))
    at = data.draw(st.integers(0, len(code) + len(covered) - 1))
    octets = bytearray(code + covered)
    octets[at] ^= data.draw(st.integers(1, 255))
    assert not one.take_untrusted(bytes(octets[:MAC_OCTETS]), bytes(octets[MAC_OCTETS:]), NOW)
    assert not one.take_untrusted(bytes(code[:-1]), covered, NOW)
    assert one.take_untrusted(bytes(code), covered, NOW)


def test_packet_of_the_other_direction_is_refused() -> None:
    assert not receiver().take_untrusted(MacSender(DOWN).code(b"ncf", NOW), b"ncf", NOW)


@pytest.mark.parametrize(
    ("delay", "is_taken"), [(0, True), (5 * SECOND, True), (5 * SECOND + 1, False), (-5 * SECOND - 1, False)]
)
def test_packet_far_from_its_time_is_refused(delay: int, is_taken: bool) -> None:
    code = MacSender(UP).code(b"nak", NOW)
    assert receiver().take_untrusted(code, b"nak", NOW + delay) == is_taken


def test_packet_from_before_a_restart_is_refused() -> None:
    code = MacSender(UP).code(b"nak", NOW)
    assert receiver().take_untrusted(code, b"nak", NOW)
    assert not receiver(floor=NOW + SECOND).take_untrusted(code, b"nak", NOW + SECOND)


@given(st.permutations(range(40)), st.integers(1, 50))
def test_reordered_packets_are_taken_at_most_once(order: list[int], most: int) -> None:
    one, sender = receiver(most), MacSender(UP)
    codes = [sender.code(b"", NOW + number) for number in range(40)]
    first = [number for number in order if one.take_untrusted(codes[number], b"", NOW)]
    assert not [number for number in order if one.take_untrusted(codes[number], b"", NOW)]
    assert len(first) == 40 or most < 40
    in_order = receiver(most)
    assert all(in_order.take_untrusted(code, b"", NOW) for code in codes)


def test_keys_of_codes_do_not_show() -> None:
    text = repr(MacSender(UP)) + repr(receiver())
    assert [word for word in spellings(UP + UP) if word in text] == []


def test_weak_key_of_another_node_is_refused() -> None:
    import attrs

    with pytest.raises(ValueError, match="rror"):
        keys_between(CHILD, attrs.evolve(PARENT.public, x25519=bytes(32)))
