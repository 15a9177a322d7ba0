"""Speed of the formats of signed and sealed streams on one thread, by processor time: `python -m tests.unit.trust.speed`."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator

import numpy as np

from pgm.trust.blocks import BLOCK_BITS, SignedSession
from pgm.trust.control_macs import MacReceiver, MacSender, keys_between
from pgm.trust.key_records import MOST_MEMBERS, SecretHead, records_for
from pgm.trust.proofs import Proof
from pgm.trust.sealing import PayloadCipher, SealTerms
from pgm.trust.signer import BlockSigner
from pgm.trust.verifier import BlockVerifier, ProofChain, Verdict
from pgm.units import MILLISECOND, SECOND
from pgm.wire.formats import DATA_HEADER_OCTETS
from pgm.wire.packet_run import Run
from tests.unit.trust.keys import private_keys

SESSION = SignedSession(bytes(8), 1)
KEYS, OTHER = private_keys(1), private_keys(2)
_RUNS, _TRAIN = 7, 512
_RATE, _STREAM = 1_000_000_000, 140_000_000  # octets a second and octets of the signed stream


def microseconds(call: Callable[[], object], calls: int) -> float:
    """Return the median processor time of a call over several runs."""
    times = []
    for _ in range(_RUNS):
        started = time.thread_time()
        for _ in range(calls):
            call()
        times.append((time.thread_time() - started) / calls * 1e6)
    return statistics.median(times)


def signed_stream(octets: int, bits: int) -> tuple[float, float]:
    """Return octets a second in MB at the source and at the receiver, with a proof each 4 ms."""
    stride = DATA_HEADER_OCTETS + octets
    buffer = np.frombuffer(os.urandom(stride * _TRAIN), np.uint8)
    source, chain = BlockSigner(KEYS, SESSION, MILLISECOND // 2, bits), ProofChain(SESSION, lambda _: KEYS.public)
    verifier, judged = BlockVerifier(SESSION, 1 << 24), 0
    signing = verifying = 0.0
    trains = _STREAM // (_TRAIN * octets)
    for train in range(trains):
        run = Run(train * _TRAIN, _TRAIN, buffer, 0, stride, DATA_HEADER_OCTETS)
        now_ns = run.end * octets * 1_000_000_000 // _RATE
        started = time.thread_time()
        proofs = source.take([run]) + source.handle_deadline(now_ns if train < trains - 1 else now_ns + SECOND)
        signing += time.thread_time() - started
        started = time.thread_time()
        found = verifier.take(run)
        for one in map(chain.take_untrusted, proofs):
            assert isinstance(one, Proof)
            found += verifier.prove(one)
        verifying += time.thread_time() - started
        assert all(one.verdict is Verdict.PROVED for one in found)
        judged += sum(one.run.count for one in found)
    assert judged == trains * _TRAIN
    moved = trains * _TRAIN * octets / 1e6
    return moved / signing, moved / verifying


def rows() -> Iterator[tuple[str, str]]:
    """Yield each figure with its name."""
    for octets in (1376, 70):
        for bits in (5, BLOCK_BITS):
            signing, verifying = signed_stream(octets, bits)
            yield f"{octets} octets, blocks of {1 << bits:,}: sign; verify, MB/s", f"{signing:,.0f}; {verifying:,.0f}"
    cipher = PayloadCipher(bytes(32), SealTerms.for_payload(SESSION, 0, 1376))
    for count in (45, 1):
        payloads = np.zeros((count, 1376), np.uint8)
        yield (
            f"seal {count} payloads of 1376 octets, us",
            f"{microseconds(lambda p=payloads: cipher.applied(7, p), 1000):.1f}",
        )  # type: ignore[misc]
    members = [private_keys(number).public for number in range(10, 10 + MOST_MEMBERS)]
    head = SecretHead(KEYS.public.id, cipher.terms, 0)
    made = microseconds(lambda: records_for(head, bytes(32), members, os.urandom(32), KEYS), 1)
    yield "key records for 10,000 members, s", f"{made / 1e6 / MOST_MEMBERS * 10_000:.2f}"
    key, _ = keys_between(KEYS, OTHER.public)
    sender, receiver = MacSender(key), MacReceiver(key, 1 << 60, 0)
    yield "code of a control packet of 64 octets, us", f"{microseconds(lambda: sender.code(bytes(64), 1), 10_000):.1f}"
    codes = iter([sender.code(bytes(64), 1) for _ in range(_RUNS * 10_000)])
    yield "its check, us", f"{microseconds(lambda: receiver.take_untrusted(next(codes), bytes(64), 1), 10_000):.1f}"


if __name__ == "__main__":
    for name, figure in rows():
        print(f"| {name} | {figure} |")
