"""Source and receiver of the library on an `epgm://` address, with the lines of `zmq_peer.py`.

A source runs until its input has ended and no receiver sends NAKs:

    python -m tests.interop.support.framed_peer pub 'epgm://...?rate=40Mbit/s' < lines

A receiver runs until SIGTERM:

    python -m tests.interop.support.framed_peer sub 'epgm://...'

The address of a source may be a topology file, which has a node of that name. A source takes its first sqn as an argument
after the address. Events of a stream go to standard error.
"""

from __future__ import annotations

import base64
import functools
import os
import signal
import sys
from collections.abc import Sequence

import trio

import pgm
import pgm.net.core_factory
from pgm.core.counters import Counters
from pgm.core.source.setup import SourceSetup
from pgm.net.endpoint.receiver import Receiver
from pgm.net.endpoint.source import Source

_CHUNK = 1 << 16


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def parts_of(line: bytes) -> list[bytes]:
    return [base64.b64decode(part) for part in line.split(b" ")]


def line_of(parts: Sequence[bytes]) -> bytes:
    return b" ".join(base64.b64encode(part) for part in parts) + b"\n"


class Lines:
    """Lines of standard input, read without blocking other tasks."""

    def __init__(self) -> None:
        self._stream = trio.lowlevel.FdStream(os.dup(0))
        self._rest = b""

    async def next(self) -> list[bytes] | None:
        """Return the next lines; None at the end of the input."""
        chunk = await self._stream.receive_some(_CHUNK)
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        return lines if chunk else None


async def publish(source: Source) -> None:
    lines = Lines()
    while (more := await lines.next()) is not None:
        for line in more:
            await source.send_parts(parts_of(line))
    await source.flush()


async def obey(receiver: Receiver) -> None:
    lines = Lines()
    while (more := await lines.next()) is not None:
        for line in more:
            prefix = base64.b64decode(line[1:])
            (receiver.subscribe if line[:1] == b"+" else receiver.unsubscribe)(prefix)
            say("obeyed")


async def show(receiver: Receiver) -> None:
    async for item in receiver.batches():
        match item:
            case pgm.MultipartBatch():
                sys.stdout.buffer.write(b"".join(map(line_of, item)))
                sys.stdout.buffer.flush()
            case pgm.Opened():
                say(f"begins at sqn {item.first}")
            case pgm.Closed():
                say(f"closed-{item.cause.value}: at sqn {item.next_sqn}")
            case pgm.Lost():
                say(f"lost {item.count} from {item.first}: {item.cause.value}")


def account(counters: Counters) -> None:
    say(repr(counters.snapshot()))


async def main(verb: str, target: str, first: str = "0") -> None:
    vars(pgm.net.core_factory)["SourceSetup"] = functools.partial(SourceSetup, first_sqn=int(first))
    if verb == "pub":
        async with pgm.open_source(target, node="source" if target.endswith(".toml") else None) as source:
            await publish(source)
        account(source.counters)
        return
    async with pgm.open_receiver(target, subscribe=[]) as receiver, trio.open_nursery() as nursery:
        nursery.start_soon(obey, receiver)
        nursery.start_soon(show, receiver)
        with trio.open_signal_receiver(signal.SIGTERM) as signals:
            await anext(aiter(signals))
        account(receiver.counters)
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main, *sys.argv[1:])
