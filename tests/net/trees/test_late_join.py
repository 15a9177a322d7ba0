"""Late joiners on real sockets: a repairer serves older packets, and the source gets no NAK for them."""

from __future__ import annotations

import json

import pytest
import trio

import pgm
from pgm import Message, UsageError
from pgm.core.effects import Notice
from pgm.net.endpoint.start_position import start_parameters
from pgm.topology.load import loads
from pgm.units import SECOND
from tests.net.support.elements import running
from tests.net.support.listening import PATIENCE_S
from tests.net.support.opened import messages_of_sizes
from tests.net.support.places import Place, one_segment
from tests.net.support.processes import Stream, processes

COUNT = 800


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
            while session.path.join_at != COUNT:  # noqa: ASYNC110 - an SPM says that who comes now is late
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


def test_by_the_command(place: Place) -> None:
    with processes(tree_of(place, "10s"), f"t{place.number}") as tree:
        stream = Stream(tree)
        stream.start(["desk-1"], ["repairer"])
        try:
            stream.go()
            stream.until_delivered(2000)
            late = tree.start("desk-2", "--lines", "--from", "oldest", verb="recv")
            late.line_with("late-join: session")
            late.line_with("begins at sqn 0,")
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
