"""Our packets as read by tshark's PGM dissector: none malformed, every checksum good.

The dissector has two limits. It does not recognise a packet of 16 octets, an SPMR, as PGM; and it reads
OPT_PGMCC_FEEDBACK differently from OpenPGM's encoding. Unknown options, ours among them, are skipped.
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from pgm.wire.control_packets import CONTROL, Nak, encode
from pgm.wire.formats import Kind, PacketType
from pgm.wire.options import OPTIONS, PROOF_OCTETS, Option, PgmccFeedback
from tests.interop.conftest import SceneOf
from tests.interop.support.peers import Layout, Pair, Side, messages, needs_openpgm
from tests.interop.support.scripts import DESKS, deliver, end_whole
from tests.interop.support.yard import FIVE_PERCENT, capturing, dissect
from tests.reference import DATA_PORT, TSI, data_packet

PORT = 3056
GOOD = "1"  # the dissector's verdict on a good checksum
HEADER_OCTETS = 16
RAW_IP = 101  # link type of a capture
VALUES: dict[Kind, Any] = {
    Kind.U16: 7,
    Kind.U32: 70_000,
    Kind.U32S: (70_001, 70_005, 70_009),
    Kind.RAW: bytes(PROOF_OCTETS),
}
ADDRESSES = {4: "10.1.0.1", 6: "fd00::1"}
OURS = Pair("ours", "ours on both sides", Side.OURS, Side.OURS)

needs_tshark = pytest.mark.skipif(shutil.which("tshark") is None, reason="needs tshark: apt-get install tshark")


def filled(cls: type[Any], version: int, **keys: Any) -> Any:
    """Return an instance of a class of the tables with a value in each field and each flag set."""
    for field in attrs.fields(cls):
        kind = field.metadata.get("kind")
        if kind in VALUES:
            keys.setdefault(field.name, VALUES[kind])
        elif kind in (Kind.NLA, Kind.BARE_NLA):
            keys.setdefault(field.name, ADDRESSES[version])
        elif field.name in getattr(cls, "FLAGS", {}):
            keys.setdefault(field.name, type(field.default)(1))
    return cls(**keys)


def built(kind: PacketType, version: int, *options: Option) -> bytes:
    """Return a packet of some type."""
    if kind not in CONTROL:
        return data_packet(70_000, b"payload", trail=69_000, kind=kind, options=options)
    keys: dict[str, Any] = {"kind": kind} if CONTROL[kind] is Nak else {}
    return encode(filled(CONTROL[kind], version, tsi=TSI, data_port=DATA_PORT, options=options, **keys))


def everything() -> Iterator[tuple[PacketType, tuple[Option, ...], bytes]]:
    """Return every packet type, plain and with each permitted option, in IPv4 and IPv6."""
    for version in ADDRESSES:
        for kind in PacketType:
            yield kind, (), built(kind, version)
            for cls in OPTIONS.values():
                if kind in cls.CARRIERS:
                    option = filled(cls, version)
                    yield kind, (option,), built(kind, version, option)


def write_capture(file: Path, packets: list[bytes]) -> None:
    """Write a capture of UDP packets over IPv4."""
    with file.open("wb") as out:
        out.write(struct.pack("=IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 1 << 16, RAW_IP))
        for packet in packets:
            size = 28 + len(packet)
            ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, size, 0, 0, 16, 17, 0, bytes(4), bytes(4))
            udp = struct.pack(">HHHH", PORT, PORT, size - 20, 0)
            out.write(struct.pack("=IIII", 0, 0, size, size) + ip + udp + packet)


VERDICTS = ["pgm.hdr.type", "pgm.hdr.cksum.status", "_ws.malformed", "_ws.expert.message", "udp.length"]


def flaws_of(row: list[str]) -> list[str]:
    """Return the dissector's complaints about a packet."""
    _, checksum, malformed, complaint, _ = row
    found = [] if GOOD in checksum.split(",") else [f"checksum {checksum}"]
    return [*found, *filter(None, (malformed, complaint))]


@needs_tshark
def test_every_packet_and_every_option_is_understood(tmp_path: Path) -> None:
    known = [(kind, options, packet) for kind, options, packet in everything() if kind is not PacketType.SPMR]
    write_capture(tmp_path / "all", [packet for _, _, packet in known])
    rows = dissect(tmp_path / "all", PORT, VERDICTS, "udp")
    assert len(rows) == len(known) > 80
    for (kind, options, packet), row in zip(known, rows, strict=True):
        if not any(isinstance(option, PgmccFeedback) for option in options):
            assert (int(row[0], 16), flaws_of(row)) == (kind, []), (options, packet.hex())


@pytest.mark.network
@needs_openpgm
def test_a_whole_tree_of_ours_is_understood(scene_of: SceneOf, tmp_path: Path) -> None:
    """The captures hold data, fragments, SPMs, NAKs, NAK lists, NCFs, repairs and FIN.

    They are taken above and below a relay with a repairer.
    """
    scene = scene_of(OURS, Layout.RELAY, repairers=1, parameters={"nak_bo_ivl": "20ms"})
    with capturing(scene.seat("source"), tmp_path / "up"), capturing(scene.seat("desk-1"), tmp_path / "down"):
        source, receivers = scene.open()
        scene.lose(["relay", "repairer-1", *DESKS], FIVE_PERCENT)
        sent = [one for size in (20, 1400, 5000, 20_000) for one in messages(60, size, f"of{size}")]
        deliver(source, receivers, sent)
        end_whole(scene, source, receivers, sent)
    for side in ("up", "down"):
        rows = dissect(tmp_path / side, scene.port, [*VERDICTS, "pgm.genopts.type"], f"udp.port == {scene.port}")
        seen: set[PacketType] = set()
        options: set[int] = set()
        for *row, types in rows:
            if not row[0]:
                assert int(row[4]) == 8 + HEADER_OCTETS, "only an SPMR is too short for the dissector"
                continue
            assert not flaws_of(row), row
            seen.add(PacketType(int(row[0], 16)))
            options.update(int(one, 16) for one in types.split(",") if one)
        print(f"{side}: {len(rows)} packets, {sorted(kind.name for kind in seen)}, options {sorted(options)}")
        assert seen >= {PacketType.SPM, PacketType.ODATA, PacketType.RDATA, PacketType.NAK, PacketType.NCF}
        assert options >= {0x01, 0x02, 0x03}, "OPT_FRAGMENT, OPT_NAK_LIST, OPT_JOIN"
