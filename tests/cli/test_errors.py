"""Every bad input ends in one clear message with a remedy and the right exit code, without a traceback.

The cases run through the real `pgm` process, and through the library, whose errors carry the same text.
"""

from __future__ import annotations

import contextlib
import os
import pty
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio

import pgm.blocking as library
from pgm.errors import PgmError, ProcessError, TopologyError, TransportError
from pgm.net.control.status_socket import serve_status
from tests.cli.command import (
    CommandResult,
    ProcessMark,
    command,
    environment,
    invoked,
    marked,
    pgm,
    unprivileged,
    until_listening,
)
from tests.net.support.lab import ROOT, Host, Lab, lab, needs_namespaces
from tests.net.support.places import Place, one_segment
from tests.net.support.processes import Process, processes

# Each case breaks a file: the replacement, a mark on the line of the finding, and the text of the finding.
# fmt: off
FAULTS: dict[str, tuple[tuple[str, str], str, tuple[str, ...]]] = {
    "unknown key": (("window = ", "windov = "), "windov", ("unknown key 'windov'", "did you mean 'window'?")),
    "bad unit": (("400Mbit/s", "400Mbps"), "400Mbps", ("'400Mbps' is not a rate", "Mbit/s", "such as")),
    "loop": (("address = \"{net}.2\"\nparents = [\"source\"]", "address = \"{net}.2\"\nparents = [\"second\"]"), 'parents = ["second"]',
             ("the parents form a loop: first asks second asks first", "remove")),
    "two parents claim a segment": (("# here", '[nodes.rival]\nrole = "aggregator"\nupstream = { segment = "lan", address = "{net}.7" }\n'
                                    'downstream = [{ segment = "low", address = "{low}.2" }]\nparents = ["source"]'), "{low}.2",
                                    ("the relays 'relay' and 'rival' are both active on low", "standby_of")),
    "port clash": (("{net}.3", "{net}.2"), "# second", ("'first' and 'second' both use {net}.2 port", "give each its own address")),
    "unreachable parent": (('parents = ["relay"]', 'parents = ["source"]'), 'parents = ["source"] # desk',
                           ("'desk-*' asks on low, 'source' answers on lan", "remove 'source'")),
    "name of nobody": (('parents = ["relay"]', 'parents = ["rely"]'), 'parents = ["rely"]', ("'rely', which does not exist", "did you mean 'relay'?")),
}
# fmt: on


