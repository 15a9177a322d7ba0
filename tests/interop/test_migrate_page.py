"""docs/guide/migrate.md: each program runs by the page's own commands, on one host or on the page's two hosts."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import attrs
import pytest

from tests.interop.support.peers import needs_openpgm
from tests.interop.support.pipes import Pipe
from tests.interop.support.zmq_scene import needs_zeromq
from tests.net.support.lab import Host, lab, needs_namespaces
from tests.net.support.pages import blocks, page

pytestmark = [pytest.mark.network, needs_namespaces]

PAGE = page("guide/migrate.md")
SYSTEMS = ("fast-cast", "JGroups", "Distributor", "OpenPGM", "pyzmq with epgm")
# Names of the column "here" that are neither keys nor parameters of the topology file.
ARGUMENTS = {"busy_poll", "slow", "start", "on_loss", "on_notice", "subscribe"}


def chapter(title: str) -> str:
    """Return the text of one chapter or section of the page."""
    [level, text] = re.findall(rf"^(##+) {re.escape(title)}\n(.*)", PAGE, re.DOTALL | re.MULTILINE)[0]
    return re.split(rf"^#{{2,{len(level)}}} ", text, maxsplit=1, flags=re.MULTILINE)[0]


def commands(title: str) -> list[str]:
    """Return the command lines of a section. A comment above a line names its host, and follows the line here."""
    text = re.sub(r"^# (\w+) host\n(.*)$", r"\2  # \1", "".join(blocks(chapter(title), "sh")), flags=re.MULTILINE)
    return text.splitlines()


def shape(line: str) -> str:
    """Return a line of output without its numbers."""
    return re.sub(r"\d+", "0", line)


class _SecondHost(Host):
    """Network namespace that the commands of the page have made."""

    def __init__(self, first: Host) -> None:
        super().__init__("second", first.holder)
        self._first = first

    def wrap(self, command: Sequence[str]) -> list[str]:
        return self._first.wrap(["ip", "netns", "exec", "second", *command])


class _FirstHost(Host):
    """Network namespace with a mount namespace of its own, so that names of further namespaces stay private."""

    def wrap(self, command: Sequence[str]) -> list[str]:
        return ["nsenter", "-t", str(self.holder.pid), "-U", "-n", "-m", "--preserve-credentials", *command]


@attrs.define
class Desk:
    """Folder with the files of a chapter, and the terminals in which its commands run."""

    folder: Path
    hosts: dict[str, Host]
    stack: ExitStack
    terminals: list[Pipe] = attrs.field(factory=list)

    def save(self, title: str) -> None:
        """Save every file of a chapter under its name."""
        pattern = r"^`([\w.]+)`:\n\n```(?:toml|python)\n(.*?)^```$"
        for name, text in re.findall(pattern, chapter(title), re.DOTALL | re.MULTILINE):
            (self.folder / name).write_text(text)

    def run(self, line: str) -> Pipe:
        """Run a command line in a terminal of its own, on the host that its comment names."""
        command, _, comment = line.partition("  #")
        command = re.sub(r"^python ", f"{sys.executable} -u ", command)
        command = re.sub(r"^pgm ", f"{sys.executable} -m deploy ", command)
        host = self.hosts[comment.split()[0] if comment else "first"]
        shell = ["sh", "-c", f"cd {shlex.quote(str(self.folder))} && exec {command}"]
        terminal = Pipe(line, host, shell, PGM_RUNTIME_DIR=str(self.folder / "run"))
        self.stack.callback(terminal.close)
        self.terminals.append(terminal)
        return terminal

    def listen(self, line: str) -> Pipe:
        """Run a command line, and wait for its first output."""
        terminal = self.run(line)
        terminal.until(lambda: terminal.messages or any("ready" in one for one in terminal.said), "the first line")
        return terminal

    def assert_shows(self, title: str, number: int = 0) -> None:
        """Assert that every line of an example of output has come from a program."""
        output = {shape(line.decode()) for terminal in self.terminals for line in terminal.messages}
        for line in blocks(chapter(title), "text")[number].splitlines():
            assert shape(line) in output, (line, output)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """Return an empty folder on a host with nothing but loopback."""
    with ExitStack() as stack:
        made = stack.enter_context(lab())
        outside = made.host("first")
        private = ["unshare", "-m", "sh", "-c", "mount -t tmpfs none /run && echo up; exec cat"]
        holder = stack.enter_context(
            subprocess.Popen(outside.wrap(private), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        )
        stack.callback(holder.kill)
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"up\n"
        (tmp_path / "run").mkdir(mode=0o700)
        yield Desk(tmp_path, {"first": _FirstHost("first", holder)}, stack)


@pytest.fixture
def desks(desk: Desk) -> Desk:
    """Return the same with the second host of the page."""
    recipe = [line.removeprefix("sudo ") for line in commands("Two hosts on one machine")]
    desk.hosts["first"].run("sh", "-ec", "\n".join(recipe))
    desk.hosts["second"] = _SecondHost(desk.hosts["first"])
    return desk


def interrupt(terminal: Pipe) -> None:
    """Press Ctrl-C."""
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.wait() == 0, terminal.log


def test_migrate_fastcast_publisher_reaches_both_subscribers(desk: Desk) -> None:
    desk.save("fast-cast")
    *listening, publish = commands("Publisher and subscriber")
    subscribers = [desk.listen(line) for line in listening]
    publisher = desk.listen(publish)
    for one in subscribers:
        one.until_messages(4)  # two of them counts
    interrupt(publisher)
    for one in subscribers:
        assert one.wait() == 0, one.log
        assert not [line for line in one.messages if b"lost" in line]
        assert one.messages[-1] == b"publisher gone: fin"
    desk.assert_shows("Publisher and subscriber")


def test_migrate_fastcast_ping_gets_every_pong(desk: Desk) -> None:
    desk.save("fast-cast")
    answer, ask = commands("Ping and pong")
    pong = desk.listen(answer)
    ping = desk.run(ask)
    assert ping.wait() == 0, ping.log
    assert pong.wait() == 0, pong.log
    desk.assert_shows("Ping and pong")


def test_migrate_jgroups_chat_members_come_and_go(desk: Desk) -> None:
    desk.save("JGroups")
    history, *members = commands("Chat")
    desk.listen(history)
    alice, bob = (desk.listen(line) for line in members[:2])
    for member in (alice, bob):
        member.until(lambda member=member: b"** view: ['alice', 'bob']" in member.messages, "the view")
    alice.put([b"hello"])
    bob.until(lambda: b"[alice]: hello" in bob.messages, "alice")
    bob.put([b"hi alice"])
    alice.until(lambda: b"[bob]: hi alice" in alice.messages, "bob")
    bob.put([b"quit"])
    assert bob.wait() == 0, bob.log
    alice.until(lambda: alice.messages[-1] == b"** view: ['alice']", "a view without bob")
    desk.assert_shows("Chat")
    carol = desk.listen(members[2])
    carol.until(lambda: b"[alice]: hello" in carol.messages, "a line of before")
    alice.until(lambda: alice.messages[-1] == b"** view: ['alice', 'carol']", "carol")
    for member in (alice, carol):
        member.put([b"quit"])
    for member in (alice, carol):
        assert member.wait() == 0, member.log


def test_migrate_distributor_subject_matches_both_patterns(desk: Desk) -> None:
    desk.save("Distributor")
    listening, publish = commands("Publisher and subscriber by subject")
    subscriber = desk.listen(listening)
    assert desk.run(publish).wait() == 0
    assert subscriber.wait() == 0, subscriber.log
    [shown] = blocks(chapter("Publisher and subscriber by subject"), "text")
    assert [line.decode() for line in subscriber.messages] == ["subscribed", *shown.splitlines()]


def test_migrate_openpgm_ports_work_together(desk: Desk) -> None:
    desk.save("OpenPGM")
    receive, send = commands("purinsend, purinrecv and daytime")
    receiver = desk.listen(receive)
    assert desk.run(send).wait() == 0
    assert receiver.wait() == 0, receiver.log
    assert len(receiver.messages) == 4
    desk.assert_shows("purinsend, purinrecv and daytime")
    receiver = desk.listen(receive)
    daytime = desk.run(send.replace("purinsend", "daytime").replace(" hello world", ""))
    receiver.until_messages(3)
    interrupt(daytime)
    assert receiver.wait() == 0, receiver.log
    assert re.fullmatch(rb'"\w{3}, \d\d \w{3} \d{4} [\d:]{8} [+-]\d{4}" \(32 bytes from .*\)', receiver.messages[2])


def _peer(line: str) -> str:
    """Return the command line of the peer with OpenPGM's library in place of a line with OpenPGM's example program."""
    command, _, comment = line.partition("  #")
    program, _, network, _, port, _, data_port, *_ = shlex.split(command)
    verb = {"./purinsend": "send", "./purinrecv": "recv"}[program]
    return shlex.join(["./openpgm_peer", verb, *network.split(";"), port, data_port]) + f"  #{comment}"


@needs_openpgm
def test_migrate_openpgm_library_takes_and_gives(desks: Desk, program: Path) -> None:
    desks.save("OpenPGM")
    (desks.folder / "openpgm_peer").symlink_to(program)
    their_receive, our_send, our_receive, their_send = commands("Beside their programs")
    theirs = desks.listen(_peer(their_receive))
    assert desks.run(our_send).wait() == 0
    theirs.until_messages(2)
    assert theirs.messages == [b"hello\0", b"world\0"]
    theirs.stop()
    ours = desks.listen(our_receive)
    source = desks.listen(_peer(their_send))
    source.put([b"hello\0", b"world\0"])
    ours.until_messages(3)
    source.end_input()
    source.stop()
    assert ours.wait() == 0, ours.log
    desks.assert_shows("purinsend, purinrecv and daytime")


def _assert_topics(receiver: Pipe, *beginnings: bytes) -> None:
    """Assert that the numbers of chosen topics have come without a gap."""
    topics = (b"sports", b"sports.football", b"stocks.GOOG", b"stocks.AAPL", b"weather")
    got = [line for line in receiver.messages if line.startswith(topics)]
    first, last = (int(line.split()[1]) for line in (got[0], got[-1]))
    wanted = [(topics[number % 5], number) for number in range(first, last + 1)]
    assert got == [b"%s %d" % pair for pair in wanted if pair[0].startswith(beginnings)]


def test_migrate_pyzmq_ports_work_together(desk: Desk) -> None:
    desk.save("pyzmq with epgm")
    listening, publish = commands("Topics")
    receiver = desk.listen(listening)
    source = desk.listen(publish)
    receiver.until_messages(5)
    interrupt(source)
    assert receiver.wait() == 0, receiver.log
    _assert_topics(receiver, b"weather", b"stocks")
    desk.assert_shows("Topics")


@needs_zeromq
def test_migrate_pyzmq_takes_and_gives(desks: Desk) -> None:
    desks.save("pyzmq with epgm")
    their_listening, our_publish, our_listening, their_publish = commands("Beside pyzmq")
    subscriber = desks.listen(their_listening)
    source = desks.listen(our_publish)
    subscriber.until_messages(3)
    interrupt(source)
    subscriber.kill()
    _assert_topics(subscriber, b"weather")
    receiver = desks.listen(our_listening)
    publisher = desks.listen(their_publish)
    receiver.until_messages(3)
    publisher.process.send_signal(signal.SIGINT)
    publisher.wait()
    assert receiver.wait() == 0, receiver.log
    _assert_topics(receiver, b"weather")


@pytest.mark.parametrize("system", SYSTEMS)
def test_migrate_knobs_are_names_of_this_version(system: str) -> None:
    text = chapter(system).split("### Knobs")[1].split("###")[0]
    rows = [line.split("|") for line in text.splitlines()[4:] if line]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row[2])}
    keys = set(re.findall(r"^\| `(\w+)` \|", page("reference/topology.md"), re.MULTILINE))
    assert len(rows) > 10
    assert named <= keys | ARGUMENTS, named - keys - ARGUMENTS
