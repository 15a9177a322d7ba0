"""Sources of many processes on one address, and kills of the process that reads its socket: a campaign.

    python -m tests.net.campaigns.address_takeovers --json

Half of the streams are plain, and half have ZeroMQ's framing. Receivers on the same host take one half each. In a second
network namespace, one OpenPGM and one ZeroMQ process take a half each, where both are installed. Every source drops a
share of what it sends and of what it reads, and every receiver drops the same share of what it reads. The process that
reads the socket of the address is killed, and a new process with a source replaces it, again and again.

Streams of processes that were not killed must reach all receivers as a whole. A stream of a killed process ends with it,
and its last packets have nobody to repair them.
"""

from __future__ import annotations

import argparse
import base64
import json
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import attrs

from tests.interop.support import peers, zmq_scene
from tests.interop.support.pipes import Pipe
from tests.net.support.address_worker import DRIVERS, Tally
from tests.net.support.lab import Host, lab
from tests.net.support.places import Place

TAKEOVER_S = 0.1  # the longest permitted
_KINDS = ("plain", "zeromq")
_DATA_PORT = 7500
_TIMERS = "fin_quiet_ivl=2s&ihb_min=20ms&spmr_bo_ivl=50ms&rate=32Mbit/s"
_PATIENCE_S = 120.0
_LATE = 100  # messages of a stream that a process of another implementation may miss before it has joined


class Here(Host):
    """This host itself, in place of a namespace."""

    def __init__(self) -> None:
        """Need no process that holds a namespace."""
        self.name = "here"

    def wrap(self, command: Sequence[str]) -> list[str]:
        """Return the command as it is."""
        return list(command)


@attrs.frozen
class Scene:
    """Hosts and addresses of a run. `legacy` is the host of other implementations, if there is one."""

    host: Host
    interface: str
    address: str
    place: Place
    legacy: Host | None = None
    legacy_address: str = ""

    def url(self, kind: str, *, is_source: bool) -> str:
        """Return the URL of one half of the streams."""
        own = f"&address={self.address}" if is_source else ""
        port = _DATA_PORT if kind == "plain" else self.place.port  # ZeroMQ has one port for everything
        framing = "" if kind == "plain" else "&framing=zeromq"
        where = f"{self.place.group()}:{self.place.port}?interface={self.interface}{own}"
        return f"pgm://{where}&data_port={port}{framing}&profile=legacy&{_TIMERS}"


@contextmanager
def scenes(*, has_legacy: bool) -> Iterator[Scene]:
    """Make the hosts of a run: loopback, or two namespaces."""
    place = Place.new()
    if not has_legacy:
        yield Scene(Here(), "lo", place.address(1), place)
        return
    with lab() as hosts:
        ours, theirs = hosts.host("ours"), hosts.host("theirs")
        interface, _ = hosts.join(ours, "10.9.0.1/24", theirs, "10.9.0.2/24")
        yield Scene(ours, interface, "10.9.0.1", place, theirs, "10.9.0.2")


@attrs.define
class Run:
    """Processes of a run, and what became of them."""

    scene: Scene
    loss: float
    rate: float
    stack: ExitStack
    sources: dict[int, tuple[str, Pipe]] = attrs.field(factory=dict)  # half and pipe, by process
    killed: set[str] = attrs.field(factory=set)
    receivers: list[tuple[str, Pipe]] = attrs.field(factory=list)
    others: list[tuple[str, str, Pipe]] = attrs.field(factory=list)  # name, half, process
    takeovers_ms: list[float] = attrs.field(factory=list)
    started: int = 0

    def _start(self, role: str, number: int, *more: str) -> tuple[str, Pipe]:
        kind = _KINDS[number % len(_KINDS)]
        driver = DRIVERS[number % len(DRIVERS)] if role == "source" else "trio"
        url = self.scene.url(kind, is_source=role == "source")
        module = "tests.net.support.address_worker"
        command = [sys.executable, "-m", module, role, driver, url, str(self.loss), *more]
        pipe = Pipe(f"{role}-{number} ({driver})", self.scene.host, command)
        return kind, self.stack.enter_context(closing(pipe))

    def start_sources(self, count: int) -> None:
        """Start sources at once, and wait until all are ready."""
        started = [self._start("source", self.started + number, str(self.rate)) for number in range(count)]
        self.started += count
        for kind, pipe in started:
            self.sources[int(_news(pipe, "ready"))] = kind, pipe

    def start_receivers(self, count: int) -> None:
        """Start receivers at once, and wait until all are ready."""
        self.receivers = [self._start("receiver", number) for number in range(count)]
        for _, pipe in self.receivers:
            _news(pipe, "ready")

    def start_legacy(self, folder: Path) -> None:
        """Start an OpenPGM and a ZeroMQ process that receive."""
        scene = self.scene
        assert scene.legacy is not None
        where = [scene.legacy_address, scene.place.group(), str(scene.place.port), str(_DATA_PORT)]
        program = str(peers.compile_peer(folder))
        pipe = Pipe("OpenPGM", scene.legacy, [program, "recv", *where])
        self.others.append(("OpenPGM", "plain", self.stack.enter_context(closing(pipe))))
        url = f"epgm://{scene.legacy_address};{scene.place.group()}:{scene.place.port}"
        pipe = Pipe("ZeroMQ", scene.legacy, [zmq_scene.PYTHON, str(zmq_scene.PEER), "sub", url, "RATE=40000"])
        self.others.append(("ZeroMQ", "zeromq", self.stack.enter_context(closing(pipe))))
        pipe.put([b"+"])  # everything
        for text, (_, _, one) in zip(("ready", "obeyed"), self.others, strict=True):
            one.until_said(text)

    def kill_owner(self, owner: int) -> int:
        """Kill the owner of the address, and replace it by a new source. Return the next owner."""
        _, pipe = self.sources.pop(owner)
        self.killed.add(str(owner))
        at_s = pipe.kill()
        heir, took_over_s = self._next_owner()
        self.takeovers_ms.append((took_over_s - at_s) * 1000)
        print(f"takeover {len(self.takeovers_ms)}: {self.takeovers_ms[-1]:.1f} ms", file=sys.stderr, flush=True)
        self.start_sources(1)
        return heir

    def _next_owner(self) -> tuple[int, float]:
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline:
            for process, (_, pipe) in self.sources.items():
                for news in _all_news(pipe):
                    if "owner" in news:
                        return process, news["at"]
            time.sleep(0.005)
        raise AssertionError("no process took the address over")

    def owner(self) -> int:
        """Return the process that reads the socket of the address."""
        return self._next_owner()[0]

    def finish(self) -> dict[str, Any]:
        """End all sources, then all receivers. Return what was sent and what arrived."""
        for _, pipe in self.sources.values():
            pipe.end_input()
        sent = {str(process): int(_news(pipe, "sent")) for process, (_, pipe) in self.sources.items()}
        kind_of = {str(process): kind for process, (kind, _) in self.sources.items()}
        problems: list[str] = []
        killed_lack = delivered = 0
        for _, pipe in self.receivers:
            pipe.end_input()
        results = [(pipe.name, kind, _tallies(_news(pipe, "got")), 0) for kind, pipe in self.receivers]
        results += [(name, kind, Tally.of(_texts(kind, pipe)), _LATE) for name, kind, pipe in self.others]
        for name, kind, tallies, late in results:
            whole = {source: end for source, end in sent.items() if kind_of[source] == kind}
            problems += _problems(name, whole, tallies, late)
            delivered += sum(tally.next - tally.first - tally.missing for tally in tallies.values())
            killed_lack += sum(tally.missing for source, tally in tallies.items() if source in self.killed)
        return {
            "sources": len(self.sources),
            "receivers": len(self.receivers),
            "other_receivers": [name for name, _, _ in self.others],
            "kills": len(self.takeovers_ms),
            "takeover_ms": [round(ms, 1) for ms in self.takeovers_ms],
            "sent": sum(sent.values()),
            "delivered": delivered,
            "missing_in_streams_of_killed": killed_lack,
            "problems": problems,
        }


