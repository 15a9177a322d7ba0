"""Contenders, which give the command lines for the two ends of a path, and the jobs that benchmarks give them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import TypeAlias

import attrs

from deploy.bench.place import IP_AND_UDP_OCTETS, BenchNetwork, NetworkEnd
from pgm.parameters import Parameters


@attrs.frozen
class Job:
    """Settings of one trial. `rate` is in messages a second; 0 sends as fast as the contender can."""

    place: BenchNetwork
    size: int
    rate: float = 0.0
    seconds: float = 5.0
    messages: int = 0  # number of messages to send; 0 sends for `seconds`
    rcvbuf: int = Parameters().so_rcvbuf
    sndbuf: int = Parameters().so_rcvbuf
    window: int = 256 << 20  # octets that a sender keeps for repairs
    quiet_s: float = 2.0  # silence after which a receiver reports its result: several times the duration of a repair
    parameters: dict[str, int | float | str] = attrs.field(factory=dict)  # of pgm's sources
    receiver_parameters: dict[str, int | float | str] = attrs.field(factory=dict)
    file: str = ""  # topology with nodes "source" and "receiver" for pgm; if empty, pgm uses the group of `place`
    watch: bool = False  # whether pgm's ends record the times of repairs
    loss: float = 0.0  # share of packets that pgm's sources drop from the trains they send
    flow: str = "rate"  # flow control of pgm's sources

    @property
    def sender(self) -> NetworkEnd:
        """Return the network end of the sender, or of the end that sends requests."""
        return self.place.seat(0, 0)

    @property
    def receiver(self) -> NetworkEnd:
        """Return the network end of the receiver, or of the end that sends answers."""
        return self.place.seat(self.place.hosts - 1, self.place.hosts - 2)

    @property
    def max_datagram(self) -> int:
        """Return the octets of the largest datagram that needs no IP fragments."""
        return self.place.mtu - IP_AND_UDP_OCTETS

    def as_json(self, **more: object) -> str:
        """Return the job as the JSON argument of a Python peer; `more` adds keys."""
        facts = attrs.asdict(self, filter=lambda field, _: field.name != "place") | {
            "max_datagram": self.max_datagram,
            "sender": attrs.asdict(self.sender),
            "receiver": attrs.asdict(self.receiver),
            "groups": [self.place.group(0), self.place.group(1)],
            "port": self.place.port,
        }
        return json.dumps({**facts, **more})


Program: TypeAlias = Callable[[str, Job, bool], list[str]]  # end, job, whether to busy-poll -> command line


def python_peer(module: str, **keys: object) -> Program:
    """Return the program of a module of `deploy.bench.peers`; `keys` go into its JSON job."""

    def command(end: str, job: Job, is_busy_poll: bool) -> list[str]:
        facts = job.as_json(busy_poll=is_busy_poll, **keys)
        return [sys.executable, "-m", f"deploy.bench.peers.{module}", end, facts]

    return command


def _always(_: Job) -> str:
    return ""


@attrs.frozen
class Contender:
    """Transport with its settings, whose two ends carry messages along a path."""

    name: str  # short and stable: the JSON output and --contenders use it
    title: str  # for tables and pictures
    benchmarks: tuple[str, ...]  # in which the contender runs
    program: Program
    why_not: Callable[[Job], str] = _always  # the reason why the contender cannot run a job here, or ""
    is_ours: bool = attrs.field(default=False, kw_only=True)
    is_busy_poll: bool = attrs.field(default=False, kw_only=True)  # its processes use a whole core at any rate

    def command(self, end: str, job: Job) -> list[str]:
        """Return the command of one end: "send", "recv", "ping" or "pong"."""
        return self.program(end, job, self.is_busy_poll)
