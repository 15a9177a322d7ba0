"""The library with losses on the path or in full buffers, over real multicast on loopback."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest

import pgm
from pgm import LossCause
from pgm.topology.load import loads
from tests.net.support.listening import taking
from tests.net.support.opened import injector, messages_of_sizes, planned
from tests.net.support.places import Place, one_segment


@pytest.mark.parametrize("has_own_port", [False, True])
async def test_a_source_by_url_is_asked_for_repairs(place: Place, has_own_port: bool) -> None:
    """Receivers ask on the group's port, also if the source has another port of its own."""
    own = {"unicast_port": 3999, "address": place.address(1)} if has_own_port else {}
    sent = messages_of_sizes([1000] * 500)
    async with (
        pgm.open_receiver(place.url()) as receiver,
        taking(receiver) as (taken,),
        pgm.open_source(place.url(**own), fin_quiet_ivl="1s") as source,
    ):
        receiver.links[0].injector = injector(0.1)
        await source.send_batch(sent)
    assert taken.messages == sent
    assert taken.counters.repaired_sqns > 0


async def test_library_losses_at_egress_are_repaired(place: Place) -> None:
    sent = messages_of_sizes([1000] * 3000)
    url = place.url()
    async with (
        pgm.open_receiver(url) as receiver,
        taking(receiver) as (taken,),
        pgm.open_source(url, fin_quiet_ivl="1s") as source,
    ):
        source.driver.links[0].outgoing = outgoing = injector(0.05)
        for at in range(0, len(sent), 30):
            await source.send_batch(sent[at : at + 30])
    assert taken.messages == sent
    assert outgoing.lost == source.counters.injected_losses > 100
    assert taken.counters.repaired_sqns > 100
    assert taken.counters.injected_losses == 0
    assert taken.counters.trains_in < taken.counters.packets_in / 5


async def test_a_slow_application_loses_by_overrun_and_others_do_not(place: Place) -> None:
    limits = 'txw_bytes = "256KiB", rxw_bytes = "64KiB", inbox_bytes = "64KiB"'
    slow_plan = planned(place, "desk-1", parameters=limits)
    other_plan = planned(place, "desk-2")
    source_plan = planned(
        place, "source", parameters='txw_bytes = "256KiB", txw_unsent_bytes = "64KiB"', window="256KiB"
    )
    sent = messages_of_sizes([1000] * 3000)
    async with AsyncExitStack() as stack:
        slow = await stack.enter_async_context(pgm.open_receiver(slow_plan))
        other = await stack.enter_async_context(pgm.open_receiver(other_plan))
        (taken,) = await stack.enter_async_context(taking(other))
        source = await stack.enter_async_context(pgm.open_source(source_plan))
        for at in range(0, len(sent), 30):
            await source.send_batch(sent[at : at + 30])
        await source.aclose()
        assert 0 < slow.counters.delivered_packets < len(sent)
        (late,) = await stack.enter_async_context(taking(slow))
    assert taken.messages == sent
    assert not taken.lost
    assert {one.cause for one in late.lost} == {LossCause.OVERRUN}
    assert len(late.messages) + sum(one.count for one in late.lost) == len(sent)
    survivors = iter(sent)
    assert all(message in survivors for message in late.messages), "out of order"


@pytest.mark.parametrize("burst", [False, True])
async def test_injected_losses_are_repaired(place: Place, burst: bool) -> None:
    loss = '{ loss = "2%", burst_loss = "6%", burst_length = 12 }' if burst else '{ loss = "10%" }'
    topology = loads(one_segment(place, loss=loss))
    sent = messages_of_sizes([1200] * 3000 + [30_000] * 20)
    async with AsyncExitStack() as stack:
        receivers = [
            await stack.enter_async_context(pgm.open_receiver(topology, node=f"desk-{n}", seed=str(n)))
            for n in (1, 2, 3)
        ]
        found = await stack.enter_async_context(taking(*receivers))
        source = await stack.enter_async_context(pgm.open_source(topology, node="source"))
        for at in range(0, len(sent), 20):
            await source.send_batch(sent[at : at + 20])
    for taken in found:
        assert taken.messages == sent
        assert not taken.lost
        assert taken.counters.repaired_sqns > 100


