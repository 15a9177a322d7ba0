"""Congestion control on real sockets: an acker is elected, its acks carry the stream, and everything arrives."""

from __future__ import annotations

import trio

import pgm
from pgm.topology.load import loads
from tests.net.support.listening import PATIENCE_S, taking
from tests.net.support.opened import messages_of_sizes
from tests.net.support.places import Place, one_segment


async def test_a_stream_with_congestion_control_arrives_whole(place: Place) -> None:
    text = one_segment(place, loss='{ loss = "1%" }').replace("[streams.s]\n", '[streams.s]\nflow = "pgmcc"\n')
    topology = loads(text)
    sent = messages_of_sizes([1000] * 2000)
    async with (
        pgm.open_receiver(topology, node="desk-1") as one,
        pgm.open_receiver(topology, node="desk-2") as other,
        taking(one, other) as taken,
        pgm.open_source(topology, node="source") as source,
    ):
        with trio.fail_after(PATIENCE_S):
            await source.send_batch(sent)
            await source.flush()
    assert [one.messages for one in taken] == [sent, sent]
    assert source.counters.acker_changes >= 1
    assert source.counters.cc_reports_in > 50
    assert source.counters.cc_losses > 0
    assert source.counters.cc_timeouts <= 3
