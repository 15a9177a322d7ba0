"""Certificates that nodes make for themselves, and the authorities that a process makes of the public keys of others.

A node signs a certificate for a fresh P-256 key with its Ed25519 key. Each process trusts its own list of authorities: for
each public key of the topology file a certificate of an authority, below a root whose private key is dropped at once. Thus the
libraries of TLS check the whole chain, and no callback is needed. Python's `ssl` and gRPC have none for that.

The authority of keys may sign for the names of the keys alone. All other kinds of names are bound as well: gRPC tells an
application the first name of a certificate whatever its kind is.
"""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta

import attrs
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from pgm.mutual_tls.names import SHARED_NAME, name_of_keys
from pgm.trust.private_keys import PrivateKeys
from pgm.trust.public_keys import PublicKeys

CLOCK_SKEW = timedelta(hours=1)  # by which the clock of another host may be late
_NO_HOST = "none.invalid"
_NO_NETWORK = ipaddress.ip_network("0.0.0.0/32")
_ALWAYS = (datetime(2000, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC))


@attrs.frozen(eq=False)
class Certificate:
    """Certificate of a node as PEM, with its private key. The key is neither printed nor on disk in the clear."""

    pem: bytes
    end: datetime
    _key: ec.EllipticCurvePrivateKey = attrs.field(repr=False)

    def private_pem(self, password: bytes | None = None) -> bytes:
        """Return the private key as PEM, encrypted if there is a password."""
        by: KeySerializationEncryption = NoEncryption() if password is None else BestAvailableEncryption(password)
        return self._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, by)


def certificate_for(keys: PrivateKeys, now: datetime, lifetime: timedelta | None) -> Certificate:
    """Make a certificate by the keys of a node. Without a lifetime it ends with the keys."""
    first, last = _days_of(keys.public)
    end = last if lifetime is None else min(last, now + lifetime)
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(keys.public.id)
    names = [x509.DNSName(name_of_keys(keys.public.id)), x509.DNSName(SHARED_NAME)]
    purposes = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
    builder = (
        _builder(name, name, (max(first, now - CLOCK_SKEW), end))
        .public_key(key.public_key())
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
    )
    return Certificate(keys.sign_certificate(builder).public_bytes(Encoding.PEM), end, key)


def authorities_of(keys: Iterable[PublicKeys]) -> bytes:
    """Return the certificates of authorities for some keys and their root, as PEM.

    Each call makes a root of its own. A common root would let a certificate from one list count in another one, since
    servers send their authority with their certificate.
    """
    root_key = ec.generate_private_key(ec.SECP256R1())
    root = _name(f"root {secrets.token_hex(8)}")
    lines = [
        _builder(root, root, _ALWAYS)
        .public_key(root_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=1), critical=True)
        .sign(root_key, hashes.SHA256())
    ]
    for one in keys:
        first, last = _days_of(one)
        if first > last:  # the keys ended before certificates can begin
            continue
        lines.append(
            _builder(_name(one.id), root, (first, last))
            .public_key(ed25519.Ed25519PublicKey.from_public_bytes(one.ed25519))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(x509.NameConstraints(_names_under(one.id), None), critical=True)
            .sign(root_key, hashes.SHA256())
        )
    return b"".join(line.public_bytes(Encoding.PEM) for line in lines)


def _names_under(key_id: str) -> Sequence[x509.GeneralName]:
    """Return the only permitted name of each kind."""
    return [
        x509.DNSName(name_of_keys(key_id)),
        x509.DNSName(SHARED_NAME),
        x509.DirectoryName(_name(key_id)),
        x509.RFC822Name(_NO_HOST),
        x509.UniformResourceIdentifier(_NO_HOST),
        x509.IPAddress(_NO_NETWORK),
    ]


def _builder(subject: x509.Name, issuer: x509.Name, times: tuple[datetime, datetime]) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer)
    return builder.serial_number(x509.random_serial_number()).not_valid_before(times[0]).not_valid_after(times[1])


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _days_of(keys: PublicKeys) -> tuple[datetime, datetime]:
    """Return the first and the last second of validity."""
    return max(_midnight(keys.first_day), _ALWAYS[0]), _midnight(keys.end_day) - timedelta(seconds=1)


def _midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)
