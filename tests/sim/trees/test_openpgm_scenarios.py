"""Scenarios after OpenPGM's conformance scripts.

A prompter replaces the source, with receivers on its segment.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from pgm.core.effects import LossCause, control
from pgm.core.segment import Channel, Segment
from pgm.sim.links import LinkSetup, SimulatedLink
from pgm.sim.network import Attachment
from pgm.sim.sent_messages import SentMessages
from pgm.sim.trees import DATA_PORT, TreeBuilder
from pgm.units import SECOND
from pgm.wire.control_packets import Nak, Packet, encode
from pgm.wire.formats import PacketType
from pgm.wire.train import Train
from tests.reference import TSI, data_packet
from tests.sim.support.worlds import MS, make_world, parameters, streams, traffic
from tests.unit.core.makers import nak_packet, payload_of, spm_packet

T = PacketType
RPT, RDATA, BO = 50 * MS, 200 * MS, 10 * MS
TIMES = {
    "nak_bo_ivl": BO,
    "nak_rpt_ivl": RPT,
    "nak_rdata_ivl": RDATA,
    "nak_max_ivl": MS,
    "stall_ivl": 60 * SECOND,
    "peer_expiry": 120 * SECOND,
    "session_expiry": 600 * SECOND,
}


class Prompter:
    """Prompter that sends packets on command, and records the NAKs it gets."""

    name = host = "prompter"

    def __init__(self, *, receivers: int = 1, **changes: object) -> None:
        tree = TreeBuilder(parameters(**TIMES | changes))
        for index in range(receivers):
            tree.receiver(f"receiver-{index}", "lan")
        self.world = make_world(tree, traffic(0))
        self.segment = Segment(0, "lan", "10.1.9.9", "239.192.1.1", upstream=False, downstream=True)
        self._attachment = Attachment(
            self, self.segment, SimulatedLink(LinkSetup(), "out"), SimulatedLink(LinkSetup(), "in")
        )
        self.world.network.attach(self._attachment)
        self.ledger = self.world.ledgers[TSI] = SentMessages(0, DATA_PORT)
        self._spm_sqn = 0
        self.naks: list[tuple[int, tuple[int, ...]]] = []

    def hear(self, train: Train, channel: Channel, peer: str) -> None:
        """Record the NAKs that arrive by unicast."""
        for item in train.parse_untrusted()[0]:
            if isinstance(item, Nak) and item.kind is T.NAK and not channel.is_group:
                self.naks.append((self.world.now_ns, item.sqns))

    def say(self, packet: Packet | bytes) -> None:
        """Multicast a packet, and run until it has arrived."""
        octets = packet if isinstance(packet, bytes) else encode(packet)
        send = control(self.segment, octets)
        self.world.network.send(self._attachment, send, Train.of(octets), self.world.now_ns)
        self.wait(MS)

    def wait(self, ivl: int) -> None:
        """Run for some time."""
        self.world.run_until(self.world.now_ns + ivl)

    def spm(self, trail: int, lead: int) -> None:
        """Send the next SPM."""
        self._spm_sqn += 1
        self.say(spm_packet(self._spm_sqn, trail, lead, path_nla=self.segment.address, data_port=DATA_PORT))

    def data(self, *sqns: int, kind: PacketType = T.ODATA, trail: int = 0) -> None:
        """Send data packets, each by itself."""
        while self.ledger.end <= max(sqns):
            self.ledger.add_rows(np.frombuffer(payload_of(self.ledger.end), np.uint8).reshape(1, -1))
        for sqn in sqns:
            self.say(data_packet(sqn, payload_of(sqn), kind=kind, trail=trail, data_port=DATA_PORT))

    def ncf(self, *sqns: int) -> None:
        """Send an NCF to the group."""
        packet = nak_packet(*sqns, kind=T.NCF, source_nla=self.segment.address, group_nla=self.segment.group)
        self.say(packet)

    @property
    def got(self) -> list[tuple[int, dict[LossCause, int]]]:
        """Return the deliveries and losses of each receiver."""
        return [(one.delivered_sqns, dict(one.lost)) for one in streams(self.world)]


@pytest.mark.rfc("RCV-34", "RCV-42")
def test_ncf_suppression():
    """An NCF during the back-off suppresses the NAK until the wait for data times out."""
    prompter = Prompter(receivers=3, reorder_ivl=20 * MS)
    prompter.spm(0, -1)
    prompter.data(0, 1, 3)
    prompter.ncf(2)
    confirmed_at = prompter.world.now_ns
    prompter.wait(RDATA - 5 * MS)
    assert prompter.naks == []
    assert sum(node.total("naks_suppressed") for node in prompter.world.receivers) == 3
    prompter.wait(BO + 10 * MS)
    assert {sqns for _, sqns in prompter.naks} == {(2,)}
    assert min(at for at, _ in prompter.naks) >= confirmed_at + RDATA - MS
    prompter.data(2, kind=T.RDATA)
    assert prompter.got == [(4, {})] * 3


@pytest.mark.rfc("RCV-37", "RCV-40", "RCV-49")
@pytest.mark.parametrize("retries", [1, 3])
def test_nak_cancellation(retries):
    """Without an NCF the NAK repeats `retries` times, NAK_RPT_IVL apart.

    The packet is then reported lost, and the stream continues.
    """
    prompter = Prompter(nak_ncf_retries=retries)
    prompter.spm(0, -1)
    prompter.data(0, 1, 3, 4)
    prompter.wait(5 * SECOND)
    times = [at for at, sqns in prompter.naks if sqns == (2,)]
    assert len(times) == retries + 1
    assert all(RPT <= later - sooner <= RPT + BO for sooner, later in itertools.pairwise(times))
    assert prompter.got == [(4, {LossCause.RETRIES: 1})]
    prompter.data(2, kind=T.RDATA)
    prompter.data(5)
    assert prompter.got == [(5, {LossCause.RETRIES: 1})]


@pytest.mark.rfc("RCV-30", "RCV-11", "SEC-07")
def test_spm_jump():
    """A jump of the lead is a loss to request.

    A trail beyond the lead ends the requests. A jump beyond the window is not followed.
    """
    prompter = Prompter(rxw_sqns=1000)
    prompter.spm(0, -1)
    prompter.data(0, 1)
    prompter.spm(0, 41)
    prompter.wait(30 * MS)
    assert [sqns for _, sqns in prompter.naks] == [tuple(range(2, 42))]
    prompter.spm(42, 41)
    assert prompter.got == [(2, {LossCause.WINDOW: 40})]
    prompter.naks.clear()
    prompter.spm(900_000, 900_100)
    prompter.wait(SECOND)
    assert prompter.naks == []
    prompter.data(42)
    assert prompter.got == [(3, {LossCause.WINDOW: 40})]


@pytest.mark.rfc("RCV-06", "RCV-30", "SEC-07")
def test_odata_jump():
    """Data far ahead in the window leads to NAK lists for all packets between.

    Data beyond the window are ignored.
    """
    prompter = Prompter(rxw_sqns=1000)
    prompter.spm(0, -1)
    prompter.data(0)
    prompter.data(200)
    prompter.wait(30 * MS)
    asked = [sqn for _, sqns in prompter.naks for sqn in sqns]
    assert asked == list(range(1, 200))
    assert max(len(sqns) for _, sqns in prompter.naks) == 63
    prompter.say(data_packet(5000, payload_of(5000), trail=4000, data_port=DATA_PORT))
    [node] = prompter.world.receivers
    assert node.total("jumps_rejected") == 1
    for sqns in (range(1, 100), range(100, 200)):
        prompter.data(*sqns, kind=T.RDATA)
    assert prompter.got == [(201, {})]


@pytest.mark.rfc("RCV-46", "SEC-03")
def test_outofwindow_ncf():
    """Three NCFs have no effect: for delivered sqns, below the trail, and far ahead."""
    prompter = Prompter(ncf_lead_sqns=1000, reorder_ivl=20 * MS)
    prompter.spm(10, 9)
    prompter.data(10, 11, 13, trail=10)
    for sqn in (5, 10, 13, 13 + 1002, (1 << 31) - 1):
        prompter.ncf(sqn)
    prompter.wait(40 * MS)
    assert [sqns for _, sqns in prompter.naks] == [(12,)]
    prompter.data(12, kind=T.RDATA, trail=10)
    prompter.data(14, trail=10)
    prompter.wait(SECOND)
    assert len(prompter.naks) == 1
    assert prompter.got == [(5, {})]
