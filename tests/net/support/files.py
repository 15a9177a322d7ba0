"""A file from one host through a relay to receivers on two others, over last hops that lose packets.

    source ── up ── relay ── left ── left-1, left-2
                       └──── right ── right-1, right-2

Every name but `up` is a host with a network namespace of its own; `left` and `right` run two receivers each. Each of
the two last hops loses the same share in both directions: data and NCFs on the way down, NAKs on the way up.
"""

from __future__ import annotations

import enum
import hashlib
import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import attrs
import numpy as np

from pgm.impairments import Injector
from pgm.parameters import Parameters
from pgm.topology.load import load_checked
from pgm.topology.plan import plan_node
from tests.net.support import loss_rule
from tests.net.support.lab import Host, Lab, lab
from tests.net.support.processes import PATIENCE_S, Process, Processes, processes

SIDES = ("left", "right")
RECEIVERS_A_SIDE = 2
RECEIVERS = tuple(f"{side}-{number}" for side in SIDES for number in range(1, RECEIVERS_A_SIDE + 1))
STRIDE = Parameters().max_tpdu  # octets of a full packet
GROUPS = {"up": "239.192.60.1", "left": "239.192.60.2", "right": "239.192.60.3"}
NETS = {"up": "10.7.0", "left": "10.7.1", "right": "10.7.2"}
# Room and time for the whole file wherever it may have to wait, however slow the machine: then a fifth of everything lost
# costs time and nothing else. Two receivers of a segment that lose a fifth each, of repairs too, need 0.36 / 0.8 of the
# rate again for repairs, so they get all they can use.
_PATIENT = {
    "rdata_share": '"100%"',
    "rxw_bytes": '"1GiB"',
    "rxw_gaps": "262144",
    "cache_bytes": '"1GiB"',
    "cache_secs": '"30min"',
    "session_expiry": '"30min"',
}
_WINDOW = "30min"  # of the source
_CHUNK_OCTETS = 1 << 24  # of the file, at a time
_POLL_S = 0.02  # between two checks of the groups
_WATCH_S = 1.0  # between two checks of the output


class Way(enum.Enum):
    """Kind of loss on the last hops."""

    TRAINS = "trains"  # a rule, and segmentation is offloaded: whole trains
    SINGLE = "single"  # the same rule, and the relay's veths send packet by packet
    INJECTOR = "injector"  # our own, packet by packet within the trains that were read


@attrs.frozen
class Case:
    """One transfer."""

    way: Way
    loss: float
    relay: str = "repairer"
    rate: str = "200Mbit/s"
    octets: int = 200_000_000
    parameters: dict[str, str] = attrs.field(factory=dict)  # for all nodes, over those that every case has

    @property
    def topology(self) -> str:
        """Return the topology file."""
        hop_loss = f', loss = {{ loss = "{self.loss:.4%}" }}' if self.way is Way.INJECTOR else ""
        seats = [f'{{ segment = "{side}", address = "{NETS[side]}.1"{hop_loss} }}' for side in SIDES]
        parts = ['version = 1\nname = "files"\nprofile = "lossy"\n[parameters]']
        parts += [f"{key} = {value}" for key, value in {**_PATIENT, **self.parameters}.items()]
        parts += [f'[streams.file]\ndata_port = 7500\nrate = "{self.rate}"\nwindow = "{_WINDOW}"']
        parts += [f'[segments.{name}]\ngroup = "{GROUPS[name]}"\ninterface = "{NETS[name]}.0/24"' for name in GROUPS]
        parts.append(f'[nodes.source]\nrole = "source"\nsegment = "up"\naddress = "{NETS["up"]}.1"\nstreams = ["file"]')
        parts.append(
            f'[nodes.relay]\nrole = "{self.relay}"\nupstream = {{ segment = "up", address = "{NETS["up"]}.2" }}\n'
            f'downstream = [{", ".join(seats)}]\nparents = ["source"]'
        )
        for side in SIDES:
            parts.append(
                f'[nodes."{side}-*"]\nrole = "receiver"\nsegment = "{side}"\ncount = 2\nstreams = ["file"]\n'
                f'parents = ["relay"]' + (f'\nloss = {{ loss = "{self.loss:.4%}" }}' if hop_loss else "")
            )
        return "\n".join(parts) + "\n"


