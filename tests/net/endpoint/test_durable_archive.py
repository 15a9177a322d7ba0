"""Durable receivers whose past comes from an archive, and merges with the live stream."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trio

import pgm
import pgm.blocking
from pgm import Closed, LossCause, Lost, Message, Opened
from pgm.archive.recording.rows import rows_of_batch
from pgm.archive.service.collection import Archives
from pgm.archive.service.service import RangeService
from pgm.archive.session import RecordedSession
from pgm.archive.store.writer import ArchiveWriter
from pgm.core.source.source import SourceCore
from pgm.messages.arguments import columns_of_arguments
from pgm.messages.batch_decoder import DecodedBatch
from pgm.net.endpoint.source import Source
from pgm.topology.load import loads
from pgm.topology.model import Topology
from pgm.units import MICROSECOND
from pgm.wire.formats import tsi_text
from tests.net.support.listening import PATIENCE_S, until
from tests.net.support.places import Place, one_segment
from tests.net.support.processes import count, processes
from tests.unit.archive.makers import append, log_to, loss, messages, payload, small

BEFORE, GONE, LIVE = 10, 90, 120  # packets that the first life takes, that leave the window, and all
SIZE = 16


class Recording:
    """Archive of one session, written by the test, and its range service."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.writer = ArchiveWriter(folder, small(), log_to([]))
        stack.callback(self.writer.close)
        self.writer.sync()
        self.service = RangeService(Archives(folder), "grpc://127.0.0.1:0", small())
        thread = threading.Thread(target=self.service.serve)
        thread.start()
        stack.callback(thread.join)
        stack.callback(self.service.end)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.service.port}"

    def add(self, source: Source, *parts: Any) -> None:
        core = source.driver.core
        assert isinstance(core, SourceCore)
        epoch_us = core.setup.started_at_ns // MICROSECOND
        append(self.writer, parts, RecordedSession(tsi_text(source.tsi), epoch_us, "s", "source", "recorder", "lan"))
        self.writer.sync()


@contextmanager
def recording(folder: Path) -> Iterator[Recording]:
    with ExitStack() as stack:
        yield Recording(folder, stack)


def tree(place: Place) -> Topology:
    return loads(one_segment(place, window="100ms", parameters='join_ivl = "0ns", durable_hold_ivl = "0ns"'))


async def first_life(topology: Topology, source: Source, file: Path) -> None:
    """Let the application take some packets, and the source forget the next ones."""
    async with pgm.open_receiver(topology, node="desk-1", durable=file) as receiver:
        await until(lambda: receiver.known_sources)
        await source.send_batch([payload(sqn, SIZE) for sqn in range(BEFORE)])
        async for item in receiver:
            if isinstance(item, Message) and item.sqn == BEFORE - 1:
                break
    await source.send_batch([payload(sqn, SIZE) for sqn in range(BEFORE, GONE)])
    await source.flush()
    source.close_window()


async def second_life(topology: Topology, source: Source, **options: Any) -> list[Any]:
    seen: list[Any] = []
    async with pgm.open_receiver(topology, node="desk-1", **options) as receiver:
        await until(lambda: receiver.known_sources)
        await source.send_batch([payload(sqn, SIZE) for sqn in range(GONE, LIVE)])
        async for item in receiver:
            seen.append(item)
            if isinstance(item, Message) and item.sqn == LIVE - 1:
                return seen
    return seen


def check_messages(seen: list[Any], lost: dict[int, LossCause]) -> None:
    """Require each packet once, in order, as a message or as a loss."""
    opened, *rest = seen
    assert isinstance(opened, Opened)
    expected = opened.first
    found: dict[int, LossCause] = {}
    for item in rest:
        if isinstance(item, Lost):
            assert item.first == expected
            found.update(dict.fromkeys(range(item.first, item.first + item.count), item.cause))
            expected += item.count
        else:
            assert (item.sqn, item.payload) == (expected, payload(expected, SIZE))
            expected += 1
    assert (opened.first, expected) == (BEFORE, LIVE)
    assert found == lost


@pytest.mark.parametrize("begin", [0, BEFORE + 5])
async def test_archive_joins_the_live_stream(place: Place, tmp_path: Path, begin: int) -> None:
    topology, file = tree(place), tmp_path / "desk"
    with recording(tmp_path / "archive") as archive:
        async with pgm.open_source(topology, node="source") as source:
            with trio.fail_after(PATIENCE_S):
                await first_life(topology, source, file)
                archive.add(source, messages(begin, GONE - begin, SIZE))
                seen = await second_life(topology, source, durable=file, archive=archive.address)
    check_messages(seen, dict.fromkeys(range(BEFORE, begin), LossCause.WINDOW))


