"""Member of an acknowledged stream whose application writes down each message that it has processed.

`python -m tests.net.campaigns.member FILE NODE RECORD WAY` runs until it is killed. The record has the first sqn of the session,
then the sqn of each message. A record is written before the application comes back for more, and outlives a SIGKILL.
"""

from __future__ import annotations

import os
import random
import struct
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import pgm.blocking
from pgm import Batch, Message, Opened
from pgm.net.endpoint.busy_poll import BusyPollReceiver

WAYS = ("messages", "batches", "manual", "busy-poll")
SQN = struct.Struct("<q")
_WORK_S = 0.001  # most time that a message takes, without a write
_AT_ONCE = 8  # messages that are processed together with ack="manual"

Receiver = pgm.blocking.Receiver | BusyPollReceiver


def recorded(record: Path) -> list[int]:
    """Return the sqns of a record."""
    octets = record.read_bytes() if record.exists() else b""
    return [sqn for (sqn,) in SQN.iter_unpack(octets[: len(octets) // SQN.size * SQN.size])]


class Application:
    """Application that takes a while for each message, and writes down its sqn then."""

    def __init__(self, record: Path) -> None:
        self._file = os.open(record, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        self._rng = random.Random(os.getpid())

    def note(self, sqn: int) -> None:
        """Write down a sqn."""
        os.write(self._file, SQN.pack(sqn))

    def process(self, sqn: int) -> None:
        """Process a message."""
        time.sleep(self._rng.random() * _WORK_S)
        self.note(sqn)


def messages(receiver: Receiver, application: Application) -> Iterator[Message]:
    """Yield the messages of the only session."""
    for item in receiver:
        if isinstance(item, Message):
            yield item
        elif isinstance(item, Opened) and not item.resumed:
            application.note(item.first)


def take_messages(receiver: Receiver, application: Application) -> None:
    """Process one message after the other."""
    for message in messages(receiver, application):
        application.process(message.sqn)


def take_batches(receiver: Receiver, application: Application) -> None:
    """Process one batch after the other."""
    for item in receiver.batches():
        if isinstance(item, Batch):
            for at in range(len(item)):
                application.process(item.first_sqn + at)
        elif isinstance(item, Opened) and not item.resumed:
            application.note(item.first)


def take_by_hand(receiver: Receiver, application: Application) -> None:
    """Gather some messages, process them, then acknowledge the last of them."""
    waiting: list[Message] = []
    for message in messages(receiver, application):
        waiting.append(message)
        if len(waiting) == _AT_ONCE:
            for one in waiting:
                application.process(one.sqn)
            receiver.ack(waiting[-1])
            waiting.clear()


TAKES: dict[str, Callable[[Receiver, Application], None]] = {
    "messages": take_messages,
    "batches": take_batches,
    "manual": take_by_hand,
    "busy-poll": take_messages,
}


def main(file: str, node: str, record: str, way: str) -> None:
    """Receive until the process is killed."""
    ack: Literal["auto", "manual"] = "manual" if way == "manual" else "auto"
    application = Application(Path(record))
    if way == "busy-poll":
        with pgm.blocking.open_receiver(file, node=node, ack=ack, busy_poll=True) as receiver:
            TAKES[way](receiver, application)
    else:
        with pgm.blocking.open_receiver(file, node=node, ack=ack) as background:
            TAKES[way](background, application)


if __name__ == "__main__":
    main(*sys.argv[1:])
