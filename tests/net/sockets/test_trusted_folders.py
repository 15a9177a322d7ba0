"""Folders of sockets that another user can change.

The nodes refuse them, and so does every command that asks nodes. The other users are real: a forked child that gives up
root, or sockets that a thread without root's rights makes.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import cbor2
import pytest

from deploy.doctor.findings import HostFinding, Level
from deploy.doctor.machine import check_machine
from pgm.errors import ProcessError, UsageError
from pgm.fleet.runtime_folders import tree_folders
from pgm.net.control.control_socket import ask_control
from pgm.net.control.status_socket import ask_status, serve_status
from pgm.net.sockets.trusted_folders import check_folder, make_folder
from pgm.topology.load import loads
from pgm.topology.plan import plan_node
from tests.cli.command import pgm
from tests.net.support.places import Place, one_segment

NOBODY, SOMEBODY = 65534, 65533
_NEW_USER_NAMESPACE = 0x10000000  # CLONE_NEWUSER of unshare(2)

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as several users")


@pytest.fixture
def base() -> Iterator[Path]:
    """Make a folder of root's in /tmp that every user may enter."""
    folder = Path(tempfile.mkdtemp(prefix=f"pgm-test-{os.getpid()}-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def folder(path: Path, mode: int = 0o755, owner: int = 0) -> Path:
    """Make one folder with an owner and a mode."""
    path.mkdir()
    os.chown(path, owner, owner)
    path.chmod(mode)
    return path


def link(path: Path, target: Path | str, owner: int = 0) -> Path:
    """Make a symbolic link with an owner."""
    path.symlink_to(target)
    os.lchown(path, owner, owner)
    return path


def as_user(uid: int, act: Callable[[], object], *, namespace: bool = False) -> str:
    """Run `act` in a child of a user, on request as root of a user namespace. Return its error, or nothing."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        said = ""
        try:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            if namespace:
                ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE: without it the map belongs to root
                assert ctypes.CDLL(None).unshare(_NEW_USER_NAMESPACE) == 0
                Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
            act()
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        finally:
            os.write(writing, said.encode())
            os._exit(0)
    os.close(writing)
    with open(reading) as answer:
        said = answer.read()
    os.waitpid(child, 0)
    return said


@contextlib.contextmanager
def listening(path: Path, user: int, answer: bytes) -> Iterator[None]:
    """Answer every connection on a socket, as a process of the user that has made it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        os.seteuid(user)
        try:
            sock.bind(str(path))
            sock.listen()
        finally:
            os.seteuid(0)
        path.chmod(0o666)

        def serve() -> None:
            with contextlib.suppress(OSError):  # the listening socket is shut down
                while True:
                    asker, _ = sock.accept()
                    with asker, contextlib.suppress(OSError):
                        asker.sendall(answer)

        server = threading.Thread(target=serve)
        server.start()
        try:
            yield
        finally:
            sock.shutdown(socket.SHUT_RDWR)
            server.join()


def refused_layouts(base: Path) -> dict[str, tuple[Path, Path, str]]:
    """Return for each fault the folder of the sockets, the folder or link to blame, and the mode to name."""
    sticky = folder(base / "sticky", 0o1777)
    good = folder(base / "good")
    folder(good / "t")
    stolen = folder(base / "stolen", owner=NOBODY)
    folder(stolen / "t", 0o700)
    for name, mode in (("group", 0o775), ("world", 0o777)):
        folder(folder(base / name, mode) / "t", 0o700)
    folder(sticky / "squat", 0o700, NOBODY)
    return {
        "owner above": (stolen / "t", stolen, "0755"),
        "owner of the folder": (folder(good / "theirs", 0o700, NOBODY), good / "theirs", "0700"),
        "group writes above": (base / "group/t", base / "group", "0775"),
        "others write above": (base / "world/t", base / "world", "0777"),
        "others write in it, with the sticky bit": (sticky, sticky, "1777"),
        "made first by another user": (sticky / "squat/t", sticky / "squat", "0700"),
        "link of another user": (link(sticky / "link", good, NOBODY) / "t", sticky / "link", "0777"),
        "own link to it": (link(base / "to-stolen", "stolen") / "t", stolen, "0755"),
        "link to a link": (link(base / "twice", "to-stolen") / "t", stolen, "0755"),
        "over it and back": (stolen / "../good/t", stolen, "0755"),
    }


NAMES = (
    "owner above", "owner of the folder", "group writes above", "others write above",
    "others write in it, with the sticky bit", "made first by another user", "link of another user", "own link to it",
    "link to a link", "over it and back",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("check", [make_folder, check_folder])
def test_folder_that_others_can_change_is_refused(base: Path, name: str, check: Callable[[Path], None]) -> None:
    layouts = refused_layouts(base)
    assert set(layouts) == set(NAMES)
    sockets, blamed, mode = layouts[name]
    owner = str(os.lstat(blamed).st_uid)
    with pytest.raises(ProcessError) as caught:
        check(sockets)
    assert f" {blamed}: " in f" {caught.value.message}".replace(" belongs to another user", "")
    assert owner in caught.value.message
    assert f"mode {mode}" in caught.value.message
    assert "PGM_RUNTIME_DIR" in caught.value.remedy


@pytest.mark.parametrize("name", NAMES)
async def test_node_and_command_refuse_folder_that_others_can_change(base: Path, name: str) -> None:
    """No forged socket in the folder is asked, and no socket is made there."""
    sockets, blamed, _ = refused_layouts(base)[name]
    sockets.mkdir(exist_ok=True)
    before = sorted(sockets.iterdir())
    with pytest.raises(ProcessError, match=str(blamed)):
        await serve_status(sockets / "n.sock", dict)
    assert sorted(sockets.iterdir()) == before
    with listening(sockets / "n.sock", 0, b"{}"):
        for ask in (lambda: ask_status(sockets / "n.sock"), lambda: ask_control(sockets / "n.sock", {})):
            with pytest.raises(ProcessError, match=str(blamed)):
                ask()


def test_folder_that_others_cannot_change_is_taken(base: Path) -> None:
    """Another user can rename no entry of the path, even with the sticky bit above."""
    sticky = folder(base / "sticky", 0o1777)
    link(sticky / "absolute", sticky / "own")
    link(base / "relative", "sticky/absolute/../own")
    made = base / "relative/deep/t"
    before = os.umask(0)
    try:
        make_folder(made)
    finally:
        os.umask(before)
    check_folder(made)
    for path in (sticky / "own", sticky / "own/deep", sticky / "own/deep/t"):
        assert path.stat().st_mode & 0o7777 == 0o700
    away = folder(base / "open", 0o777) / "away"
    for path in (sticky / "own", sticky / "absolute", base / "relative", sticky):
        said = as_user(NOBODY, lambda path=path: path.rename(away))
        assert said.startswith("PermissionError"), (path, said)


def test_folder_named_from_the_current_one_is_taken(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(base)
    make_folder(Path("run/t"))
    check_folder(Path("run/t"))
    assert (base / "run/t").is_dir()
    (base / "run").chmod(0o777)
    with pytest.raises(ProcessError, match="other users may write in"):
        check_folder(Path("run/t"))


def test_user_takes_own_folders_and_no_strangers(base: Path) -> None:
    sticky = folder(base / "sticky", 0o1777)
    assert as_user(NOBODY, lambda: make_folder(sticky / "nobody/t")) == ""
    assert as_user(NOBODY, lambda: check_folder(sticky / "nobody/t")) == ""
    assert f"{sticky}/nobody belongs to another user" in as_user(SOMEBODY, lambda: check_folder(sticky / "nobody/t"))
    assert as_user(SOMEBODY, lambda: make_folder(base / "somebody/t")).startswith("PermissionError")


def test_root_of_user_namespace_takes_own_folders_and_no_strangers(base: Path) -> None:
    """There the kernel shows files of root and of unmapped users with one owner, that of `/`."""
    os.chown(base, SOMEBODY, SOMEBODY)
    sticky = folder(base / "sticky", 0o1777, SOMEBODY)
    folder(sticky / "stranger", owner=NOBODY)
    said = as_user(SOMEBODY, lambda: make_folder(sticky / "own/t"), namespace=True)
    if "AssertionError" in said:
        pytest.skip("no user namespaces here")
    assert said == ""
    assert (sticky / "own/t").stat().st_uid == SOMEBODY
    said = as_user(SOMEBODY, lambda: make_folder(sticky / "stranger/t"), namespace=True)
    assert f"{sticky}/stranger belongs to another user" in said


def test_links_without_end_are_an_error(base: Path) -> None:
    link(base / "a", "b")
    link(base / "b", "a")
    with pytest.raises(OSError, match="symbolic links"):
        check_folder(base / "a/t")


FORGED = {
    "topology": "t", "node": "n", "role": "receiver", "pid": 1, "uptime_s": 1.0, "rss_bytes": 1, "cpu_s": 0.1,
    "counters": {"delivered_packets": 4711}, "rates": {}, "sessions": [], "segments": [],
}  # fmt: skip


def test_another_users_socket_does_not_answer_status_of_root(base: Path) -> None:
    """The other user owns the folder above, moves the folder of root's node away, and puts another one there."""
    theirs = folder(base / "run", owner=NOBODY)
    folder(theirs / "t", 0o700)  # of root's node

    def replace() -> None:
        (theirs / "t").rename(theirs / "away")
        (theirs / "t").mkdir()

    assert as_user(NOBODY, replace) == ""
    env = {"PGM_RUNTIME_DIR": str(theirs)}
    with listening(theirs / "t/n.sock", NOBODY, cbor2.dumps(FORGED)), listening(theirs / "t/n.ctl", NOBODY, b"{}"):
        for line in (
            ("status", "t"),
            ("status", "t", "--json"),
            ("top", "--json"),
            ("top", "t", "--json"),
            ("ctl", "t"),
        ):
            done = pgm(*line, env=env)
            assert done.code == 1, done
            assert "4711" not in done.out
            for part in (f"{theirs} belongs to another user", str(NOBODY), "mode 0755", "PGM_RUNTIME_DIR"):
                assert part in done.out + done.err, done
        asked = pgm("status", "t", "--json", env={**env, "PGM_RUNTIME_USER": str(NOBODY)})
        assert asked.json["counters"] == {"delivered_packets": 4711}


def test_trusted_user_may_be_named_and_has_to_exist(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = folder(folder(base / "run", owner=NOBODY) / "t", 0o700, NOBODY)
    monkeypatch.setenv("PGM_RUNTIME_USER", "nobody")
    check_folder(theirs)
    with pytest.raises(ProcessError, match="belongs to another user"):
        make_folder(theirs)
    os.chown(theirs, SOMEBODY, SOMEBODY)
    with pytest.raises(ProcessError, match="belongs to another user"):
        check_folder(theirs)
    monkeypatch.setenv("PGM_RUNTIME_USER", "no-such-user")
    with pytest.raises(UsageError, match="names no user: no-such-user"):
        check_folder(theirs)


def test_socket_that_another_user_left_does_not_answer(base: Path) -> None:
    """Others could write in the folder when the socket was made, and cannot any more."""
    sockets = folder(base / "t", 0o777)
    with listening(sockets / "n.sock", NOBODY, cbor2.dumps(FORGED)):
        sockets.chmod(0o700)
        check_folder(sockets)
        with pytest.raises(ProcessError, match=f"a process of another user answers on .*{NOBODY}"):
            ask_status(sockets / "n.sock")


def test_demo_of_another_user_is_left_out(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PGM_RUNTIME_DIR", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(base))
    monkeypatch.setattr(tempfile, "tempdir", str(folder(base / "tmp", 0o1777)))
    for name, owner in (("own", 0), ("theirs", NOBODY)):
        folder(folder(base / f"tmp/pgm-demo-{name}", 0o755, owner) / "demo", owner=owner)
    assert tree_folders() == tree_folders("demo") == [base / "tmp/pgm-demo-own/demo"]


def test_doctor_tells_of_a_folder_that_others_can_change(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_node(loads(one_segment(Place(1))), "desk-1")

    def finding_of_sockets(folder: Path) -> HostFinding:
        monkeypatch.setenv("PGM_RUNTIME_DIR", str(folder))
        return next(one for one in check_machine([plan]) if one.check == "status sockets")

    assert finding_of_sockets(base / "not/made/yet").level is Level.OK
    folder(folder(base / "run", 0o777) / plan.topology)
    finding = finding_of_sockets(base / "run")
    assert finding.level is Level.FAULT
    assert "mode 0777" in finding.found