class BrokenTree:
    """Tree with two tiers, and ways to break it."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "tree.toml"
        self._net, self._low = Place.new().net, Place.new().net

    def _filled(self, text: str) -> str:
        return text.replace("{net}", self._net).replace("{low}", self._low)

    def write(self, *faults: str) -> list[tuple[int, tuple[str, ...]]]:
        """Write the file with these faults; return the line and the expected text of each."""
        text = self._filled(_TREE)
        for fault in faults:
            old, new = map(self._filled, FAULTS[fault][0])
            assert old in text, (fault, old)
            text = text.replace(old, new, 1)
        self.file.write_text(text)
        found = []
        for fault in faults:
            mark = self._filled(FAULTS[fault][1])
            number = next(number for number, line in enumerate(text.splitlines(), 1) if mark in line)
            found.append((number, tuple(map(self._filled, FAULTS[fault][2]))))
        return found


FLOOR = "deploy/topologies/trading-floor.toml"
_TREE = """\
version = 1
name = "tree"
[streams.s]
data_port = 7500
rate = "400Mbit/s"
window = "10s"
[segments.lan]
group = "239.192.9.1"
interface = "{net}.0/24"
[segments.low]
group = "239.192.9.2"
interface = "{low}.0/24"
[nodes.source]
role = "source"
segment = "lan"
address = "{net}.1"
streams = ["s"]
[nodes.first]
role = "repairer"
segment = "lan"
address = "{net}.2"
parents = ["source"]
[nodes.second]
role = "repairer"
segment = "lan"
address = "{net}.3" # second
parents = ["first"]
[nodes.relay]
role = "aggregator"
upstream = { segment = "lan", address = "{net}.4" }
downstream = [{ segment = "low", address = "{low}.1" }]
parents = ["source"]
# here
[nodes."desk-*"]
role = "receiver"
segment = "low"
addresses = "{low}.10-{low}.19"
parents = ["relay"] # desk
"""


@pytest.fixture
def broken(tmp_path: Path) -> BrokenTree:
    return BrokenTree(tmp_path)


@pytest.fixture
def tree(tmp_path: Path, place: Place) -> Path:
    """Write a correct file with one segment."""
    file = tmp_path / "tree.toml"
    file.write_text(one_segment(place))
    return file


# The topology file


def test_errors_unbroken_tree_is_valid(broken: BrokenTree) -> None:
    broken.write()
    assert pgm("check", broken.file) == CommandResult(0, f"{broken.file}: good\n", "")


@pytest.mark.parametrize("fault", FAULTS)
def test_errors_broken_file_names_line_and_remedy(broken: BrokenTree, fault: str) -> None:
    ((line, says),) = broken.write(fault)
    with pytest.raises(TopologyError) as caught:
        _open(broken.file)
    told = [problem for problem in caught.value.problems if problem.startswith(f"{broken.file}:{line}: ")]
    assert told, caught.value.problems
    for text in says:
        assert text in told[0]
    assert caught.value.code == "PGM-TOPOLOGY"


def _open(file: Path) -> None:
    with library.open_receiver(file, node="desk-1"):
        raise AssertionError("the endpoint was opened")


def test_all_errors_come_at_once_from_every_command(broken: BrokenTree) -> None:
    expected = broken.write("unknown key", "bad unit", "loop", "two parents claim a segment", "unreachable parent")
    check = pgm("check", broken.file)
    assert (check.code, check.err) == (2, "")
    run = pgm("run", broken.file, "--node", "relay")
    run.complains(2)
    for line, says in expected:
        for said, prefix in ((check.out, "error: "), (run.err, "pgm: ")):
            at = f"{prefix}{broken.file}:{line}: "
            assert any(one.startswith(at) and all(text in one for text in says) for one in said.splitlines()), said
    assert len(check.out.splitlines()) == len(run.err.splitlines()) >= len(expected)
    error = pgm("recv", broken.file, "--node", "desk-1", "--json")
    assert error.code == 2
    assert error.out == ""  # standard output is for data
    assert '"code":"PGM-TOPOLOGY"' in error.err


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "No such file or directory"),
        ("folder", "Is a directory"),
        (b"\xff\xfe", "not UTF-8"),
        (b"version = ", "Invalid value"),
        (b"", "the file has no version"),
    ],
)
def test_errors_file_that_is_no_topology(tmp_path: Path, content: bytes | str | None, says: str) -> None:
    file = tmp_path / "tree.toml"
    if content == "folder":
        file.mkdir()
    elif isinstance(content, bytes):
        file.write_bytes(content)
    invoked("run", file, "--node", "x").complains(2, str(file), says)


def test_a_file_that_may_not_be_read(tree: Path) -> None:
    tree.chmod(0)
    line = unprivileged("check", tree)
    done = subprocess.run(line, capture_output=True, text=True, cwd=ROOT, env=environment(), check=False)
    assert done.returncode == 2, done
    assert "Permission denied" in done.stdout
    assert "Traceback" not in done.stderr


# Names and usage


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("run", "FILE", "--node", "sorce"), ("there is no node 'sorce'", "did you mean 'source'?")),
        (("run", "FILE", "--node", "desk-*"), ("'desk-*' is a pattern", '"desk-1"')),
        (("run", "FILE", "--node", "desk-99"), ("'desk-99' has no address", "extend the range")),
        (("status", "FILE", "--node", "dask-1"), ("there is no node 'dask-1'", "did you mean 'desk-1'?")),
        (("render", "FILE", "--node", "x"), ("there is no node 'x'", "known are desk-1, source")),
        (("send", "FILE"), ("many nodes", "--node NAME")),
        (("recv", "pgm://239.192.9.1?interface=lo", "--node", "x"), ("an address has no nodes", "leave out --node")),
        (("record", "FILE"), ("many nodes", "--node NAME")),
        (("record", "pgm://239.192.9.1?interface=lo", "--node", "x"), ("an address has no nodes", "leave out --node")),
        (
            ("send", "FILE", "--node", "desk-1"),
            ("the role of node desk-1 is receiver, not source", "a node whose role is source"),
        ),
        (("recv", "FILE", "--node", "desk-1", "--stream", "x"), ("no stream 'x'", "name one of s")),
        (("recv", "FILE", "--node", "desk-1", "--wait", "5"), ("'5' is not a duration", '"50ms"')),
        (("sim", "FILE", "--loss", "5"), ("'5' is not a percentage", '"2%"')),
        (("sim", "FILE", "--count", "dask-*=5"), ("no pattern 'dask-*'", "did you mean 'desk-*'?")),
        (("sim", "FILE", "--fault", "crash:relai@1s"), ("there is no node 'relai'", "known are desk-1, source")),
        (
            ("sim", "FILE", "--real", "1", "--count", "desk-*=3", "--fault", "crash:desk-2@1s"),
            ("'desk-2' is modelled", "raise --real to 2"),
        ),
        (("plan", "FILE", "--loss", "1%", "--delay", "up=5ms"), ("no segment 'up'", "SEGMENT=TIME with one of lan")),
        (("plan", "FILE", "--loss", "1%", "--delay", "lan"), ("--delay lan has no time", "such as lan=5ms")),
        (("sim", "FILE", "--fault", "cash:desk-1@1s"), ("'cash:desk-1@1s' is not a fault", "KIND:NODE@WHEN")),
        (("sim", "FILE", "--fault", "pause:desk-1@1s"), ("'pause:desk-1@1s' has no duration", "@1s+1s")),
        (
            ("sim", "FILE", "--fault", "crash:desk-1@1s+2s"),
            ("a crash does not end", "leave out +2s, or write crash_and_"),
        ),
        (("recv", "pgm://239.192.9.1:3056?interfase=lo&data_port=7500"), ("unknown key 'interfase'", "'interface'?")),
        (("recv", "pgm://10.0.0.1:3056?interface=lo&data_port=7500"), ("not a multicast address", "239.192.0.0/14")),
        (("recv", "udp://239.192.9.1:3056?interface=lo"), ("is no address of a group", "pgm://")),
        (("demo", "--receivers", "2000", "--subnets", "3"), ("room for 155 receivers, not for 667", "--subnets 13")),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_errors_wrong_name_or_option_is_reported(tree: Path, arguments: tuple[str, ...], says: tuple[str, ...]) -> None:
    invoked(*(str(tree) if one == "FILE" else one for one in arguments)).complains(2, *says)


def test_errors_wrong_command_line_is_reported(tree: Path) -> None:
    for arguments, says in (
        (("chek", tree), "there is no command 'chek'; did you mean 'check'?"),
        (("run", tree), "Missing option '--node'"),
        (("demo", "--loss", "70%"), "at most 50%"),
        (("demo", "--rate", "1bit/s"), "'--rate': txw_max_rte = 0bit/s is out of range; choose from 8kbit/s"),
    ):
        done = pgm(*arguments)
        assert done.code == 2
        assert says in done.err
        assert "pgm" in done.err.splitlines()[0]  # and not "python -m ..."
        assert "Traceback" not in done.err


# Sockets


@contextlib.contextmanager
def bound_port(address: str, port: int) -> Iterator[None]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind((address, port))
        yield


def test_a_busy_port(tree: Path, place: Place) -> None:
    with bound_port("0.0.0.0", place.port):
        for arguments in (("run", tree, "--node", "source", "--idle"), ("recv", tree, "--node", "desk-1")):
            pgm(*arguments).complains(
                1,
                f"port {place.port} is in use by another process: process {os.getpid()}",
                f"kill {os.getpid()}; or give",
            )
        with pytest.raises(TransportError, match="is in use by this process") as caught, _source(tree):
            raise AssertionError("the endpoint was opened")
    assert caught.value.code == "PGM-NET"
    assert isinstance(caught.value.__cause__, OSError)


def _source(tree: Path) -> contextlib.AbstractContextManager[object]:
    return library.open_source(tree, node="source")


def test_errors_busy_port_is_told_once_for_all_nodes(tmp_path: Path, place: Place) -> None:
    file = tmp_path / "tree.toml"
    file.write_text(one_segment(place).replace("count = 1", "count = 3"))
    with bound_port("0.0.0.0", place.port), marked() as mark:
        pgm("up", file, env=mark.env).complains(
            1, f"port {place.port} is in use by another process: process {os.getpid()}", f"kill {os.getpid()}"
        )
        mark.until_nothing_runs()


def test_two_processes_of_one_node(place: Place) -> None:
    with processes(one_segment(place), f"t{place.number}") as running:
        running.start_all(["desk-1"])
        again = pgm("run", running.file, "--node", "desk-1", env={"PGM_RUNTIME_DIR": str(running.folder)})
        again.complains(
            1,
            "a process for this node is already running",
            "stop it first",
        )
        assert running.status("desk-1")["node"] == "desk-1"  # the first node is unaffected


async def test_two_processes_of_one_node_that_shares_its_address(tmp_path: Path) -> None:
    path = tmp_path / "tree" / "desk-1.sock"
    async with trio.open_nursery() as nursery:
        await nursery.start(serve_status, path, dict)
        with pytest.raises(ProcessError, match="already running") as caught:
            await serve_status(path, dict)
        assert "stop it first" in caught.value.remedy
        assert path.exists()
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("folder", ["/proc/nowhere", "/tmp/" + "x" * 120])
def test_errors_status_socket_failure_is_reported(tree: Path, folder: str) -> None:
    try:
        done = pgm("run", tree, "--node", "desk-1", env={"PGM_RUNTIME_DIR": folder})
    finally:
        with contextlib.suppress(OSError):
            for path in sorted(Path(folder).glob("**"), reverse=True):
                path.rmdir()
    assert "cannot make the status socket" in done.err
    assert "set PGM_RUNTIME_DIR" in done.err.splitlines()[-1]
    assert done.code == 1


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ({"address": "10.254.253.252"}, ("10.254.253.252 is not an address of this host", "ip address add")),
        ({"interface": "nowhere0"}, ("no IPv4 interface matches 'nowhere0'", "lo 127.0.0.1/8")),
        ({"interface": "198.51.100.0/24"}, ("no IPv4 interface matches '198.51.100.0/24'", "lo 127.0.0.1/8")),
    ],
)
def test_errors_missing_address_or_interface_is_reported(
    place: Place, query: dict[str, str], says: tuple[str, ...]
) -> None:
    url = place.url(**query)
    pgm("recv", url).complains(1, *says)
    with pytest.raises(PgmError) as caught, library.open_receiver(url):
        raise AssertionError("the endpoint was opened")
    assert says[0] in caught.value.message
    assert says[1] in caught.value.remedy


def test_ipv6_multicast_on_loopback_gets_a_hint(place: Place) -> None:
    done = pgm("recv", f"pgm://[ff15::9]:{place.port}?interface=lo&data_port=7500")
    if "no IPv6 interface matches" in done.err:
        pytest.skip("this host has no IPv6")
    done.complains(1, "loopback interface lo carries no IPv6 multicast", "use IPv4 groups on loopback")


# Interfaces and routes, in namespaces of our own


@pytest.fixture(scope="module")
def hosts() -> Iterator[tuple[Host, Host, str]]:
    """Yield two hosts that are joined, and the name of the first host's interface."""
    with lab() as made:
        yield _joined(made)


