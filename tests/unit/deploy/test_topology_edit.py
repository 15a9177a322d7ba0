"""Edits of keys in a topology file: the entry changes, and every other character stays."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.keys.topology_edit import quoted, replace_file, with_keys, with_revoked
from pgm.errors import UsageError
from pgm.topology.load import loads
from tests.unit.topology.trees import GOOD
from tests.unit.trust.keys import private_keys

LINES = [private_keys(number).public.line for number in range(1, 9)]
IDS = [line.split(" ")[1] for line in LINES]
A, B, C = LINES[:3]


def test_first_keys_come_last_in_the_file() -> None:
    text = with_keys(GOOD, "exchange", (A,))
    assert text == f'{GOOD}\n[keys]\nexchange = [\n  "{A}",\n]\n'
    assert [keys.line for keys in loads(text).keys["exchange"]] == [A]


def test_further_keys_follow_the_last_of_the_table() -> None:
    text = f'[keys]  # of nodes\na = ["{A}"]  # mine\n# next table\n[x]\ny = [1]\n'
    assert with_keys(text, "b-1", (B,)) == text.replace("# mine\n", f'# mine\nb-1 = [\n  "{B}",\n]\n')
    assert with_keys(text, "b.1", (B,)) == text.replace("# mine\n", f'# mine\n"b.1" = [\n  "{B}",\n]\n')
    empty = "[keys]\n# none yet\n[x]\n"
    assert with_keys(empty, "b", (B,)) == f'[keys]\nb = [\n  "{B}",\n]\n# none yet\n[x]\n'


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (f'a = ["{A}"]', f'a = ["{A}", "{B}"]'),
        (f'a = ["{A}",] # c', f'a = ["{A}", "{B}",] # c'),
        (f'a = [\n  "{A}"\n]', f'a = [\n  "{A}",\n  "{B}",\n]'),
        (f'a = [ # list\n\t"{A}",  # mine\n  # end\n]', f'a = [ # list\n\t"{A}",  # mine\n\t"{B}",\n  # end\n]'),
        (f"a = ['{A}']", f"""a = ['{A}', "{B}"]"""),
        (f'a = [\n"{A}"]', f'a = [\n"{A}", "{B}"]'),
    ],
)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_next_keys_follow_the_current_ones(before: str, after: str, newline: str) -> None:
    head, tail = f'# "{A}"\n[keys]\n', f'\n# "{A}"\n[revoked]\n'
    text = (head + before + tail).replace("\n", newline)
    assert with_keys(text, "a", (A, B)) == (head + after + tail).replace("\n", newline)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (f'a = ["{A}", "{B}"]', f'a = ["{B}"]'),
        (f'a = ["{B}", "{A}"]', f'a = ["{B}"]'),
        (f'a = [ "{B}","{A}", ] # c', f'a = [ "{B}",] # c'),
        (f'a = [\n  "{A}",  # old\n  "{B}",  # new\n]', f'a = [\n  "{B}",  # new\n]'),
        (f'a = [\n  "{B}",\n  "{A}"\n]', f'a = [\n  "{B}",\n]'),
    ],
)
def test_former_keys_go_with_their_line(before: str, after: str) -> None:
    text = f'[keys]\nz = ["{C}"]\n{before}\n# end\n'
    assert with_keys(text, "a", (B,)) == text.replace(before, after)


def test_entry_of_a_node_goes_as_a_whole() -> None:
    text = f'[keys]\nz = ["{C}"]  # z\n"a" = [\n  "{A}",\n  "{B}", # ]\n]  # gone\n# end\nb = ["{LINES[4]}"]\n'
    assert with_keys(text, "a", ()) == f'[keys]\nz = ["{C}"]  # z\n# end\nb = ["{LINES[4]}"]\n'


def test_revoked_keys_have_a_table_of_their_own() -> None:
    text = with_revoked(GOOD, IDS[0], '2026-11-26 exchange: said "no" \\ \n')
    assert tomllib.loads(text)["revoked"] == {IDS[0]: '2026-11-26 exchange: said "no" \\ \n'}
    more = with_revoked(text, IDS[1], "")
    assert more == f'{text}{IDS[1]} = ""\n'


@pytest.mark.parametrize(
    "text",
    [
        f'keys.a = ["{A}"]\n',
        f'keys = {{ a = ["{A}"] }}\n',
        f'[keys]\na = ["""{A}"""]\n',
        f'x = """\n[keys]\n"""\nkeys.b = ["{A}"]\n',
    ],
)
def test_unusual_form_is_left_to_its_owner(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        with_keys(with_keys(text, "c", (C,)), "a", (A, B))
    assert "by hand" in caught.value.remedy


def test_mark_of_the_byte_order_stays() -> None:
    assert with_keys("\ufeffversion = 1\n", "a", (A,)).startswith("\ufeffversion = 1\n\n[keys]\n")


COMMENTS = st.lists(st.sampled_from(["# note", "", "  # [keys]", f'# a = ["{A}"]', "\t"]), max_size=3)
STEPS = st.lists(
    st.tuples(st.sampled_from(["a", "b-2", "c.3"]), st.sampled_from(["new", "next", "finish", "drop"])), max_size=12
)


@given(COMMENTS, COMMENTS, STEPS, st.sampled_from(["\n", "\r\n"]))
def test_any_changes_leave_all_other_text(before: list[str], behind: list[str], steps, newline: str) -> None:
    others = [*before, *GOOD.splitlines(), *behind]
    text = newline.join([*others, ""])
    held: dict[str, tuple[str, ...]] = {}
    unused = iter(LINES * 2)
    for node, step in steps:
        lines = held.get(node, ())
        if step == "new" and not lines:
            lines = (next(unused),)
        elif step == "next" and len(lines) == 1:
            lines = (*lines, next(unused))
        elif step == "finish" and len(lines) == 2:
            lines = lines[1:]
        elif step == "drop" and lines:
            lines = ()
        else:
            continue
        if len({line for entry in held.values() for line in entry} | set(lines)) < len(lines):
            continue
        text = with_keys(text, node, lines)
        held = {name: entry for name, entry in {**held, node: lines}.items() if entry}
        assert tomllib.loads(text).get("keys", {}) == {name: list(entry) for name, entry in held.items()}
    left = re.sub(
        r'(?m)^("?[\w.-]+"? = \[|  "pgm1 [^"]*",|\]|\[keys\])\r?\n', "", text.partition(f"{newline}[keys]")[0]
    )
    assert [line for line in left.splitlines() if line.strip()] == [line for line in others if line.strip()]
    assert not re.search(r"(?<!\r)\n", text) or newline == "\n"


@given(st.text())
def test_quoted_text_is_read_as_written(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        return
    assert tomllib.loads(f"a = {quoted(text)}")["a"] == text


def test_file_is_replaced_with_its_mode_and_only_unchanged(tmp_path: Path) -> None:
    file, link = tmp_path / "tree.toml", tmp_path / "link.toml"
    file.write_bytes(b"old")
    file.chmod(0o640)
    link.symlink_to(file)
    replace_file(link, b"old", b"new")
    assert (link.is_symlink(), file.read_bytes(), file.stat().st_mode & 0o777) == (True, b"new", 0o640)
    with pytest.raises(UsageError, match="has changed meanwhile"):
        replace_file(file, b"old", b"newer")
    assert file.read_bytes() == b"new"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["link.toml", "tree.toml"]
