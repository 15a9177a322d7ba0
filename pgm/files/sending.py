"""Sender of files and folders over a source, in rounds that end with questions about missing parts.

A round sends the list of files, the missing octets and their digests. The first round sends all octets. Receivers answer the
questions by UDP datagrams to the announced address. The source need not know the receivers in advance. A network without a
return path costs only the answers.
"""

from __future__ import annotations

import itertools
import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import attrs
import numpy as np
import trio

from pgm.errors import TransportError, UsageError
from pgm.files.census import Census
from pgm.files.manifest import MOST_DIGEST_OCTETS, Extent, digest_of
from pgm.files.packets import (
    HEAD_OCTETS,
    Announcement,
    BadPacket,
    FilePacketKind,
    TransferAnswer,
    covering_ranges,
    packet,
    packets,
    rows,
)
from pgm.files.scanning import FileOffering, FileReader, scan
from pgm.net.driver.nurseries import open_plain_nursery
from pgm.net.endpoint.source import Source
from pgm.parameters import Parameters
from pgm.units import MIB, SECOND
from pgm.wire.formats import DATA_HEADER_OCTETS
from pgm.wire.train import Octets

_REPEAT_OCTETS = 64 * MIB  # of data between two announcements with the list of files, for late receivers
_REPEAT_SHARE = 64  # divisor of the octets sent: the list takes at most this part
_AT_ONCE_OCTETS = 4 * MIB  # octets of blocks that are read together, to share the cost of a change of threads
_AHEAD = 1  # groups of blocks that are read before the source takes them
_MOST_DIGESTS = 40  # maximum in a packet: a file gets its name only when its digests have arrived
_ASKED_AT_LEAST = 2  # minimum questions of a round, because one may be lost
_MOST_DATAGRAM = 2048

Progress = Callable[[str, int, int], None]  # activity, octets done, and octets in all


def unit_of(source: Source) -> int:
    """Return the octets of files in a packet. Raises `UsageError` without plain framing, or for packets too small."""
    if not source.is_plain:
        raise UsageError(
            "files need a stream with plain framing, and this stream has another framing",
            remedy='give the files a stream of their own, with framing = "plain"',
        )
    unit = source.max_tpdu - DATA_HEADER_OCTETS - HEAD_OCTETS
    if unit < MOST_DIGEST_OCTETS:
        raise UsageError(f"packets of {source.max_tpdu} octets are too small for files", remedy="raise max_tpdu")
    return unit


