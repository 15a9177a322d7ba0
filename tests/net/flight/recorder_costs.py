"""Processor time of a source and a receiver with the flight recorder on and off, by turns.

    python -m tests.net.flight.recorder_costs --turns 7 --packets 40000

Both nodes run in this process, on loopback. The receiver's reader drops the packets. Only processor time counts, so the load
of the machine matters little. Each turn runs all cases once with the recorder and once without.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time

import attrs
import trio

import pgm
from pgm.topology.load import loads
from tests.net.support.places import Place, one_segment

_BATCH = 64


@attrs.frozen
class Case:
    """One load: `size` octets a message, lost as `loss` says. Singles are sent one by one, and take the fast path."""

    name: str
    size: int
    loss: str = ""
    are_single: bool = False


CASES = (
    Case("1,400 octets, no loss", 1400),
    Case("1,400 octets, 0.1% lost", 1400, "{ loss = '0.1%' }"),
    Case("1,400 octets, 1% lost", 1400, "{ loss = '1%' }"),
    Case("1,400 octets, 5% lost", 1400, "{ loss = '5%' }"),
    Case("70 octets, single, no loss", 70, are_single=True),
)


@attrs.frozen
class Trial:
    """Processor time of one run, and what the receiver repaired in it."""

    cpu_s: float
    packets: int
    repaired: int

    @property
    def us_a_packet(self) -> float:
        """Processor time for a packet, in us."""
        return self.cpu_s * 1e6 / self.packets


async def _run(case: Case, packets: int, rate: str, *, records: bool) -> Trial:
    topology = loads(one_segment(Place.new(), loss=case.loss, rate=rate))
    own = {} if records else {"flight_bytes": "0B"}
    finished = trio.Event()
    async with (
        pgm.open_receiver(topology, node="desk-1", **own) as receiver,  # type: ignore[arg-type]
        pgm.open_source(topology, node="source", fin_quiet_ivl="100ms", **own) as source,  # type: ignore[arg-type]
        trio.open_nursery() as nursery,
    ):

        async def take() -> None:
            left = packets
            while left > 0:
                batch = await receiver.next_batch()
                left -= len(batch) if isinstance(batch, pgm.Batch) else 0
            finished.set()

        await receiver.next_batch()  # Opened
        counters = receiver.counters
        gc.collect()
        began = time.process_time()
        nursery.start_soon(take)
        payloads = [bytes(case.size)] * _BATCH
        for _ in range(packets // _BATCH):
            if case.are_single:
                for payload in payloads:
                    await source.send(payload)
            else:
                await source.send_batch(payloads)
        await finished.wait()
        cpu_s = time.process_time() - began
    return Trial(cpu_s, packets, counters.repaired_sqns)


def main() -> None:
    """Print the medians of all cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--packets", type=int, default=38_400)
    parser.add_argument("--rate", default="100Mbit/s")
    parser.add_argument("--cases", default="")
    wanted = parser.parse_args()
    packets = wanted.packets // _BATCH * _BATCH
    cases = [case for case in CASES if wanted.cases in case.name]
    trials: dict[tuple[str, bool], list[Trial]] = {}
    for turn in range(wanted.turns + 1):
        for case in cases:
            for records in (turn % 2 == 0, turn % 2 == 1):
                trial = trio.run(lambda case=case, records=records: _run(case, packets, wanted.rate, records=records))
                if turn:  # the first turn warms up
                    trials.setdefault((case.name, records), []).append(trial)
    print("processor time for a packet: the least of all turns, and the median")
    for case in cases:
        off, on = ([one.us_a_packet for one in trials[case.name, records]] for records in (False, True))
        more = [statistics.median(on) / statistics.median(off) - 1, min(on) / min(off) - 1]
        repaired = statistics.median(one.repaired for one in trials[case.name, True])
        each = f", {(min(on) - min(off)) * packets / repaired:.1f} us for a repaired packet" if repaired else ""
        print(
            f"{case.name:28} off {min(off):6.2f} {statistics.median(off):6.2f} us, "
            f"on {min(on):6.2f} {statistics.median(on):6.2f} us: {more[1]:+.1%} {more[0]:+.1%}{each}"
        )


if __name__ == "__main__":
    main()
