"""Private files on disk: one mode, one owner, complete or absent, and never shown."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from pgm.errors import KeyRefused, ProcessError
from pgm.net.keys import key_files
from pgm.net.keys.key_directory import KeyPlace, place_of
from pgm.net.keys.key_files import read_private_file, write_private_file
from pgm.trust.private_keys import PrivateFile
from tests.net.support.lab import ROOT
from tests.unit.trust.keys import private_keys


@pytest.fixture
def place(tmp_path: Path) -> KeyPlace:
    return place_of("tree", "exchange", chosen=tmp_path / "keys")


def written(place: KeyPlace, number: int = 1) -> Path:
    return write_private_file(place, PrivateFile(place.tree, place.node, private_keys(number)))


@pytest.mark.parametrize("mask", [0, 0o022, 0o077, 0o777])
def test_file_has_its_mode_under_any_mask(place: KeyPlace, mask: int) -> None:
    place.directory.mkdir(parents=True, mode=0o700)
    before = os.umask(mask)
    try:
        path = written(place)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.name == f"exchange.{private_keys().public.id}.key"
    assert os.listdir(place.directory) == [path.name]
    assert read_private_file(place, path).public == private_keys().public


def test_folder_of_keys_is_for_its_user_alone(place: KeyPlace) -> None:
    assert stat.S_IMODE(written(place).parent.stat().st_mode) == 0o700


def test_file_is_never_replaced(place: KeyPlace) -> None:
    path = written(place)
    octets = path.read_bytes()
    with pytest.raises(KeyRefused, match="exists"):
        written(place)
    assert path.read_bytes() == octets
    assert os.listdir(place.directory) == [path.name]


def test_failed_write_leaves_no_file(place: KeyPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(key_files.os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        written(place)
    assert os.listdir(place.directory) == []


@pytest.mark.parametrize("mode", [0o604, 0o640, 0o644, 0o660, 0o601, 0o777])
def test_file_open_to_others_is_refused(place: KeyPlace, mode: int) -> None:
    path = written(place)
    path.chmod(mode)
    with pytest.raises(KeyRefused, match=f"is open to other users: mode {mode:04o}") as caught:
        read_private_file(place, path)
    assert f"chmod 600 {path}" in caught.value.remedy


def test_folder_that_others_may_change_is_refused(place: KeyPlace) -> None:
    path = written(place)
    place.directory.chmod(0o777)
    with pytest.raises(KeyRefused, match="other users may write"):
        read_private_file(place, path)
    with pytest.raises(ProcessError, match="other users may write"):
        written(place, 2)


def test_file_of_another_user_is_refused(place: KeyPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(place)
    uid = os.geteuid()
    monkeypatch.setattr(key_files.os, "geteuid", lambda: uid + 1)
    monkeypatch.setattr(key_files, "check_own_folder", lambda *_: None)
    with pytest.raises(KeyRefused, match=f"belongs to another user: uid {uid}"):
        read_private_file(place, path)


def test_link_and_fifo_are_refused(place: KeyPlace) -> None:
    path = written(place)
    link, fifo = (place.path_of(letter * 16) for letter in "ab")
    link.symlink_to(path)
    os.mkfifo(fifo, 0o600)
    with pytest.raises(KeyRefused, match="symbolic links"):
        read_private_file(place, link)
    with pytest.raises(KeyRefused, match="is no regular file"):
        read_private_file(place, fifo)


def test_file_of_another_node_is_refused(place: KeyPlace) -> None:
    path = written(place)
    other = KeyPlace(place.directory, "tree", "relay")
    path = path.rename(other.path_of(private_keys().public.id))
    with pytest.raises(KeyRefused, match="has the keys of node exchange of tree tree, not of relay of tree"):
        read_private_file(other, path)


def test_file_under_the_name_of_other_keys_is_refused(place: KeyPlace) -> None:
    path = written(place).rename(place.path_of("a" * 16))
    with pytest.raises(KeyRefused, match=f"has the keys {private_keys().public.id}"):
        read_private_file(place, path)


def test_long_file_is_refused(place: KeyPlace) -> None:
    path = written(place)
    path.write_bytes(path.read_bytes() + b"x" * 10_000)
    with pytest.raises(KeyRefused, match="is not a file of private keys"):
        read_private_file(place, path)


_DUMPING = """
import ctypes, os, resource, signal, sys
from pathlib import Path
from pgm.net.keys.key_directory import KeyPlace
from pgm.net.keys.key_files import read_private_file
resource.setrlimit(resource.RLIMIT_CORE, (resource.getrlimit(resource.RLIMIT_CORE)[1],) * 2)
path = Path(sys.argv[1])
read_private_file(KeyPlace(path.parent, "tree", "exchange"), path)
print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0), flush=True)  # PR_GET_DUMPABLE
os.kill(os.getpid(), signal.SIGABRT)
"""


def test_process_with_private_keys_leaves_no_core(place: KeyPlace, tmp_path: Path) -> None:
    command = [sys.executable, "-c", _DUMPING, str(written(place))]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert (done.returncode, done.stdout) == (-signal.SIGABRT, "0\n"), done.stderr
    assert os.listdir(tmp_path) == ["keys"]


def test_held_files_are_those_of_the_node_alone(place: KeyPlace) -> None:
    path = written(place)
    longer = KeyPlace(place.directory, "tree", "exchange.two")
    write_private_file(longer, PrivateFile("tree", "exchange.two", private_keys(2)))
    (place.directory / "exchange.key").touch()
    assert place.held() == {private_keys().public.id: path}
    assert set(longer.held()) == {private_keys(2).public.id}
    assert KeyPlace(place.directory / "none", "tree", "exchange").held() == {}


def test_folder_of_keys_is_chosen_in_order(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("PGM_KEY_DIR", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert place_of("a/b", "n").directory == tmp_path / "pgm/keys/a_b"
    monkeypatch.delenv("XDG_CONFIG_HOME")
    assert place_of("t", "n").directory == Path.home() / ".config/pgm/keys/t"
    assert place_of("t", "n", "/file").directory == Path("/file/t")
    monkeypatch.setenv("PGM_KEY_DIR", "/variable")
    assert place_of("t", "n", "/file").directory == Path("/variable/t")
    assert place_of("t", "n", "/file", Path("/option")).directory == Path("/option/t")
