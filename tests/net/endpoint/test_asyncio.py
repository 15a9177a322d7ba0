"""Sources and receivers under asyncio and uvloop, over real multicast on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.dataset
import pytest

import pgm
from pgm import Batch, CloseCause, Closed, Message, Notice, Opened
from pgm.core.effects import Effects
from pgm.core.receiver.receiver import ReceiverCore
from pgm.core.segment import Channel
from pgm.errors import ProcessError
from pgm.net.control.control_socket import ask_control, control_path
from pgm.net.control.status_socket import ask_status, status_path
from pgm.net.endpoint.opening import EndpointOpening, H
from pgm.net.endpoint.receiver import Receiver
from pgm.net.endpoint.source import Source
from pgm.telemetry.events import arrow_schema
from pgm.topology.load import loads
from pgm.wire.formats import Nla, tsi_text
from pgm.wire.train import Train
from tests.folders import short_folder
from tests.net.support.loops import Run, runner_of, taking, until
from tests.net.support.opened import SIZES, messages_of_sizes, open_files
from tests.net.support.places import Place, one_segment


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Return a function that runs a coroutine in one of the loops."""
    return runner_of(request.param)


async def payload_of(receiver: Receiver) -> bytes:
    """Return the next message."""
    async for item in receiver:
        if isinstance(item, Message):
            return item.payload
    raise AssertionError("the receiver is closed")


def test_asyncio_stream_with_losses_arrives_whole(run: Run, place: Place) -> None:
    topology = loads(one_segment(place, loss='{ loss = "5%" }'))
    sent = messages_of_sizes([*SIZES, *[1400] * 2000])

    async def main() -> None:
        async with (
            pgm.open_receiver(topology, node="desk-1") as one,
            pgm.open_receiver(topology, node="desk-2") as other,
            taking(one, other) as found,
            pgm.open_source(topology, node="source") as source,
        ):
            for message in sent[: len(SIZES)]:
                await source.send(message)
            await source.send_batch(sent[len(SIZES) :])
        for taken in found:
            assert taken.messages == sent
            assert [type(event) for event in taken.events] == [Opened, Closed]
            assert taken.counters.repaired_sqns > 0

    run(main())


def test_asyncio_messages_with_subjects_and_objects(run: Run, place: Place) -> None:
    async def main() -> None:
        async with (
            pgm.open_receiver(place.url(framing="batch"), subjects=["/a/*"]) as receiver,
            pgm.open_source(place.url(framing="batch"), fin_quiet_ivl="100ms") as source,
        ):
            receiver.subscribe("/c")
            await source.send_batch([b"1", b"2", b"3"], subject=["/a/x", "/b", "/c"])
            await source.send_object({"n": 4}, subject="/a/y", flush=True)
            assert [await payload_of(receiver), await payload_of(receiver)] == [b"1", b"3"]
            async for item in receiver.objects():
                assert item.value == {"n": 4}  # type: ignore[union-attr]
                break

    run(main())


def test_asyncio_acked_stream_is_joined_and_stable(run: Run, place: Place) -> None:
    text = one_segment(place, loss='{ loss = "5%" }', parameters='ack_ivl = "10ms", ack_window = 64')
    topology = loads(text.replace("[streams.s]\n", '[streams.s]\nflow = "acked"\n'))
    sent = messages_of_sizes([1000] * 500)

    async def main() -> None:
        async with (
            pgm.open_receiver(topology, node="desk-1") as receiver,
            taking(receiver) as (taken,),
            pgm.open_source(topology, node="source") as source,
        ):
            await source.joined(1)
            for at in range(0, len(sent), 50):
                await source.stable(await source.send_batch(sent[at : at + 50]) + 49)
                assert receiver.counters.delivered_packets >= at + 50
        assert taken.messages == sent

    run(main())