async def test_recorded_losses_keep_their_causes(place: Place, tmp_path: Path) -> None:
    topology, file = tree(place), tmp_path / "desk"
    with recording(tmp_path / "archive") as archive:
        async with pgm.open_source(topology, node="source") as source:
            with trio.fail_after(PATIENCE_S):
                await first_life(topology, source, file)
                archive.add(source, messages(0, 30, SIZE), loss(30, 5, "retries"), messages(35, 45, SIZE))
                options = {"archive": [archive.address], "durable_archive_ivl": "1s"}
                seen = await second_life(topology, source, durable=file, **options)
    lost = {**dict.fromkeys(range(30, 35), LossCause.RETRIES), **dict.fromkeys(range(80, GONE), LossCause.WINDOW)}
    check_messages(seen, lost)


async def test_rows_that_are_not_synced_yet_are_waited_for(place: Place, tmp_path: Path) -> None:
    topology, file = tree(place), tmp_path / "desk"
    with recording(tmp_path / "archive") as archive:
        async with pgm.open_source(topology, node="source") as source:
            with trio.fail_after(PATIENCE_S):
                await first_life(topology, source, file)
                archive.add(source, messages(0, 40, SIZE))
                async with pgm.open_receiver(
                    topology, node="desk-1", durable=file, archive=archive.address, durable_archive_ivl="30s"
                ) as receiver:
                    await until(lambda: receiver.known_sources)
                    await source.send_batch([payload(sqn, SIZE) for sqn in range(GONE, LIVE)])
                    seen: list[Any] = []
                    async for item in receiver:
                        seen.append(item)
                        if isinstance(item, Message) and item.sqn == 39:
                            archive.add(source, messages(40, GONE - 40, SIZE))
                        if isinstance(item, Message) and item.sqn == LIVE - 1:
                            break
    check_messages(seen, {})


async def test_rest_of_an_ended_session_comes_first(place: Place, tmp_path: Path) -> None:
    topology, file = tree(place), tmp_path / "desk"
    seen: list[Any] = []
    with recording(tmp_path / "archive") as archive:
        with trio.fail_after(PATIENCE_S):
            async with pgm.open_source(topology, node="source") as ended:
                await first_life(topology, ended, file)
            archive.add(ended, messages(0, GONE, SIZE))
            async with pgm.open_source(topology, node="source", join_ivl="60s") as source:
                await source.send(b"again")
                options = {"durable": file, "archive": archive.address, "durable_gone_ivl": "100ms"}
                async with pgm.open_receiver(topology, node="desk-1", **options) as receiver:
                    async for item in receiver:
                        seen.append(item)
                        if isinstance(item, Message) and item.payload == b"again":
                            break
    opened, *rest, closed, again, _ = seen
    assert isinstance(opened, Opened)
    assert (opened.tsi, opened.first, opened.source) == (ended.tsi, BEFORE, "source")
    assert [item.sqn for item in rest] == list(range(BEFORE, GONE))
    assert isinstance(closed, Closed)
    assert (closed.tsi, closed.next_sqn) == (ended.tsi, GONE)
    assert isinstance(again, Opened)
    assert (again.tsi, again.first) == (source.tsi, 0)


async def test_archive_without_a_memory_is_refused(place: Place) -> None:
    with pytest.raises(pgm.UsageError, match="for durable receivers"):
        async with pgm.open_receiver(tree(place), node="desk-1", archive="127.0.0.1:1"):
            pass


async def test_dead_archive_leaves_the_loss(place: Place, tmp_path: Path) -> None:
    topology, file = tree(place), tmp_path / "desk"
    async with pgm.open_source(topology, node="source") as source:
        with trio.fail_after(PATIENCE_S):
            await first_life(topology, source, file)
            options = {"archive": "127.0.0.1:9", "durable_archive_ivl": "1s"}
            seen = await second_life(topology, source, durable=file, **options)
    check_messages(seen, dict.fromkeys(range(BEFORE, GONE), LossCause.WINDOW))


async def test_loss_in_one_archive_comes_from_another(place: Place, tmp_path: Path) -> None:
    topology, file = tree(place), tmp_path / "desk"
    with recording(tmp_path / "archive") as archive, recording(tmp_path / "other") as other:
        async with pgm.open_source(topology, node="source") as source:
            with trio.fail_after(PATIENCE_S):
                await first_life(topology, source, file)
                archive.add(source, messages(0, 30, SIZE), loss(30, 20, "recorder"), messages(50, GONE - 50, SIZE))
                other.add(source, messages(0, 45, SIZE), loss(45, 20, "recorder"), messages(65, GONE - 65, SIZE))
                options = {"archive": [archive.address, other.address], "durable_archive_ivl": "1s"}
                seen = await second_life(topology, source, durable=file, **options)
    check_messages(seen, dict.fromkeys(range(45, 50), LossCause.RECORDER))


