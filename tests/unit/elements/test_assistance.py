"""On-LAN repairers that repair what an NCF of the source reveals, for receivers that know no repairer (RFC 5.2)."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from pgm.core.element.setup import ElementSetup
from pgm.topology.load import loads
from pgm.topology.plan import plan_node
from pgm.units import SECOND
from pgm.wire.formats import PacketType
from pgm.wire.options import NbrUnreach, PathNla
from tests.rfc.bench import LAN, SOURCE, Bench
from tests.unit.core.makers import MS, data_train, ncf_packet, sent_items, spm_packet

HOLD = 3 * MS
OTHER = "10.0.0.8"

TREE = """
version = 1
name = "lan"
[streams.s]
data_port = 7500
[segments.lan]
group = "239.192.0.1"
interface = "10.0.0.0/24"
[segments.hall]
group = "239.192.0.2"
interface = "10.0.1.0/24"
[nodes.source]
role = "source"
segment = "lan"
address = "10.0.0.1"
streams = ["s"]
[nodes.relay]
role = "repairer"
upstream = { segment = "lan", address = "10.0.0.2" }
downstream = [{ segment = "hall", address = "10.0.1.2" }]
parents = ["source"]
[nodes.one]
role = "repairer"
segment = "lan"
address = "10.0.0.3"
parents = ["source"]
[nodes.two]
role = "repairer"
segment = "lan"
address = "10.0.0.4"
parents = ["source"]
[nodes.below]
role = "repairer"
segment = "hall"
address = "10.0.1.3"
parents = ["relay"]
"""


def assistant(rank: int, **changes: Any) -> Bench:
    setup = ElementSetup(LAN, (LAN,), parents=(SOURCE,), assist_rank=rank)
    made = Bench("repairer", setup, rdata_hold_ivl=HOLD, rdata_ignore_ivl=20 * MS, **changes)
    made.hear(spm_packet(1, 0, -1), LAN, SOURCE)
    made.hear(data_train(range(20)), LAN, SOURCE)
    made.log.clear()
    return made


def test_the_first_repairs_at_once_and_the_others_in_turn() -> None:
    for rank in range(3):
        made = assistant(rank)
        at = made.now
        made.ncf(5, 6, on=LAN)
        made.wait(100 * MS)
        assert made.where(PacketType.RDATA) == [("lan", (5, 6))]
        assert made.times(PacketType.RDATA) == [at + rank * HOLD]


def test_the_first_repair_goes_with_the_ncf() -> None:
    """It races with the source, so it waits for no timer; what the rate does not allow yet does."""
    made = assistant(0)
    assert [item.type for item in sent_items(made.ncf(5, 6, on=LAN))] == [PacketType.RDATA]
    slow = assistant(0, txw_max_rte=2000, rdata_share=0.5)
    at_once = [slow.ncf(sqn, on=LAN) for sqn in range(10)]
    assert not all(at_once)
    slow.wait(10 * SECOND)
    assert [sqn for _, sqns in slow.where(PacketType.RDATA) for sqn in sqns] == list(range(10))


def test_a_parent_that_nobody_hears_does_not_keep_the_repair_back() -> None:
    """What was taken for the segment goes there, whatever else the NCF says (IMP-23)."""
    made = assistant(0)
    ncf = ncf_packet(5, source_nla=SOURCE, group_nla=LAN.group)
    made.hear(attrs.evolve(ncf, options=(NbrUnreach(), PathNla(path_nla=SOURCE))), LAN, SOURCE)
    assert made.where(PacketType.RDATA) == [("lan", (5,))]


def test_a_repair_of_another_is_not_repeated() -> None:
    made = assistant(1)
    made.ncf(5, 6, on=LAN)
    made.rdata(5, peer=OTHER, on=LAN, after=MS)
    made.wait(100 * MS)
    assert made.where(PacketType.RDATA) == [("lan", (6,))]


@pytest.mark.parametrize("by", ["ncf", "nak"])
def test_requests_of_a_parent_do_not_delay_those_of_a_child(by: str) -> None:
    """NCFs and NAKs of the parent may stand for a flood at the parent; the parent has one asker's share."""
    made = assistant(1, txw_max_rte=40_000, rdata_share=0.5)
    if by == "ncf":
        made.ncf(*range(18), on=LAN)
    else:
        made.nak(LAN, *range(18), peer=SOURCE)
    made.nak(LAN, 19, peer=OTHER)
    made.wait(SECOND)
    assert made.where(PacketType.RDATA)[0] == ("lan", (19,))


def test_assist_rank_on_shared_segment_follows_file_order() -> None:
    topology = loads(TREE)
    ranks = {name: plan_node(topology, name).assist_rank for name in ("relay", "one", "two", "below")}
    assert ranks == {"relay": 0, "one": 0, "two": 1, "below": 0}
