"""`pgm keys`: new keys, rotation, revocation and the check, and no secret in any output."""

from __future__ import annotations

import re
import stat
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from pgm.net.keys.start_check import today
from pgm.topology.load import load
from pgm.trust.private_keys import parse_private_file
from tests.cli.command import CommandResult, invoked
from tests.cli.test_json import documented
from tests.net.support.lab import ROOT
from tests.unit.topology.trees import GOOD
from tests.unit.trust.test_private_keys import spellings


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PGM_KEY_DIR", str(tmp_path / "keys"))
    file = tmp_path / "tree.toml"
    file.write_text(f"# my tree\n{GOOD}# end\n")
    return file


def keys(action: str, tree: Path, *words: str) -> CommandResult:
    return invoked("keys", action, tree, *words)


def ids(tree: Path, node: str = "exchange") -> list[str]:
    return [one.id for one in load(tree).keys.get(node, ())]


def private_files(tree: Path) -> list[Path]:
    return sorted((tree.parent / "keys" / "good").glob("*.key"))


def test_new_keys_are_a_private_file_and_a_line(tree: Path) -> None:
    before = tree.read_text()
    done = keys("new", tree, "--node", "exchange", "--write", "--json")
    assert done.code == 0, done
    documented("keys new, keys rotate, keys revoke", done.json)
    [path] = private_files(tree)
    assert path == Path(done.json["private_file"])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [one.line for one in load(tree).keys["exchange"]] == [done.json["line"]]
    assert tree.read_text() == f'{before}\n[keys]\nexchange = [\n  "{done.json["line"]}",\n]\n'
    assert done.json["end_day"] == str(today() + timedelta(days=730))


def test_keys_for_the_source_of_a_signed_stream(tree: Path) -> None:
    """A signed stream needs keys of its source, so the file breaks a rule until the command has made them."""
    tree.write_text(tree.read_text().replace("data_port = 7500", "data_port = 7500\nsigned = true", 1))
    assert invoked("check", tree).code == 2
    assert keys("new", tree, "--node", "exchange", "--write").code == 0
    done = invoked("check", tree)
    assert done.code == 0, done


def test_new_keys_without_write_are_lines_to_paste(tree: Path) -> None:
    before = tree.read_text()
    done = keys("new", tree, "--node", "desk-7", "--days", "30")
    assert (done.code, tree.read_text()) == (0, before), done
    assert "tree.toml is unchanged" in done.err
    paste = done.out.partition("\n")[2]
    tree.write_text(f"{before}[keys]\n{paste}")
    [public] = load(tree).keys["desk-7"]
    assert public.end_day == today() + timedelta(days=30)
    assert keys("check", tree, "--node", "desk-7", "--json").json["nodes"][0]["faults"] == []
    shown = keys("show", tree, "--node", "desk-7").out
    assert public.line in shown
    assert str(private_files(tree)[0]) in shown


def test_rotation_adds_keys_and_then_removes_the_former_ones(tree: Path) -> None:
    assert keys("new", tree, "--node", "exchange", "--write").code == 0
    first = ids(tree)
    assert keys("rotate", tree, "--node", "exchange", "--write").code == 0
    both = ids(tree)
    assert (both[:1], len(both), len(private_files(tree))) == (first, 2, 2)
    keys("rotate", tree, "--node", "exchange", "--write").complains(
        2, "a rotation of exchange is under way", "--finish"
    )
    assert "a rotation from" in keys("check", tree, "--node", "exchange").out
    done = keys("rotate", tree, "--node", "exchange", "--finish", "--write", "--json")
    documented("keys new, keys rotate, keys revoke", done.json)
    assert (done.json["removed"], ids(tree)) == (first, both[1:])
    keys("rotate", tree, "--node", "exchange", "--finish").complains(2, "exchange has no next keys")
    assert "remove" in keys("check", tree, "--node", "exchange").out


def test_revoked_keys_leave_their_node_and_stop_it(tree: Path) -> None:
    assert keys("new", tree, "--node", "exchange", "--write").code == 0
    [key_id] = ids(tree)
    done = keys("revoke", tree, "--node", "exchange", "--reason", 'laptop "7" stolen', "--write", "--json")
    documented("keys new, keys rotate, keys revoke", done.json)
    found = load(tree)
    assert not found.keys
    assert found.revoked == {key_id: f'{today()} exchange: laptop "7" stolen'}
    refused = invoked("run", tree, "--node", "exchange", "--generate", "1")
    refused.complains(2, f"the keys {key_id} of exchange are revoked", "pgm keys new")
    keys("revoke", tree, "--key", key_id).complains(2, "are revoked: ")
    assert keys("new", tree, "--node", "exchange", "--write").code == 0
    assert f"{key_id} is revoked: remove" in keys("check", tree).out


def test_one_of_two_pairs_is_revoked_by_its_id(tree: Path) -> None:
    for action in ("new", "rotate"):
        assert keys(action, tree, "--node", "exchange", "--write").code == 0
    first, second = ids(tree)
    keys("revoke", tree, "--node", "exchange").complains(2, "exchange has two pairs of keys", first, second)
    keys("revoke", tree, "--node", "relay", "--key", first).complains(2, "are those of exchange, not of relay")
    assert keys("revoke", tree, "--key", first, "--write").code == 0
    assert (ids(tree), list(load(tree).revoked)) == ([second], [first])
    assert keys("revoke", tree, "--key", "a" * 16, "--write").code == 0


