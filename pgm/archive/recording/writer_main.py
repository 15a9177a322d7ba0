"""Process that writes an archive: it turns items of the shared ring into rows.

A process of its own keeps Arrow, the disk and the interpreter's lock from delaying the protocol. Its scheduling
priority is low. When the node is gone, for any reason, the process writes the remaining items, ends the segment and
exits.

The node starts it as `python -m pgm.archive.recording.writer_main ORDER`, with a `WriterOrder` as JSON.
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

_MAX_BATCH = 64  # items taken between two checks of the timers
# After a burst the process polls again after this time before it asks to be woken. A running stream then causes no
# wake-ups.
_NAP_NS = 5 * MILLISECOND
_REPORT_IVL_NS = 200 * MILLISECOND  # between two reports of synced sessions
_MAX_FEEDS = 4096  # feeds kept decoded
_DOORBELL_OCTETS = 4096
MOST_REACHED = 1024  # sessions that a new recorder goes on with, as many as a durable receiver knows
# these signals are meant for the node; this process ends after the node does
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@attrs.frozen
class WriterOrder:
    """Order of the node to its writer process.

    `memory` and `line` are inherited descriptors of the ring and of the socket. `parameters` holds those that differ
    from their defaults.
    """

    memory: int
    line: int
    directory: str
    parameters: dict[str, Any]
    archives: tuple[str, ...] = ()  # addresses of the range services of other recorders

    def to_text(self) -> str:
        """Encode the order as a command-line argument."""
        return json.dumps(attrs.asdict(self))

    @classmethod
    def from_text(cls, text: str) -> WriterOrder:
        """Decode an order."""
        return cls(**json.loads(text))


class NodeSocket:
    """Socket to the node: lines of JSON go out, single octets wake this process, end of file means a lost node."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._poll = select.poll()
        self._poll.register(line, select.POLLIN)
        self.is_over = False

    def send_report(self, **fields: Any) -> None:
        """Send a report. Nothing happens if the node is gone."""
        with contextlib.suppress(OSError):
            self._line.sendall(json.dumps(fields).encode() + b"\n")

    def log(self, code: str, text: str) -> None:
        """Send a line for the node's log."""
        self.send_report(log=[code, text])

    def wait(self, timeout_ns: int) -> None:
        """Wait until the node wakes this process or is gone, at most `timeout_ns`."""
        if self.is_over:
            return
        if self._poll.poll(timeout_ns // MILLISECOND):
            try:
                self.is_over = not self._line.recv(_DOORBELL_OCTETS)
            except OSError:
                self.is_over = True


class ArchiveRecording:
    """Loop that takes items until the node closes the ring or is gone."""

    def __init__(self, order: WriterOrder, line: NodeSocket) -> None:
        """Open the archive directory. Raises `ArchiveError`."""
        # Imported here, since the node must be able to receive an import error.
        from pgm.archive.recording.other_archives import OtherArchives
        from pgm.archive.recording.row_collector import RowCollector
        from pgm.archive.recording.rows import batch_of
        from pgm.archive.store.writer import ArchiveWriter

        parameters = attrs.evolve(Parameters(), **order.parameters)
        self._ring = SharedRing(order.memory)
        self._line = line
        # Arrow loads much of itself with the first array: do that now, not while a stream waits.
        batch_of(RecordedSession(""), ())
        writer = ArchiveWriter(Path(order.directory), parameters, line.log)
        self.reached = writer.index.reached(MOST_REACHED)
        others = OtherArchives(order.archives, parameters) if order.archives else None
        self._recording = RowCollector(writer, parameters, line.log, self._ring.tally, self._publish, others)
        self._feeds: dict[bytes, SessionFeed] = {}
        self._held: set[bytes] = set()
        self._reported_ns = 0

    def _publish(self, tally: Any) -> None:
        self._ring.tally = tally

    def run(self) -> None:
        """Write until the end."""
        self._ring.sleeps(False)
        while True:
            # Read before the items, so that every item put before the mark is taken in this round.
            is_last, is_owed = self._ring.is_closing or self._line.is_over, self._ring.has_overrun
            count = 0
            while count < _MAX_BATCH and (item := self._ring.get()) is not None:
                self._add(item)
                count += 1
            self._recording.on_time()
            self._report_synced()
            if count:
                continue
            if is_owed and not self._line.is_over:
                self._line.send_report(room=True)
            elif is_last:
                break
            self._wait()
        self._recording.close()
        self._report_synced(is_last=True)

    def _wait(self) -> None:
        wait_ns = self._recording.wait_ns
        time.sleep(min(wait_ns, _NAP_NS) / SECOND)
        self._ring.sleeps(True)
        is_idle = not (self._ring.waiting_octets or self._ring.is_closing)
        self._line.wait(max(0, wait_ns - _NAP_NS) if is_idle else 0)
        self._ring.sleeps(False)

    def _add(self, item: RingItem) -> None:
        feed = self._feeds.get(item.feed)
        if feed is None:
            if len(self._feeds) >= _MAX_FEEDS:
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

    def _report_synced(self, *, is_last: bool = False) -> None:
        now_ns = time.monotonic_ns()
        if now_ns < self._reported_ns + _REPORT_IVL_NS and not is_last:
            return
        synced = self._recording.synced()
        if not synced:
            return
        self._reported_ns = now_ns
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
        self._line.send_report(held=held, ended=ended)


def _lower_priority(nice: int) -> None:
    """Run at a lower priority than the protocol and other urgent processes."""
    with contextlib.suppress(OSError):  # without the permission the process still works
        os.nice(nice)
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def main() -> None:
    """Carry out the order; report errors to the node, too."""
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    order = WriterOrder.from_text(sys.argv[1])
    node = NodeSocket(socket.socket(fileno=order.line))
    try:
        recording = ArchiveRecording(order, node)
        _lower_priority(order.parameters.get("record_nice", Parameters().record_nice))
        node.send_report(ready=[attrs.astuple(one) for one in recording.reached])
        recording.run()
    except PgmError as error:
        node.send_report(error=[error.message, error.remedy])
        sys.exit(1)
    except Exception as error:
        node.send_report(error=[f"{type(error).__name__}: {error}", ""])
        raise


if __name__ == "__main__":
    main()