@attrs.frozen
class Hop:
    """Losses of data on one last hop, or by one receiver's injector."""

    name: str
    seen: int  # packets or trains of any type
    lost: int
    train: float  # packets in a unit of data that came, on average
    runs: tuple[int, ...]  # lengths of runs of losses, in packets

    @property
    def share(self) -> float:
        """Return the share of packets lost."""
        return self.lost / max(1, self.seen)

    @property
    def mean_run(self) -> float:
        """Return the mean length of a run of losses in packets."""
        return sum(self.runs) / max(1, len(self.runs))

    @property
    def typical_run(self) -> float:
        """Return the mean length, in packets, of the run in which a lost packet lies."""
        return sum(run * run for run in self.runs) / max(1, sum(self.runs))


@attrs.frozen
class Outcome:
    """Outcome of a transfer."""

    case: Case
    seconds: float  # from the start of `pgm send` to the end of the last process
    stream_seconds: float  # from the first sign of the stream at a receiver to the end of the last receiver
    digest: str  # of the file
    digests: dict[str, str]  # of each receiver's output
    exits: dict[str, int]
    counters: dict[str, dict[str, int]]  # of source, relay and receivers, as far as they said
    hops: tuple[Hop, ...]
    naks: tuple[int, int]  # packets that the relay's rule saw and dropped
    log: str

    @property
    def is_whole(self) -> bool:
        """Return whether every receiver has the file, octet by octet, and ended well."""
        return set(self.digests.values()) == {self.digest} and not any(self.exits.values())

    @property
    def mb_per_s(self) -> float:
        """Return millions of octets of the file a second, while the stream ran."""
        return self.case.octets / self.stream_seconds / 1e6


@attrs.frozen
class Net:
    """Hosts, and the interface of each downstream line at either end."""

    source: Host
    relay: Host
    sides: dict[str, Host]
    down: dict[str, tuple[str, str]]  # at the relay, at the side


@contextmanager
def network() -> Iterator[Net]:
    """Make four hosts and the lines between them, for the length of a block."""
    with lab() as made:
        yield _build(made)


def _build(made: Lab) -> Net:
    source, relay = made.host("source"), made.host("relay")
    made.join(source, f"{NETS['up']}.1/24", relay, f"{NETS['up']}.2/24")
    sides = {side: made.host(side) for side in SIDES}
    down = {side: made.join(relay, f"{NETS[side]}.1/24", sides[side], f"{NETS[side]}.2/24") for side in SIDES}
    return Net(source, relay, sides, down)


def _prepare(net: Net, way: Way, share: float) -> None:
    """Set loss and segmentation of the last hops."""
    dropped = 0.0 if way is Way.INJECTOR else share
    loss_rule.install(net.relay, [net.down[side][0] for side in SIDES], dropped)
    for side in SIDES:
        loss_rule.install(net.sides[side], [net.down[side][1]], dropped)
        switch = "off" if way is Way.SINGLE else "on"
        net.relay.run("ethtool", "-K", net.down[side][0], "tx-udp-segmentation", switch)


def make_file(path: Path, octets: int) -> None:
    """Make a file of random octets."""
    rng = np.random.default_rng(octets)
    with path.open("wb") as file:
        for at in range(0, octets, _CHUNK_OCTETS):
            file.write(rng.bytes(min(_CHUNK_OCTETS, octets - at)))


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# Processes


def _sender(tree: Processes, host: Host, file: Path) -> Process:
    """Start `cat file | pgm send`."""
    with subprocess.Popen(["cat", str(file)], stdout=subprocess.PIPE) as cat:
        process = Process("source", ["send", str(tree.file), "--node", "source", "--json"], host, stdin=cat.stdout)
        tree.all.append(process)
        assert cat.stdout is not None
        cat.stdout.close()  # it is the sender's now: should that end early, cat does too
        return process


def _receiver(tree: Processes, host: Host, name: str) -> Process:
    """Start `pgm recv > name`."""
    with (tree.folder / name).open("wb") as output:
        process = Process(name, ["recv", str(tree.file), "--node", name, "--json"], host, stdout=output)
    tree.all.append(process)
    return process


def _until_joined(net: Net, patience_s: float) -> None:
    """Wait until both receivers of each side have joined their group."""
    deadline = time.monotonic() + patience_s
    for side in SIDES:
        wanted = re.compile(rf"{re.escape(GROUPS[side])} users {RECEIVERS_A_SIDE}\b")
        while not wanted.search(net.sides[side].run("ip", "maddress", "show", "dev", net.down[side][1])):
            assert time.monotonic() < deadline, f"the receivers of {side} do not join"
            time.sleep(_POLL_S)