def _joined(made: Lab) -> tuple[Host, Host, str]:
    one, other = made.host("one"), made.host("other")
    name, peer = made.join(one, "10.7.0.1/24", other, "10.7.0.2/24")
    one.add_address(name, "fd07::1/64")
    other.add_address(peer, "fd07::2/64")
    return one, other, name


def _down(host: Host, name: str) -> Callable[[], object]:
    host.run("ip", "link", "set", name, "down")
    return lambda: host.run("ip", "link", "set", name, "up")


def _deaf(host: Host, name: str) -> Callable[[], object]:
    host.run("ip", "link", "set", name, "multicast", "off")
    return lambda: host.run("ip", "link", "set", name, "multicast", "on")


def _astray(host: Host, name: str) -> Callable[[], object]:
    route = ("multicast", "ff00::/8", "dev", name, "table", "local")
    host.run("ip", "-6", "route", "del", *route)
    return lambda: host.run("ip", "-6", "route", "add", *route)


@needs_namespaces
@pytest.mark.network
@pytest.mark.parametrize(
    ("spoil", "group", "says"),
    [
        (_down, "239.192.9.1", ("interface {name} is down", "ip link set {name} up")),
        (_deaf, "239.192.9.1", ("interface {name} cannot do multicast", "ip link set {name} multicast on")),
        (
            _astray,
            "[ff15::9]",
            ("no route to group ff15::9", "ip -6 route add multicast ff00::/8 table local dev {name}"),
        ),
    ],
    ids=["down", "without multicast", "without a group route"],
)
def test_errors_unusable_interface_is_reported(
    hosts: tuple[Host, Host, str], spoil: Callable[[Host, str], Callable[[], object]], group: str, says: tuple[str, ...]
) -> None:
    host, _, name = hosts
    url = f"pgm://{group}:3056?interface={name}&data_port=7500"
    mend = spoil(host, name)
    try:
        pgm("recv", url, host=host).complains(1, *(text.replace("{name}", name) for text in says))
    finally:
        mend()
    # After the remedy the only complaint left is the missing source.
    pgm("recv", url, "--wait", "1ms", host=host).complains(1, "no source was heard")


