"""What a benchmark asks of a contender: command lines for the two ends of a path, and whether it can take part at all."""

from __future__ import annotations

import json
from typing import Protocol

import attrs

from deploy.bench.place import IP_AND_UDP_OCTETS, BenchNetwork, NetworkEnd
from pgm.parameters import Parameters


@attrs.frozen
class Job:
    """One trial: what is sent, how fast, for how long, and where. `rate` is messages a second, 0 as fast as it goes."""

    place: BenchNetwork
    size: int
    rate: float = 0.0
    seconds: float = 5.0
    messages: int = 0  # if not 0, this many instead of `seconds`
    rcvbuf: int = Parameters().so_rcvbuf
    sndbuf: int = Parameters().so_rcvbuf
    window: int = 256 << 20  # octets that a sender keeps for repairs
    quiet_s: float = 2.0  # without anything new until a receiver says what it has: several times what a repair takes
    parameters: dict[str, int | float | str] = attrs.field(factory=dict)  # of our sources
    receiver_parameters: dict[str, int | float | str] = attrs.field(factory=dict)
    file: str = ""  # a topology whose nodes "source" and "receiver" ours are, instead of the place's own group
    watch: bool = False  # whether ours take the times of repairs
    loss: float = 0.0  # share of packets that our sources leave out of the trains they send
    flow: str = "rate"  # of our sources

    @property
    def sender(self) -> NetworkEnd:
        """Where the sender, or whoever asks first, sits."""
        return self.place.seat(0, 0)

    @property
    def receiver(self) -> NetworkEnd:
        """Where the receiver, or whoever answers, sits."""
        return self.place.seat(self.place.hosts - 1, self.place.hosts - 2)

    @property
    def max_datagram(self) -> int:
        """Octets of the largest datagram that needs no fragments of IP."""
        return self.place.mtu - IP_AND_UDP_OCTETS

    def as_json(self, **more: object) -> str:
        """What a program in Python is told."""
        facts = {
            "size": self.size,
            "rate": self.rate,
            "seconds": self.seconds,
            "messages": self.messages,
            "rcvbuf": self.rcvbuf,
            "sndbuf": self.sndbuf,
            "window": self.window,
            "max_datagram": self.max_datagram,
            "sender": attrs.asdict(self.sender),
            "receiver": attrs.asdict(self.receiver),
            "groups": [self.place.group(0), self.place.group(1)],
            "port": self.place.port,
            "quiet_s": self.quiet_s,
            "parameters": self.parameters,
            "receiver_parameters": self.receiver_parameters,
            "file": self.file,
            "watch": self.watch,
            "loss": self.loss,
            "flow": self.flow,
        }
        return json.dumps({**facts, **more})


class Contender(Protocol):
    """Somebody who can carry messages along a path."""

    name: str  # short and stable: the JSON and --contenders say it
    title: str  # for people
    benchmarks: frozenset[str]  # in which it takes part
    is_ours: bool
    spins: bool  # whether its processes use a core whole, whatever they do

    def why_not(self, job: Job) -> str:
        """Why it cannot do this job here, or empty."""

    def command(self, end: str, job: Job) -> list[str]:
        """The program of one end: "send" and "recv", or "ping" and "pong"."""
