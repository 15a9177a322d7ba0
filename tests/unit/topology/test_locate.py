"""Lines of keys, for every notation of a key in TOML."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pgm.topology.locate import KeyLines, KeyPath, locate
from tests.unit.topology.trees import GOOD, line_of

TEXT = '''\
# a comment with = and [brackets]
top = 1
"quoted key" = "a # b"   # not part of it
dotted . "in parts".three = 3

[table]
list = [ # opened here
  "a, ]", 'b',
  [ 1, 2 ],
  { x = 1, y.z = [ 5 ] },
]
long = """
one = 1
[not.a.header]
"quotes" \\""" ""\"""
after = \'\'\'
two = 2\'\'\'
date = 1979-05-27 07:32:00
[ spaced . "out" ]
inline = { a = "}", b = { c = 1 } }
[[array]]
x = 1
[[array]]
x = 2
[array.sub]
y = 3
[nodes."desk-*"]
role = "receiver"
'''


def test_every_way_of_writing_a_key_is_found():
    lines = locate(TEXT)
    assert tomllib.loads(TEXT)
    expected: dict[KeyPath, int] = {
        ("top",): 2,
        ("quoted key",): 3,
        ("dotted", "in parts", "three"): 4,
        ("table",): 6,
        ("table", "list"): 7,
        ("table", "list", 0): 8,
        ("table", "list", 1): 8,
        ("table", "list", 2, 1): 9,
        ("table", "list", 3, "x"): 10,
        ("table", "list", 3, "y", "z", 0): 10,
        ("table", "long"): 12,
        ("table", "after"): 16,
        ("table", "date"): 18,
        ("spaced", "out"): 19,
        ("spaced", "out", "inline", "b", "c"): 20,
        ("array", 0, "x"): 22,
        ("array", 1, "x"): 24,
        ("array", 1, "sub", "y"): 26,
        ("nodes", "desk-*", "role"): 28,
    }
    assert {path: lines.of(path) for path in expected} == expected
    assert all(path in lines for path in expected)


def test_unknown_keys_fall_back_to_the_table_around_them():
    lines = locate(TEXT)
    assert lines.of(("table", "absent", 3)) == 6
    assert lines.of(("nodes", "desk-*", "parents", 0)) == 27
    assert lines.of(("absent",)) == 1
    assert KeyLines().of(("top",)) == 1


def test_windows_line_ends_count_once():
    assert locate("a = 1\r\nb = 2\r\n").of(("b",)) == 2


def test_keys_of_a_topology_file():
    lines = locate(GOOD)
    assert lines.of(("nodes", "relay", "downstream", 0, "address")) == line_of(GOOD, '10.0.1.1"')
    assert lines.of(("nodes", "core-repairer", "cache", "seconds")) == line_of(GOOD, "seconds = 60")


def test_endless_keys_cost_little():
    assert locate(".".join(["a"] * 20_000) + " = 1").of(("a", "a")) == 1


_PIECES = st.sampled_from(
    [
        "a", "b", '"c d"', "'e'", ".", "=", "[", "]", "[[", "]]", "{", "}", ",", "\n", "\n", " ", "# c\n",
        "1", '"s"', "'''\n'''", '"""\n"""', "true", "a = 1\n", "[a]\n", "[[b]]\n", "x = [1, {y = 2}]\n", "z.w = {}\n",
    ]
)  # fmt: skip


@given(st.lists(_PIECES, max_size=25).map("".join))
def test_every_key_of_any_text_has_a_line(text: str):
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    lines = locate(text)
    count = text.count("\n") + 1
    for path in _paths(document, ()):
        assert path in lines
        assert 1 <= lines.of(path) <= count


def _paths(value: Any, path: KeyPath) -> Iterator[KeyPath]:
    if path:
        yield path
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from _paths(inner, (*path, key))
