"""Lines of the keys in a TOML text.

`tomllib` returns values without positions, and an error message without a line helps little. This scanner reads only text
that `tomllib` has accepted. The scanner therefore recognises keys, tables and brackets, and takes all other text as values.
A key that the scanner cannot place gets the line of the table around it.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping

import attrs

from pgm.deprecated import PARAMETERS

KeyPath = tuple[str | int, ...]

_DEEPEST = 32  # maximum parts of a key: every prefix is a path of its own, and the format needs 5

_FORMER: Mapping[str | int, str] = {name: former for former, name in PARAMETERS.items()}

_TOKEN = re.compile(
    r'"""(?:\\.|[^\\])*?"""(?:"{0,2})'
    r"|'''.*?'''(?:'{0,2})"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'[^'\n]*'"
    r"|(?P<comment>\#[^\n]*)"
    r"|(?P<newline>\n)"
    r"|(?P<mark>[\[\]{},=])"
    r"|[^\s\[\]{},=\#\"']+",
    re.DOTALL,
)


@attrs.frozen
class KeyLines:
    """Line of every key path of one file. Lines count from 1."""

    _lines: Mapping[KeyPath, int] = attrs.field(factory=dict, alias="lines")

    def of(self, path: KeyPath) -> int:
        """Return the line of the key or of the nearest table around it, or 1 if neither is known."""
        while path:
            for spelling in (path, (*path[:-1], _FORMER.get(path[-1], ""))):
                if spelling in self._lines:
                    return self._lines[spelling]
            path = path[:-1]
        return 1

    def __iter__(self) -> Iterator[KeyPath]:
        return iter(self._lines)

    def __contains__(self, path: KeyPath) -> bool:
        return path in self._lines


def locate(text: str) -> KeyLines:
    """Find the lines of all keys of a TOML text that `tomllib` accepts."""
    scanner = _Scanner()
    for token, kind, line in _tokens(text):
        scanner.take(token, kind, line)
    return KeyLines(scanner.lines)


def tokens_of(text: str) -> Iterator[re.Match[str]]:
    """Yield the tokens of a TOML text that `tomllib` accepts, without comments. Strings are tokens with their quotes."""
    return (match for match in _TOKEN.finditer(text) if match.lastgroup != "comment")


def _tokens(text: str) -> Iterator[tuple[str, str, int]]:
    line = 1
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or "text"
        if kind != "comment":
            yield match[0], kind, line
        line += match[0].count("\n")


@attrs.define
class _Open:
    """An open bracket: an array with the index of its next item, or an inline table."""

    path: KeyPath
    index: int | None


class _Scanner:
    """Scanner of one pass over the tokens. A list holds the open brackets, so that depth needs no recursion."""

    def __init__(self) -> None:
        self.lines: dict[KeyPath, int] = {}
        self._table: KeyPath = ()
        self._arrays: dict[KeyPath, int] = {}  # [[header]] -> index of its newest table
        self._open: list[_Open] = []
        self._key: list[str] = []
        self._header = 0  # open brackets of a header
        self._value_path: KeyPath | None = None  # set while a value is expected

    def take(self, token: str, kind: str, line: int) -> None:
        """Process one token other than a comment."""
        if kind == "newline":
            if not self._open:
                self._value_path = None
                self._key = []
        elif self._value_path is not None:
            self._take_value(token, kind, line)
        elif kind == "mark":
            self._take_mark(token, line)
        else:
            self._key = [*self._key, *_key_parts(token)][:_DEEPEST]

    def _take_value(self, token: str, kind: str, line: int) -> None:
        assert self._value_path is not None
        path = self._value_path
        if token == "]" and kind == "mark":  # an empty array, or a comma before its end
            self._close()
            return
        self.lines.setdefault(path, line)
        self._value_path = None
        if kind == "mark" and token == "[":
            self._open.append(_Open(path, 0))
            self._value_path = (*path, 0)
        elif kind == "mark" and token == "{":
            self._open.append(_Open(path, None))

    def _take_mark(self, token: str, line: int) -> None:
        if token == "=":
            base = self._open[-1].path if self._open else self._table
            self._value_path = self._note(base, self._key, line)
            self._key = []
        elif token in "]}" and self._open:
            self._close()
        elif token == "," and self._open:
            innermost = self._open[-1]
            if innermost.index is not None:
                innermost.index += 1
                self._value_path = (*innermost.path, innermost.index)
        elif token == "[":
            self._header += 1
        elif token == "]" and self._key:
            self._begin_table(line)

    def _close(self) -> None:
        self._open.pop()
        self._value_path = None
        self._key = []

    def _begin_table(self, line: int) -> None:
        *parents, last = self._key
        path: KeyPath = ()
        for part in parents:
            path = self._into_array((*path, part))
        path = (*path, last)
        if self._header > 1:
            self._arrays[path] = self._arrays.get(path, -1) + 1
        self._table = self._note((), self._into_array(path), line)
        self._key = []
        self._header = 0

    def _into_array(self, path: KeyPath) -> KeyPath:
        return (*path, self._arrays[path]) if path in self._arrays else path

    def _note(self, base: KeyPath, parts: KeyPath | list[str], line: int) -> KeyPath:
        for part in parts:
            base = (*base, part)
            self.lines.setdefault(base, line)
        return base


def _key_parts(token: str) -> list[str]:
    if token[0] in "\"'":
        return [str(key) for key in tomllib.loads(f"{token} = 0")]
    return [part for part in token.split(".") if part]
