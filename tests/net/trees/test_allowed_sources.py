"""A stream whose sources the file knows: packets of others are counted, and make no state at any node."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from pgm.topology.load import loads
from pgm.wire.control_packets import Spm, encode
from tests.net.support.elements import running
from tests.net.support.places import Place
from tests.net.trees.test_random_octets import deliver, guns, ports_of, topology_text
from tests.reference import data_packet

ROUNDS = 20
BELOW = ("relay", "repairer", "desk-1")  # nodes that hear data


@pytest.mark.parametrize("has_list", [True, False])
async def test_packets_of_strangers_are_dropped_before_any_state_is_made(place: Place, has_list: bool) -> None:
    text = topology_text(place, quiet=True)
    listed = text if has_list else text.replace("data_port = 7500", 'data_port = 7500\nsources = ["any"]', 1)
    async with running(loads(listed), *BELOW, "source") as tree:
        with guns(place) as (stranger, *_):
            await deliver(tree, 100)
            ports = [port for port in ports_of(tree) if port[0].startswith("239.")]
            assert ports
            theirs = tree.sources["source"].tsi
            for number in range(ROUNDS):
                other = b"strng" + bytes([0, 0, number])
                spm = Spm(tsi=other, data_port=7500, spm_sqn=1, trail=0, lead=0xFFFFFFFF, path_nla=place.address(66))
                for port in ports:
                    stranger.fire(encode(spm), port)
                    stranger.fire(data_packet(0, b"evil", tsi=other), port)
                    stranger.fire(data_packet(100, b"evil", tsi=theirs), port)
            with trio.fail_after(10):
                for name in BELOW:
                    counters = tree.core(name).counters
                    while not (counters.unlisted_packets if has_list else len(tree.core(name).status(0)) > ROUNDS // 2):
                        await trio.testing.wait_all_tasks_blocked(0.01)
            await trio.testing.wait_all_tasks_blocked(0.05)
            if not has_list:  # so the packets were such as are taken
                return
            for name in BELOW:
                assert len(tree.core(name).status(0)) == 1
                assert tree.core(name).counters.unlisted_packets >= 3 * ROUNDS * 0.9
            assert tree.core("source").counters.unlisted_packets == 0
            await deliver(tree, 100)
