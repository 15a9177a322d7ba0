"""Scenes of libzmq's PUB and SUB and our library on `epgm://` addresses, with our elements between them.

Both kinds of peers read and write messages as lines: the parts in base64, with spaces between them.
"""

from __future__ import annotations

import base64
import functools
import random
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import attrs
import pytest

from tests.interop.support.peers import BRISK, DATA_PORT, Layout, Scene, Side
from tests.interop.support.pipes import Pipe
from tests.net.support import lab
from tests.net.support.lab import Host

ZEROMQ = "ZeroMQ 4.3.4"
PYTHON = "/usr/bin/python3"
PEER = Path(__file__).with_name("zmq_peer.py")
EVERYTHING = b""

RATE_KBITS = 32_000
# Settings of libzmq's sockets: the rate of the scenes, and buffers for it.
SETTINGS = {"RATE": RATE_KBITS, "RCVBUF": 1 << 22}


@functools.cache
def why_not() -> str:
    """Return the reason for the absence of libzmq with PGM; an empty string if it is available."""
    script = "import zmq; assert zmq.has('pgm'), 'the libzmq of this python3-zmq has no PGM'"
    try:
        found = subprocess.run([PYTHON, "-c", script], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return f"needs {PYTHON} with zmq: apt-get install python3-zmq"
    if found.returncode:
        return f"needs python3-zmq with PGM: apt-get install python3-zmq ({found.stderr.strip().splitlines()[-1]})"
    return lab.why_not()


needs_zeromq = pytest.mark.skipif(bool(why_not()), reason=why_not())


def line(*parts: bytes) -> bytes:
    """Return a message as a line of the peers."""
    return b" ".join(base64.b64encode(part) for part in parts)


def parts_of(text: bytes) -> list[bytes]:
    """Return the parts of a line."""
    return [base64.b64decode(part) for part in text.split(b" ")]


def messages(count: int, sizes: Sequence[int] = (1000,), name: str = "m") -> list[bytes]:
    """Return messages of a number and a random body, with these sizes in rotation."""
    rng = random.Random(f"{name}{count}{sizes}")
    return [line(b"%s.%06d" % (name.encode(), at), rng.randbytes(sizes[at % len(sizes)])) for at in range(count)]


@contextmanager
def dropping(host: Host, what: str) -> Iterator[None]:
    """Drop arrivals that match a condition for the length of a block; assert that some arrived."""
    host.run("nft", "add", "table", "inet", "dropping")
    host.run("nft", "add", "chain", "inet", "dropping", "in", "{ type filter hook prerouting priority -300 ; }")
    host.run("nft", "add", "rule", "inet", "dropping", "in", *what.split(), "counter", "drop")
    try:
        yield
        assert "counter packets 0 " not in host.run("nft", "list", "table", "inet", "dropping")
    finally:
        host.run("nft", "delete", "table", "inet", "dropping")


@attrs.define
class ZmqScene(Scene):
    """One source, its receivers and the elements between them, with ZeroMQ's framing."""

    are_bare: bool = False  # sources and receivers have only their address
    transport: str = "udp"  # of sources and receivers

    def topology(self) -> str:
        """Return the topology file. ZeroMQ uses one port for everything (INT-Z2)."""
        return super().topology().replace(f"data_port = {DATA_PORT}", f'data_port = {self.port}\nframing = "zeromq"')

    def url(self, name: str, lan: str) -> str:
        """Return the address in ZeroMQ's notation."""
        return f"epgm://{self.yard.seat(name, lan).address};{self.group(lan)}:{self.port}"

    def _end(self, name: str, verb: str, lan: str, settings: dict[str, int]) -> Pipe:
        """Start a source or receiver, libzmq's or ours."""
        host = self.yard.hosts[name]
        if (self.pair.source if verb == "pub" else self.pair.receivers) is Side.THEIRS:
            chosen = {} if self.are_bare else {**SETTINGS, **self.settings, **settings}
            words = [f"{key}={value}" for key, value in chosen.items()]
            url = self.url(name, lan) if self.transport == "udp" else self.url(name, lan).removeprefix("e")
            return self._keep(Pipe(name, host, [PYTHON, str(PEER), verb, url, *words]))
        query = {**BRISK, "transport": self.transport, "rate": f"{RATE_KBITS}kbit/s", **self.parameters}
        if verb == "sub" and self.layout is Layout.FLAT:
            asked = [self.yard.seat(one, lan).address for one in (*self.repairer_names, "source")]
            query["parents"] = ",".join(asked)
        url = self.url(name, lan)
        if not self.are_bare:
            url += "?" + "&".join(f"{key}={value}" for key, value in query.items())
        if verb == "pub" and self.signer:
            url = str(self.file)
        first = [str(self.first_sqn)] if verb == "pub" else []
        return self._keep(
            Pipe(name, host, [sys.executable, "-m", "tests.interop.support.framed_peer", verb, url, *first])
        )

    def start_source(self, **settings: int) -> Pipe:
        """Start the source; the stream has no message yet."""
        return self._end("source", "pub", "up", settings)

    def start_receiver(self, name: str, *prefixes: bytes, **settings: int) -> Pipe:
        """Start a receiver that subscribes to these prefixes, or to everything if there are none."""
        receiver = self._end(name, "sub", self.below, settings)
        self.tell(receiver, b"+", *(prefixes or (EVERYTHING,)))
        return receiver

    @staticmethod
    def tell(receiver: Pipe, what: bytes, *prefixes: bytes) -> None:
        """Subscribe (+) or unsubscribe (-), and wait until the peer has done so."""
        done = len(receiver.said) + len(prefixes)
        receiver.put([what + base64.b64encode(prefix) for prefix in prefixes])
        receiver.until(lambda: len(receiver.said) >= done, "the answer to what it was told")

    def greet(self, source: Pipe, receivers: Sequence[Pipe], text: bytes = line(b"hello")) -> None:
        """Send one message and wait until all receivers have the message and an SPM."""
        super().greet(source, receivers, text)

    def end(self, source: Pipe, receivers: Sequence[Pipe]) -> None:
        """End all processes; assert that no libzmq process has aborted (INT-Z8)."""
        self.lose([receiver.name for receiver in receivers])
        source.end_input()
        if self.pair.source is Side.THEIRS:
            assert source.stop() == -signal.SIGTERM, source.log
        else:
            assert source.wait() == 0, source.log
        for receiver in receivers:
            expected = -signal.SIGTERM if self.pair.receivers is Side.THEIRS else 0
            assert receiver.stop() == expected, receiver.log
