"""Ctrl-C, SIGTERM and a closed pipe: every command ends with the right code and leaves nothing running."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType

import pytest

from tests.cli.command import PATIENCE_S, ProcessMark, command, environment, marked, until_listening
from tests.net.support.places import Place, one_segment
from tests.net.support.processes import Process

CODES = [
    pytest.param(signal.SIGINT, 130, id="Ctrl-C"),
    pytest.param(signal.SIGTERM, 143, id="SIGTERM"),
    pytest.param(signal.SIGHUP, 129, id="terminal closed"),
]
CAMPUS = "deploy/topologies/campus-1000.toml"


@pytest.fixture
def place() -> Place:
    return Place.new()


@pytest.fixture
def tree(tmp_path: Path, place: Place) -> Path:
    file = tmp_path / "tree.toml"
    file.write_text(one_segment(place))
    return file


@contextmanager
def running(
    mark: ProcessMark, *arguments: str | Path, env: Mapping[str, str] = MappingProxyType({}), **options: object
) -> Iterator[Process]:
    process = Process(str(arguments[0]), [str(one) for one in arguments], env={**mark.env, **env}, **options)
    try:
        yield process
    finally:
        process.close()


def ends(process: Process, number: signal.Signals, code: int, mark: ProcessMark) -> None:
    """Assert that a signal ends the command with this code, without a traceback and without leftovers."""
    process.process.send_signal(number)
    assert process.wait() == code, process.log
    assert "Traceback" not in process.log
    assert "Aborted" not in process.log
    mark.until_nothing_runs()


@pytest.mark.parametrize(
    ("number", "code", "at"),
    [
        (signal.SIGINT, 130, "receivers have everything"),
        (signal.SIGTERM, 143, "starting"),
        (signal.SIGHUP, 129, "starting"),
    ],
    ids=["Ctrl-C in mid-stream", "SIGTERM at the start", "terminal closed"],
)
def test_a_demo_that_is_stopped_leaves_nothing(number: signal.Signals, code: int, at: str) -> None:
    line = ("demo", "--subnets", "1", "--receivers", "1", "--rate", "1Mbit/s")
    # Sockets need a short path, which pytest's folder does not have.
    with TemporaryDirectory() as folder, marked() as mark, running(mark, *line, env={"TMPDIR": folder}) as demo:
        demo.line_with(at)
        ends(demo, number, code, mark)
        assert demo.printed == []
        assert os.listdir(folder) == []


def test_up_killed_by_sigkill_ends_its_nodes(tree: Path) -> None:
    """SIGKILL leaves the parent no time to stop its children."""
    with marked() as mark, running(mark, "up", tree) as up:
        up.line_with("nodes run")
        up.process.kill()
        up.wait()
        mark.until_nothing_runs()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda one: one.name)
def test_up_stopped_tree_ends_in_order(tree: Path, number: signal.Signals) -> None:
    with marked() as mark, running(mark, "up", tree) as up:
        up.line_with("nodes run; Ctrl-C stops all")
        ends(up, number, 0, mark)
        up.line_with("desk-1 | closed-fin: session")  # the source has announced its end before the receiver was stopped
        up.line_with("desk-1 | account: 0 delivered, 0 lost")


def test_up_in_the_background_can_be_stopped(tree: Path) -> None:
    """Shells ignore SIGINT for background processes, and nohup ignores SIGHUP."""
    script = 'trap "" INT HUP; exec "$@"'
    with marked() as mark:
        line = ["sh", "-c", script, "sh", *command("up", tree)]
        up = subprocess.Popen(line, stderr=subprocess.PIPE, env=environment(**mark.env), text=True)
        try:
            said = []
            while not said or "Ctrl-C stops all" not in said[-1]:
                said.append(up.stderr.readline())
                assert said[-1], said
            up.send_signal(signal.SIGHUP)
            up.send_signal(signal.SIGINT)
            said.append(up.communicate(timeout=PATIENCE_S)[1])
            assert up.returncode == 0, said
            assert "desk-1 | account: 0 delivered, 0 lost" in said[-1]
        finally:
            up.kill()
            up.communicate()
        mark.until_nothing_runs()


def test_up_reports_a_dead_node_at_once_and_at_the_end(tree: Path) -> None:
    with marked() as mark, running(mark, "up", tree) as up:
        up.line_with("nodes run; Ctrl-C stops all")
        victim = next(pid for pid in mark.running() if b"desk-1" in Path(f"/proc/{pid}/cmdline").read_bytes())
        os.kill(victim, signal.SIGKILL)
        up.line_with(f"desk-1 | node-ended: the process ended with code {-signal.SIGKILL}")
        ends(up, signal.SIGINT, 1, mark)
        up.line_with("these nodes ended by themselves: desk-1")


@pytest.mark.parametrize(
    ("arguments", "at", "code", "says"),
    [
        (("run", "FILE", "--node", "source", "--idle"), "ready:", 0, "account: 0 packets sent"),
        (("run", "FILE", "--node", "desk-1"), "ready:", 0, "account: 0 delivered, 0 lost"),
    ],
    ids=["source", "receiver"],
)
def test_node_stopped_by_sigint_reports_its_end(
    tree: Path, arguments: tuple[str, ...], at: str, code: int, says: str
) -> None:
    words = [tree if one == "FILE" else one for one in arguments]
    with marked() as mark, running(mark, *words) as node:
        node.line_with(at)
        ends(node, signal.SIGINT, code, mark)
        node.line_with(says)


@contextmanager
def piped(mark: ProcessMark, tree: Path, place: Place, *options: str) -> Iterator[tuple[Process, Process]]:
    """Yield a receiver that listens, and a source of lines that starts after it."""
    with running(mark, "recv", tree, "--node", "desk-1", *options) as receiver:
        until_listening(place.group(), place.port)
        with running(mark, "send", tree, "--node", "source", "--lines", stdin=subprocess.PIPE) as sender:
            yield receiver, sender


@pytest.mark.parametrize(("number", "code"), CODES)
def test_send_aborted_stream_is_reported_by_recv(tree: Path, place: Place, number: signal.Signals, code: int) -> None:
    with marked() as mark, piped(mark, tree, place, "--json") as (receiver, sender):
        sender.process.stdin.write(b"a line\n")
        sender.process.stdin.flush()
        receiver.line_with("opened: ")
        sender.process.send_signal(number)
        assert sender.wait() == code, sender.log
        assert receiver.wait() == 1
        receiver.line_with("closed-reset: ")
        receiver.line_with('"cut_short":1')
        assert "Traceback" not in sender.log + receiver.log
        mark.until_nothing_runs()


@pytest.mark.parametrize(("number", "code"), CODES)
def test_recv_stopped_prints_its_account(tree: Path, place: Place, number: signal.Signals, code: int) -> None:
    with marked() as mark, piped(mark, tree, place, "--lines", "--follow") as (receiver, sender):
        sender.process.stdin.write(b"one\ntwo\n")
        sender.process.stdin.close()
        assert sender.wait() == 0, sender.log
        receiver.line_with("at sqn 2: fin")
        ends(receiver, number, code, mark)
        receiver.line_with("2 messages, 6 octets, 0 lost")
        assert receiver.printed == ["one", "two"]


def test_recv_blocked_on_output_can_be_stopped(tree: Path, place: Place) -> None:
    """The receiver is blocked in a write; Ctrl-C still ends the process."""
    read, write = os.pipe()
    try:
        with marked() as mark, running(mark, "recv", tree, "--node", "desk-1", stdout=write) as receiver:
            until_listening(place.group(), place.port)
            with running(mark, "run", tree, "--node", "source", "--generate", "2000") as source:
                assert source.wait() == 0, source.log  # the output now exceeds the capacity of a pipe
            ends(receiver, signal.SIGINT, 130, mark)
    finally:
        os.close(read)
        os.close(write)


def test_recv_with_a_closed_output_ends_silently(tree: Path, place: Place) -> None:
    with marked() as mark:
        line = command("recv", tree, "--node", "desk-1", "--lines")
        receiver = subprocess.Popen(
            line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(**mark.env), text=True
        )
        until_listening(place.group(), place.port)
        with running(mark, "run", tree, "--node", "source", stdin=subprocess.PIPE) as source:
            source.process.stdin.write(b"one\n")
            source.process.stdin.flush()
            assert receiver.stdout.readline() == "one\n"
            receiver.stdout.close()
            source.process.stdin.write(b"two\n")
            source.process.stdin.flush()
            assert receiver.wait(PATIENCE_S) == 1
            said = receiver.stderr.read()
            receiver.stderr.close()
            assert [line for line in said.splitlines() if "opened: " not in line and "kernel" not in line] == []
            ends(source, signal.SIGTERM, 0, mark)


@pytest.mark.parametrize(
    "arguments",
    [("plan", CAMPUS), ("render", CAMPUS), ("sim", "deploy/topologies/on-lan.toml", "--messages", "10")],
    ids=lambda value: value[0],
)
def test_command_with_a_closed_output_ends_silently(arguments: tuple[str, ...]) -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            command(*arguments), stdout=write, stderr=subprocess.PIPE, text=True, env=environment(), check=False
        )
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (1, "")


def _watching(process: Process) -> None:
    process.line_with("not running on this machine")


def _simulating(process: Process) -> None:
    """Wait until the interpreter of a simulation has loaded its modules."""
    maps = Path(f"/proc/{process.process.pid}/maps")
    assert process.process.poll() is None
    while "numpy" not in maps.read_text():
        assert process.process.poll() is None, process.log


@pytest.mark.parametrize(
    ("arguments", "until", "code"),
    [
        (("status", "FILE", "--watch"), _watching, 0),
        (("sim", "FILE", "--messages", "1000000"), _simulating, 130),
    ],
    ids=["status", "sim"],
)
def test_commands_end_at_once_on_sigint(
    tree: Path, arguments: tuple[str, ...], until: Callable[[Process], None], code: int
) -> None:
    words = [tree if one == "FILE" else one for one in arguments]
    with marked() as mark, running(mark, *words) as process:
        until(process)
        ends(process, signal.SIGINT, code, mark)