@needs_namespaces
@pytest.mark.network
def test_an_ipv4_group_needs_no_route(hosts: tuple[Host, Host, str]) -> None:
    """The index selects the interface, so data arrive on a host without a route to 224.0.0.0/4."""
    one, other, name = hosts
    for host in (one, other):
        host.run("ip", "route", "flush", "224.0.0.0/4")
        assert "224.0.0.0" not in host.run("ip", "route")
    receiver = Process("recv", ["recv", "--lines", f"pgm://239.192.9.1:3056?interface={name}&data_port=7500"], one)
    try:
        until_listening("239.192.9.1", 3056, receiver.process.pid)
        url = "pgm://239.192.9.1:3056?interface=10.7.0.0/24&data_port=7500"
        assert pgm("send", "--lines", url, host=other, input="one\ntwo\n").code == 0
        assert receiver.wait() == 0, receiver.log
        assert receiver.printed == ["one", "two"]
    finally:
        receiver.close()


# Input and output


@pytest.mark.parametrize("target", ["file", "url"])
def test_a_receiver_without_a_source(tree: Path, place: Place, target: str) -> None:
    where = (tree, "--node", "desk-1") if target == "file" else (place.url(),)
    done = pgm("recv", *where, "--wait", "200ms")
    done.complains(
        1, f"no source was heard on {place.group()}:{place.port} (lo) in 0.2 s", "start the source", "--wait"
    )
    done = pgm("recv", *where, "--wait", "200ms", "--json")
    assert (done.code, done.out) == (1, "")
    assert '"code":"PGM-PROC"' in done.err.splitlines()[-1]