def test_listed_keys_that_are_revoked_are_an_error_of_the_file(tree: Path) -> None:
    assert keys("new", tree, "--node", "exchange", "--write").code == 0
    [key_id] = ids(tree)
    tree.write_text(f'{tree.read_text()}[revoked]\n{key_id} = "by hand"\n')
    done = invoked("check", tree)
    assert done.code == 2
    assert f"the keys {key_id} of 'exchange' are revoked: by hand" in done.out


def test_check_names_nodes_without_keys(tree: Path) -> None:
    none = keys("check", tree)
    assert none.code == 0
    assert "no node has keys" in none.out
    assert keys("new", tree, "--node", "exchange", "--write").code == 0
    half = keys("check", tree, "--json")
    assert (half.code, half.json["ok"]) == (1, False)
    documented("keys check, keys show", half.json)
    documented("keys check.nodes[]", half.json["nodes"][0])
    documented("keys check.nodes[].keys[]", half.json["nodes"][0]["keys"][0])
    assert half.json["half_secured"] == ["core-repairer", "relay", "standby", "floor-repairer"]
    for node in half.json["half_secured"]:
        assert keys("new", tree, "--node", node, "--write").code == 0
    good = keys("check", tree)
    assert (good.code, "tree.toml: good" in good.out) == (0, True), good
    assert "desk-* (receiver): no keys" in good.out


def test_check_finds_unsafe_missing_and_ending_keys(tree: Path) -> None:
    assert keys("new", tree, "--node", "exchange", "--days", "20", "--write").code == 0
    assert "its keys end on" in keys("check", tree, "--node", "exchange").out
    [path] = private_files(tree)
    path.chmod(0o644)
    unsafe = keys("check", tree, "--node", "exchange")
    assert unsafe.code == 1
    assert "is open to other users: mode 0644 (chmod 600" in unsafe.out
    path.unlink()
    missing = keys("check", tree, "--node", "exchange")
    assert missing.code == 1
    assert "its private file is not in" in missing.out
    assert "private file elsewhere" in keys("check", tree).out


def test_check_finds_keys_whose_line_was_not_pasted(tree: Path) -> None:
    assert keys("new", tree, "--node", "exchange").code == 0
    assert "is in no line of the file: paste" in keys("check", tree, "--node", "exchange").out
    keys("new", tree, "--node", "exchange").complains(2, "which no line of the file names", "pgm keys show")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("new",), "has many nodes"),
        (("new", "--node", "nobody"), "there is no node 'nobody'"),
        (("new", "--node", "desk-*"), "is a pattern, not one node"),
        (("rotate", "--node", "exchange"), "exchange has no keys"),
        (("revoke",), "nothing to revoke is named"),
        (("revoke", "--node", "exchange"), "exchange has no keys"),
        (("revoke", "--key", "x"), "--key x is no id of keys"),
        (("check", "--write"), "--write is an option of `new`, `rotate`, `revoke`, not of `check`"),
        (("new", "--node", "exchange", "--finish"), "--finish is an option of `rotate`, not of `new`"),
    ],
)
def test_wrong_use_names_the_remedy(tree: Path, words: tuple[str, ...], says: str) -> None:
    keys(words[0], tree, *words[1:]).complains(2, says)
    assert private_files(tree) == []


def test_file_of_unusual_form_leaves_no_private_file(tree: Path) -> None:
    assert keys("new", tree, "--node", "exchange", "--write").code == 0
    line = load(tree).keys["exchange"][0].line
    tree.write_text(GOOD.replace("version = 1", f'version = 1\nkeys.exchange = ["{line}"]'))
    keys("new", tree, "--node", "relay", "--write").complains(2, "paste the lines by hand")
    assert len(private_files(tree)) == 1


def test_keys_without_their_packages_name_the_extra(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    keys("new", tree, "--node", "exchange").complains(2, "keys need cryptography", "pgm-repair-network[trust]")


def test_commands_and_nodes_run_without_the_packages() -> None:
    program = (
        "import sys; sys.modules |= {'cryptography': None, 'blake3': None}\n"
        "import deploy.keys.command, deploy.node.run, deploy.topology.check, pgm.blocking"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")


def test_rotation_needs_the_private_file(tree: Path) -> None:
    assert keys("new", tree, "--node", "exchange", "--write").code == 0
    private_files(tree)[0].unlink()
    keys("rotate", tree, "--node", "exchange", "--write").complains(2, "are not in", "pgm keys revoke")


def test_no_output_and_no_file_but_its_own_has_a_secret(tree: Path) -> None:
    done = [keys("new", tree, "--node", "exchange", "--write"), keys("rotate", tree, "--node", "exchange", "--write")]
    secrets = [parse_private_file(path.read_bytes(), "").keys.secret_octets() for path in private_files(tree)]
    done += [keys(action, tree, "--json") for action in ("check", "show")]
    done += [keys("show", tree), invoked("plan", tree, "--node", "exchange"), invoked("plan", tree, "--json")]
    for path in private_files(tree):
        path.chmod(0o640)
    done += [keys("check", tree), invoked("run", tree, "--node", "exchange", "--generate", "1")]
    texts = [one.out + one.err for one in done] + [tree.read_text()]
    assert len(secrets) == 2
    assert [word for secret in secrets for word in spellings(secret) if word in "".join(texts)] == []
    assert re.search("open to other users", done[-1].err)
