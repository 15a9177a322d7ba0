"""Receiver of files and folders: assembles, checks, writes and names them, and answers the source's questions."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import trio

from pgm.core.effects import CloseCause, Closed, Lost, Opened
from pgm.errors import ProcessError
from pgm.files.assembly import FileAssembly
from pgm.files.manifest import Manifest, digest_of
from pgm.files.names import BadManifest, shown
from pgm.files.packets import (
    Announcement,
    BadPacket,
    FilePacketKind,
    FilePackets,
    TransferAnswer,
    TransferState,
    covering_ranges,
    read,
)
from pgm.files.storing import FileStore, kept_manifest
from pgm.net.driver.nurseries import open_plain_nursery
from pgm.net.endpoint.receiver import Receiver
from pgm.net.framing.items import Batch, BatchItem
from pgm.parameters import Parameters
from pgm.units import MIB, SECOND
from pgm.wire.formats import Tsi
from pgm.wire.train import Octets

_AT_ONCE_OCTETS = 4 * MIB  # received octets that go to the disk together, to share the cost of a change of threads
_GATHER_S = 0.002  # seconds that octets wait for further ones, to share that cost
_MOST_NAMED = 20  # incomplete files that the account names

Progress = Callable[[str, int, int], None]  # activity, octets done, and octets in all


@attrs.define
class OpenBlock:
    """Newest block of a file whose packets have not all arrived. The block is in memory only, so its packets need no ack."""

    held: tuple[Tsi, int] | None = None  # session and sqn of the first packet of the block
    _place: int = -1  # at which the next packet of the file goes on

    def follow(self, packets: FilePackets, item: Batch, assembly: FileAssembly) -> None:
        """Note added packets of an item. A gap in the file means that packets of the block before it were lost."""
        first = assembly.open_rows(packets.place, len(packets.payloads))
        if first is None:
            self.held = None
        elif first or self.held is None or self._place != packets.place:
            self.held = (item.tsi, item.first_sqn + packets.row + first)
        self._place = packets.place + packets.payloads.size


@attrs.define
class _FileList:
    """Parts of the list of files that have arrived, by place."""

    parts: dict[int, Octets] = attrs.field(factory=dict)
    octets: int = 0

    def add(self, place: int, row: Octets, most: int) -> None:
        """Add a part that is new, within `most` octets."""
        size = len(row)
        if place not in self.parts and place + size <= most and self.octets + size <= most:
            self.parts[place] = row.copy()
            self.octets += size

    def joined(self) -> bytes:
        """Return all parts in order."""
        return b"".join(self.parts[place].tobytes() for place in sorted(self.parts))


@attrs.define
class Intake:
    """Incoming transfer. All methods run in a thread of their own, because disks are slow."""

    into: Path
    parameters: Parameters
    replace: bool
    announcement: Announcement | None = None
    manifest: Manifest | None = None
    store: FileStore | None = None
    assembly: FileAssembly | None = None
    resumed_octets: int = 0
    foreign: int = 0  # packets of other transfers
    rejects: int = 0  # invalid packets
    early: int = 0  # packets that arrived before the list of files
    lost: int = 0  # packets that the stream lost
    is_done: bool = False
    open_block: OpenBlock = attrs.field(factory=OpenBlock)
    _finished: bytearray = attrs.field(factory=bytearray)
    _listed: _FileList = attrs.field(factory=_FileList)

    def take(self, items: Iterable[BatchItem]) -> list[Announcement]:
        """Process received items, and return the questions among them. Raises `ProcessError` if a write fails."""
        questions = []
        for item in items:
            if isinstance(item, Lost):
                self.lost += item.count
            if not isinstance(item, Batch):
                continue
            for packets in read(item.payloads):
                question = self._take(packets, item)
                if question is not None:
                    questions.append(question)
        return questions

    def _take(self, packets: FilePackets, item: Batch) -> Announcement | None:
        if packets.kind == FilePacketKind.ANNOUNCE:
            self.open_block.held = None
            return self._on_announcement(packets)
        if self.announcement is None or packets.ident != self.announcement.ident:
            self.foreign += len(packets.payloads)
            return None
        if packets.kind == FilePacketKind.MANIFEST:
            self._on_manifest(packets)
        elif self.assembly is None:
            self.early += len(packets.payloads)
        elif packets.kind == FilePacketKind.DATA:
            self._finish(self.assembly.add(packets.place, packets.payloads))
            self.open_block.follow(packets, item, self.assembly)
        elif packets.kind == FilePacketKind.DIGESTS and len(packets.payloads) == 1:
            self._finish(self.assembly.add_digests(packets.place, packets.payloads[0]))
        else:
            self.rejects += len(packets.payloads)
        return None

    def _on_announcement(self, packets: FilePackets) -> Announcement | None:
        try:
            announcement = Announcement.decode(packets.payloads[0].tobytes())
        except BadPacket:
            self.rejects += 1
            return None
        if self.announcement is None or (self.manifest is None and announcement.ident != self.announcement.ident):
            self.announcement = announcement
            self._listed = _FileList()
            kept = kept_manifest(self.into, announcement.digest, self.parameters.file_manifest_bytes)
            if kept is not None:
                self._begin(kept)
        if announcement.ident != self.announcement.ident:
            self.foreign += 1
            return None
        return announcement if announcement.question else None

    def _on_manifest(self, packets: FilePackets) -> None:
        """Collect the list of files until it is complete. The source repeats the list from time to time."""
        assert self.announcement is not None
        octets = self.announcement.manifest_octets
        if self.manifest is not None:
            return
        if octets > self.parameters.file_manifest_bytes:
            raise ProcessError(
                f"the source's list of files takes {octets:,} octets, more than file_manifest_bytes",
                remedy="raise file_manifest_bytes",
            )
        place, size = packets.place, packets.payloads.shape[1]
        for row in packets.payloads:
            self._listed.add(place, row, octets)
            place += size
        if self._listed.octets != octets:
            return
        encoded, self._listed = self._listed.joined(), _FileList()
        if digest_of(encoded) == self.announcement.digest:
            self._begin(encoded)
        else:
            self.rejects += 1

    def _begin(self, encoded: bytes) -> None:
        try:
            self.manifest = Manifest.decode(encoded, self.parameters.file_entries)
        except BadManifest as error:
            raise ProcessError(
                f"nothing is written: {error.message}", remedy="find the sender of this list, and use other names"
            ) from error
        self.store = FileStore(self.into, self.manifest, encoded, replace=self.replace)
        self._finished = self.store.finished
        self.assembly = FileAssembly(self.manifest, self.store, self.parameters.file_blocks)
        self._read_kept(self.store.kept_blocks())
        self.store.make_folders()
        for file, entry in enumerate(self.manifest.files):
            if not entry.data_octets and not self.store.finished[file]:
                self.store.finish(file)
        self._end_if_done()

    def _read_kept(self, kept: bytes) -> None:
        """Read the blocks that an earlier receiver has written. The source's digests will verify these blocks."""
        assert self.manifest is not None
        assert self.store is not None
        assert self.assembly is not None
        for block in np.flatnonzero(np.frombuffer(kept, np.uint8)).tolist():
            first, end = self.manifest.span(block)
            octets = np.empty(end - first, np.uint8)
            if self.store.read(first, octets):
                self.assembly.have(block, octets)
                self.resumed_octets += end - first
            else:
                self.store.take_back(block)

    def _finish(self, right: list[int]) -> None:
        if not right:
            return
        assert self.manifest is not None
        assert self.store is not None
        assert self.assembly is not None
        last = -1
        for block in right:
            for file in self.manifest.files_in(block, block + 1):
                blocks = self.manifest.blocks_of(file)
                if file <= last or self.store.finished[file] or not blocks:
                    continue
                if self.assembly.right[blocks.start : blocks.stop].all():
                    self.store.finish(file)
                    last = file
        self._end_if_done()

    def _end_if_done(self) -> None:
        assert self.store is not None
        assert self.assembly is not None
        if not self.is_done and self.assembly.is_complete and all(self.store.finished):
            self.store.end()
            self.is_done = True

    def answer(self, who: str, question: int) -> TransferAnswer:
        """Return the answer to a question."""
        assert self.announcement is not None
        ident, octets = self.announcement.ident, self.announcement.octets
        if self.is_done:
            return TransferAnswer(ident, who, question, TransferState.DONE)
        if self.assembly is None:
            ranges = [(0, octets)] if octets else []
            return TransferAnswer(ident, who, question, TransferState.LACKS, True, octets, tuple(ranges))
        missing = self.assembly.missing()
        lacks = sum(end - first for first, end in missing)
        return TransferAnswer(ident, who, question, TransferState.LACKS, False, lacks, tuple(covering_ranges(missing)))

    def progress(self) -> tuple[str, int, int]:
        """Return the activity, the octets done, and the octets in all."""
        if self.assembly is None or self.manifest is None:
            return "waiting", 0, 0
        return "receiving", self.assembly.whole_octets, self.manifest.octets

    def close(self) -> None:
        """Close the files. An incomplete transfer stays on the disk for the next receiver."""
        if self.store is not None:
            self.store.close()
            self.store = None

    def account(self) -> dict[str, Any]:
        """Return an account of the transfer with stable keys."""
        files = self.manifest.files if self.manifest is not None else ()
        incomplete = [entry.name for index, entry in enumerate(files) if not any(self._finished[index : index + 1])]
        assembly = self.assembly
        return {
            "done": self.is_done,
            "files": len(files),
            "octets": self.announcement.octets if self.announcement is not None else 0,
            "octets_right": assembly.right_octets if assembly is not None else 0,
            "octets_resumed": self.resumed_octets,
            "incomplete": len(incomplete),
            "incomplete_names": [shown(name) for name in incomplete[:_MOST_NAMED]],
            "blocks_damaged": assembly.damaged if assembly is not None else 0,
            "blocks_evicted": assembly.evicted if assembly is not None else 0,
            "packets_foreign": self.foreign,
            "packets_early": self.early,
            "packets_rejected": self.rejects + (assembly.rejects if assembly is not None else 0),
            "packets_lost": self.lost,
        }


