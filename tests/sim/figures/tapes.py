"""Cost of a tape: CPU of a receiver's and a source's core for each MB, without and with a tape, by turns.

`python -m tests.sim.figures.tapes [MEGABYTES [TURNS]]`. Packets of 1400 octets come in trains of 45.
"""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from pgm.core.effects import Deliver, Send
from pgm.core.receiver.receiver import ReceiverCore
from pgm.core.receiver.setup import ReceiverSetup
from pgm.core.segment import Channel, Segment
from pgm.core.source.setup import SourceSetup
from pgm.core.source.source import SourceCore
from pgm.parameters import Parameters, ProfileInputs, lan
from pgm.tape.recorder import TapeLimits, TapeRecorder
from pgm.tape.segments import SegmentRing
from pgm.tape.state import save
from pgm.units import MIB, MILLISECOND, SECOND
from pgm.wire.train import Train

PARAMETERS = Parameters(
    **{**lan(ProfileInputs()), "txw_max_rte": 10**9, "txw_unsent_bytes": 16 * MIB, "txw_bytes": 64 * MIB}
)
SEGMENT = Segment(0, "lan", "10.0.0.1", "239.0.0.1", True, True)
LIMITS = TapeLimits(256 * MIB, 600 * SECOND)
PACKETS, PACKET_OCTETS = 45, 1400
CHUNK_OCTETS = 4 * MIB


class Pair:
    """Source and receiver without a network, and the CPU time of either."""

    def __init__(self) -> None:
        self.source = SourceCore(SourceSetup(b"12345678", SEGMENT, 7500), PARAMETERS, 0, random.Random(1))
        self.receiver = ReceiverCore(ReceiverSetup(SEGMENT), PARAMETERS, random.Random(1))
        self.spent_ns = {"source": 0, "receiver": 0}
        self._chunk, self._at = np.zeros(CHUNK_OCTETS, np.uint8), 0
        self._now_ns = 0

    def run(self, octets: int) -> None:
        """Send and receive some octets."""
        rows, channel = np.zeros((PACKETS, PACKET_OCTETS), np.uint8), Channel(SEGMENT, True)
        while octets > 0:
            self._now_ns += MILLISECOND
            begun_ns = time.process_time_ns()
            self.source.submit_rows(rows)
            effects = [*self.source.handle_deadline(self._now_ns)]
            self.spent_ns["source"] += time.process_time_ns() - begun_ns
            for send in effects:
                if isinstance(send, Send):
                    train = self._train(send)
                    begun_ns = time.process_time_ns()
                    delivered = self.receiver.receive(train, channel, "10.0.0.2", self._now_ns)
                    self.receiver.grant(sum(one.run.octets for one in delivered if isinstance(one, Deliver)))
                    self.spent_ns["receiver"] += time.process_time_ns() - begun_ns
                    octets -= train.length

    def _train(self, send: Send) -> Train:
        octets = np.frombuffer(bytes(send.octets), np.uint8)
        if self._at + len(octets) > CHUNK_OCTETS:
            self._chunk, self._at = np.zeros(CHUNK_OCTETS, np.uint8), 0
        at, self._at = self._at, self._at + len(octets)
        self._chunk[at : self._at] = octets
        return Train(self._chunk, at, len(octets), send.stride)


def cost(megabytes: int, taped: str) -> dict[str, float]:
    """Return the ms of CPU for each MB of both cores, one of which may keep a tape."""
    pair = Pair()
    with tempfile.TemporaryDirectory() as folder:
        recorder = None
        if taped:
            core = pair.source if taped == "source" else pair.receiver
            recorder = TapeRecorder(core, (SEGMENT,), SegmentRing(Path(folder) / "tape", LIMITS.octets), LIMITS, {})
            recorder.begin(0)
        pair.run(megabytes * 10**6)
        if recorder is not None:
            recorder.end()
            assert recorder.counts.lost_inputs == 0
    return {name: spent_ns / MILLISECOND / megabytes for name, spent_ns in pair.spent_ns.items()}


def main(megabytes: int = 100, turns: int = 3) -> None:
    found: dict[tuple[str, bool], list[float]] = {}
    for _ in range(turns):
        for taped in ("", "receiver", "source"):
            for name, ms in cost(megabytes, taped).items():
                if taped in ("", name):
                    found.setdefault((name, bool(taped)), []).append(ms)
    for (name, is_taped), values in sorted(found.items()):
        print(f"{name}, {'with' if is_taped else 'without'} a tape: {statistics.median(values):.2f} ms of CPU a MB")
    pair = Pair()
    pair.run(2 * PARAMETERS.txw_bytes)
    begun_ns = time.process_time_ns()
    octets = sum(map(len, save(pair.source, {})))
    print(f"a state of {octets / 1e6:.0f} MB: {(time.process_time_ns() - begun_ns) / MILLISECOND:.0f} ms of CPU")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
