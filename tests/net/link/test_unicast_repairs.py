"""Repairs by unicast after a receiver was cut off, over real sockets on loopback."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pgm
from pgm.topology.load import loads
from tests.net.support.listening import taking, until
from tests.net.support.opened import injector, messages_of_sizes
from tests.net.support.places import Place, one_segment


async def test_a_long_gap_of_one_receiver_is_repaired_by_unicast(place: Place) -> None:
    topology = loads(one_segment(place))
    sent = messages_of_sizes([500] * 600)
    async with AsyncExitStack() as stack:
        cut_off, neighbour = [
            await stack.enter_async_context(pgm.open_receiver(topology, node=node)) for node in ("desk-1", "desk-2")
        ]
        found = await stack.enter_async_context(taking(cut_off, neighbour))
        source = await stack.enter_async_context(pgm.open_source(topology, node="source", fin_quiet_ivl="500ms"))
        await source.send_batch(sent[:20])
        await until(lambda: len(found[0].messages) == 20)
        cut_off.links[0].injector = injector(1.0)
        await source.send_batch(sent[20:-20])
        await until(lambda: len(found[1].messages) == len(sent) - 20)
        await until(lambda: cut_off.counters.injected_losses >= len(sent) - 40)  # none waits in the socket
        cut_off.links[0].injector = None
        await source.send_batch(sent[-20:])
        await source.aclose()
    assert found[0].messages == found[1].messages == sent
    assert source.counters.unicast_repair_sqns == len(sent) - 40
    assert neighbour.counters.duplicate_packets == 0
