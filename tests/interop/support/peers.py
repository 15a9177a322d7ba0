"""Scenes of sources and receivers, ours and OpenPGM's, with our elements between them.

OpenPGM is the C program `openpgm_peer.c`, compiled here against Debian's library. Ours are the real commands: `pgm
send` and `pgm recv` with `--lines`, `pgm run` for elements.
"""

from __future__ import annotations

import enum
import functools
import itertools
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest

from pgm.net.control.status_socket import ask_status
from tests.interop.support.pipes import PATIENCE_S, Pipe
from tests.interop.support.yard import LANS, Seat, Yard
from tests.net.support import lab

OPENPGM = "OpenPGM 5.3.128"
_SOURCE_FILE = Path(__file__).with_name("openpgm_peer.c")
_HEADERS = Path("/usr/include/pgm-5.3")
_POLL_S = 0.01  # between two polls of a state that gives no notification
DATA_PORT = 7500

# Short timers in the proportions of the defaults, so that streams begin and end soon.
BRISK = {
    "ihb_min": "20ms",
    "fin_quiet_ivl": "200ms",
    "spmr_bo_ivl": "50ms",
    "open_hold_ivl": "200ms",
    "parent_retry_ivl": "1s",
}


@functools.cache
def why_not() -> str:
    """Return the reason for the absence of OpenPGM; an empty string if it is available."""
    missing = [tool for tool in ("gcc", "dumpcap", "tshark") if shutil.which(tool) is None]
    if not (_HEADERS / "pgm" / "pgm.h").exists():
        missing.append("libpgm-dev")
    if missing:
        return f"needs {', '.join(missing)}: apt-get install gcc libpgm-dev tshark"
    return lab.why_not()


needs_openpgm = pytest.mark.skipif(bool(why_not()), reason=why_not())


def compile_peer(folder: Path) -> Path:
    """Compile the peer and return the program."""
    program = folder / "openpgm_peer"
    flags = ["-O1", "-w", "-D_GNU_SOURCE", f"-I{_HEADERS}"]
    command = ["gcc", *flags, "-o", str(program), str(_SOURCE_FILE), "-lpgm-5.3"]
    subprocess.run(command, check=True)
    return program


class Side(enum.Enum):
    """Implementation of a source or receiver."""

    OURS = "pgm"
    THEIRS = OPENPGM


class Layout(enum.Enum):
    """Elements between source and receivers, as nodes of the topology file."""

    DIRECT = "nothing: one LAN"
    FLAT = "repairers on the LAN of source and receivers"
    RELAY = "a relaying aggregator, and repairers on the LAN below it"


@attrs.frozen
class Pair:
    """Row of the matrix."""

    key: str
    title: str
    source: Side
    receivers: Side
    layout: Layout = Layout.DIRECT


