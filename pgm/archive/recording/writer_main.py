"""The process that writes an archive: it takes what a node put into the memory they share, makes rows of it and keeps them.

It is a process of its own so that nothing of it, neither Arrow nor the disk nor the interpreter's lock, holds the protocol up; and
it lets everybody else go first. When the node is gone, in whatever way, it writes what was put, ends the segment and leaves.

`python -m pgm.archive.recording.writer_main ORDER`, with an `WriterOrder` as JSON, is how the node starts it.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

import attrs

from pgm.archive.recording.feeds import SessionFeed
from pgm.archive.recording.shared_ring import HELD, RingItem, RingItemKind, SharedRing, cause_at
from pgm.archive.session import RecordedSession
from pgm.core.effects import Lost
from pgm.errors import PgmError
from pgm.parameters import Parameters
from pgm.units import MILLISECOND, SECOND
from pgm.wire.train import Run

_MOST_AT_ONCE = 64  # items taken before timers are looked at
# Behind a burst it looks again after this time before it asks to be woken: while a stream runs, nobody wakes anybody.
_NAP_NS = 5 * MILLISECOND
_TELL_NS = 200 * MILLISECOND  # between two tellings of what is on disk
_MOST_FEEDS = 4096  # whose descriptions are kept read
_DOORBELL_OCTETS = 4096
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # they are for the node, whose end is this one's


@attrs.frozen
class WriterOrder:
    """What the node wants written: descriptors of the memory and of the socket, where to, and parameters other than their defaults."""

    memory: int
    line: int
    directory: str
    parameters: dict[str, Any]

    def to_text(self) -> str:
        """As an argument."""
        return json.dumps(attrs.asdict(self))

    @classmethod
    def from_text(cls, text: str) -> WriterOrder:
        """Read it."""
        return cls(**json.loads(text))


class NodeSocket:
    """The socket to the node: lines of JSON go up, single octets that wake come down, and its end is the node's."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._poll = select.poll()
        self._poll.register(line, select.POLLIN)
        self.is_over = False

    def tell(self, **what: Any) -> None:
        """Say something. A node that is gone hears nothing."""
        with contextlib.suppress(OSError):
            self._line.sendall(json.dumps(what).encode() + b"\n")

    def log(self, code: str, text: str) -> None:
        """Say a line of the log."""
        self.tell(log=[code, text])

    def wait(self, timeout_ns: int) -> None:
        """Until the node wakes this process, or is gone, or the time is over."""
        if self.is_over:
            return
        if self._poll.poll(timeout_ns // MILLISECOND):
            try:
                self.is_over = not self._line.recv(_DOORBELL_OCTETS)
            except OSError:
                self.is_over = True


class ArchiveRecording:
    """Takes items until the node closes or is gone."""

    def __init__(self, order: WriterOrder, line: NodeSocket) -> None:
        """Take the directory. Raises `ArchiveError`."""
        # Not before the node can be told what is wrong.
        from pgm.archive.recording.row_collector import RowCollector
        from pgm.archive.recording.rows import batch_of
        from pgm.archive.store.writer import ArchiveWriter

        parameters = attrs.evolve(Parameters(), **order.parameters)
        self._ring = SharedRing(order.memory)
        self._line = line
        batch_of(
            RecordedSession(""), ()
        )  # Arrow loads half of what it needs with its first array: now, not while a stream waits
        writer = ArchiveWriter(Path(order.directory), parameters, line.log)
        self._recording = RowCollector(writer, parameters, line.log, self._ring.tally, self._publish)
        self._feeds: dict[bytes, SessionFeed] = {}
        self._held: set[bytes] = set()
        self._told_ns = 0

    def _publish(self, tally: Any) -> None:
        self._ring.tally = tally

    def run(self) -> None:
        """Write until the end."""
        self._ring.sleeps(False)
        while True:
            # Asked first: what was put before is taken then.
            is_last, is_owed = self._ring.is_closing or self._line.is_over, self._ring.has_overrun
            count = 0
            while count < _MOST_AT_ONCE and (item := self._ring.get()) is not None:
                self._add(item)
                count += 1
            self._recording.on_time()
            self._tell_synced()
            if count:
                continue
            if is_owed and not self._line.is_over:
                self._line.tell(room=True)
            elif is_last:
                break
            self._rest()
        self._recording.close()
        self._tell_synced(is_last=True)

    def _rest(self) -> None:
        """Until something comes or is due."""
        wait_ns = self._recording.wait_ns
        time.sleep(min(wait_ns, _NAP_NS) / SECOND)
        self._ring.sleeps(True)
        is_idle = not (self._ring.waiting_octets or self._ring.is_closing)
        self._line.wait(max(0, wait_ns - _NAP_NS) if is_idle else 0)
        self._ring.sleeps(False)

    def _add(self, item: RingItem) -> None:
        feed = self._feeds.get(item.feed)
        if feed is None:
            if len(self._feeds) >= _MOST_FEEDS:
                self._feeds.clear()
            feed = self._feeds[item.feed] = SessionFeed.from_bytes(item.feed)
            if item.begin != HELD:
                self._recording.begin(feed, item.begin)
        if item.kind is RingItemKind.RUN:
            run = Run(item.first, item.count, item.octets, 0, item.value, item.payload_at)
            self._recording.add_run(feed, run, item.at_us)
        elif item.kind is RingItemKind.LOSS:
            self._recording.add_lost(feed, Lost(b"", item.first, item.count, cause_at(item.value)), item.at_us)
        elif item.kind is RingItemKind.OVERRUN:
            self._recording.add_overrun(feed, item.first, item.count, item.at_us)
        elif item.kind is RingItemKind.CLOSED:
            self._recording.add_closed(feed, item.first, item.at_us)
        else:
            self._recording.add_reached(feed, item.first, item.at_us)

    def _tell_synced(self, *, is_last: bool = False) -> None:
        """Tell the node what is on disk of which it cannot know yet."""
        now_ns = time.monotonic_ns()
        if now_ns < self._told_ns + _TELL_NS and not is_last:
            return
        synced = self._recording.synced()
        if not synced:
            return
        self._told_ns = now_ns
        held: list[str] = []
        ended: list[str] = []
        for octets, feed in self._feeds.items():
            has_ended = synced.get(feed.session.key)
            if has_ended:
                ended.append(octets.decode())
                self._held.discard(octets)
            elif has_ended is not None and octets not in self._held:
                held.append(octets.decode())
                self._held.add(octets)
        for name in ended:
            del self._feeds[name.encode()]
        self._line.tell(held=held, ended=ended)


def _give_way(nice: int) -> None:
    """Let the protocol, and whatever else is in a hurry, run first."""
    with contextlib.suppress(OSError):  # where it is not allowed, it works all the same
        os.nice(nice)
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def main() -> None:
    """Do as ordered; what goes wrong is said to the node, too."""
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    order = WriterOrder.from_text(sys.argv[1])
    line = NodeSocket(socket.socket(fileno=order.line))
    try:
        writing = ArchiveRecording(order, line)
        _give_way(order.parameters.get("record_nice", Parameters().record_nice))
        line.tell(ready=True)
        writing.run()
    except PgmError as error:
        line.tell(error=[error.message, error.remedy])
        sys.exit(1)
    except Exception as error:
        line.tell(error=[f"{type(error).__name__}: {error}", ""])
        raise


if __name__ == "__main__":
    main()
