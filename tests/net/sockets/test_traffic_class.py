"""Properties of a packet that the network sees besides its addresses: traffic class and hop limit."""

from __future__ import annotations

import socket
import struct

import pytest
import trio

import pgm
from tests.net.support.places import Place

EXPEDITED = 46  # as DSCP; 184 as the octet
HOPS = 3
IP_RECVTTL = 12  # Linux, not named by the standard library


@pytest.mark.network
@pytest.mark.parametrize(("dscp", "octet"), [(EXPEDITED, 184), (0, 0)])
def test_packets_carry_the_class_and_the_hop_limit(dscp: int, octet: int) -> None:
    place = Place.new()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ear:
        ear.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        ear.bind((place.group(), place.port))
        membership = struct.pack("@4s4si", socket.inet_aton(place.group()), bytes(4), socket.if_nametoindex("lo"))
        ear.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
        ear.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
        ear.setsockopt(socket.IPPROTO_IP, IP_RECVTTL, 1)
        ear.settimeout(10)

        async def send() -> None:
            async with pgm.open_source(
                place.url(address=place.address(1), dscp=dscp, multicast_hops=HOPS, fin_quiet_ivl="100ms")
            ) as source:
                await source.send(b"a message")

        trio.run(send)
        _, ancillary, _, _ = ear.recvmsg(2000, 256)
    said = {kind: data for _, kind, data in ancillary}
    assert said[socket.IP_TOS][0] == octet
    assert struct.unpack("@i", said[socket.IP_TTL]) == (HOPS,)


def test_there_is_no_class_beyond_63() -> None:
    async def open_it() -> None:
        async with pgm.open_source(Place.new().url(dscp=64)):
            pass

    with pytest.raises(pgm.UsageError, match="dscp = 64 is out of range"):
        trio.run(open_it)
