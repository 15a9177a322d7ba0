"""Private keys of a node, and the text of their file. The octets of a key never show in a text of this module's errors.

The module needs `cryptography`, of the extra `[trust]`.
"""

from __future__ import annotations

import base64
import binascii
import re
from datetime import date
from typing import NoReturn

import attrs
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.x509 import Certificate, CertificateBuilder

from pgm.errors import KeyRefused, UnitError
from pgm.trust.public_keys import KEY_OCTETS, PublicKeys, parse_line

SECRET_OCTETS = 2 * KEY_OCTETS  # random octets of which keys are made
MOST_OCTETS = 4096  # of a private file

_FILE = re.compile(
    r"pgm private keys 1\n# Keep this file secret: it never leaves its host\.\n"
    r"tree = (?P<tree>[^\n]+)\nnode = (?P<node>[^\n]+)\npublic = (?P<public>[^\n]+)\nprivate = (?P<private>[^\n]+)\n"
)
_REMEDY = "make new keys with: pgm keys rotate, and revoke these"


@attrs.frozen(eq=False)
class PrivateKeys:
    """Private Ed25519 key and X25519 key of a node. The object is neither printed nor pickled."""

    public: PublicKeys
    _signing: Ed25519PrivateKey = attrs.field(repr=False)
    _agreeing: X25519PrivateKey = attrs.field(repr=False)

    @classmethod
    def of_secret(cls, secret: bytes, first_day: date, end_day: date) -> PrivateKeys:
        """Make keys of 64 random octets. Raises `ValueError` for another number of octets."""
        if len(secret) != SECRET_OCTETS:
            raise ValueError(f"{len(secret)} octets in place of {SECRET_OCTETS}")
        signing = Ed25519PrivateKey.from_private_bytes(secret[:KEY_OCTETS])
        agreeing = X25519PrivateKey.from_private_bytes(secret[KEY_OCTETS:])
        public = PublicKeys(
            signing.public_key().public_bytes_raw(), agreeing.public_key().public_bytes_raw(), first_day, end_day
        )
        return cls(public, signing, agreeing)

    def sign(self, message: bytes) -> bytes:
        """Return the Ed25519 signature of a message, 64 octets."""
        return self._signing.sign(message)

    def sign_certificate(self, builder: CertificateBuilder) -> Certificate:
        """Return an X.509 certificate (RFC 8410) with the Ed25519 signature. No other signed message begins like one."""
        return builder.sign(self._signing, None)

    def agree(self, x25519: bytes) -> bytes:
        """Return the secret shared with the owner of an X25519 key. Raises `ValueError` for a key of low order."""
        return self._agreeing.exchange(X25519PublicKey.from_public_bytes(x25519))

    def secret_octets(self) -> bytes:
        """Return the octets of both keys, for their file alone."""
        return self._signing.private_bytes_raw() + self._agreeing.private_bytes_raw()

    def __reduce__(self) -> NoReturn:
        raise TypeError("private keys are never pickled or copied")


@attrs.frozen(eq=False)
class PrivateFile:
    """Content of a private file: the names of tree and node, and the keys."""

    tree: str
    node: str
    keys: PrivateKeys

    def text(self) -> str:
        """Return the text of the file."""
        secret = base64.b64encode(self.keys.secret_octets()).decode()
        return (
            "pgm private keys 1\n# Keep this file secret: it never leaves its host.\n"
            f"tree = {self.tree}\nnode = {self.node}\npublic = {self.keys.public.line}\nprivate = {secret}\n"
        )


def parse_private_file(octets: bytes, path: str) -> PrivateFile:
    """Read the octets of a private file. Errors name `path`, and no octets of the file. Raises `KeyRefused`."""
    try:
        match = _FILE.fullmatch(octets.decode("ascii"))
    except UnicodeDecodeError:
        match = None
    if match is None:
        raise KeyRefused(f"{path} is not a file of private keys", remedy=_REMEDY)
    try:
        public = parse_line(match["public"])
        secret = base64.b64decode(match["private"], validate=True)
        keys = PrivateKeys.of_secret(secret, public.first_day, public.end_day)
    except (UnitError, binascii.Error, ValueError):
        raise KeyRefused(f"{path} is damaged", remedy=_REMEDY) from None
    if keys.public != public:
        raise KeyRefused(f"{path} has private keys of other public keys than {public.id}", remedy=_REMEDY)
    return PrivateFile(match["tree"], match["node"], keys)
