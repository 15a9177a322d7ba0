"""Key records: RFC 9180 by its own vector and by `cryptography`, one secret for each member, and no record moved."""

from __future__ import annotations

import attrs
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from pgm.trust.blocks import SignedSession
from pgm.trust.hpke import Sealer, open_untrusted
from pgm.trust.key_records import MOST_MEMBERS, SecretHead, records_for, verify_records_untrusted
from pgm.trust.sealing import SealTerms
from tests.unit.trust import independent
from tests.unit.trust.keys import private_keys

SOURCE, MEMBERS, STRANGER = private_keys(1), [private_keys(number) for number in range(2, 8)], private_keys(9)
HEAD = SecretHead(SOURCE.public.id, SealTerms(SignedSession(bytes(range(8)), 7), 3, 86), 1_000)
SECRET, ONCE = bytes(range(32)), bytes(range(32, 64))
OCTETS = records_for(HEAD, SECRET, [keys.public for keys in MEMBERS], ONCE, SOURCE)


def test_first_message_is_that_of_the_rfc() -> None:
    """RFC 9180, appendix A.1.1: base mode, the first encryption without associated data is that of sqn 0 elsewhere."""
    info = bytes.fromhex("4f6465206f6e2061204772656369616e2055726e")
    once = bytes.fromhex("52c4a758a802cd8b936eceea314432798d5baf2d7e9235dc084ab1b9cfa2f736")
    private = bytes.fromhex("4612c550263fc8ad58375df3f557aac531d26850903e55a9f23f21d8534e8ac8")
    public = X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()
    sealer = Sealer(once, info)
    assert sealer.enc.hex() == "37fda3567bdbd628e88668c3c8d7e97d1d1253b6d4ea6d44c150f741f1bf4431"
    assert independent.hpke_key(once, public, info) == (
        bytes.fromhex("4531685d41d65f03dc48f6b8302c05b0"),
        bytes.fromhex("56d890e5accaaf011cff4b7d"),
    )
    assert independent.hpke_opened(private, sealer.enc, sealer.seal(public, b"text"), info) == b"text"


@given(st.binary(min_size=32, max_size=32), st.binary(max_size=40), st.binary(max_size=40))
@settings(max_examples=30)
def test_sealed_message_opens_for_its_member_alone(once: bytes, info: bytes, message: bytes) -> None:
    hpke = pytest.importorskip("cryptography.hazmat.primitives.hpke")
    suite = hpke.Suite(hpke.KEM.X25519, hpke.KDF.HKDF_SHA256, hpke.AEAD.AES_128_GCM)
    sealer = Sealer(once, info)
    for keys in MEMBERS[:2]:
        sealed = sealer.seal(keys.public.x25519, message)
        private = X25519PrivateKey.from_private_bytes(keys.secret_octets()[32:])
        assert suite.decrypt(sealer.enc + sealed, private, info) == message
        assert open_untrusted(keys, sealer.enc, sealed, info) == message
        assert open_untrusted(STRANGER, sealer.enc, sealed, info) is None
        assert open_untrusted(keys, sealer.enc, sealed, info + b"x") is None


def test_each_member_gets_the_secret_and_a_stranger_does_not() -> None:
    records = verify_records_untrusted(OCTETS, SOURCE.public)
    assert records is not None
    assert records.head == HEAD
    assert [records.secret_for_untrusted(keys) for keys in MEMBERS] == [SECRET] * len(MEMBERS)
    assert records.secret_for_untrusted(STRANGER) is None
    assert SECRET not in OCTETS


def test_independent_program_opens_the_records() -> None:
    for keys in MEMBERS:
        private = keys.secret_octets()[32:]
        assert independent.secret_of_records(OCTETS, SOURCE.public.line, keys.public.id, private) == SECRET


@given(st.data())
def test_changed_cut_or_longer_records_are_refused(data: st.DataObject) -> None:
    octets = bytearray(OCTETS)
    octets[data.draw(st.integers(0, len(octets) - 1))] ^= data.draw(st.integers(1, 255))
    cut = OCTETS[: data.draw(st.integers(0, len(OCTETS) - 1))]
    for changed in (bytes(octets), cut, OCTETS + b"x", data.draw(st.binary(max_size=300))):
        assert verify_records_untrusted(changed, SOURCE.public) is None


def test_records_of_other_keys_are_refused() -> None:
    assert verify_records_untrusted(OCTETS, STRANGER.public) is None
    forged = records_for(HEAD, SECRET, [MEMBERS[0].public], ONCE, STRANGER)
    assert verify_records_untrusted(forged, SOURCE.public) is None


def test_record_of_another_generation_does_not_open() -> None:
    """The source signs a message whose record was made for another generation, as a wrong merge would be."""
    records = verify_records_untrusted(OCTETS, SOURCE.public)
    assert records is not None
    terms = attrs.evolve(HEAD.terms, generation=4)
    moved = attrs.evolve(records, head=attrs.evolve(HEAD, terms=terms))
    assert moved.secret_for_untrusted(MEMBERS[0]) is None


def test_wrong_members_are_refused() -> None:
    one = MEMBERS[0].public
    weak = attrs.evolve(one, x25519=bytes(32))
    for members in ([], [one, one], [one] * (MOST_MEMBERS + 1), [weak]):
        with pytest.raises(ValueError, match=r"members|rror"):
            records_for(HEAD, SECRET, members, ONCE, SOURCE)
