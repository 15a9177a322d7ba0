"""Many streams in one tree, and several sources in one stream.

Each receiver gets its own streams, and no work is done for the rest.
"""

from __future__ import annotations

import itertools
from contextlib import AsyncExitStack

import trio

import pgm
from pgm import Closed, Message
from pgm.topology.load import loads
from tests.net.support.places import BRISK, Place

PATIENCE_S = 30.0
STREAMS = 6


def many_streams(place: Place) -> str:
    """Return a topology of two sources with all streams, and a receiver that takes two of them."""
    names = [f"s{number}" for number in range(STREAMS)]
    lines = [f'version = 1\nname = "many"\nparameters = {{ {BRISK} }}', place.segment("lan")]
    for number, name in enumerate(names):
        framing = "batch" if number % 2 else "plain"
        lines.append(f'[streams.{name}]\ndata_port = {7500 + number}\nrate = "100Mbit/s"\nframing = "{framing}"')
    for number in (1, 2):
        own = f'address = "{place.address(number)}"\nstreams = {names}'
        lines.append(f'[nodes.source-{number}]\nrole = "source"\nsegment = "lan"\n{own}')
    lines.append(
        f'[nodes.desk]\nrole = "receiver"\nsegment = "lan"\naddress = "{place.address(9)}"\n'
        'streams = ["s0", "s1"]\nparents = ["source-1", "source-2"]'
    )
    return "\n".join(lines).replace("'", '"')


async def test_a_receiver_takes_its_streams_of_all_sources_and_no_others(place: Place) -> None:
    tree = loads(many_streams(place))
    got: dict[bytes, list[bytes]] = {}
    ended = 0
    async with pgm.open_receiver(tree, node="desk") as receiver:
        async with AsyncExitStack() as stack:
            for node, stream in itertools.product(("source-1", "source-2"), ("s0", "s3", "s1")):
                source = await stack.enter_async_context(pgm.open_source(tree, node=node, stream=stream))
                await source.send_batch([f"{stream} {number}".encode() for number in range(500)])
        with trio.fail_after(PATIENCE_S):
            async for item in receiver:
                if isinstance(item, Message):
                    got.setdefault(item.tsi, []).append(item.payload)
                ended += isinstance(item, Closed)
                if ended == 4:
                    break
    expected = [[f"{stream} {number}".encode() for number in range(500)] for stream in ("s0", "s0", "s1", "s1")]
    assert sorted(got.values()) == sorted(expected)
    assert receiver.counters.foreign_packets > 0
    assert receiver.counters.messages_skipped == 0