class FileReceiver:
    """Receiver of one transfer from the streams of a `Receiver`."""

    def __init__(
        self, receiver: Receiver, into: Path, *, who: str = "", replace: bool = False, progress: Progress | None = None
    ) -> None:
        self._receiver = receiver
        receiver.ack_by_hand()  # octets that wait for the disk are lost with the process
        self._who = who or f"{socket.gethostname()}:{os.getpid()}"
        self.intake = Intake(into, receiver.parameters, replace)
        self._progress = progress or _ignore
        self._free = trio.Event()  # set while no write is in progress
        self._free.set()
        self._socket: socket.socket | None = None
        self.unanswerable = ""  # why answers cannot be sent
        self.close_cause: CloseCause | None = None

    async def run(self, first: BatchItem | None = None) -> dict[str, Any]:
        """Receive until the stream ends. Return an account with stable keys.

        `first` is an item that the caller has already taken from the receiver. Raises `ProcessError` if a write fails.
        """
        try:
            async with open_plain_nursery() as nursery:
                nursery.start_soon(self._report_busy)
                await self._receive(nursery, first)
                nursery.cancel_scope.cancel()
            return self.intake.account()
        except ProcessError:
            self._report(TransferState.FAILED)
            raise
        finally:
            self.intake.close()
            if self._socket is not None:
                self._socket.close()

    async def _receive(self, nursery: trio.Nursery, item: BatchItem | None) -> None:
        open_sessions: set[bytes] = set()
        while True:
            item = item or await self._receiver.next_batch()
            if item is None:
                return
            items, item, octets = [item], None, 0
            while octets < _AT_ONCE_OCTETS and (more := await self._receiver.next_batch(_GATHER_S)) is not None:
                items.append(more)
                octets += more.payloads.size if isinstance(more, Batch) else 0
            self._free = trio.Event()
            questions = await trio.to_thread.run_sync(self.intake.take, items)
            self._free.set()
            self._receiver.cover(items, self.intake.open_block.held)
            if questions:
                nursery.start_soon(self._answer, questions[-1].question)
            self._progress(*self.intake.progress())
            for event in items:
                if isinstance(event, Opened):
                    open_sessions.add(event.tsi)
                elif isinstance(event, Closed) and event.cause is not CloseCause.SILENT:
                    open_sessions.discard(event.tsi)
                    self.close_cause = event.cause
            if self.close_cause is not None and not open_sessions:
                return

    async def _answer(self, question: int) -> None:
        """Answer after a random delay, so that a thousand receivers do not answer at once."""
        await trio.sleep(random.random() * self.intake.parameters.file_ask_ivl / 2 / SECOND)
        while not self._free.is_set():
            await self._free.wait()
        self._send(self.intake.answer(self._who, question))

    async def _report_busy(self) -> None:
        """Report BUSY to the source while a write takes long."""
        while True:
            free = self._free
            await trio.sleep(self.intake.parameters.file_ask_ivl / SECOND)
            if self._free is free and not free.is_set():
                self._report(TransferState.BUSY)

    def _report(self, state: TransferState) -> None:
        announcement = self.intake.announcement
        if announcement is not None:
            self._send(TransferAnswer(announcement.ident, self._who, announcement.question, state))

    def _send(self, answer: TransferAnswer) -> None:
        announcement = self.intake.announcement
        assert announcement is not None
        try:
            if self._socket is None:
                family = socket.AF_INET6 if ":" in announcement.host else socket.AF_INET
                self._socket = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
            self._socket.sendto(answer.encode(), (announcement.host, announcement.port))
        except OSError as error:
            self.unanswerable = f"{announcement.host}: {error.strerror}"


def _ignore(activity: str, done: int, total: int) -> None:
    """Ignore the progress."""