@attrs.define
class Scene:
    """One source, its receivers and the elements between them, on a port of their own."""

    yard: Yard
    program: Path  # the OpenPGM peer
    folder: Path  # short, for status sockets
    pair: Pair
    layout: Layout
    repairers: int = 0
    relay_role: str = "aggregator"
    has_standby: bool = False  # of the relay
    parameters: dict[str, str] = attrs.field(factory=dict)  # of our nodes
    settings: dict[str, int] = attrs.field(factory=dict)  # of the OpenPGM peers
    rate: str = "32Mbit/s"
    profile: str = ""
    first_sqn: int = 0  # of the source
    signer: str = ""  # public line of the source's keys, if the stream is signed
    port: int = attrs.field(init=False)
    pipes: list[Pipe] = attrs.field(factory=list)
    elements: dict[str, Pipe] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self.port = self.yard.next_port()
        self.file = self.folder / "tree.toml"
        self.file.write_text(self.topology())

    file: Path = attrs.field(init=False)

    # The tree

    def group(self, lan: str) -> str:
        """Return the group of this scene on a LAN."""
        return f"239.{192 + list(LANS).index(lan)}.{self.port // 256 % 256}.{self.port % 256}"

    @property
    def below(self) -> str:
        """Return the LAN of the receivers."""
        return "down" if self.layout is Layout.RELAY else "up"

    @property
    def name(self) -> str:
        """Return the name of the tree in the topology file."""
        return f"i{self.port}"

    @property
    def repairer_names(self) -> list[str]:
        """Return the repairers in the order of preference."""
        return [f"repairer-{number}" for number in range(1, self.repairers + 1)]

    @property
    def relay_names(self) -> list[str]:
        """Return the relays, if the layout has any."""
        if self.layout is not Layout.RELAY:
            return []
        return ["relay", "standby"] if self.has_standby else ["relay"]

    def topology(self) -> str:
        """Return the topology file of the scene, which lists nodes that run OpenPGM like ours."""
        settings = ", ".join(f'{key} = "{value}"' for key, value in {**BRISK, **self.parameters}.items())
        parts = ["version = 1", f'name = "{self.name}"', f"parameters = {{ {settings} }}"]
        parts += [f'profile = "{self.profile}"'] if self.profile else []
        parts += [f'keys.source = ["{self.signer}"]'] if self.signer else []
        parts += ["[streams.s]", f"data_port = {DATA_PORT}", f'rate = "{self.rate}"', 'window = "20s"']
        parts += ["signed = true"] if self.signer else []
        for lan in LANS if self.layout is Layout.RELAY else ("up",):
            parts += [f"[segments.{lan}]", f'group = "{self.group(lan)}"', f"port = {self.port}"]
            parts += [f'interface = "{LANS[lan]}.0/24"']
        parts += self._node("source", "source", "up", streams=["s"])
        above = ["source"]
        if self.layout is Layout.RELAY:
            above = self.relay_names
            parts += [line for name in above for line in self._relay(name)]
        for name in self.repairer_names:
            parts += self._node(name, "repairer", self.below, parents=above)
        asked = [*self.repairer_names, *above] if self.layout is Layout.FLAT else above
        parts += [
            '[nodes."desk-*"]',
            'role = "receiver"',
            f'segment = "{self.below}"',
            "count = 2",
            f"parents = {asked}",
        ]
        pool = ", ".join(f'"{self.yard.seat(name, self.below).address}"' for name in ("desk-1", "desk-2"))
        parts += [f"addresses = [{pool}]"]
        return "\n".join(parts).replace("'", '"') + "\n"

    def _relay(self, name: str) -> list[str]:
        lines = [f"[nodes.{name}]", f'role = "{self.relay_role}"', f"upstream = {self._place(name, 'up')}"]
        lines += [f"downstream = [{self._place(name, 'down')}]", 'parents = ["source"]']
        lines += [f"repairers = {self.repairer_names}"] if self.repairers and self.relay_role == "aggregator" else []
        return lines + (['standby_of = "relay"'] if name == "standby" else [])

    def _place(self, node: str, lan: str) -> str:
        return f'{{ segment = "{lan}", address = "{self.yard.seat(node, lan).address}" }}'

    def _node(self, name: str, role: str, lan: str, **keys: Sequence[str]) -> list[str]:
        lines = [f"[nodes.{name}]", f'role = "{role}"', f'segment = "{lan}"']
        lines.append(f'address = "{self.yard.seat(name, lan).address}"')
        return lines + [f"{key} = {value}" for key, value in keys.items()]

    # Processes

    def _keep(self, pipe: Pipe) -> Pipe:
        self.pipes.append(pipe)
        return pipe

    def _ours(self, name: str, program: tuple[str, str], *options: str) -> Pipe:
        command = [sys.executable, "-m", *program, str(self.file), "--node", name, *options]
        return Pipe(name, self.yard.hosts[name], [*command, "--json"], PGM_RUNTIME_DIR=str(self.folder))

    def _theirs(self, name: str, verb: str, lan: str, settings: dict[str, int]) -> Pipe:
        seat = self.yard.seat(name, lan)
        words = [f"{key}={value}" for key, value in {**self.settings, **settings}.items()]
        places = [seat.address, self.group(lan), str(self.port), str(DATA_PORT)]
        return Pipe(name, seat.host, [str(self.program), verb, *places, *words])

    def start_source(self, **settings: int) -> Pipe:
        """Start the source; the stream has no message yet."""
        if self.pair.source is Side.THEIRS:
            chosen = {"ambient": 200, "first": self.first_sqn, **settings}
            return self._keep(self._theirs("source", "send", "up", chosen))
        program = (
            ("deploy", "send") if not self.first_sqn else ("tests.interop.support.wrapping_source", str(self.first_sqn))
        )
        return self._keep(self._ours("source", program, "--lines", "--settle", "0s"))

    def start_receiver(self, name: str, **settings: int) -> Pipe:
        """Start a receiver, `desk-1` or `desk-2`."""
        if self.pair.receivers is Side.OURS:
            return self._keep(self._ours(name, ("deploy", "recv"), "--lines", "--follow"))
        return self._keep(self._theirs(name, "recv", self.below, settings))

    def start_element(self, name: str) -> Pipe:
        """Start the relay or a repairer."""
        self.elements[name] = self._keep(self._ours(name, ("deploy", "run")))
        return self.elements[name]

    def until_joined(self, receiver: Pipe) -> None:
        """Wait until a receiver has joined the group."""
        seat, group = self.seat(receiver.name), self.group(self.below)
        self.until(lambda: f" {group}" in seat.host.run("ip", "maddress", "show", "dev", seat.interface), receiver.log)

    @staticmethod
    def until(holds: Callable[[], object], what: str = "") -> None:
        """Poll until a condition holds."""
        deadline = time.monotonic() + PATIENCE_S
        while not holds():
            assert time.monotonic() < deadline, f"timeout: {what}"
            time.sleep(_POLL_S)

    def counters(self, node: str) -> dict[str, int]:
        """Return the counters of a running element."""
        snapshot: dict[str, Any] = ask_status(self.folder / self.name / f"{node}.sock")
        found: dict[str, int] = snapshot["counters"]
        return found

    def close(self) -> None:
        """End every process and remove every rule."""
        for pipe in self.pipes:
            pipe.close()
        self.yard.clear_rules()

    # Steps of tests

    def lose(self, where: Sequence[str], *losses: str) -> None:
        """Count packets at some hosts, and drop those that match any of `losses`."""
        for name in where:
            self.yard.rule(self.seat(name), self.port, *losses)

    def counts(self, name: str) -> dict[str, int]:
        """Return the counts of a host since the last call of `lose`."""
        return self.yard.counts(self.yard.hosts[name])

    def seat(self, name: str) -> Seat:
        """Return the address of a node; for a relay the one on the upper LAN."""
        return self.yard.seat(name, "up" if name in ("source", "relay", "standby") else self.below)

    @property
    def nak_target(self) -> Seat:
        """Return the address that gets the NAKs of receivers without a repairer."""
        return self.yard.seat("relay", "down") if self.layout is Layout.RELAY else self.seat("source")

    def open(self, desks: Sequence[str] = ("desk-1", "desk-2"), **settings: int) -> tuple[Pipe, list[Pipe]]:
        """Start all processes and send one message without loss.

        A receiver that has this message misses nothing from there on (RCV-01).
        """
        self.lose([*desks, "source"])
        started = [self.start_element(name) for name in (*self.relay_names, *self.repairer_names)]
        receivers = [self.start_receiver(name) for name in desks]
        for element in started:
            element.until_said("ready:")
        for receiver in receivers:
            self.until_joined(receiver)
        source = self.start_source(**settings)
        self.greet(source, receivers)
        return source, receivers

    def greet(self, source: Pipe, receivers: Sequence[Pipe], text: bytes = b"hello") -> None:
        """Send one message and wait until all receivers have the message and an SPM."""
        before = [len(receiver.messages) for receiver in receivers]
        self.until(lambda: all(self.counts(one.name)["spm"] for one in receivers), source.log)
        source.put([text])
        for receiver, count in zip(receivers, before, strict=True):
            receiver.until_messages(count + 1)

    def end(self, source: Pipe, receivers: Sequence[Pipe]) -> None:
        """End the source in order, then the receivers."""
        self.lose([receiver.name for receiver in receivers])
        source.end_input()
        if self.pair.source is Side.THEIRS:
            source.stop()
        for receiver in receivers:
            if self.pair.receivers is Side.OURS:
                receiver.until_said("closed-fin: ")
                receiver.process.terminate()
                receiver.wait()
            else:
                assert receiver.stop() == 0, receiver.log


def messages(count: int, size: int = 1000, name: str = "m") -> list[bytes]:
    """Return distinct messages of `size` octets without newlines."""
    pattern = b"abcdefghijklmnopqrstuvwxyz0123456789" * (size // 36 + 2)
    made = []
    for number in range(count):
        head = b"%s-%07d " % (name.encode(), number)
        made.append((head + pattern[number % 36 :])[:size])
    return made


def sizes(count: int, name: str = "m") -> list[bytes]:
    """Return messages of all sizes that a packet of the peers holds."""
    cycle = itertools.cycle((20, 1400, 21, 300, 1448 - 28, 47, 999))
    return [messages(1, size, f"{name}{number}")[0] for number, size in zip(range(count), cycle, strict=False)]


def account(receiver: Pipe) -> dict[str, Any]:
    """Return the JSON object that one of our commands printed at its end."""
    found: dict[str, Any] = json.loads(next(line for line in reversed(receiver.said) if line.startswith("{")))
    return found
