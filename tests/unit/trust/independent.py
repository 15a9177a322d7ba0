"""Independent program for the formats of docs/guide/security.md, from the page, `cryptography` and `blake3` alone.

`python -m tests.unit.trust.independent FILE` checks a file of test vectors, and imports nothing of the project.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import struct
import sys
from pathlib import Path
from typing import Any

import blake3
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF, HKDFExpand

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
    version, kind, count, signer, tsi, epoch, number, previous = struct.unpack(">BBH10s8sQQ32s", signed[:70])
    assert (version, kind & 1, len(signed)) == (1, 0, 70 + 44 * count)
    assert base64.b32encode(signer).decode().lower() == name
    spans = [struct.unpack(">QI32s", signed[at : at + 44]) for at in range(70, len(signed), 44)]
    return {"tsi": tsi, "epoch": epoch, "number": number, "generation": kind >> 1, "previous": previous, "spans": spans}


def sealed(secret: bytes, tsi: bytes, epoch: int, generation: int, blocks: int, sqn: int, payload: bytes) -> bytes:
    """Return the payload of one packet, encrypted or decrypted."""
    info = b"pgm seal 1\0" + tsi + struct.pack(">QIH", epoch, generation, blocks)
    key = HKDF(SHA256(), 32, None, info).derive(secret)
    counter = (sqn * blocks).to_bytes(16, "big")
    return Cipher(algorithms.AES(key), modes.CTR(counter)).encryptor().update(payload)


def _labeled(suite: bytes, key: bytes, label: bytes, octets: bytes) -> bytes:
    return hmac.digest(key, b"HPKE-v1" + suite + label + octets, "sha256")


def _expanded(suite: bytes, key: bytes, label: bytes, info: bytes, size: int) -> bytes:
    return HKDFExpand(SHA256(), size, struct.pack(">H", size) + b"HPKE-v1" + suite + label + info).derive(key)


def _hpke_schedule(shared: bytes, enc: bytes, public: bytes, info: bytes) -> tuple[bytes, bytes]:
    kem, suite = b"KEM\0\x20", b"HPKE\0\x20\0\x01\0\x01"
    secret = _expanded(kem, _labeled(kem, b"", b"eae_prk", shared), b"shared_secret", enc + public, 32)
    context = b"\0" + _labeled(suite, b"", b"psk_id_hash", b"") + _labeled(suite, b"", b"info_hash", info)
    scheduled = _labeled(suite, secret, b"secret", b"")
    return _expanded(suite, scheduled, b"key", context, 16), _expanded(suite, scheduled, b"base_nonce", context, 12)


def hpke_key(once: bytes, public: bytes, info: bytes) -> tuple[bytes, bytes]:
    """Return key and nonce of the sender of RFC 9180 in base mode."""
    private = X25519PrivateKey.from_private_bytes(once)
    shared = private.exchange(X25519PublicKey.from_public_bytes(public))
    return _hpke_schedule(shared, private.public_key().public_bytes_raw(), public, info)


def hpke_opened(private: bytes, enc: bytes, message: bytes, info: bytes) -> bytes:
    own = X25519PrivateKey.from_private_bytes(private)
    shared = own.exchange(X25519PublicKey.from_public_bytes(enc))
    key, nonce = _hpke_schedule(shared, enc, own.public_key().public_bytes_raw(), info)
    return AESGCM(key).decrypt(nonce, message, None)


def secret_of_records(octets: bytes, line: str, member: str, private: bytes) -> bytes:
    """Return the secret that a source has sealed for a member. Raises `InvalidSignature`."""
    name, ed25519, _ = keys_of_line(line)
    signed, signature = octets[:-64], octets[-64:]
    Ed25519PublicKey.from_public_bytes(ed25519).verify(signature, b"pgm key records 1\0" + signed)
    version, zero, count, signer = struct.unpack(">BBH10s", signed[:14])
    assert (version, zero, len(signed)) == (1, 0, 76 + 58 * count)
    assert base64.b32encode(signer).decode().lower() == name
    info = b"pgm key records 1\0" + signed[:2] + b"\0\0" + signed[4:44]
    entries = {signed[at : at + 10]: signed[at + 10 : at + 58] for at in range(76, len(signed), 58)}
    return hpke_opened(private, signed[44:76], entries[base64.b32decode(member.upper())], info)


def pair_key(private: bytes, own: str, other: str) -> bytes:
    """Return the key of codes from the owner of `private` to another node."""
    (sender, _, _), (receiver, _, x25519) = keys_of_line(own), keys_of_line(other)
    shared = X25519PrivateKey.from_private_bytes(private).exchange(X25519PublicKey.from_public_bytes(x25519))
    context = "pgm 2026-11 key of control packets between two nodes"
    return blake3.blake3(shared + sender.encode() + receiver.encode(), derive_key_context=context).digest()


def control_code(private: bytes, own: str, other: str, counter: int, covered: bytes) -> bytes:
    """Return the counter and the code of a packet from the owner of `private` to another node."""
    key = pair_key(private, own, other)
    head = counter.to_bytes(8, "big")
    return head + blake3.blake3(head + covered, key=key).digest(16)


def coded_packet(plain: bytes, own: str, code: bytes) -> bytes:
    """Return a NAK over IPv4 or an SPMR with the option of a code."""
    at = {8: 36, 12: 16}[plain[4]]  # of OPT_LENGTH
    name = keys_of_line(own)[0]
    option = bytes([0xEC, 38, 0, 0]) + base64.b32decode(name.upper()) + code
    options = bytearray(plain[at:]) or bytearray([0, 4, 0, 0])
    end = 4
    while end < len(options):
        last, end = end, end + options[end + 1]
    if len(options) > 4:
        options[last] &= 0x7F  # OPT_END moves to the code
    options += option
    options[2:4] = len(options).to_bytes(2, "big")
    packet = bytearray(plain[:at] + options)
    packet[5] |= 1  # options are present
    packet[6:8] = b"\0\0"
    words = sum(int.from_bytes(packet[index : index + 2].ljust(2, b"\0"), "big") for index in range(0, len(packet), 2))
    while words >> 16:
        words = (words & 0xFFFF) + (words >> 16)
    packet[6:8] = (~words & 0xFFFF or 0xFFFF).to_bytes(2, "big")
    return bytes(packet)


def segment_key_content(key: bytes, segment_key: bytes) -> bytes:
    """Return the option's content that brings a segment key to a node, by the key of the pair."""
    name = blake3.blake3(segment_key, derive_key_context="pgm 2026-11 id of a segment key").digest(10)
    context = "pgm 2026-11 encryption of a segment key for one node"
    mask = blake3.blake3(key + name, derive_key_context=context).digest(32)
    return name + bytes(one ^ other for one, other in zip(segment_key, mask, strict=True))


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
            told = (vector["number"], vector["generation"], vector["spans"])
            assert (fields["number"], fields["generation"], spans) == told, vector["about"]
            previous = blake3.blake3(octets).digest()
        checked += 1
    for vector in vectors["payloads"]:
        terms = [vector[key] for key in ("epoch", "generation", "blocks", "sqn")]
        secret, tsi, payload = (bytes.fromhex(vector[key]) for key in ("secret", "tsi", "payload"))
        assert sealed(secret, tsi, *terms, payload).hex() == vector["sealed"], vector["about"]
        checked += 1
    records = vectors["records"]
    for member in records["members"]:
        private = bytes.fromhex(member["x25519_secret"])
        secret = secret_of_records(bytes.fromhex(records["octets"]), vectors["line"], member["id"], private)
        assert secret.hex() == records["secret"], member["id"]
        checked += 1
    for vector in vectors["codes"]:
        private, covered = (bytes.fromhex(vector[key]) for key in ("x25519_secret", "covered"))
        code = control_code(private, vector["sender"], vector["receiver"], vector["counter"], covered)
        assert code.hex() == vector["code"], vector["about"]
        checked += 1
    for vector in vectors["packets"]:
        private, plain = (bytes.fromhex(vector[key]) for key in ("x25519_secret", "plain"))
        covered = plain[:6] + b"\0\0" + plain[8:]
        code = control_code(private, vector["sender"], vector["receiver"], vector["counter"], covered)
        assert coded_packet(plain, vector["sender"], code).hex() == vector["coded"], vector["about"]
        checked += 1
    for vector in vectors["segment_keys"]:
        key = pair_key(bytes.fromhex(vector["x25519_secret"]), vector["sender"], vector["receiver"])
        assert segment_key_content(key, bytes.fromhex(vector["key"])).hex() == vector["content"], vector["about"]
        checked += 1
    return checked


if __name__ == "__main__":
    print(f"{check_vectors(json.loads(Path(sys.argv[1]).read_text()))} vectors are right")
