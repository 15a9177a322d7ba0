"""Sends files and folders over a source: their list, their octets, the digests of these; then asks who lacks what.

A round sends what somebody lacks, at first everything, and ends with questions. Receivers answer by UDP datagrams to
the address that is announced. Nobody needs to know them before, and a network without a way back costs the answers alone.
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
    few,
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

_REPEAT_OCTETS = 64 * MIB  # of data between two announcements with the list of files, for who comes late
_REPEAT_SHARE = 64  # and that list takes no more than this part of what is sent
_AT_ONCE_OCTETS = 4 * MIB  # of blocks that are read together: a change of threads costs as much as many octets
_AHEAD = 1  # such groups that are read before the source takes them
_MOST_DIGESTS = 40  # in a packet, short as they may be: files get their names when the digests have come
_ASKED_AT_LEAST = 2  # questions of a round: one may be lost
_MOST_DATAGRAM = 2048

Progress = Callable[[str, int, int], None]  # what is being done, octets done, and octets in all


def unit_of(source: Source) -> int:
    """Octets of files in a packet of this source. Raises `UsageError` for a stream whose messages share packets."""
    if not source.is_plain:
        raise UsageError(
            "files go over streams with plain framing, and this one has another",
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
    """Send files and folders over a source; `receivers` and `resume` as of `FileSender.run`, which returns the account too.

    Raises `UsageError` for what cannot be sent, `ProcessError` for what cannot be read or changes meanwhile.
    """
    unit, limits = unit_of(source), source.parameters

    def look() -> FileOffering:
        block, most = limits.file_block_bytes, limits.file_entries
        return scan(files, folders, unit=unit, block_octets=block, most_entries=most, digest_name=limits.file_digest)

    offering = await trio.to_thread.run_sync(look)
    return await FileSender(source, offering, progress=progress).run(receivers=receivers, resume=resume)


@attrs.frozen
class _Job:
    """Octets `first` to `end - 1` of the transfer, which are in one block."""

    block: int
    first: int
    end: int


_Read: TypeAlias = tuple[_Job, list[Octets]]  # what is sent, as packets


class _Room:
    """Memory for one block and its packets. Fresh memory for each would cost more than what is done with it."""

    def __init__(self, block: int, unit: int) -> None:
        self.octets = np.empty(block, np.uint8)
        self.packets = np.empty(block + block // unit * HEAD_OCTETS, np.uint8)


class FileSender:
    """One transfer over one source."""

    def __init__(self, source: Source, offering: FileOffering, *, progress: Progress | None = None) -> None:
        self._source = source
        self._offering = offering
        self._manifest = offering.manifest
        self._parameters: Parameters = source.parameters
        self._encoded = self._manifest.encode()
        if len(self._encoded) > self._parameters.file_manifest_bytes:
            raise UsageError(
                f"the list of files takes {len(self._encoded):,} octets, more than file_manifest_bytes",
                remedy="send them in several goes, or raise it at source and receivers",
            )
        self._digest = digest_of(self._encoded)
        self._socket = _answer_socket(source)
        host, port = self._socket.getsockname()[:2]
        self._announcement = Announcement(self._digest, len(self._encoded), self._manifest.octets, host, port)
        self._census = Census(self._announcement.ident, self._parameters.file_receivers, self._parameters.file_patience)
        self._blocks_at_once = max(1, min(_AT_ONCE_OCTETS // self._manifest.block, self._manifest.blocks))
        # What was read, what is being read, and what is being sent, which is copied before the next is taken.
        rooms = (_AHEAD + 2) * self._blocks_at_once
        self._rooms = [_Room(self._manifest.block, self._manifest.unit) for _ in range(rooms)]
        self._digests: dict[int, bytes] = {}
        self._digests_a_packet = min(self._manifest.unit // self._manifest.digest.octets, _MOST_DIGESTS)
        self._question = 0
        self._progress = progress or _ignore
        self._answered = trio.Event()
        self._since_repeat = 0
        self.octets_sent = 0  # of files, those that were sent again included
        self.rounds = 0

    async def run(self, *, receivers: int = 0, resume: bool = False) -> dict[str, Any]:
        """Send, ask, and send what is lacking, until nobody lacks anything or `file_rounds` rounds are over.

        With `receivers` it is known how many there are: as soon as they have everything it ends. With `resume` the
        first round is questions alone. Returns an account with stable keys.
        """
        ranges: Sequence[Extent] = () if resume else ((0, self._manifest.octets),)
        async with open_plain_nursery() as nursery:
            nursery.start_soon(self._listen)
            for number in range(self._parameters.file_rounds):
                self.rounds = number + 1
                await self._send_round(ranges, number if not resume else number - 1)
                if resume and number == 0:
                    await self._send_all_digests()
                first_question = self._question + 1
                await self._ask(first_question, receivers)
                lacks_manifest, lacking = self._census.missing(first_question)
                if not lacking and not lacks_manifest:
                    break
                ranges = lacking
            nursery.cancel_scope.cancel()
        return self._account(receivers)

    def _account(self, receivers: int) -> dict[str, Any]:
        everybody = self._census.account()
        return {
            "files": len(self._manifest.files),
            "octets": self._manifest.octets,
            "octets_sent": self.octets_sent,
            "rounds": self.rounds,
            "skipped": [os.fspath(path) for path in self._offering.skipped],
            "receivers": everybody,
            "complete": self._census.done,
            "incomplete": max(receivers, len(everybody)) - self._census.done,
        }

    # Sending

    async def _announce(self, question: int = 0) -> None:
        octets = attrs.evolve(self._announcement, question=question).encode()
        await self._source.send(packet(FilePacketKind.ANNOUNCE, self._announcement.ident, question, octets))

    async def _send_list(self) -> None:
        await self._announce()
        listed = packets(FilePacketKind.MANIFEST, self._announcement.ident, self._encoded, self._manifest.unit)
        for at in range(0, len(listed), 64):
            await self._source.send_batch(listed[at : at + 64])
        self._since_repeat = 0

    async def _send_round(self, ranges: Sequence[Extent], number: int) -> None:
        await self._send_list()
        rounded = self._rounded(ranges)
        total, done = sum(end - first for first, end in rounded), 0
        what = "sending" if number <= 0 else f"sending again ({number})"
        repeat = max(_REPEAT_OCTETS, _REPEAT_SHARE * len(self._encoded))
        pending: dict[int, bytes] = {}
        ahead, groups = trio.open_memory_channel[list[_Read]](_AHEAD)
        async with open_plain_nursery() as nursery:
            nursery.start_soon(self._read_ahead, self._jobs(rounded), ahead)
            async for group in groups:
                for job, parts in group:
                    for part in parts:
                        await self._source.send_batch(part)
                    done += job.end - job.first
                    self._since_repeat += job.end - job.first
                    pending[job.block] = self._digests[job.block]
                    if len(pending) >= self._digests_a_packet:
                        await self._send_digests(pending)
                        pending = {}
                if self._since_repeat >= repeat:
                    await self._send_list()
                self._progress(what, done, total)
        self.octets_sent += done
        await self._send_digests(pending)

    def _rounded(self, ranges: Sequence[Extent]) -> list[Extent]:
        """Whole units that cover some ranges."""
        unit, octets = self._manifest.unit, self._manifest.octets
        found = ((first - first % unit, min(octets, -(-end // unit) * unit)) for first, end in ranges)
        return few([one for one in found if one[0] < one[1]], most=None)

    def _jobs(self, ranges: Sequence[Extent]) -> Iterator[_Job]:
        """Ranges, cut at the blocks' ends."""
        for first, end in ranges:
            while first < end:
                block = first // self._manifest.block
                until = min(end, self._manifest.span(block)[1])
                yield _Job(block, first, until)
                first = until

    async def _read_ahead(self, jobs: Iterator[_Job], ahead: trio.MemorySendChannel[list[_Read]]) -> None:
        reader, rooms = FileReader(self._offering), itertools.cycle(self._rooms)

        def read_some() -> list[_Read]:
            some = itertools.islice(jobs, self._blocks_at_once)
            return [(job, self._packets_of(reader, job, next(rooms))) for job in some]

        async with ahead:
            while group := await trio.to_thread.run_sync(read_some):
                await ahead.send(group)
        reader.close()

    def _packets_of(self, reader: FileReader, job: _Job, room: _Room) -> list[Octets]:
        """Read what a job sends, with the block's digest if that is not known yet."""
        first, end = self._manifest.span(job.block)
        if job.block in self._digests:
            first, end = job.first, job.end
        octets = room.octets[: end - first]
        reader.read(first, octets)
        if job.block not in self._digests:
            self._digests[job.block] = self._manifest.digest.of(octets)
        part = octets[job.first - first : job.end - first]
        return rows(FilePacketKind.DATA, self._announcement.ident, job.first, part, self._manifest.unit, room.packets)

    async def _send_digests(self, digests: dict[int, bytes]) -> None:
        """Send some blocks' digests, those of blocks in a row together."""
        blocks, at, most = sorted(digests), 0, self._digests_a_packet
        while at < len(blocks):
            until = at + 1
            while until < len(blocks) and blocks[until] == blocks[at] + until - at and until - at < most:
                until += 1
            octets = b"".join(digests[block] for block in blocks[at:until])
            await self._source.send(packet(FilePacketKind.DIGESTS, self._announcement.ident, blocks[at], octets))
            at = until

    async def _send_all_digests(self) -> None:
        """Send the digests of everything, which is read for them: so receivers find out whether what they have is right."""
        reader, blocks = FileReader(self._offering), self._manifest.blocks
        for block in range(blocks):
            if block not in self._digests:
                first, end = self._manifest.span(block)
                await trio.to_thread.run_sync(self._packets_of, reader, _Job(block, first, end), self._rooms[0])
                self._progress("reading", end, self._manifest.octets)
        reader.close()
        await self._send_digests(self._digests)

    # Asking

    async def _ask(self, first_question: int, receivers: int) -> None:
        """Ask until everybody who is known has answered; those who are busy, or still acknowledge, for their patience."""
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
                continue  # they are not through what was sent, and come to the question behind it
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
        while True:
            octets = await self._socket.recv(_MOST_DATAGRAM)
            try:
                answer = TransferAnswer.decode(octets)
            except BadPacket:
                self._census.rejects += 1
                continue
            self._census.take(answer, time.monotonic_ns())
            self._answered.set()


def _ignore(what: str, done: int, total: int) -> None:
    """Nobody watches."""


def _answer_socket(source: Source) -> trio.socket.SocketType:
    """A socket at the address that the source sends from, on a port of its own."""
    host = source.links[0].sockets.own.getsockname()[0]
    made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
    try:
        made.bind((host, 0))
    except OSError as error:
        made.close()
        raise TransportError(f"no socket for answers at {host}: {error.strerror}") from error
    made.setblocking(False)
    return trio.socket.from_stdlib_socket(made)
