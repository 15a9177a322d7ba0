"""Private keys: they sign and agree, and their octets appear in no text but that of their file."""

from __future__ import annotations

import base64
import copy
import pickle

import attrs
import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st

from pgm.errors import KeyRefused
from pgm.trust.private_keys import PrivateFile, PrivateKeys, parse_private_file
from tests.unit.trust.keys import END, FIRST, private_keys

secrets = st.binary(min_size=64, max_size=64)


def spellings(secret: bytes) -> list[str]:
    """Return the spellings in which the octets of a key could leak."""
    halves = (secret[:32], secret[32:], secret)
    texts = [spell(half) for half in halves for spell in (repr, bytes.hex, lambda one: str(list(one)))]
    return [*texts, *(base64.b64encode(half)[:40].decode() for half in halves)]


@given(secrets)
def test_file_of_keys_is_read_as_written(secret: bytes) -> None:
    keys = PrivateKeys.of_secret(secret, FIRST, END)
    read = parse_private_file(PrivateFile("tree", "exchange", keys).text().encode(), "a.key")
    assert (read.tree, read.node, read.keys.public) == ("tree", "exchange", keys.public)
    assert read.keys.secret_octets() == secret


@given(secrets)
def test_octets_of_keys_show_in_no_text(secret: bytes) -> None:
    keys = PrivateKeys.of_secret(secret, FIRST, END)
    file = PrivateFile("tree", "exchange", keys)
    texts = [repr(keys), str(keys), f"{keys}", repr(file), repr(attrs.asdict(file)), str(attrs.astuple(file))]
    text = "".join(texts)
    assert [one for one in spellings(secret) if one in text] == []
    assert repr(keys.public.ed25519) in text


@given(secrets, st.integers(0, 10_000), st.integers(1, 255))
def test_damaged_file_is_refused_without_its_octets(secret: bytes, at: int, change: int) -> None:
    keys = PrivateKeys.of_secret(secret, FIRST, END)
    octets = bytearray(PrivateFile("tree", "exchange", keys).text().encode())
    at %= len(octets)
    octets[at] ^= change
    try:
        read = parse_private_file(bytes(octets), "a.key")
    except KeyRefused as error:
        refused = error
    else:
        assert read.keys.secret_octets() == secret  # names and days are not covered by the id
        return
    assert refused.message.startswith("a.key ")
    assert refused.remedy
    assert [one for one in spellings(secret) if one in str(refused)] == []
    assert refused.__cause__ is None


@pytest.mark.parametrize("octets", [b"", b"pgm private keys 1\n", b"\xff" * 40, b"-----BEGIN PRIVATE KEY-----\n"])
def test_other_file_is_refused(octets: bytes) -> None:
    with pytest.raises(KeyRefused, match=r"a\.key is not a file of private keys"):
        parse_private_file(octets, "a.key")


def test_keys_are_neither_pickled_nor_copied() -> None:
    keys = private_keys()
    for leave in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="never pickled or copied"):
            leave(keys)


def test_signature_is_that_of_the_public_key() -> None:
    keys = private_keys()
    public = Ed25519PublicKey.from_public_bytes(keys.public.ed25519)
    public.verify(keys.sign(b"text"), b"text")
    with pytest.raises(InvalidSignature):
        public.verify(keys.sign(b"text"), b"other")


def test_two_nodes_agree_on_one_secret() -> None:
    one, other = private_keys(1), private_keys(2)
    assert one.agree(other.public.x25519) == other.agree(one.public.x25519)
    with pytest.raises(ValueError, match="rror"):
        one.agree(bytes(32))


def test_keys_of_too_few_octets_are_refused() -> None:
    with pytest.raises(ValueError, match="32 octets in place of 64"):
        PrivateKeys.of_secret(bytes(32), FIRST, END)
