"""Sealed payloads: each packet decrypts alone, no key stream is used twice, and the key shows nowhere."""

from __future__ import annotations

import copy
import pickle

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgm.trust.blocks import SignedSession
from pgm.trust.sealing import PayloadCipher, SealTerms
from tests.unit.trust import independent
from tests.unit.trust.test_private_keys import spellings

SESSION = SignedSession(bytes(range(8)), 1_767_225_600_000_000_000)
SECRET = bytes(range(32))
sqns = st.one_of(st.integers(0, 2**63 - 100), st.sampled_from([0, 2**32 - 1, 2**63 - 100]))


def cipher(octets: int = 40, generation: int = 1, session: SignedSession = SESSION) -> PayloadCipher:
    return PayloadCipher(SECRET, SealTerms.for_payload(session, generation, octets))


def payloads_of(count: int, length: int, octets: bytes = b"") -> np.ndarray:
    return np.frombuffer((octets * count * length)[: count * length].ljust(count * length, b"\0"), np.uint8).reshape(
        count, length
    )


@given(sqns, st.integers(1, 40), st.integers(0, 40), st.binary(min_size=1, max_size=60))
def test_train_is_sealed_as_its_packets_are(first: int, count: int, length: int, octets: bytes) -> None:
    payloads = payloads_of(count, length, octets)
    sealed = cipher().applied(first, payloads)
    assert np.array_equal(cipher().applied(first, sealed), payloads)
    for row in range(count):
        alone = cipher().applied(first + row, payloads[row : row + 1])
        assert alone.tobytes() == sealed[row].tobytes()
    program = independent.sealed(SECRET, SESSION.tsi, SESSION.epoch, 1, 3, first, payloads[0].tobytes())
    assert sealed[0].tobytes() == program


@pytest.mark.parametrize("length", [1400, 1395])
def test_train_longer_than_the_scratch_is_sealed_in_place_as_packets(length: int) -> None:
    payloads = np.arange(150 * length, dtype=np.uint32).astype(np.uint8).reshape(150, length)
    sealed = payloads.copy()
    own = cipher(1400)
    own.apply(2**32 - 70, sealed, sealed)
    for row in range(150):
        assert np.array_equal(own.applied(2**32 - 70 + row, payloads[row : row + 1])[0], sealed[row])


def test_key_stream_of_no_two_packets_overlaps() -> None:
    blocks = cipher().applied(5, payloads_of(400, 48)).reshape(-1, 16)
    assert len({block.tobytes() for block in blocks}) == 1200


def test_other_terms_give_other_key_streams() -> None:
    payloads = payloads_of(2, 40)
    other = attrs.evolve(SESSION, epoch=SESSION.epoch + 1)
    ciphers = [cipher(), cipher(generation=2), cipher(session=other), cipher(octets=60)]
    ciphers.append(cipher(session=attrs.evolve(SESSION, tsi=bytes(8))))
    assert len({one.applied(0, payloads).tobytes() for one in ciphers}) == 5


def test_payload_beyond_the_terms_is_refused() -> None:
    with pytest.raises(ValueError, match="a payload of 49 octets is longer than 48"):
        cipher().applied(0, payloads_of(1, 49))
    for secret, blocks in ((bytes(31), 3), (SECRET, 0), (SECRET, 1 << 16)):
        with pytest.raises(ValueError, match="octets of a secret"):
            PayloadCipher(secret, SealTerms(SESSION, 1, blocks))


def test_cipher_shows_no_secret_and_leaves_no_copy() -> None:
    one = cipher()
    assert [word for word in spellings(SECRET + SECRET) if word in repr(one) + str(one)] == []
    for leave in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="never pickled or copied"):
            leave(one)
