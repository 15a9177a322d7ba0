"""Forged packets of an ordinary UDP sender on the receivers' segment, against a running stream.

`tests/rfc/test_attacks.py` has the same attacks at every role.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import attrs
import pytest
import trio

import pgm
from pgm.net.endpoint.receiver import Receiver
from pgm.net.endpoint.source import Source
from pgm.topology.load import loads
from pgm.wire.control_packets import Spm, encode
from pgm.wire.formats import Tsi
from pgm.wire.options import Fin, Option, Rst
from tests.net.support.listening import PATIENCE_S, Taken, until
from tests.net.support.opened import bound_socket
from tests.net.support.places import Place, one_segment
from tests.reference import data_packet

MESSAGES = 50


@attrs.define
class Attack:
    """A stream of one source and one receiver, and the socket of an attacker with an address of its own."""

    place: Place
    source: Source
    receiver: Receiver
    taken: Taken
    sent: list[bytes] = attrs.field(factory=list)

    async def send(self, count: int = MESSAGES) -> None:
        """Send messages, and wait until the receiver has all."""
        messages = [b"true %d" % number for number in range(len(self.sent), len(self.sent) + count)]
        self.sent += messages
        await self.source.send_batch(messages)
        await self.source.flush()
        await until(lambda: self.delivered == self.sent)

    @property
    def delivered(self) -> list[bytes]:
        """Return the messages of the true stream that the application has."""
        return self.taken.payloads.get(self.source.tsi, [])

    def forge(self, packets: Iterable[bytes]) -> None:
        """Send packets to the group from the attacker's address."""
        with bound_socket(self.place.address(66), 0) as sock:
            for packet in packets:
                sock.sendto(packet, (self.place.group(), self.place.port))


async def _take(receiver: Receiver, taken: Taken, tsi: Tsi) -> None:
    """Receive until the session of the true source has ended."""
    async for item in receiver.batches():
        taken.take(item)
        if isinstance(item, pgm.Closed) and item.tsi == tsi and item.cause is not pgm.CloseCause.SILENT:
            return


@asynccontextmanager
async def attacked(place: Place, **parameters: object) -> AsyncIterator[Attack]:
    """Run a stream during the block. Assert that it ended whole, by its FIN, with nothing lost."""
    topology = loads(one_segment(place).replace("data_port = 7500", 'data_port = 7500\nsources = ["any"]', 1))
    with trio.fail_after(PATIENCE_S):
        async with (
            pgm.open_receiver(topology, node="desk-1", **parameters) as receiver,
            trio.open_nursery() as nursery,
            pgm.open_source(topology, node="source") as source,
        ):
            attack = Attack(place, source, receiver, taken := Taken())
            nursery.start_soon(_take, receiver, taken, source.tsi)
            await attack.send()
            yield attack
    of_stream = [event for event in taken.events if event.tsi == attack.source.tsi]
    assert attack.delivered == attack.sent
    assert [type(event) for event in of_stream] == [pgm.Opened, pgm.Closed]
    assert of_stream[-1].cause is pgm.CloseCause.FIN


async def test_single_packets_of_new_sessions_end_no_stream(place: Place) -> None:
    """64 packets evicted the session that had been silent for longest."""
    async with attacked(place) as attack:
        attack.forge(data_packet(5, b"evil", tsi=number.to_bytes(8, "big"), data_port=7500) for number in range(200))
        await until(lambda: attack.receiver.counters.sessions_evicted >= 100)
        await attack.send()


@pytest.mark.parametrize("mark", [Fin(), Rst(no_naks=True, error=1)])
async def test_one_forged_end_ends_no_stream(place: Place, mark: Option) -> None:
    """The source idles, and its answer to the receiver's SPMR refutes the end."""
    async with attacked(place) as attack:
        lead = attack.source.next_sqn - 1
        tsi = attack.source.tsi
        spm = Spm(tsi=tsi, data_port=7500, spm_sqn=1 << 20, trail=0, lead=lead, path_nla=place.address(1))
        attack.forge([encode(attrs.evolve(spm, options=(mark,)))])
        await until(lambda: attack.receiver.counters.ends_refuted)
        await attack.send()


async def test_forged_lead_far_ahead_causes_no_requests(place: Place) -> None:
    """One ODATA a million ahead caused 999,999 gaps, and two SPMs with a lead of 2^30 more ended the stream."""
    async with attacked(place) as attack:
        tsi, lead = attack.source.tsi, attack.source.next_sqn - 1
        far = Spm(tsi=tsi, data_port=7500, spm_sqn=1 << 20, trail=0, lead=lead + (1 << 30), path_nla=place.address(1))
        data = data_packet(lead + 1_000_000, b"evil", tsi=tsi, data_port=7500, trail=0)
        attack.forge([data, encode(far), encode(attrs.evolve(far, spm_sqn=far.spm_sqn + 1))])
        await until(lambda: attack.receiver.counters.jumps_rejected == 3)
        await attack.send()
        assert attack.receiver.counters.missing_sqns == 0