def test_asyncio_cancelled_waits_lose_nothing(run: Run, place: Place) -> None:
    topology = loads(one_segment(place, rate="40Mbit/s", loss='{ loss = "2%" }'))
    sent = messages_of_sizes([1400] * 1000)
    got: list[bytes] = []

    async def main() -> None:
        cancelled = 0
        async with pgm.open_receiver(topology, node="desk-1") as receiver:

            async def publish() -> None:
                async with pgm.open_source(topology, node="source") as source:
                    await source.send_batch(sent)

            publishing = asyncio.create_task(publish())
            while len(got) < len(sent):
                try:
                    async with asyncio.timeout(0.0005):
                        item = await receiver.next_batch()
                except TimeoutError:
                    cancelled += 1
                else:
                    got.extend(item if isinstance(item, Batch) else ())
            await publishing
        assert cancelled > 10

    run(main())
    assert got == sent


def test_asyncio_cancelled_tasks_leave_no_socket(run: Run, place: Place) -> None:
    topology = loads(one_segment(place))

    async def main() -> None:
        files, others, is_busy = open_files(), asyncio.all_tasks(), asyncio.Event()

        async def publish() -> None:
            async with pgm.open_source(topology, node="source") as source:
                while True:
                    await source.send(bytes(1400))

        async def listen() -> None:
            async with pgm.open_receiver(topology, node="desk-1") as receiver:
                async for item in receiver:
                    if isinstance(item, Message):
                        is_busy.set()

        tasks = [asyncio.create_task(listen()), asyncio.create_task(publish())]
        await is_busy.wait()
        for task in tasks:
            task.cancel()
        assert [type(one) for one in await asyncio.gather(*tasks, return_exceptions=True)] == [
            asyncio.CancelledError
        ] * 2
        assert (open_files(), asyncio.all_tasks()) == (files, others)

    run(main())


def test_asyncio_source_holds_sends_back_by_rate(run: Run, place: Place) -> None:
    topology = loads(one_segment(place, rate="8Mbit/s", parameters='txw_unsent_bytes = "64KiB"'))
    message = bytes(30_000)

    async def main() -> None:
        sent = 0
        async with (
            pgm.open_receiver(topology, node="desk-1") as receiver,
            taking(receiver) as (taken,),
            pgm.open_source(topology, node="source") as source,
        ):
            while source.try_send(message) is not None:
                sent += 1
            assert sent < 10
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.1):
                    while True:
                        await source.send(message)
                        sent += 1
            await source.send(b"after")
        assert taken.messages == [message] * sent + [b"after"]

    run(main())


def test_asyncio_slow_application_misses_nothing_within_its_window(run: Run, place: Place) -> None:
    topology = loads(one_segment(place))
    sent = messages_of_sizes([1400] * 3000)
    got: list[bytes] = []

    async def main() -> None:
        async with (
            pgm.open_receiver(topology, node="desk-1", inbox_bytes="256KiB") as receiver,
            pgm.open_source(topology, node="source") as source,
        ):
            await source.send_batch(sent)
            await source.flush()
            await until(lambda: receiver.counters.received_packets == len(sent))
            assert receiver.counters.delivered_packets * 1400 <= 512 * 1024
            while len(got) < len(sent):
                got.append(await payload_of(receiver))
                await asyncio.sleep(0)

    run(main())
    assert got == sent


def test_asyncio_other_tasks_have_turns_in_a_fast_stream(run: Run, place: Place) -> None:
    sent = np.zeros((20_000, 1000), np.uint8)

    async def main() -> None:
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        async with (
            pgm.open_receiver(place.url()) as receiver,
            taking(receiver) as (taken,),
            pgm.open_source(place.url(), fin_quiet_ivl="50ms") as source,
        ):
            await source.send_batch(sent[:1])
            counting = asyncio.create_task(count())
            await asyncio.sleep(0)
            before = turns
            for at in range(1, len(sent), 100):
                await source.send_batch(sent[at : at + 100])
            assert turns > before + 5
            await source.flush()
            counting.cancel()
        assert len(taken.messages) == len(sent)

    run(main())


