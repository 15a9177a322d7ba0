"""Removal of secrets from texts and plain values.

Two rules apply to every text of a bundle. Known secrets are removed wherever they stand: tokens and private keys that this
user can read. Texts with the form of a secret are removed, too, because logs and messages may quote unknown ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import attrs

from pgm.parameters import ROWS

REMOVED = "[removed]"
_LEAST_KNOWN = 6  # characters of a known secret: a shorter one would remove parts of ordinary words
_LONG_HEX = 32  # digits: 128 bits are a key, and digests of pgm have 16 digits
_LONG_WORD = 43  # characters of base64: 32 octets

_NEAR = r"[\w.-]{0,40}"  # bounded, because a run of a million letters would cost hours otherwise
_SECRET = r"(?:passw(?:or)?d|passphrase|passwd|secret|token|credential|api[_-]?key|private)"
_NAME = rf"{_NEAR}{_SECRET}{_NEAR}"
_VALUE = r"(?:\"(?:[^\"\\]|\\.)*\"|'[^']*'|[\[{][^\]}\r\n]{0,4096}[\]}]+[^\s,;&]*|[^\s,;&]+)"
_SECRET_NAME = re.compile(_NAME, re.IGNORECASE)
_KEY_FILE = re.compile(r"\.(?:key|pem|p12|pfx|jks|crt)(?![A-Za-z0-9])")
# Most texts of a status are names and addresses, which need no further look.
_MAY_HIDE = re.compile(r"[:=/@\s]|[A-Za-z0-9+_-]{32}")


def _whole(_: re.Match[str]) -> str:
    return REMOVED


def _behind(match: re.Match[str]) -> str:
    """Keep the first group, which names the secret."""
    return match[1] + REMOVED


def _if_random(match: re.Match[str]) -> str:
    """Remove a long word with digits and letters of both cases; words of people lack one of them."""
    word = match[0]
    kinds = (str.isupper, str.islower, str.isdigit)
    return REMOVED if all(any(map(kind, word)) for kind in kinds) else word


def _if_key_path(match: re.Match[str]) -> str:
    word = match[0]
    return REMOVED if "/" in word and _KEY_FILE.search(word) else word


# The order matters: blocks first, then values behind their names, and lone words last.
_FORMS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...] = (
    (re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\Z)", re.DOTALL), _whole),
    (re.compile(r"(authorization[\"']?\s*[:=]\s*)[^\r\n]+", re.IGNORECASE), _behind),
    (re.compile(r"\b(bearer\s+)[^\s\"',;]{6,}", re.IGNORECASE), _behind),
    (re.compile(r"(://)[^/\s]{1,256}(?=@)"), _behind),
    (re.compile(rf"(--{_NEAR}(?:{_SECRET}|key|cert|ca-file){_NEAR}(?:=|\s+))(?!-){_VALUE}", re.IGNORECASE), _behind),
    (re.compile(rf"({_NAME}[\"']?\s*[:=]\s*){_VALUE}", re.IGNORECASE), _behind),
    (re.compile(r"[^\s\"'`,;()=]+"), _if_key_path),
    (re.compile(rf"[0-9a-fA-F]{{{_LONG_HEX},}}"), _whole),  # also behind 0x and psk_, where no word begins
    (re.compile(rf"[A-Za-z0-9+/_-]{{{_LONG_WORD},}}={{0,2}}"), _if_random),
)  # fmt: skip


def _long_enough(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(text for text in texts if len(text) >= _LEAST_KNOWN)


@attrs.define
class Redactor:
    """Remover of secrets. `known` has texts that are secrets, or paths of secrets."""

    known: tuple[str, ...] = attrs.field(default=(), repr=False, converter=_long_enough)
    removed: int = attrs.field(init=False, default=0)

    def text(self, text: str) -> str:
        """Return a text without secrets."""
        for secret in self.known:
            self.removed += text.count(secret)
            text = text.replace(secret, REMOVED)
        if not _MAY_HIDE.search(text):
            return text
        for form, replacement in _FORMS:
            text = form.sub(self._counted(replacement), text)
        return text

    def _counted(self, replacement: Callable[[re.Match[str]], str]) -> Callable[[re.Match[str]], str]:
        def replace(match: re.Match[str]) -> str:
            text = replacement(match)
            self.removed += text != match[0]
            return text

        return replace

    def value(self, value: Any) -> Any:
        """Return plain values of JSON without secrets, in keys and texts.

        All texts below a key that names a secret are removed, at any depth; numbers stay.
        """
        return self._value(value, is_secret=False)

    def _value(self, value: Any, *, is_secret: bool) -> Any:
        if isinstance(value, str):
            if not (is_secret and value):
                return self.text(value)
            self.removed += 1
            return REMOVED
        if isinstance(value, Mapping):
            return {
                self.text(str(key)): self._value(member, is_secret=is_secret or _names_secret(str(key)))
                for key, member in value.items()
            }
        if isinstance(value, list | tuple):
            return [self._value(member, is_secret=is_secret) for member in value]
        return value


def _names_secret(key: str) -> bool:
    return key not in ROWS and _SECRET_NAME.fullmatch(key) is not None
