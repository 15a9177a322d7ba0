"""Test vectors of the formats of docs/guide/security.md: `python -m tests.unit.trust.vectors --write` writes the file."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from pgm.trust.blocks import SignedSession
from pgm.trust.control_macs import MacSender, keys_between, seal_segment_key
from pgm.trust.key_records import SecretHead, records_for
from pgm.trust.proofs import FIRST_PREVIOUS, Proof, Span, hash_of_proof
from pgm.trust.sealing import PayloadCipher, SealTerms
from pgm.wire.control_packets import Nak, Spmr, encode
from pgm.wire.option_rewriting import covered_octets, with_code
from pgm.wire.options import NakList, SegmentKey
from tests.unit.trust.keys import private_keys
from tests.unit.trust.packets import packets_of, runs_of

FILE = Path(__file__).with_name("vectors.json")
SESSION = SignedSession(bytes.fromhex("0102030405060708"), 1_767_225_600_000_000_000)

_TERMS = SealTerms.for_payload(SESSION, 1, 1376)
_STREAM_SECRET = bytes(range(32, 64))

_BLOCKS = (
    ("one packet", 0, [(1, 5, None)]),
    ("an empty payload", 1, [(1, 0, None)]),
    ("32 packets of two lengths", 32, [(31, 12, None), (1, 7, None)]),
    ("a message of three fragments between plain packets", 4_294_967_294, [(1, 4, None), (3, 10, 0), (1, 4, None)]),
    ("a fragment whose offset is behind others", 64, [(2, 6, 4_294_967_290)]),
)


def vectors() -> dict[str, Any]:
    """Return all vectors."""
    keys, rng = private_keys(7), random.Random(1)
    blocks, spans = [], []
    for about, first, pieces in _BLOCKS:
        runs = runs_of(first, pieces, rng)
        packets = [{"payload": payload.hex(), "fragment": fragment} for payload, fragment in packets_of(runs)]
        digest = SESSION.digest(runs)
        spans.append(Span(first, len(packets), digest))
        blocks.append({"about": about, "tsi": SESSION.tsi.hex(), "epoch": SESSION.epoch, "first": first, "packets": packets, "digest": digest.hex()})  # fmt: skip
    spans.sort(key=lambda span: span.first)
    proofs, previous = [], FIRST_PREVIOUS
    for number, chosen in enumerate((spans[:2], spans[2:])):
        generation = 130 * number  # the second proof is one of a sealed session
        octets = Proof(keys.public.id, SESSION, number, previous, tuple(chosen), generation=generation).signed_by(keys)
        previous = hash_of_proof(octets)
        rows = [[span.first, span.count, span.digest.hex()] for span in chosen]
        proofs.append({"about": f"proof {number}", "octets": octets.hex(), "is_valid": True, "number": number, "generation": generation % 128, "spans": rows})  # fmt: skip
    forged = bytearray.fromhex(proofs[0]["octets"])
    forged[70] ^= 1
    proofs.append({"about": "a changed sqn", "octets": forged.hex(), "is_valid": False})
    secret = keys.secret_octets().hex()
    rest = {"payloads": _payloads(), "records": _records(), "codes": _codes()} | _coded()
    return {"secret": secret, "line": keys.public.line, "blocks": blocks, "proofs": proofs, **rest}


def _payloads() -> list[dict[str, Any]]:
    cipher = PayloadCipher(_STREAM_SECRET, _TERMS)
    rows = []
    for about, sqn, payload in (("a short payload", 0, b"text"), ("a long payload", 1 << 40, bytes(range(100)))):
        sealed = cipher.applied(sqn, np.frombuffer(payload, np.uint8).reshape(1, -1)).tobytes()
        rows.append({"about": about, "secret": _STREAM_SECRET.hex(), "tsi": SESSION.tsi.hex(), "epoch": SESSION.epoch, "generation": _TERMS.generation, "blocks": _TERMS.blocks, "sqn": sqn, "payload": payload.hex(), "sealed": sealed.hex()})  # fmt: skip
    return rows


def _records() -> dict[str, Any]:
    source, members = private_keys(7), [private_keys(8), private_keys(9)]
    head = SecretHead(source.public.id, _TERMS, 100)
    octets = records_for(head, _STREAM_SECRET, [keys.public for keys in members], bytes(range(32)), source)
    rows = [{"id": keys.public.id, "x25519_secret": keys.secret_octets()[32:].hex()} for keys in members]
    return {"octets": octets.hex(), "members": rows, "secret": _STREAM_SECRET.hex()}


def _codes() -> list[dict[str, Any]]:
    child, parent, now_ns, covered = private_keys(8), private_keys(9), SESSION.epoch, b"a covered packet"
    rows = []
    for sender, receiver in ((child, parent), (parent, child)):
        code = MacSender(keys_between(sender, receiver.public)[0]).code(covered, now_ns)
        secret = sender.secret_octets()[32:].hex()
        rows.append({"about": "a packet of " + sender.public.id, "x25519_secret": secret, "sender": sender.public.line, "receiver": receiver.public.line, "counter": now_ns, "covered": covered.hex(), "code": code.hex()})  # fmt: skip
    return rows


def _coded() -> dict[str, Any]:
    """Return packets with and without their code, and a segment key."""
    child, parent, now_ns = private_keys(8), private_keys(9), SESSION.epoch
    ends = {"x25519_secret": child.secret_octets()[32:].hex(), "sender": child.public.line, "receiver": parent.public.line}  # fmt: skip
    key = keys_between(child, parent.public)[0]
    nak = Nak(tsi=SESSION.tsi, data_port=7500, sqn=7, source_nla="10.0.0.1", group_nla="239.0.0.1")
    packets = (
        ("a NAK with a list", attrs.evolve(nak, options=(NakList(sqns=(9, 12)),))),
        ("a NAK without options", nak),
        ("a request for a segment key", Spmr(tsi=SESSION.tsi, data_port=7500, options=(SegmentKey(b""),))),
    )
    rows = []
    for about, packet in packets:
        plain = encode(packet)
        code = child.public.id_octets + MacSender(key).code(covered_octets(plain), now_ns)
        rows.append({"about": about, **ends, "counter": now_ns, "plain": plain.hex(), "coded": with_code(plain, code).hex()})  # fmt: skip
    segment_key = bytes(range(64, 96))
    content = seal_segment_key(key, segment_key).hex()
    keys = [{"about": "a segment key", **ends, "key": segment_key.hex(), "content": content}]
    return {"packets": rows, "segment_keys": keys}


def text() -> str:
    """Return the text of the file."""
    return json.dumps(vectors(), indent=1) + "\n"


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        FILE.write_text(text())
    else:
        sys.stdout.write(text())