def _problems(name: str, sent: dict[str, int], tallies: dict[str, Tally], late: int) -> Iterator[str]:
    for source, end in sent.items():
        tally = tallies.get(source)
        if tally is None:
            yield f"{name} got nothing of {source}, which sent {end}"
        elif tally.missing or tally.disorder or tally.next != end or tally.first > late:
            yield f"{name} got {tally} of {source}, which sent {end}"


def _texts(kind: str, pipe: Pipe) -> Iterable[bytes]:
    lines = list(pipe.messages)
    return lines if kind == "plain" else [base64.b64decode(line) for line in lines]


def _tallies(rows: dict[str, dict[str, int]]) -> dict[str, Tally]:
    return {source: Tally(**row) for source, row in rows.items()}


def _all_news(pipe: Pipe) -> list[dict[str, Any]]:
    return [json.loads(line) for line in tuple(pipe.messages)]


def _news(pipe: Pipe, key: str) -> Any:
    """Wait for a line with a key. Return its value."""
    pipe.until(lambda: any(key in news for news in _all_news(pipe)), key, _PATIENCE_S)
    return next(news[key] for news in _all_news(pipe) if key in news)


def run(
    *, sources: int, receivers: int, kills: int, loss: float = 0.01, rate: float = 5.0, has_legacy: bool = False
) -> dict[str, Any]:
    """Run the campaign. Return its result; `problems` is empty if nothing was lost."""
    with scenes(has_legacy=has_legacy) as scene, ExitStack() as stack:
        made = Run(scene, loss, rate, stack)
        if has_legacy:
            made.start_legacy(Path(stack.enter_context(tempfile.TemporaryDirectory())))
        made.start_receivers(receivers)
        made.start_sources(1)
        made.start_sources(sources - 1)
        owner = made.owner()
        for _ in range(kills):
            owner = made.kill_owner(owner)
        return made.finish()


def why_no_legacy() -> str:
    """Return why no other implementations can take part; empty if they can."""
    return peers.why_not() or zmq_scene.why_not()


def main() -> int:
    """Run the campaign of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sources", type=int, default=20, help="processes with a source")
    parser.add_argument("--receivers", type=int, default=20, help="processes with a receiver")
    parser.add_argument("--kills", type=int, default=20, help="kills of the process that reads the socket")
    parser.add_argument("--loss", type=float, default=0.01, help="share of lost packets, at every sender and receiver")
    parser.add_argument("--rate", type=float, default=5.0, help="messages of a source in a second")
    parser.add_argument("--alone", action="store_true", help="without OpenPGM and ZeroMQ")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    given = parser.parse_args()
    reason = "--alone" if given.alone else why_no_legacy()
    result = run(
        sources=given.sources,
        receivers=given.receivers,
        kills=given.kills,
        loss=given.loss,
        rate=given.rate,
        has_legacy=not reason,
    )
    result["longest_takeover_ms"] = max(result["takeover_ms"], default=0.0)
    is_good = not result["problems"] and result["longest_takeover_ms"] <= TAKEOVER_S * 1000
    if given.json:
        print(json.dumps(result, indent=1))
    else:
        for key, value in result.items():
            print(f"{key}: {value}")
        print(f"without other implementations: {reason}" if reason else "with OpenPGM and ZeroMQ")
        print("nothing lost" if is_good else "FAILED")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
