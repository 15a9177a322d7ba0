"""Independent program for the formats of docs/guide/security.md, from the page, `cryptography` and `blake3` alone.

`python -m tests.unit.trust.independent FILE` checks a file of test vectors, and imports nothing of the project.
"""

from __future__ import annotations

import base64
import hashlib
import json
import struct
import sys
from pathlib import Path
from typing import Any

import blake3
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

IndependentPacket = tuple[bytes, tuple[int, int, int] | None]  # payload; first sqn, offset and length of OPT_FRAGMENT


def key_id(ed25519: bytes, x25519: bytes) -> str:
    digest = hashlib.sha256(b"pgm public keys 1\0" + ed25519 + x25519).digest()
    return base64.b32encode(digest[:10]).decode().lower()


def keys_of_line(line: str) -> tuple[str, bytes, bytes]:
    """Return the id, the Ed25519 key and the X25519 key of a line."""
    version, name, _, _, text = line.split(" ")
    assert version == "pgm1"
    octets = base64.urlsafe_b64decode(text + "==")
    assert name == key_id(octets[:32], octets[32:])
    return name, octets[:32], octets[32:]


def block_digest(tsi: bytes, epoch: int, first: int, packets: list[IndependentPacket]) -> bytes:
    octets = b"pgm block 1\0" + tsi + struct.pack(">QQI", epoch, first, len(packets))
    for payload, fragment in packets:
        length = len(payload) | (1 << 31 if fragment else 0)
        octets += struct.pack(">IIII", length, *(fragment or (0, 0, 0)))
    return blake3.blake3(octets + b"".join(payload for payload, _ in packets)).digest()


def proof_fields(octets: bytes, line: str) -> dict[str, Any] | None:
    """Return the fields of a proof that the keys of a line have signed, or None."""
    name, ed25519, _ = keys_of_line(line)
    signed, signature = octets[:-64], octets[-64:]
    try:
        Ed25519PublicKey.from_public_bytes(ed25519).verify(signature, b"pgm proof 1\0" + signed)
    except InvalidSignature:
        return None
    version, zero, count, signer, tsi, epoch, number, previous = struct.unpack(">BBH10s8sQQ32s", signed[:70])
    assert (version, zero, len(signed)) == (1, 0, 70 + 44 * count)
    assert base64.b32encode(signer).decode().lower() == name
    spans = [struct.unpack(">QI32s", signed[at : at + 44]) for at in range(70, len(signed), 44)]
    return {"tsi": tsi, "epoch": epoch, "number": number, "previous": previous, "spans": spans}


def check_vectors(vectors: dict[str, Any]) -> int:
    """Check all vectors of a file, and return their number. Raises `AssertionError`."""
    previous, checked = bytes(32), 0
    for vector in vectors["blocks"]:
        packets = [
            (bytes.fromhex(one["payload"]), tuple(one["fragment"]) if one["fragment"] else None)
            for one in vector["packets"]
        ]
        digest = block_digest(bytes.fromhex(vector["tsi"]), vector["epoch"], vector["first"], packets)
        assert digest.hex() == vector["digest"], vector["about"]
        checked += 1
    for vector in vectors["proofs"]:
        octets = bytes.fromhex(vector["octets"])
        fields = proof_fields(octets, vectors["line"])
        assert (fields is not None) == vector["is_valid"], vector["about"]
        if fields is not None:
            assert fields["previous"] == previous, vector["about"]
            spans = [[first, count, digest.hex()] for first, count, digest in fields["spans"]]
            assert (fields["number"], spans) == (vector["number"], vector["spans"]), vector["about"]
            previous = blake3.blake3(octets).digest()
        checked += 1
    return checked


if __name__ == "__main__":
    print(f"{check_vectors(json.loads(Path(sys.argv[1]).read_text()))} vectors are right")
