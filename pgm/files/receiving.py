"""Receives files and folders: puts them together, writes, checks and names them, and answers the source's questions."""

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
    few,
    read,
)
from pgm.files.storing import FileStore, kept_manifest
from pgm.net.driver.nurseries import open_plain_nursery
from pgm.net.endpoint.receiver import Receiver
from pgm.net.framing.items import Batch, BatchItem
from pgm.parameters import Parameters
from pgm.units import MIB, SECOND
from pgm.wire.train import Octets

_AT_ONCE_OCTETS = 4 * MIB  # received octets that go to the disk together: a change of threads costs as much as many
_GATHER_S = 0.002  # how long one octet waits for the next, to share that change
_MOST_NAMED = 20  # incomplete files that an account names

Progress = Callable[[str, int, int], None]  # what is being done, octets done, and octets in all


@attrs.define
class Intake:
    """One transfer as it comes in. Everything here runs in a thread of its own, since disks are slow."""

    into: Path
    parameters: Parameters
    replace: bool
    announcement: Announcement | None = None
    manifest: Manifest | None = None
    store: FileStore | None = None
    assembly: FileAssembly | None = None
    resumed_octets: int = 0
    foreign: int = 0  # packets of other transfers
    rejects: int = 0  # packets that are none
    early: int = 0  # packets that came before the list of files
    lost: int = 0  # packets that the stream lost
    is_done: bool = False
    _finished: bytearray = attrs.field(factory=bytearray)
    _listed: dict[int, Octets] = attrs.field(factory=dict)
    _listed_octets: int = 0

    def take(self, items: Iterable[BatchItem]) -> list[Announcement]:
        """Take in what came; returns the questions among it. Raises `ProcessError` when it cannot be written."""
        asked = []
        for item in items:
            if isinstance(item, Lost):
                self.lost += item.count
            if not isinstance(item, Batch):
                continue
            for found in read(item.payloads):
                question = self._take(found)
                if question is not None:
                    asked.append(question)
        return asked

    def _take(self, found: FilePackets) -> Announcement | None:
        if found.kind == FilePacketKind.ANNOUNCE:
            return self._announced(found)
        if self.announcement is None or found.ident != self.announcement.ident:
            self.foreign += len(found.payloads)
            return None
        if found.kind == FilePacketKind.MANIFEST:
            self._list(found)
        elif self.assembly is None:
            self.early += len(found.payloads)
        elif found.kind == FilePacketKind.DATA:
            self._finish(self.assembly.add(found.place, found.payloads))
        elif found.kind == FilePacketKind.DIGESTS and len(found.payloads) == 1:
            self._finish(self.assembly.add_digests(found.place, found.payloads[0]))
        else:
            self.rejects += len(found.payloads)
        return None

    def _announced(self, found: FilePackets) -> Announcement | None:
        try:
            said = Announcement.decode(found.payloads[0].tobytes())
        except BadPacket:
            self.rejects += 1
            return None
        if self.announcement is None or (self.manifest is None and said.ident != self.announcement.ident):
            self.announcement = said
            self._listed, self._listed_octets = {}, 0
            kept = kept_manifest(self.into, said.digest, self.parameters.file_manifest_bytes)
            if kept is not None:
                self._begin(kept)
        if said.ident != self.announcement.ident:
            self.foreign += 1
            return None
        return said if said.question else None

    def _list(self, found: FilePackets) -> None:
        """Gather the list of files, which begins again now and then, until it is whole."""
        assert self.announcement is not None
        wanted = self.announcement.manifest_octets
        if self.manifest is not None:
            return
        if wanted > self.parameters.file_manifest_bytes:
            raise ProcessError(
                f"the source's list of files takes {wanted:,} octets, more than file_manifest_bytes",
                remedy="raise file_manifest_bytes",
            )
        place, size = found.place, found.payloads.shape[1]
        for row in found.payloads:
            if place not in self._listed and place + size <= wanted and self._listed_octets + size <= wanted:
                self._listed[place] = row.copy()
                self._listed_octets += size
            place += size
        if self._listed_octets != wanted:
            return
        encoded = b"".join(self._listed[place].tobytes() for place in sorted(self._listed))
        self._listed, self._listed_octets = {}, 0
        if digest_of(encoded) == self.announcement.digest:
            self._begin(encoded)
        else:
            self.rejects += 1

    def _begin(self, encoded: bytes) -> None:
        try:
            self.manifest = Manifest.decode(encoded, self.parameters.file_entries)
        except BadManifest as error:
            raise ProcessError(
                f"nothing is written: {error.message}", remedy="find out who sends this, and send other names"
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
        """Read what a receiver before this one has written: the source's digests will say whether it is right."""
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
        """Name the files all of whose blocks are right."""
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
        """What to say to a question."""
        assert self.announcement is not None
        ident, octets = self.announcement.ident, self.announcement.octets
        if self.is_done:
            return TransferAnswer(ident, who, question, TransferState.DONE)
        if self.assembly is None:
            ranges = [(0, octets)] if octets else []
            return TransferAnswer(ident, who, question, TransferState.LACKS, True, octets, tuple(ranges))
        missing = self.assembly.missing()
        lacks = sum(end - first for first, end in missing)
        return TransferAnswer(ident, who, question, TransferState.LACKS, False, lacks, tuple(few(missing)))

    def progress(self) -> tuple[str, int, int]:
        """What to show."""
        if self.assembly is None or self.manifest is None:
            return "waiting", 0, 0
        return "receiving", self.assembly.whole_octets, self.manifest.octets

    def close(self) -> None:
        """Let go of the disk; what is not complete stays for the next."""
        if self.store is not None:
            self.store.close()
            self.store = None

    def account(self) -> dict[str, Any]:
        """What came of it, with stable keys."""
        files = self.manifest.files if self.manifest is not None else ()
        lacking = [entry.name for index, entry in enumerate(files) if not any(self._finished[index : index + 1])]
        assembly = self.assembly
        return {
            "done": self.is_done,
            "files": len(files),
            "octets": self.announcement.octets if self.announcement is not None else 0,
            "octets_right": assembly.right_octets if assembly is not None else 0,
            "octets_resumed": self.resumed_octets,
            "incomplete": len(lacking),
            "incomplete_names": [shown(name) for name in lacking[:_MOST_NAMED]],
            "blocks_damaged": assembly.damaged if assembly is not None else 0,
            "blocks_evicted": assembly.evicted if assembly is not None else 0,
            "packets_foreign": self.foreign,
            "packets_early": self.early,
            "packets_rejected": self.rejects + (assembly.rejects if assembly is not None else 0),
            "packets_lost": self.lost,
        }


class FileReceiver:
    """Receives one transfer from one receiver's streams."""

    def __init__(
        self, receiver: Receiver, into: Path, *, who: str = "", replace: bool = False, progress: Progress | None = None
    ) -> None:
        self._receiver = receiver
        self._who = who or f"{socket.gethostname()}:{os.getpid()}"
        self.intake = Intake(into, receiver.parameters, replace)
        self._progress = progress or _ignore
        self._free = trio.Event()  # set while nothing goes to the disk
        self._free.set()
        self._socket: socket.socket | None = None
        self.unanswerable = ""  # why answers do not leave
        self.close_cause: CloseCause | None = None

    async def run(self, first: BatchItem | None = None) -> dict[str, Any]:
        """Receive until the stream ends; returns an account with stable keys. Raises `ProcessError` when nothing can be written.

        `first` was taken from the receiver before.
        """
        try:
            async with open_plain_nursery() as nursery:
                nursery.start_soon(self._say_when_busy)
                await self._receive(nursery, first)
                nursery.cancel_scope.cancel()
            return self.intake.account()
        except ProcessError:
            self._say(TransferState.FAILED)
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
            asked = await trio.to_thread.run_sync(self.intake.take, items)
            self._free.set()
            if asked:
                nursery.start_soon(self._answer, asked[-1].question)
            self._progress(*self.intake.progress())
            for one in items:
                if isinstance(one, Opened):
                    open_sessions.add(one.tsi)
                elif isinstance(one, Closed) and one.cause is not CloseCause.SILENT:
                    open_sessions.discard(one.tsi)
                    self.close_cause = one.cause
            if self.close_cause is not None and not open_sessions:
                return

    async def _answer(self, question: int) -> None:
        """Answer after a while by chance, so that a thousand receivers do not answer at once."""
        await trio.sleep(random.random() * self.intake.parameters.file_ask_ivl / 2 / SECOND)
        while not self._free.is_set():
            await self._free.wait()
        self._send(self.intake.answer(self._who, question))

    async def _say_when_busy(self) -> None:
        """Tell the source, while the disk takes long, that somebody is still here."""
        while True:
            free = self._free
            await trio.sleep(self.intake.parameters.file_ask_ivl / SECOND)
            if self._free is free and not free.is_set():
                self._say(TransferState.BUSY)

    def _say(self, state: TransferState) -> None:
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


def _ignore(what: str, done: int, total: int) -> None:
    """Nobody watches."""