@pytest.mark.parametrize("arguments", [("send",), ("run",)])
def test_standard_input_that_is_closed(tree: Path, arguments: tuple[str, ...]) -> None:
    line = ["sh", "-c", 'exec "$@" <&-', "sh", *command(*arguments, tree, "--node", "source")]
    done = subprocess.run(line, capture_output=True, text=True, env=environment(), check=False)
    CommandResult(done.returncode, done.stdout, done.stderr).complains(
        2, "standard input is closed", "redirect data to it"
    )


def test_errors_terminal_as_input_is_reported(tree: Path) -> None:
    main, side = pty.openpty()
    try:
        sender = Process("send", ["send", str(tree), "--node", "source", "--lines"], stdin=side)
        try:
            sender.line_with("reading from the terminal; Ctrl-D")
            os.write(main, b"a line\n\x04")
            assert sender.wait() == 0, sender.log
            assert "1 messages, 6 octets" in sender.log
        finally:
            sender.close()
    finally:
        os.close(main)
        os.close(side)


def test_a_message_that_is_larger_than_the_window(tmp_path: Path, place: Place) -> None:
    file = tmp_path / "tree.toml"
    file.write_text(one_segment(place, window="64KiB"))
    pgm("send", "--lines", file, "--node", "source", input="x" * 200_000 + "\n").complains(
        2, "octets or more does not fit: the limit is 32768", "raise max_apdu"
    )


@pytest.mark.parametrize(
    "arguments",
    [("plan", FLOOR), ("check", FLOOR), ("plan", FLOOR, "--json")],
    ids=lambda value: " ".join(value[::2]),
)
def test_errors_full_disk_is_reported(arguments: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command(*arguments), stdout=full, stderr=subprocess.PIPE, text=True, env=environment(), check=False
        )
    CommandResult(done.returncode, "", done.stderr).complains(1, "No space left on device", "check the path")


@pytest.mark.parametrize("arguments", [("render", "FILE", "--out"), ("demo", "--write")])
def test_errors_unwritable_path_is_reported(tree: Path, arguments: tuple[str, ...]) -> None:
    words = [str(tree) if one == "FILE" else one for one in arguments]
    invoked(*words, "/proc/nowhere/x").complains(1, "/proc/nowhere", "No such file or directory")


def test_the_marks_of_these_tests_find_processes() -> None:
    """`until_nothing_runs` relies on this."""
    with marked() as mark:
        sleeper = subprocess.Popen(["sleep", "60"], env={**os.environ, **mark.env})
        # /proc shows no environment for a moment during exec.
        deadline = time.monotonic() + 10
        while not (found := mark.running()) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert found == [sleeper.pid]
        sleeper.kill()
        sleeper.wait()
        assert mark.running() == []
    assert ProcessMark().running() == []