def _refuse_some(source: Source, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Let the link of a source refuse two of three sends, for a while. Return the refusals that are left."""
    group, refusals = source.links[0].to_group, iter(range(15))
    assert group is not None
    put = group.send

    def refuse(*args: Any) -> None:
        if next(refusals, 1) % 3 != 1:
            raise OSError(errno.EAGAIN, "busy")
        put(*args)

    monkeypatch.setattr(group, "send", refuse)
    monkeypatch.setattr(group, "send_packet", lambda _: False)
    return refusals


def test_asyncio_link_that_refuses_data_gets_it_in_order(
    run: Run, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    topology = loads(one_segment(place))
    sent = messages_of_sizes([1400] * 400)

    async def main() -> None:
        async with (
            pgm.open_receiver(topology, node="desk-1") as receiver,
            taking(receiver) as (taken,),
            pgm.open_source(topology, node="source") as source,
        ):
            refusals = _refuse_some(source, monkeypatch)
            for at in range(0, len(sent), 20):
                await source.send_batch(sent[at : at + 20])
            await source.flush()
            assert next(refusals, None) is None
        assert taken.messages == sent
        assert taken.causes == [CloseCause.FIN]

    run(main())


def test_asyncio_receiver_closed_in_a_wait_ends_all_waits(run: Run, place: Place) -> None:
    async def main() -> None:
        async with pgm.open_receiver(place.url()) as receiver:
            waiting = [asyncio.create_task(receiver.next_batch()) for _ in range(2)]
            await asyncio.sleep(0)
        assert await asyncio.gather(*waiting) == [None, None]
        assert [item async for item in receiver] == []

    run(main())


def test_asyncio_two_tasks_get_each_item_once(run: Run, place: Place) -> None:
    sent = [b"%d" % number for number in range(100)]
    got: list[bytes] = []

    async def main() -> None:
        async with (
            pgm.open_receiver(place.url()) as receiver,
            pgm.open_source(place.url(), fin_quiet_ivl="50ms") as source,
        ):

            async def take() -> None:
                while len(got) < len(sent):
                    item = await receiver.next_batch(timeout_s=0.05)
                    got.extend(item if isinstance(item, Batch) else ())

            async with asyncio.TaskGroup() as group:
                for _ in range(2):
                    group.create_task(take())
                await asyncio.sleep(0)
                for message in sent:
                    await source.send(message, flush=True)
                    await asyncio.sleep(0)

    run(main())
    assert sorted(got) == sorted(sent)


def test_asyncio_receive_times_out_and_goes_on(run: Run, place: Place) -> None:
    async def main() -> None:
        async with (
            pgm.open_receiver(place.url()) as receiver,
            pgm.open_source(place.url(), fin_quiet_ivl="50ms") as source,
        ):
            assert isinstance(await receiver.next_batch(), Opened)
            assert await receiver.next_batch(timeout_s=0.01) is None
            assert await receiver.next_batch(timeout_s=0) is None
            await source.send(b"x", flush=True)
            assert await payload_of(receiver) == b"x"

    run(main())


class Refused(Exception):
    """Exception of a handler of notices."""


def refuse(notice: Notice) -> None:
    if notice.code == "test":
        raise Refused


def test_asyncio_exception_of_a_handler_ends_the_block(run: Run, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    receive = ReceiverCore.receive

    def receiving(self: ReceiverCore, train: Train, channel: Channel, peer: Nla, now_ns: int) -> Effects:
        return [Notice("test", "something happened"), *receive(self, train, channel, peer, now_ns)]

    monkeypatch.setattr(ReceiverCore, "receive", receiving)
    files = open_files()

    async def fail_in_handler(source: Source) -> None:
        async with pgm.open_receiver(place.url(), on_notice=refuse):
            await source.send(b"x", flush=True)
            await asyncio.Event().wait()

    async def fail_beside_others(source: Source) -> None:
        async with pgm.open_receiver(place.url()) as receiver:
            with pytest.raises(Refused):
                await fail_in_handler(source)
            await source.send(b"y", flush=True)
            while await payload_of(receiver) != b"y":
                pass

    async def main() -> None:
        async with pgm.open_source(place.url(), fin_quiet_ivl="50ms") as source:
            with pytest.raises(Refused):
                await fail_in_handler(source)
            task = asyncio.current_task()
            assert task is not None
            assert task.cancelling() == 0
            await fail_beside_others(source)

    run(main())
    assert open_files() == files


def test_asyncio_timeout_ends_the_close_of_a_source(run: Run, place: Place) -> None:
    sent = messages_of_sizes([1000] * 100)

    async def main() -> None:
        async with pgm.open_receiver(place.url()) as receiver, taking(receiver) as (taken,):
            with pytest.raises(TimeoutError):
                await send_within(sent)
        assert taken.messages == sent
        assert taken.causes == [CloseCause.FIN]

    async def send_within(messages: list[bytes]) -> None:
        async with asyncio.timeout(None) as limit, pgm.open_source(place.url(), fin_quiet_ivl="1h") as source:
            await source.send_batch(messages)
            await source.flush()
            limit.reschedule(asyncio.get_running_loop().time())

    run(main())


def test_asyncio_exceptions_of_the_block_pass_as_they_are(run: Run, place: Place) -> None:
    topology = loads(one_segment(place))
    sent = messages_of_sizes([100] * 50)

    async def send_and_fail() -> None:
        async with pgm.open_source(topology, node="source") as source:
            await source.send_batch(sent)
            await source.flush()
            _ = 1 / 0

    async def main() -> None:
        async with pgm.open_receiver(topology, node="desk-1") as receiver, taking(receiver) as (taken,):
            with pytest.raises(ZeroDivisionError):
                await send_and_fail()
        assert taken.messages == sent
        assert taken.causes == [CloseCause.RESET]
        with pytest.raises(ExceptionGroup) as caught:
            async with pgm.open_receiver(topology, node="desk-1"):
                raise ExceptionGroup("mine", [ValueError("one")])
        assert caught.value.message == "mine"

    run(main())


def test_asyncio_block_left_in_another_task_closes(run: Run, place: Place) -> None:
    """Cells of a notebook are tasks of their own."""
    files = open_files()

    async def main() -> None:
        receiving = pgm.open_receiver(place.url(), end_confirm_ivl="10ms")
        sending = pgm.open_source(place.url(), fin_quiet_ivl="50ms")
        receiver = await asyncio.create_task(_entered(receiving))
        source = await asyncio.create_task(_entered(sending))
        await source.send(b"x", flush=True)
        assert await payload_of(receiver) == b"x"
        await asyncio.create_task(_left(sending))
        await asyncio.create_task(_left(receiving))
        assert isinstance(await receiver.next_batch(), Closed)
        assert await receiver.next_batch() is None

    run(main())
    assert open_files() == files


async def _entered(opening: EndpointOpening[H]) -> H:
    return await opening.__aenter__()


async def _left(opening: EndpointOpening[H]) -> None:
    await opening.__aexit__(None, None, None)


def test_asyncio_endpoints_of_one_node_share_its_sockets(run: Run, place: Place) -> None:
    topology = loads(one_segment(place, loss='{ loss = "5%" }'))
    sent = [messages_of_sizes([1000] * 500, seed) for seed in range(2)]

    async def main() -> None:
        before = open_files()
        async with (
            pgm.open_receiver(topology, node="desk-1") as outside,
            pgm.open_node(topology, node="source") as node,
            node.receiver() as inside,
            taking(outside, inside, streams=2) as found,
            node.source() as one,
            node.source() as other,
        ):
            assert one.links[0] is other.links[0] is inside.links[0]
            for at in range(0, 500, 10):
                await one.send_batch(sent[0][at : at + 10])
                await other.send_batch(sent[1][at : at + 10])
        for taken in found:
            assert taken.payloads == {one.tsi: sent[0], other.tsi: sent[1]}
        assert outside.counters.repaired_sqns > 0
        assert open_files() == before

    run(main())


def test_asyncio_sources_of_one_node_wait_for_one_link(run: Run, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    topology = loads(one_segment(place))
    sent = [messages_of_sizes([1400] * 200, seed) for seed in range(2)]

    async def main() -> None:
        async with (
            pgm.open_receiver(topology, node="desk-1") as receiver,
            taking(receiver, streams=2) as (taken,),
            pgm.open_source(topology, node="source") as one,
            pgm.open_source(topology, node="source") as other,
        ):
            refusals = _refuse_some(one, monkeypatch)
            for at in range(0, 200, 20):
                await one.send_batch(sent[0][at : at + 20])
                await other.send_batch(sent[1][at : at + 20])
            await one.flush()
            await other.flush()
            assert next(refusals, None) is None
        assert taken.payloads == {one.tsi: sent[0], other.tsi: sent[1]}

    run(main())


def test_asyncio_node_answers_for_its_status_and_settings(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place.new()
    (file := tmp_path / "tree.toml").write_text(one_segment(place))
    other = one_segment(Place.new())
    (again := tmp_path / "again.toml").write_text(re.sub('name = "t[0-9]+"', f'name = "t{place.number}"', other))
    notices: list[Notice] = []

    async def main() -> None:
        name = f"t{place.number}"
        async with pgm.open_source(file, node="source", answer="yes", on_notice=notices.append) as source:
            request = {"do": "set", "settings": {"rate": "1Mbit/s"}}
            answer = await asyncio.to_thread(ask_control, control_path(name, "source"), request)
            assert answer["changed"][0]["new"] == "1Mbit/s"
            assert (source.counters.settings_changed, [one.code for one in notices]) == (1, ["setting-changed"])
            snapshots = await asyncio.gather(
                *[asyncio.to_thread(ask_status, status_path(name, "source")) for _ in range(3)]
            )
            assert [one["node"] for one in snapshots] == ["source"] * 3
            with pytest.raises(ProcessError, match="already running"):
                async with pgm.open_source(again, node="source", answer="yes"):
                    raise AssertionError("the endpoint was opened")
        assert not control_path(name, "source").exists()
        assert not status_path(name, "source").exists()

    with short_folder() as folder:
        monkeypatch.setenv("PGM_RUNTIME_DIR", str(folder))
        run(main())


def test_asyncio_endpoints_of_one_node_answer_in_turn(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place.new()
    (file := tmp_path / "tree.toml").write_text(one_segment(place))

    async def sessions() -> list[str]:
        status = await asyncio.to_thread(ask_status, status_path(f"t{place.number}", "source"))
        return sorted(one["tsi"] for one in status["sessions"])

    async def main() -> None:
        opening = pgm.open_source(file, node="source", answer="yes")
        one = await opening.__aenter__()
        async with pgm.open_source(file, node="source", answer="yes") as other:
            assert await sessions() == sorted(map(tsi_text, (one.tsi, other.tsi)))
            await opening.__aexit__(None, None, None)
            assert await sessions() == [tsi_text(other.tsi)]

    with short_folder() as folder:
        monkeypatch.setenv("PGM_RUNTIME_DIR", str(folder))
        run(main())


def test_asyncio_node_writes_telemetry(run: Run, place: Place, tmp_path: Path) -> None:
    topology = loads(f'telemetry = "{tmp_path}"\n{one_segment(place)}')

    async def main() -> None:
        async with (
            pgm.open_receiver(topology, node="desk-1") as receiver,
            taking(receiver),
            pgm.open_source(topology, node="source") as source,
        ):
            await source.send_batch(messages_of_sizes([1400] * 500))

    run(main())
    table = pyarrow.dataset.dataset(tmp_path, schema=arrow_schema(), exclude_invalid_files=False).to_table()
    assert pc.sum(table.filter(pc.equal(table["kind"], "delivered"))["count"]).as_py() == 500


def test_opening_outside_of_a_loop_names_pgm_blocking(place: Place) -> None:
    opening = pgm.open_receiver(place.url())
    with pytest.raises(pgm.UsageError, match="async with") as caught, opening:  # type: ignore[attr-defined]
        pass
    assert "pgm.blocking" in caught.value.remedy
    with pytest.raises(pgm.UsageError, match="no event loop") as caught:
        opening.__aenter__().send(None)
    assert "pgm.blocking" in caught.value.remedy
