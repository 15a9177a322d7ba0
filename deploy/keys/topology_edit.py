"""Exact edits of the tables `[keys]` and `[revoked]` of a topology file. All other text stays, comments included.

Each edit is checked: the result, read as TOML, differs from the former text in the one entry alone.
"""

from __future__ import annotations

import copy
import os
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pgm.errors import UsageError
from pgm.topology.locate import locate, tokens_of

_BOM = "\ufeff"
_INDENT = "  "
Document = dict[str, Any]


def with_keys(text: str, node: str, lines: tuple[str, ...]) -> str:
    """Return the text with these public keys of a node, none to remove the entry. Raises `UsageError`."""
    before: tuple[str, ...] = tuple(tomllib.loads(text.removeprefix(_BOM)).get("keys", {}).get(node, ()))

    def change(document: Document) -> None:
        if lines:
            document.setdefault("keys", {})[node] = list(lines)
        else:
            del document["keys"][node]

    def edit(text: str) -> str:
        if not before:
            entry = [f"{_spell(node)} = [", *(f'{_INDENT}"{line}",' for line in lines), "]"]
            return _inserted(text, "keys", entry)
        if not lines:
            return _without_entry(text, node)
        for line in before:
            if line not in lines:
                text = _without_line(text, line)
        after = next(line for line in before if line in lines)
        for line in lines:
            if line not in before:
                text = _with_line_after(text, after, line)
        return text

    return _checked(text, edit, change)


def with_revoked(text: str, key_id: str, reason: str) -> str:
    """Return the text with an entry of the table `[revoked]`. Raises `UsageError`."""

    def change(document: Document) -> None:
        document.setdefault("revoked", {})[key_id] = reason

    return _checked(text, lambda text: _inserted(text, "revoked", [f"{key_id} = {quoted(reason)}"]), change)


def quoted(text: str) -> str:
    """Return a text as a string of TOML."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + re.sub(r"[\x00-\x1f\x7f]", lambda match: f"\\u{ord(match[0]):04x}", escaped) + '"'


def replace_file(path: Path, before: bytes, after: bytes) -> None:
    """Replace a file, which must still have the octets `before`, at once and on disk. Raises `UsageError`, `OSError`."""
    path = path.resolve()
    status = path.stat()
    new = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    try:
        with new.open("xb") as stream:
            os.fchmod(stream.fileno(), status.st_mode & 0o777)
            stream.write(after)
            stream.flush()
            os.fsync(stream.fileno())
        if (status.st_uid, status.st_gid) != (os.geteuid(), os.getegid()):
            os.chown(new, status.st_uid, status.st_gid)
        if path.read_bytes() != before:
            raise UsageError(f"{path} has changed meanwhile", remedy="repeat the command")
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)


def _checked(text: str, edit: Callable[[str], str], change: Callable[[Document], None]) -> str:
    """Edit a text, and check the result against the same change of the values."""
    bom, text = (_BOM, text[1:]) if text.startswith(_BOM) else ("", text)
    wanted = copy.deepcopy(tomllib.loads(text))
    change(wanted)
    edited = edit(text)
    try:
        is_right = tomllib.loads(edited) == wanted
    except tomllib.TOMLDecodeError:
        is_right = False
    if not is_right:
        raise _by_hand("the tables [keys] and [revoked] of the file have an unusual form")
    return bom + edited


def _by_hand(message: str) -> UsageError:
    return UsageError(message, remedy="leave out --write, and paste the lines by hand")


def _spell(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else f'"{name}"'


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _line_end(text: str, at: int) -> int:
    """Return the index after the line that has the index `at`."""
    end = text.find("\n", at)
    return len(text) if end < 0 else end + 1


def _line_begin(text: str, at: int) -> int:
    return text.rfind("\n", 0, at) + 1


def _begin_of_line(text: str, number: int) -> int:
    at = 0
    for _ in range(number - 1):
        at = _line_end(text, at)
    return at


def _inserted(text: str, table: str, entry: list[str]) -> str:
    """Return the text with an entry after the last one of a table, which is made at the end of the file if missing."""
    newline = _newline(text)
    places = locate(text)
    if (table,) not in places:
        gap = "" if not text or text.endswith("\n") else newline
        return text + gap + newline + newline.join([f"[{table}]", *entry]) + newline
    header = _begin_of_line(text, places.of((table,)))
    if not re.match(rf"[ \t]*\[[ \t]*{table}[ \t]*\]", text[header:]):
        raise _by_hand(f"the file has the table {table} without a header [{table}]")
    last = max((places.of(path) for path in places if len(path) == 2 and path[0] == table), default=None)
    at = _line_end(text, header if last is None else _end_of_value(text, _begin_of_line(text, last)))
    gap = "" if text[:at].endswith("\n") else newline
    return text[:at] + gap + newline.join(entry) + newline + text[at:]


def _end_of_value(text: str, begin: int) -> int:
    """Return the index of the last character of an entry `key = value` that begins in the line at `begin`."""
    depth, is_value, end = 0, False, begin
    for token in tokens_of(text):
        if token.start() < begin:
            continue
        if token.lastgroup == "newline":
            if is_value and not depth:
                break
            continue
        if token.lastgroup == "mark":
            is_value = is_value or token[0] == "="
            depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(token[0], 0)
        end = token.end() - 1
    return end


def _without_entry(text: str, node: str) -> str:
    begin = _begin_of_line(text, locate(text).of(("keys", node)))
    return text[:begin] + text[_line_end(text, _end_of_value(text, begin)) :]


def _span_of(text: str, line: str) -> tuple[int, int]:
    """Return the span of the string with a public line, with its quotes. Raises `UsageError` unless there is one."""
    spans = [token.span() for token in tokens_of(text) if token[0] in (f'"{line}"', f"'{line}'")]
    if len(spans) != 1:
        raise _by_hand(f"the file has {len(spans)} plain strings with the keys {line.split(' ')[1]}")
    return spans[0]


def _without_line(text: str, line: str) -> str:
    """Remove a string from a list, with its comma; a line of the text that has no other value goes as a whole."""
    begin, end = _span_of(text, line)
    comma = re.compile(r"[ \t]*,").match(text, end)
    end = comma.end() if comma else end
    first, behind = _line_begin(text, begin), _line_end(text, begin)
    if not text[first:begin].strip() and re.fullmatch(r"[ \t]*(#[^\n]*)?\r?\n?", text[end:behind]):
        return text[:first] + text[behind:]
    if comma:
        blank = re.compile(r"[ \t]*").match(text, end)
        return text[:begin] + text[blank.end() if blank else end :]
    before = re.search(r",[ \t]*$", text[:begin])
    return text[: before.start() if before else begin] + text[end:]


def _with_line_after(text: str, after: str, line: str) -> str:
    """Add a string to a list after another one, in a line of the text of its own if the other one has its own."""
    begin, end = _span_of(text, after)
    first, behind = _line_begin(text, begin), _line_end(text, begin)
    comma = re.compile(r"[ \t]*,").match(text, end)
    rest = text[comma.end() if comma else end : behind]
    if text[first:begin].strip() or not re.fullmatch(r"[ \t]*(#[^\n]*)?\r?\n", rest):
        return f'{text[:end]}, "{line}"{text[end:]}'
    own = f'{text[first:begin]}"{line}",{_newline(text)}'
    head = text[:behind] if comma else f"{text[:end]},{text[end:behind]}"
    return head + own + text[behind:]
