"""Source of a sealed stream: its key records take turns with the stream, are repeated, and leave before it ends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from pgm.core.effects import Send
from pgm.core.segment import Segment
from pgm.core.session.key_records import key_port
from pgm.core.source.companions import CompanionSource
from pgm.core.source.key_records import KeyRecordSession, proof_companions
from pgm.core.source.setup import SourceSetup
from pgm.parameters import Parameters
from pgm.units import MILLISECOND, NEVER, SECOND
from pgm.wire.train import Data, Octets, Run, Train

PORT = 7500
RECORDS = 40
GROUP = "239.192.0.1"


class MaskingSealer:
    """Sealer whose key stream is one octet, with many records."""

    def __init__(self) -> None:
        self.rounds = 0

    def seal(self, _first_sqn: int, payloads: Octets, into: Octets) -> None:
        into[...] = payloads ^ 0x55

    def records(self) -> Iterator[bytes]:
        self.rounds += 1
        yield from (b"record %d" % number for number in range(RECORDS))


class NoProver:
    """Prover of packets that need no proofs."""

    deadline_ns = NEVER

    def take(self, _runs: Iterable[Run]) -> list[bytes]:
        return []

    def handle_deadline(self, _now_ns: int) -> list[bytes]:
        return []


def source_with(sealer: MaskingSealer) -> CompanionSource:
    segment = Segment(0, "lan", "10.0.0.1", GROUP, upstream=False, downstream=True)
    setup = SourceSetup(b"12345678", segment, PORT, sealer=sealer)
    parameters = Parameters(key_record_ivl=SECOND, txw_max_rte=1_000_000, fin_quiet_ivl=100 * MILLISECOND)
    return CompanionSource(setup, parameters, 0, proof_companions(NoProver(), sealer))


def run(core: CompanionSource, from_ns: int, until_ns: int) -> list[tuple[int, int, bytes]]:
    """Return the data packets that leave: time, data port, payload."""
    sent, now_ns = [], from_ns
    while (now_ns := max(now_ns, core.deadline_ns)) < until_ns:
        for effect in core.handle_deadline(now_ns):
            if isinstance(effect, Send):
                octets = np.frombuffer(bytes(effect.octets), np.uint8)
                for item in Train.of(octets, effect.stride).parse_untrusted()[0]:
                    if isinstance(item, Data):
                        rows = item.run(0).payloads
                        sent += [(now_ns, item.data_port, row.tobytes()) for row in rows]
    return sent


def test_records_take_turns_with_the_stream_and_are_repeated() -> None:
    core = source_with(sealer := MaskingSealer())
    core.submit([bytes(1000)] * 100)
    sent = run(core, 0, 900 * MILLISECOND)
    ports = [port for _, port, _ in sent]
    assert [row for _, port, row in sent if port == key_port(PORT)] == [b"record %d" % one for one in range(RECORDS)]
    assert ports.count(PORT) == 100
    last_record = len(ports) - 1 - ports[::-1].index(key_port(PORT))
    assert PORT in ports[: last_record // 2]
    assert {row for _, port, row in sent if port == PORT} == {b"\x55" * 1000}
    again = run(core, 900 * MILLISECOND, 1900 * MILLISECOND)
    assert len(again) == RECORDS
    assert sealer.rounds == 2


def test_closed_source_leaves_once_its_records_were_sent() -> None:
    core = source_with(MaskingSealer())
    core.submit([b"text"])
    core.close()
    sent = run(core, 0, 30 * SECOND)
    assert [port for _, port, _ in sent].count(key_port(PORT)) == RECORDS
    assert core.is_finished(30 * SECOND)


def test_change_of_the_secret_sends_records_at_once() -> None:
    core = source_with(MaskingSealer())
    run(core, 0, 200 * MILLISECOND)
    core.companions_of(KeyRecordSession)[0].restart()
    assert len(run(core, 200 * MILLISECOND, 500 * MILLISECOND)) == RECORDS


def test_aborted_source_sends_no_more_records() -> None:
    core = source_with(MaskingSealer())
    core.abort(0)
    assert run(core, 0, 5 * SECOND) == []
