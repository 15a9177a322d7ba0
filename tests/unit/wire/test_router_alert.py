"""Who wants router alert: the addressing matrix of the RFC, packet type by packet type."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pgm.wire.control_packets import Nak, Packet, Poll, Polr, Spm, Spmr, encode
from pgm.wire.formats import PacketType
from pgm.wire.options import NakList, NbrUnreach
from pgm.wire.router_alert import wants_router_alert
from tests.reference import DATA_PORT, TSI, data_packet

HOME, GROUP = "10.0.0.1", "239.0.0.1"


def nak(kind: PacketType, *options: object) -> bytes:
    packet = Nak(tsi=TSI, data_port=DATA_PORT, kind=kind, sqn=7, source_nla=HOME, group_nla=GROUP, options=options)
    return encode(packet)


def control(kind: type[Packet], **fields: object) -> Callable[[], bytes]:
    return lambda: encode(kind(tsi=TSI, data_port=DATA_PORT, **fields))


PACKETS: dict[str, tuple[Callable[[], bytes], bool]] = {
    "SPM": (control(Spm, spm_sqn=1, trail=0, lead=5, path_nla=HOME), True),
    "ODATA": (lambda: data_packet(7, b"payload"), False),
    "RDATA": (lambda: data_packet(7, b"payload", kind=PacketType.RDATA), True),
    "NCF": (lambda: nak(PacketType.NCF), True),
    "NCF with a list": (lambda: nak(PacketType.NCF, NakList(sqns=(8, 9))), True),
    "NAK": (lambda: nak(PacketType.NAK), False),
    "NNAK": (lambda: nak(PacketType.NNAK), False),
    "SPMR": (control(Spmr), False),
}


@pytest.mark.rfc("W-30")
@pytest.mark.parametrize("name", PACKETS)
def test_multicast_packets_for_repair_carry_router_alert(name: str):
    build, alerts = PACKETS[name]
    packet = memoryview(build())
    assert wants_router_alert(packet, is_unicast=False) is alerts
    assert not wants_router_alert(packet, is_unicast=True)


@pytest.mark.rfc("W-30")
@pytest.mark.parametrize("kind", [Poll, Polr])
def test_polls_alert_routers_and_answers_to_them_only_if_multicast(kind: type[Packet]):
    octets = bytearray(nak(PacketType.NAK))
    octets[4] = kind.TYPE
    assert wants_router_alert(memoryview(octets), is_unicast=False)
    assert not wants_router_alert(memoryview(octets), is_unicast=True)


@pytest.mark.rfc("W-30")
def test_an_ncf_that_says_unreachable_alerts_routers_even_by_unicast():
    unreachable = memoryview(nak(PacketType.NCF, NbrUnreach()))
    assert wants_router_alert(unreachable, is_unicast=True)
    assert wants_router_alert(unreachable, is_unicast=False)
    assert not wants_router_alert(memoryview(bytes(unreachable[:20])), is_unicast=True)