@pytest.mark.parametrize(("gso", "gro"), [(True, True), (False, True), (True, False), (False, False)])
async def test_with_and_without_offload_the_result_is_the_same(place: Place, gso: bool, gro: bool) -> None:
    topology = loads(one_segment(place, loss='{ loss = "3%" }'))
    sent = messages_of_sizes([1400] * 1500 + [50_000] * 10)
    async with AsyncExitStack() as stack:
        receiver = await stack.enter_async_context(pgm.open_receiver(topology, node="desk-1", gro=gro))
        (taken,) = await stack.enter_async_context(taking(receiver))
        source = await stack.enter_async_context(pgm.open_source(topology, node="source", gso=gso, gro=gro))
        assert receiver.links[0].sockets.gro == gro
        assert source.links[0].sockets.gso == gso
        await source.send_batch(sent)
    assert taken.messages == sent
    trains = taken.counters.packets_in / taken.counters.trains_in
    assert trains > 3 if gso and gro else trains >= 1  # the link gathers waiting packets if the kernel does not


async def test_two_receivers_without_addresses_of_their_own_on_one_host(place: Place) -> None:
    sent = messages_of_sizes([1000] * 2000)
    async with AsyncExitStack() as stack:
        url = place.url(nak_bo_ivl="5ms")
        receivers = [await stack.enter_async_context(pgm.open_receiver(url)) for _ in range(2)]
        found = await stack.enter_async_context(taking(*receivers))
        for number, receiver in enumerate(receivers):
            receiver.links[0].injector = injector(0.05 * (1 + number))
        source_url = place.url(address=place.address(1))
        source = await stack.enter_async_context(pgm.open_source(source_url, fin_quiet_ivl="1s"))
        await source.send_batch(sent)
    for taken in found:
        assert taken.messages == sent
        assert taken.counters.repaired_sqns > 50
    assert source.counters.nak_packets_in > 0


async def test_the_smallest_receive_buffers_are_told_of_and_mended(place: Place) -> None:
    """With the kernel's default rmem_max of 212,992 octets, and less, excess packets are counted and repaired."""
    topology = loads(one_segment(place))
    sent = messages_of_sizes([1400] * 4000)
    async with AsyncExitStack() as stack:
        usual = await stack.enter_async_context(pgm.open_receiver(topology, node="desk-1", so_rcvbuf="208KiB"))
        least = await stack.enter_async_context(pgm.open_receiver(topology, node="desk-2", so_rcvbuf="16KiB"))
        assert usual.links[0].sockets.buffers.rcvbuf == 212_992
        assert not usual.links[0].sockets.buffers.complaint
        found = await stack.enter_async_context(taking(usual, least))
        source = await stack.enter_async_context(pgm.open_source(topology, node="source"))
        for at in range(0, len(sent), 50):
            await source.send_batch(sent[at : at + 50])
    for taken in found:
        assert taken.messages == sent
        assert not taken.lost
    assert found[1].counters.socket_drops > 0


@pytest.mark.parametrize("order", ["ordered", "unordered"])
async def test_library_stalled_large_message_is_given_up_and_freed(place: Place, order: str) -> None:
    text = one_segment(place, rate="100kbit/s").replace("data_port = 7500", f'data_port = 7500\norder = "{order}"')
    async with AsyncExitStack() as stack:
        receiver = await stack.enter_async_context(pgm.open_receiver(loads(text), node="desk-1", apdu_ivl="20ms"))
        (taken,) = await stack.enter_async_context(taking(receiver))
        source = await stack.enter_async_context(pgm.open_source(loads(text), node="source"))
        await source.send_batch([bytes(10_000), b"small"])  # a packet each 0.1 s
    assert taken.messages == [b"small"]
    assert {one.cause for one in taken.lost} == {LossCause.FRAGMENT}
    assert sum(one.count for one in taken.lost) == source.counters.odata_packets - 1
