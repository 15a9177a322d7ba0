"""Late joiners on real sockets: a repairer serves older packets, and the source gets no NAK for them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from functools import partial

import pytest
import trio

import pgm
import pgm.blocking
from pgm import Message, UsageError
from pgm.core.effects import Notice
from pgm.net.endpoint.start_position import start_parameters
from pgm.topology.load import loads
from pgm.units import SECOND
from tests.net.support.elements import running
from tests.net.support.listening import PATIENCE_S
from tests.net.support.loops import runner_of
from tests.net.support.opened import messages_of_sizes
from tests.net.support.places import Place, one_segment
from tests.net.support.processes import Stream, processes

COUNT = 800
FLAT = {"fin_quiet_ivl": "50ms", "ihb_min": "20ms", "rate": "80Mbit/s"}
PAST, MORE = messages_of_sizes([1000] * COUNT), [b"more %d" % number for number in range(50)]


def tree_of(place: Place, window: str = "300ms") -> str:
    text = one_segment(place, rate="80Mbit/s", window=window, parameters='join_ivl = "0ns"').replace(
        'parents = ["source"]', 'parents = ["repairer"]'
    )
    return (
        text + '\n[nodes.repairer]\nrole = "repairer"\n'
        f'segment = "lan"\naddress = "{place.address(60)}"\nparents = ["source"]\n'
    )


@pytest.mark.parametrize(
    ("start", "first"), [("oldest", 0), ("last:200", COUNT - 200), (100, 100), ("last:30s", 0), ("now", COUNT)]
)
async def test_it_begins_where_it_wants_to(place: Place, start: str | int, first: int) -> None:
    topology = loads(tree_of(place))
    sent = messages_of_sizes([1000] * (COUNT + 50))
    notices: list[Notice] = []
    got: list[bytes] = []
    async with running(topology, "repairer", "source") as tree:
        source = tree.sources["source"]
        with trio.fail_after(PATIENCE_S):
            while tree.core("repairer").counters.spm_packets_in < 1:  # noqa: ASYNC110 - a counter has no event
                await trio.sleep(0.01)
            await source.send_batch(sent[:COUNT])
            while tree.core("repairer").counters.received_packets < COUNT:  # noqa: ASYNC110
                await trio.sleep(0.01)
            [session] = tree.core("repairer").sessions
            while session.state.join_at != COUNT:  # noqa: ASYNC110 - an SPM says that who comes now is late
                await trio.sleep(0.01)
            naks = source.counters.nak_packets_in
            async with pgm.open_receiver(topology, node="desk-1", start=start, on_notice=notices.append) as receiver:
                while not (receiver.known_sources if start == "now" else notices):  # noqa: ASYNC110
                    await trio.sleep(0.01)
                await source.send_batch(sent[COUNT:])
                async for item in receiver:
                    if isinstance(item, Message):
                        got.append(item.payload)
                        if item.payload == sent[-1]:
                            break
    assert got == sent[first:]
    assert source.counters.nak_packets_in == naks
    assert [one.code for one in notices if one.code == "late-join"] == ([] if start == "now" else ["late-join"])


async def _flat_in_a_loop(got: list[bytes], place: Place, **address: str) -> None:
    async with pgm.open_source(place.url(**FLAT)) as source:
        await source.send_batch(PAST)
        async with pgm.open_receiver(place.url(**address), start="oldest") as receiver:
            got += [item.payload async for item in _until(receiver, PAST[-1])]
            await source.send_batch(MORE)
            got += [item.payload async for item in _until(receiver, MORE[-1])]


async def _until(receiver: pgm.Receiver, last: bytes) -> AsyncIterator[Message]:
    async for item in receiver:
        if isinstance(item, Message):
            yield item
            if item.payload == last:
                return


def _flat_in_a_thread(got: list[bytes], place: Place, *, busy_poll: bool) -> None:
    with pgm.blocking.open_source(place.url(**FLAT)) as source:
        source.send_batch(PAST)
        with pgm.blocking.open_receiver(place.url(), busy_poll=busy_poll, start="oldest") as receiver:  # type: ignore[call-overload]
            for part in (PAST, MORE):
                for item in receiver:
                    if isinstance(item, Message):
                        got.append(item.payload)
                        if item.payload == part[-1]:
                            break
                if part is PAST:
                    source.send_batch(MORE)


@pytest.mark.parametrize("surface", ["trio", "asyncio", "blocking", "busy_poll"])
def test_on_a_flat_subnet_the_source_serves_its_window(place: Place, surface: str) -> None:
    got: list[bytes] = []
    if surface == "trio":
        trio.run(partial(_flat_in_a_loop, address=place.address(2)), got, place)
    elif surface == "asyncio":
        runner_of(surface)(_flat_in_a_loop(got, place))
    else:
        _flat_in_a_thread(got, place, busy_poll=surface == "busy_poll")
    assert got == [*PAST, *MORE]


def test_by_the_command(place: Place) -> None:
    with processes(tree_of(place, "10s"), f"t{place.number}") as tree:
        stream = Stream(tree)
        stream.start(["desk-1"], ["repairer"])
        try:
            stream.go()
            stream.until_delivered(2000)
            late = tree.start("desk-2", "--lines", "--from", "oldest", verb="recv")
            late.line_with("late-join: session")
            late.line_with("at sqn 0")
        finally:
            stream.stop()
        stream.end_whole()
        late.wait()
        account = json.loads(late.lines[-1][1])
    assert account["lost"] == 0, late.log
    assert account["messages"] == stream.messages
    assert {"late-join", "opened", "closed-fin"} <= {row["id"] for row in account["events"]}


def test_places_in_a_stream() -> None:
    assert start_parameters(None) == {}
    assert start_parameters("now") == {"join_from": "now"}
    assert start_parameters(17) == {"join_from": "sqn", "join_sqns": 17}
    assert start_parameters("last:5") == {"join_from": "last", "join_sqns": 5, "join_secs": 0}
    assert start_parameters("last:5s") == {"join_from": "last", "join_secs": 5 * SECOND}
    for wrong in ("first", "last", "last:", "last:soon", "-3"):
        with pytest.raises(UsageError, match="start="):
            start_parameters(wrong)
