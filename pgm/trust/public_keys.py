"""Public keys of a node, and their line in the topology file. The module needs no package beyond the standard library.

A line has five words: `pgm1`, the id of the keys, the first day, the end day, and 64 octets in base64. The octets are the
Ed25519 key (RFC 8032) and the X25519 key (RFC 7748). The id is a hash of the octets, so it reveals a damaged line.
"""

from __future__ import annotations

import base64
import binascii
import enum
import functools
import hashlib
import re
from collections.abc import Collection
from datetime import date

import attrs

from pgm.errors import UnitError

KEY_OCTETS = 32  # of each of the two keys
FORMAT = "pgm1"
EXAMPLE = "pgm1 ID FIRST_DAY END_DAY KEYS"

_DOMAIN = b"pgm public keys 1\0"
_ID_OCTETS = 10  # 80 bits: another pair of keys with a given id takes 2^80 attempts
_ID = re.compile(r"[a-z2-7]{16}")
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_REMEDY = "paste the line that `pgm keys show` prints on the node's host"
_MOST_KEPT = 64  # ids that are kept in both forms: each proof and key record has one
# X25519 keys of low order (RFC 7748, section 6.1): the secret shared with them is known to everybody. Their highest bit
# does not count.
_PRIME = (1 << 255) - 19
_LOW_ORDER = frozenset(
    (
        0,
        1,
        325606250916557431795983626356110631294008115727848805560023387167927233504,
        39382357235489614581723060781553021112529911719440698176882885853963445705823,
        _PRIME - 1,
        _PRIME,
        _PRIME + 1,
    )
)
_MOST_SHOWN = 40  # characters of a wrong word in a message


class KeyState(enum.Enum):
    """Judgement of public keys on a day."""

    VALID = "valid"
    EARLY = "not yet valid"
    EXPIRED = "expired"
    REVOKED = "revoked"


def is_key_id(text: str) -> bool:
    """Return whether a text has the form of an id of keys: 16 characters of base32 in lower case."""
    return _ID.fullmatch(text) is not None


@functools.lru_cache(_MOST_KEPT)
def text_of_key_id(octets: bytes) -> str:
    """Return an id of keys in base32."""
    return base64.b32encode(octets).decode().lower()


@functools.lru_cache(_MOST_KEPT)
def octets_of_key_id(text: str) -> bytes:
    """Return an id of keys as octets. Raises `ValueError` for a text that is not base32."""
    return base64.b32decode(text.upper())


@functools.lru_cache(_MOST_KEPT)
def _id_octets_of(ed25519: bytes, x25519: bytes) -> bytes:
    return hashlib.sha256(_DOMAIN + ed25519 + x25519).digest()[:_ID_OCTETS]


@attrs.frozen
class PublicKeys:
    """Ed25519 key and X25519 key of a node, with the days of their validity.

    The keys are valid from the begin of `first_day` to the begin of `end_day`, both in UTC.
    """

    ed25519: bytes
    x25519: bytes
    first_day: date
    end_day: date

    @property
    def id_octets(self) -> bytes:
        """Return the id as 10 octets: 80 bits of a SHA-256 of both keys."""
        return _id_octets_of(self.ed25519, self.x25519)

    @property
    def id(self) -> str:
        """Return the id in base32."""
        return text_of_key_id(self.id_octets)

    @property
    def line(self) -> str:
        """Return the line for the topology file."""
        return f"{FORMAT} {self.id} {self.first_day} {self.end_day} {_encode(self.ed25519 + self.x25519)}"

    @property
    def is_weak(self) -> bool:
        """Return whether everybody knows the secrets that others share with the X25519 key."""
        return int.from_bytes(self.x25519, "little") % (1 << 255) in _LOW_ORDER

    def state_on(self, day: date, revoked: Collection[str] = ()) -> KeyState:
        """Return whether the keys are valid on a day, given the ids of revoked keys."""
        if self.id in revoked:
            return KeyState.REVOKED
        if day < self.first_day:
            return KeyState.EARLY
        return KeyState.VALID if day < self.end_day else KeyState.EXPIRED


def parse_line(text: object) -> PublicKeys:
    """Read the line of public keys. Raises `UnitError`, which names the wrong word and the remedy."""
    if not isinstance(text, str):
        raise UnitError(f"{text!r:.40} is not a line of public keys", remedy=_REMEDY)
    words = text.split(" ")
    if len(words) != len(EXAMPLE.split()) or words[0] != FORMAT:
        raise UnitError(f"{_short(text)} is not a line of public keys, as in {EXAMPLE!r}", remedy=_REMEDY)
    _, key_id, first, end, octets = words
    keys = _decode(octets)
    public = PublicKeys(keys[:KEY_OCTETS], keys[KEY_OCTETS:], _day(first), _day(end))
    if public.first_day >= public.end_day:
        raise UnitError(
            f"the keys {_short(key_id)} end on {end}, not after their first day {first}",
            remedy="write a later end day, or make new keys with `pgm keys rotate`",
        )
    if public.id != key_id:
        raise UnitError(f"the id {_short(key_id)} does not fit the keys, whose id is {public.id!r}", remedy=_REMEDY)
    if public.is_weak:
        raise UnitError(
            f"the X25519 key of {_short(key_id)} has low order: everybody knows the secrets that it shares",
            remedy="remove the line, and make keys with `pgm keys new` on the node's host",
        )
    return public


def _encode(octets: bytes) -> str:
    return base64.urlsafe_b64encode(octets).decode().rstrip("=")


def _decode(text: str) -> bytes:
    """Return the 64 octets of both keys. Raises `UnitError` for every other text than that of `_encode`."""
    try:
        octets = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        octets = b""
    if len(octets) != 2 * KEY_OCTETS or _encode(octets) != text:
        raise UnitError(f"{_short(text)} is not {2 * KEY_OCTETS} octets in base64url", remedy=_REMEDY)
    return octets


def _day(text: str) -> date:
    if _DAY.fullmatch(text):
        try:
            return date.fromisoformat(text)
        except ValueError:
            pass
    raise UnitError(f"{_short(text)} is not a day", remedy="write a day as in 2026-12-31")


def _short(text: str) -> str:
    return repr(text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}...")
