"""Cost of a very long gap for a receiver: time and memory."""

from __future__ import annotations

import random
import time
import tracemalloc

import numpy as np

from deploy.bench.settings import Row
from pgm.core.receiver.receiver import ReceiverCore
from pgm.core.receiver.setup import ReceiverSetup
from pgm.core.segment import Channel, Segment
from pgm.parameters import Parameters
from pgm.units import MILLISECOND
from pgm.wire.control_packets import Spm, encode
from pgm.wire.data_packets import write_odata
from pgm.wire.formats import DATA_HEADER_OCTETS
from pgm.wire.options import Join
from pgm.wire.train import Train

MISSING = 100_000
_TSI = b"bench!" + bytes((1, 2))
_PORT = 7500
_SOURCE = "10.0.0.1"
_TRAIN_PACKETS = 45
_SIZE = 1400
_REPEATS = 3


def gap(missing: int = MISSING) -> Row:
    """Measure a core that gets one train, and another `missing` packets later.

    Returns the row. Memory is measured in a separate run, because tracing costs time.
    """
    took_ns = min(_detect(missing)[0] for _ in range(_REPEATS))
    tracemalloc.start()
    octets = _detect(missing)[1]
    tracemalloc.stop()
    return {
        "benchmark": "repair",
        "part": f"gap of {missing:,}",
        "contender": "ours",
        "title": "pgm, a receiver's core",
        "size": _SIZE,
        "ms": round(took_ns / 1e6, 4),
        "octets_each": round(octets / missing, 4),
        "messages_per_s": 0,
        "mb_per_s": 0.0,
        "packets_per_s": 0,
        "cpu_s": round(took_ns / 1e9, 6),
        "lost": 0,
        "missing": missing,
    }


def _detect(missing: int) -> tuple[int, int]:
    """Return the nanoseconds, and the octets allocated if memory is traced."""
    segment = Segment(0, "bench", "10.0.0.2", "239.192.0.1", True, False)
    setup = ReceiverSetup(segment=segment, data_ports=frozenset((_PORT,)))
    # The gap is believed at once, as after an outage of a stream with a high rate.
    core = ReceiverCore(setup, Parameters(jump_burst_sqns=missing + 2 * _TRAIN_PACKETS), random.Random(1))
    channel, now_ns = Channel(segment, True), time.monotonic_ns()
    spm = Spm(
        tsi=_TSI, data_port=_PORT, spm_sqn=0, trail=0, lead=0xFFFFFFFF, path_nla=_SOURCE, options=(Join(min_sqn=0),)
    )
    core.receive(Train.of(encode(spm)), channel, _SOURCE, now_ns)
    core.receive(_train(0), channel, _SOURCE, now_ns)
    late = _train(_TRAIN_PACKETS + missing)
    before, begun_ns = tracemalloc.get_traced_memory()[0], time.perf_counter_ns()
    core.receive(late, channel, _SOURCE, now_ns + MILLISECOND)
    took_ns = time.perf_counter_ns() - begun_ns
    assert core.counters.missing_sqns == missing
    return took_ns, tracemalloc.get_traced_memory()[0] - before


def _train(first: int) -> Train:
    rows = np.zeros((_TRAIN_PACKETS, DATA_HEADER_OCTETS + _SIZE), np.uint8)
    write_odata(rows, tsi=_TSI, data_port=_PORT, first=first, trail=0)
    return Train.of(rows.reshape(-1), rows.shape[1])