def _wait(running: Sequence[Process], deadline: float, watch: Callable[[], None]) -> float:
    """Wait until all have ended or the timeout is over. Return the time."""
    for process in running:
        while process.process.poll() is None and time.monotonic() < deadline:
            try:
                process.process.wait(_WATCH_S)
            except subprocess.TimeoutExpired:
                watch()
    return time.monotonic()


def _close(running: Sequence[Process]) -> dict[str, int]:
    """Return the exit codes; end processes that still run."""
    for process in running:
        if process.process.poll() is None:
            process.process.terminate()
    return {process.name: process.wait() for process in running}


def ignore(_: int) -> None:
    """Ignore progress."""


def transfer(net: Net, case: Case, patience_s: float = PATIENCE_S, watch: Callable[[int], None] = ignore) -> Outcome:
    """Pipe a file through the tree. Return the outcome, complete or not.

    `watch` is called now and then with the octets that the slowest receiver has written.
    """
    with processes(case.topology, "files") as tree:
        file = tree.folder / "file"
        outputs = [tree.folder / name for name in RECEIVERS]
        make_file(file, case.octets)
        _prepare(net, case.way, case.loss)
        relay = tree.start("relay", host=net.relay)
        receivers = [_receiver(tree, net.sides[name.partition("-")[0]], name) for name in RECEIVERS]
        relay.line_with("ready:")
        _until_joined(net, patience_s)
        begun = time.monotonic()
        source = _sender(tree, net.source, file)
        deadline = begun + patience_s
        ended = _wait(receivers, deadline, lambda: watch(min(one.stat().st_size for one in outputs)))
        done = _wait([source], deadline, lambda: None)
        exits = _close([*receivers, source, relay])
        first = min((at for one in receivers for at, line in one.lines if " opened: " in line), default=begun)
        counters = {one.name: _counters(one) for one in (*receivers, source, relay)}
        return Outcome(
            case=case,
            seconds=done - begun,
            stream_seconds=ended - first,
            digest=_digest(file),
            digests={one.name: _digest(one) for one in outputs},
            exits=exits,
            counters=counters,
            hops=_injected(tree.file, counters) if case.way is Way.INJECTOR else _dropped(net),
            naks=_naks(net),
            log="\n".join(f"{one.name}: {one.log}" for one in tree.all),
        )


# Counts


def _counters(process: Process) -> dict[str, int]:
    """Return the counters in the JSON account that a process printed at its end."""
    for line in reversed([*(text for _, text in process.lines), *process.printed]):
        if line.startswith("{"):
            account = json.loads(line)
            found: dict[str, int] = account.get("snapshot", account)["counters"]
            return found
    return {}


def _dropped(net: Net) -> tuple[Hop, ...]:
    hops = []
    for side in SIDES:
        counted = loss_rule.read(net.sides[side], STRIDE)
        packets = counted.odata.packets(STRIDE) + counted.rdata.packets(STRIDE)
        train = packets / max(1, counted.odata.units + counted.rdata.units)
        hops.append(Hop(side, counted.units, counted.lost_units, train, counted.runs))
    return tuple(hops)


def _naks(net: Net) -> tuple[int, int]:
    counted = loss_rule.read(net.relay, STRIDE)
    return counted.units, counted.lost_units


def _injected(file: Path, counters: dict[str, dict[str, int]]) -> tuple[Hop, ...]:
    """Return what each receiver's injector lost. Its draws follow from a seed, so they can be repeated."""
    topology = load_checked(file)
    hops = []
    for name in RECEIVERS:
        (segment,) = plan_node(topology, name).segments
        counted = counters[name]
        lost = counted.get("injected_losses", 0)
        seen = lost + counted.get("packets_in", 0)
        draws = Injector(segment.impairment, f"0:{name}:{segment.name}").draw(seen)
        draws = np.zeros(seen, np.bool_) if draws is None else draws
        assert int(draws.sum()) == lost, f"{name}: the injector drew otherwise"
        places = np.flatnonzero(draws)
        runs = loss_rule.runs_of((int(place), 1) for place in places)
        hops.append(Hop(name, seen, lost, seen / max(1, counted.get("trains_in", 0)), runs))
    return tuple(hops)