async def send(
    source: Source,
    *,
    files: Sequence[Path] = (),
    folders: Sequence[Path] = (),
    receivers: int = 0,
    resume: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Send files and folders over a source. Return the account of `FileSender.run`.

    `FileSender.run` documents `receivers` and `resume`. Raises `UsageError` for files that cannot be sent, and `ProcessError`
    for a file that cannot be read or changes during the transfer.
    """
    unit, limits = unit_of(source), source.parameters

    def scan_paths() -> FileOffering:
        block, most = limits.file_block_bytes, limits.file_entries
        return scan(files, folders, unit=unit, block_octets=block, most_entries=most, digest_name=limits.file_digest)

    offering = await trio.to_thread.run_sync(scan_paths)
    return await FileSender(source, offering, progress=progress).run(receivers=receivers, resume=resume)


@attrs.frozen
class _Job:
    """Octets `first` to `end - 1` of the transfer, all in one block."""

    block: int
    first: int
    end: int


_JobPackets: TypeAlias = tuple[_Job, list[Octets]]  # a job, and its packets


class _BlockBuffer:
    """Memory for one block and its packets. The buffer is reused, because fresh memory costs more than its use."""

    def __init__(self, block: int, unit: int) -> None:
        self.octets = np.empty(block, np.uint8)
        self.packets = np.empty(block + block // unit * HEAD_OCTETS, np.uint8)


class _BlockReader:
    """Reader of a transfer's blocks into packets, which computes the digest of each block once."""

    def __init__(self, offering: FileOffering, ident: bytes) -> None:
        self._offering = offering
        self._manifest = offering.manifest
        self._ident = ident
        self._at_once = max(1, min(_AT_ONCE_OCTETS // self._manifest.block, self._manifest.blocks))
        # Buffers for the groups that wait, for the group that is read, and for the group that is sent. The source copies a
        # group before it takes the next.
        buffers = (_AHEAD + 2) * self._at_once
        self._buffers = [_BlockBuffer(self._manifest.block, self._manifest.unit) for _ in range(buffers)]
        self.digests: dict[int, bytes] = {}

    def jobs(self, ranges: Sequence[Extent]) -> Iterator[_Job]:
        """Yield the ranges as jobs, cut at the ends of blocks."""
        for first, end in ranges:
            while first < end:
                block = first // self._manifest.block
                until = min(end, self._manifest.span(block)[1])
                yield _Job(block, first, until)
                first = until

    async def read_ahead(self, jobs: Iterator[_Job], ahead: trio.MemorySendChannel[list[_JobPackets]]) -> None:
        """Read jobs in groups, in a thread, ahead of the source."""
        reader, buffers = FileReader(self._offering), itertools.cycle(self._buffers)

        def read_group() -> list[_JobPackets]:
            group = itertools.islice(jobs, self._at_once)
            return [(job, self._packets_of(reader, job, next(buffers))) for job in group]

        async with ahead:
            while group := await trio.to_thread.run_sync(read_group):
                await ahead.send(group)
        reader.close()

    def _packets_of(self, reader: FileReader, job: _Job, buffer: _BlockBuffer) -> list[Octets]:
        """Read the octets of a job into packets. Compute the block's digest if it is not known yet."""
        first, end = self._manifest.span(job.block)
        if job.block in self.digests:
            first, end = job.first, job.end
        octets = buffer.octets[: end - first]
        reader.read(first, octets)
        if job.block not in self.digests:
            self.digests[job.block] = self._manifest.digest.of(octets)
        part = octets[job.first - first : job.end - first]
        return rows(FilePacketKind.DATA, self._ident, job.first, part, self._manifest.unit, buffer.packets)

    async def read_digests(self, progress: Progress) -> None:
        """Read all blocks whose digest is not known yet."""
        reader = FileReader(self._offering)
        for block in range(self._manifest.blocks):
            if block not in self.digests:
                first, end = self._manifest.span(block)
                await trio.to_thread.run_sync(self._packets_of, reader, _Job(block, first, end), self._buffers[0])
                progress("reading", end, self._manifest.octets)
        reader.close()


class FileSender:
    """Sender of one transfer over one source."""

    def __init__(self, source: Source, offering: FileOffering, *, progress: Progress | None = None) -> None:
        self._source = source
        self._offering = offering
        self._manifest = offering.manifest
        self._parameters: Parameters = source.parameters
        self._encoded = self._manifest.encode()
        if len(self._encoded) > self._parameters.file_manifest_bytes:
            raise UsageError(
                f"the list of files takes {len(self._encoded):,} octets, more than file_manifest_bytes",
                remedy="send them in several transfers, or raise file_manifest_bytes at source and receivers",
            )
        self._socket = _answer_socket(source)
        host, port = self._socket.getsockname()[:2]
        sizes = len(self._encoded), self._manifest.octets
        self._announcement = Announcement(digest_of(self._encoded), *sizes, host, port)
        self._census = Census(self._announcement.ident, self._parameters.file_receivers, self._parameters.file_patience)
        self._blocks = _BlockReader(offering, self._announcement.ident)
        self._question = 0
        self._progress = progress or _ignore
        self._answered = trio.Event()
        self._since_repeat = 0
        self.octets_sent = 0  # octets of files, repeats included
        self.rounds = 0

    async def run(self, *, receivers: int = 0, resume: bool = False) -> dict[str, Any]:
        """Send rounds until no receiver lacks a part, or until `file_rounds` rounds are over.

        `receivers` is the expected number of receivers, or 0. With a number the transfer ends as soon as all of them are
        complete. With `resume` the first round has only questions. Returns an account with stable keys.
        """
        ranges: Sequence[Extent] = () if resume else ((0, self._manifest.octets),)
        async with open_plain_nursery() as nursery:
            nursery.start_soon(self._listen)
            for number in range(self._parameters.file_rounds):
                self.rounds = number + 1
                await self._send_round(ranges, number if not resume else number - 1)
                if resume and number == 0:
                    await self._blocks.read_digests(self._progress)
                    await self._send_digests(self._blocks.digests)  # receivers can verify the blocks they have
                first_question = self._question + 1
                await self._ask(first_question, receivers)
                lacks_manifest, missing = self._census.missing(first_question)
                if not missing and not lacks_manifest:
                    break
                ranges = missing
            nursery.cancel_scope.cancel()
        return self._account(receivers)

    def _account(self, receivers: int) -> dict[str, Any]:
        accounts = self._census.account()
        return {
            "files": len(self._manifest.files),
            "octets": self._manifest.octets,
            "octets_sent": self.octets_sent,
            "rounds": self.rounds,
            "skipped": [os.fspath(path) for path in self._offering.skipped],
            "receivers": accounts,
            "complete": self._census.done,
            "incomplete": max(receivers, len(accounts)) - self._census.done,
        }

    # Sending

    async def _announce(self, question: int = 0) -> None:
        octets = attrs.evolve(self._announcement, question=question).encode()
        await self._source.send(packet(FilePacketKind.ANNOUNCE, self._announcement.ident, question, octets))

    async def _send_list(self) -> None:
        await self._announce()
        manifest = packets(FilePacketKind.MANIFEST, self._announcement.ident, self._encoded, self._manifest.unit)
        for at in range(0, len(manifest), 64):
            await self._source.send_batch(manifest[at : at + 64])
        self._since_repeat = 0

    async def _send_round(self, ranges: Sequence[Extent], number: int) -> None:
        await self._send_list()
        rounded = self._rounded(ranges)
        total, done = sum(end - first for first, end in rounded), 0
        activity = "sending" if number <= 0 else f"sending again ({number})"
        repeat = max(_REPEAT_OCTETS, _REPEAT_SHARE * len(self._encoded))
        pending: dict[int, bytes] = {}
        ahead, groups = trio.open_memory_channel[list[_JobPackets]](_AHEAD)
        async with open_plain_nursery() as nursery:
            nursery.start_soon(self._blocks.read_ahead, self._blocks.jobs(rounded), ahead)
            async for group in groups:
                for job, parts in group:
                    for part in parts:
                        await self._source.send_batch(part)
                    done += job.end - job.first
                    self._since_repeat += job.end - job.first
                    pending[job.block] = self._blocks.digests[job.block]
                    if len(pending) >= self._most_digests:
                        await self._send_digests(pending)
                        pending = {}
                if self._since_repeat >= repeat:
                    await self._send_list()
                self._progress(activity, done, total)
        self.octets_sent += done
        await self._send_digests(pending)

    @property
    def _most_digests(self) -> int:
        return min(self._manifest.unit // self._manifest.digest.octets, _MOST_DIGESTS)

    def _rounded(self, ranges: Sequence[Extent]) -> list[Extent]:
        """Return ranges of whole units that cover these ranges."""
        unit, octets = self._manifest.unit, self._manifest.octets
        rounded = ((first - first % unit, min(octets, -(-end // unit) * unit)) for first, end in ranges)
        return covering_ranges([extent for extent in rounded if extent[0] < extent[1]], most=None)

    async def _send_digests(self, digests: dict[int, bytes]) -> None:
        """Send the digests of some blocks. Successive blocks share a packet."""
        blocks, at, most = sorted(digests), 0, self._most_digests
        while at < len(blocks):
            until = at + 1
            while until < len(blocks) and blocks[until] == blocks[at] + until - at and until - at < most:
                until += 1
            octets = b"".join(digests[block] for block in blocks[at:until])
            await self._source.send(packet(FilePacketKind.DIGESTS, self._announcement.ident, blocks[at], octets))
            at = until

    # Questions

    async def _ask(self, first_question: int, receivers: int) -> None:
        """Ask until all known receivers have answered; `file_patience` bounds the wait for busy receivers."""
        asked, waited = 0, self._parameters.file_ask_ivl / SECOND
        patient_until = trio.current_time() + self._parameters.file_patience / SECOND
        while True:
            self._question += 1
            asked += 1
            self._answered = trio.Event()
            await self._announce(self._question)
            await self._source.flush()
            with trio.move_on_after(waited):
                while not (receivers and self._has_all(first_question, receivers)):
                    await self._answered.wait()
                    self._answered = trio.Event()
                return
            self._progress("asking", self._census.done, max(receivers, self._census.known))
            if self._census.is_busy(time.monotonic_ns()):
                continue
            if self._has_silent_members(first_question) and trio.current_time() < patient_until:
                continue  # these members still read the data before the question
            if asked >= self._parameters.file_questions:
                return
            enough = self._census.known >= receivers and asked >= _ASKED_AT_LEAST
            if enough and self._census.is_settled(first_question):
                return

    def _has_silent_members(self, first_question: int) -> bool:
        return self._source.is_acked and self._source.members > self._census.answered(first_question)

    def _has_all(self, first_question: int, receivers: int) -> bool:
        return self._census.known >= receivers and self._census.is_settled(first_question)

    async def _listen(self) -> None:
        with self._socket:
            while True:
                octets = await self._socket.recv(_MOST_DATAGRAM)
                try:
                    answer = TransferAnswer.decode(octets)
                except BadPacket:
                    self._census.rejects += 1
                    continue
                self._census.take(answer, time.monotonic_ns())
                self._answered.set()


def _ignore(activity: str, done: int, total: int) -> None:
    """Ignore the progress."""


def _answer_socket(source: Source) -> trio.socket.SocketType:
    """Return a socket at the source's own address, on a free port. Raises `TransportError`."""
    host = source.links[0].sockets.own.getsockname()[0]
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
    try:
        sock.bind((host, 0))
    except OSError as error:
        sock.close()
        raise TransportError(f"no socket for answers at {host}: {error.strerror}") from error
    sock.setblocking(False)
    return trio.socket.from_stdlib_socket(sock)
