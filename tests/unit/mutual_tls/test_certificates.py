"""Certificates of nodes are those of docs/guide/security.md, by `cryptography` alone."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from pgm.mutual_tls.certificates import authorities_of, certificate_for
from tests.unit.mutual_tls.parties import END, FIRST, keys

NOW = datetime.combine(FIRST, time(12), UTC)


def test_certificate_is_that_of_the_page() -> None:
    own = keys(1).public
    made = certificate_for(keys(1), NOW, timedelta(days=1))
    read = x509.load_pem_x509_certificate(made.pem)
    Ed25519PublicKey.from_public_bytes(own.ed25519).verify(read.signature, read.tbs_certificate_bytes)
    assert read.issuer.rfc4514_string() == read.subject.rfc4514_string() == f"CN={own.id}"
    names = read.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [f"{own.id}.pgm.internal", "any.pgm.internal"]
    key = read.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    assert isinstance(key.curve, ec.SECP256R1)
    assert (read.not_valid_before_utc, read.not_valid_after_utc) == (NOW - timedelta(hours=1), NOW + timedelta(days=1))
    assert not read.tbs_certificate_bytes.startswith(b"pgm"), "no other signed message is a certificate"


def test_certificate_ends_with_the_keys() -> None:
    last = datetime.combine(END, time(), UTC) - timedelta(seconds=1)
    for lifetime in (None, timedelta(days=100_000)):
        assert certificate_for(keys(1), NOW, lifetime).end == last
    assert "PRIVATE" not in repr(certificate_for(keys(1), NOW, None))


def test_each_list_of_authorities_has_a_root_of_its_own() -> None:
    lists = [x509.load_pem_x509_certificates(authorities_of([keys(1).public])) for _ in range(2)]
    (first, authority), (second, _) = lists
    assert first.subject != second.subject
    assert first.public_key() != second.public_key()
    authority.verify_directly_issued_by(first)
    limits = authority.extensions.get_extension_for_class(x509.BasicConstraints).value
    assert (limits.ca, limits.path_length) == (True, 0)