async def test_session_whose_end_was_seen_has_no_rest(place: Place, tmp_path: Path) -> None:
    topology = tree(place)
    with recording(tmp_path / "archive") as archive:
        with trio.fail_after(PATIENCE_S):
            async with pgm.open_receiver(topology, node="desk-1", start=[]) as receiver:
                async with pgm.open_source(topology, node="source") as ended:
                    await until(lambda: receiver.known_sources)
                    await ended.send(b"message")
                async for item in receiver:
                    if isinstance(item, Closed):
                        break
                stored = str(receiver.position)
            archive.add(ended, messages(0, GONE, SIZE))
            async with pgm.open_source(topology, node="source", join_ivl="60s") as source:
                await source.send(b"again")
                async with pgm.open_receiver(
                    topology, node="desk-1", start=[stored], archive=archive.address
                ) as receiver:
                    first = await anext(aiter(receiver))
    assert isinstance(first, Opened)
    assert first.tsi == source.tsi


@pytest.mark.parametrize("subjects", [None, ["/b"]])
async def test_batches_of_an_archive_have_their_subjects(
    place: Place, tmp_path: Path, subjects: list[str] | None
) -> None:
    """A position in the middle of a packet goes on with the next message of the packet, also from an archive."""
    text = one_segment(place, window="100ms", parameters='join_ivl = "0ns", durable_hold_ivl = "0ns"')
    topology = loads(text.replace("[streams.s]\n", '[streams.s]\nframing = "batch"\n'))
    sent = [(b"%d" % number, "/a" if number % 3 else "/b") for number in range(40)]
    wanted = [payload for payload, subject in sent if subjects is None or subject in subjects]
    file, got = tmp_path / "desk", []
    async with pgm.open_source(topology, node="source") as source:
        with trio.fail_after(PATIENCE_S), recording(tmp_path / "archive") as archive:
            options = {"durable": file, "subjects": subjects, "archive": archive.address}
            async with pgm.open_receiver(topology, node="desk-1", **options) as receiver:
                await until(lambda: receiver.known_sources)
                for at in range(0, 40, 10):
                    names = [subject for _, subject in sent[at : at + 10]]
                    await source.send_batch([payload for payload, _ in sent[at : at + 10]], subject=names, flush=True)
                    await source.flush()
                async for item in receiver:
                    if isinstance(item, Message):
                        got.append(item.payload)
                        if len(got) == 3:
                            break
            source.close_window()
            archive.add(source, *packets_of(sent))
            async with pgm.open_receiver(topology, node="desk-1", **options) as receiver:
                async for item in receiver:
                    assert not isinstance(item, Lost)
                    if isinstance(item, Message):
                        got.append(item.payload)
                        if len(got) == len(wanted):
                            break
    assert got == wanted


def packets_of(sent: list[tuple[bytes, str]]) -> list[Any]:
    """Return rows of four packets with ten messages each."""
    columns = columns_of_arguments([one for one, _ in sent], [subject for _, subject in sent], None)
    sqns, counts = np.arange(4), np.full(4, 10)
    return [rows_of_batch(DecodedBatch(columns, sqns, counts), 0, 1, np.zeros(4, np.bool_), 1)]


def test_overrun_of_a_slow_application_comes_from_the_archive(place: Place, tmp_path: Path) -> None:
    """The live stream runs on while the archive is read: what overflows comes from the archive, too, until both meet."""
    total, more, size = 4000, 2000, 1000
    text = (
        one_segment(place, rate="80Mbit/s")
        + f"""
[nodes.recorder]
role = "receiver"
segment = "lan"
address = "{place.address(60)}"
parents = ["source"]
record = {{ directory = "{tmp_path}/archive", serve = "{place.address(60)}:3057" }}
"""
    )
    expected = 0
    with processes(text, f"t{place.number}") as nodes:
        nodes.start("recorder", verb="record").line_with("ready:")
        options = {"inbox_bytes": "64KiB", "rxw_bytes": "64KiB", "durable_archive_ivl": "60s"}
        with (
            pgm.blocking.open_source(nodes.file, node="source") as source,
            pgm.blocking.open_receiver(nodes.file, node="desk-1", durable=tmp_path / "desk", **options) as receiver,  # type: ignore[call-overload]
        ):
            nodes.until("recorder", lambda snapshot: snapshot["sessions"])
            for item in receiver:
                assert isinstance(item, Opened)
                break
            source.send_batch([payload(sqn, size) for sqn in range(total)])
            nodes.until("recorder", lambda snapshot: count(snapshot, "received_packets") >= total)
            for item in receiver:
                assert isinstance(item, Message), item
                assert (item.sqn, item.payload) == (expected, payload(expected, size))
                expected += 1
                if expected == total // 2:  # the live stream goes on in the middle of the merge
                    source.send_batch([payload(sqn, size) for sqn in range(total, total + more)])
                if expected == total + more:
                    break
            assert receiver.counters.archive_sqns > total // 2
