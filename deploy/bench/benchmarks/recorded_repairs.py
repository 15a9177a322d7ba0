"""Cost of recording for repairs, with a stream below and above the disk's rate.

The runs compare a repairer that records with one that does not. A fast disk takes more than one processor can carry,
and so is never the limit. The archive is therefore synced in small steps, which slow the disk down. Source, repairer
and receiver then carry the disk's rate with ease. The disk is measured with steps of the same size.
"""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import trio

from deploy.bench.benchmarks.recorded_tree import SIZE, disk_rate, head, run_tree
from deploy.bench.place import ETHERNET_MTU, BenchNetwork, open_place
from deploy.bench.ratios import part_of
from deploy.bench.settings import BenchSettings, Row
from pgm.units import KIB, MIB, format_fraction

Milliseconds = np.ndarray[Any, np.dtype[np.float64]]

SHARES = (0.6, 1.5)  # of the disk's rate
_PARTS = ("plain", "recorded")
_STEPS = (4 * MIB, MIB, 256 * KIB, 64 * KIB, 16 * KIB)  # octets between two syncs
_MOST_OCTETS_PER_S = 20_000_000  # highest disk rate; 1.5 times this rate leaves the processors room
_PROBE_S = 0.5
_QUEUE_S = 0.5  # capacity of the recording queue, in seconds of the disk's rate
_PERCENTILES = (0.5, 0.99)
_TOPOLOGY = """\
{head}
[nodes.repairer]
role = "repairer"
segment = "lan"
address = "{repairer}"
parents = ["source"]
{record}

[nodes.desk]
role = "receiver"
segment = "lan"
address = "{desk}"
parents = ["repairer", "source"]
loss = {{ loss = "{loss}" }}
"""
_RECORD = """\
record = {{ directory = "{directory}" }}
parameters = {{ record_sync_bytes = "{step}B", record_batch_bytes = "{step}B", record_queue_bytes = "{queue}B" }}
"""


async def repairs(settings: BenchSettings, shares: Sequence[float] = SHARES) -> list[Row]:
    """Measure a repairer with and without recording, at shares of the disk's rate. Returns the rows."""
    step, disk = await trio.to_thread.run_sync(_step_of, settings)
    rows: list[Row] = []
    for share in shares:
        runs: dict[str, list[dict[str, Any]]] = {part: [] for part in _PARTS}
        with open_place("loopback", ETHERNET_MTU, 3) as place:
            for _ in range(settings.runs):
                for part in _PARTS:
                    settings.say(f"repairs, {format_fraction(share)} of a disk of {disk / 1e6:.1f} MB/s, {part}")
                    runs[part].append(await _run(place, settings, disk, share, step, part))
        share_rows = [_row(part, share, runs[part], disk) for part in _PARTS]
        for row in share_rows:
            row["of_plain"] = part_of(row["mb_per_s"], share_rows[0]["mb_per_s"])
            settings.emit(row)
        rows += share_rows
    return rows


def _step_of(settings: BenchSettings) -> tuple[int, float]:
    """Return a sync step that makes the disk slow enough, and the disk's rate then."""
    for step in _STEPS:
        settings.say(f"writing to {settings.folder}, synced every {step // KIB} KiB")
        disk = disk_rate(settings.folder, min(_PROBE_S, settings.seconds), step)
        if disk <= _MOST_OCTETS_PER_S:
            break
    return step, disk_rate(settings.folder, settings.seconds, step)


async def _run(
    place: BenchNetwork, settings: BenchSettings, disk: float, share: float, step: int, part: str
) -> dict[str, Any]:
    archive, telemetry = settings.folder / "archive", settings.folder / "telemetry"
    rate = int(share * disk)
    queue = max(64 * KIB, 4 * step, int(_QUEUE_S * disk))
    record = _RECORD.format(directory=archive, step=step, queue=queue) if part == "recorded" else ""
    file = settings.folder / "repairs.toml"
    loss = format_fraction(settings.loss)
    seats = {"repairer": place.seat(1, 0).address, "desk": place.seat(2, 0).address}
    file.write_text(_TOPOLOGY.format(head=head(place, rate, "64MiB"), **seats, record=record, loss=loss))
    messages = max(1, int(rate * settings.seconds) // SIZE)
    try:
        result = await run_tree(settings.folder, file, messages, ["--telemetry", str(telemetry)], elements=["repairer"])
        return result | {"repairs": _repairs_in(telemetry)}
    finally:
        for folder in (archive, telemetry):
            shutil.rmtree(folder, ignore_errors=True)


def _repairs_in(telemetry: Path) -> tuple[Milliseconds, int]:
    """Return the times from detection to repair, and the number of repeated requests.

    The times are in milliseconds, for gaps that one request repaired. The receiver drops repairs too. A dropped repair
    waits for a repeated request at any speed of the repairer.
    """
    import pyarrow.parquet

    times = [np.zeros(0)]
    repeated = 0
    for file in sorted(telemetry.rglob("*.parquet")):
        table = pyarrow.parquet.read_table(file, columns=["kind", "value_us", "count", "tries"]).to_pydict()
        for kind, value, count, tries in zip(*table.values(), strict=True):
            if kind == "repaired" and tries:
                repeated += count
            elif kind == "repaired":
                times.append(np.full(count, value / 1000))
    return np.concatenate(times), repeated


def _row(part: str, share: float, runs: list[dict[str, Any]], disk: float) -> Row:
    rates = [run["snapshot"]["counters"].get("delivered_packets", 0) / run["seconds"] for run in runs]
    times = np.concatenate([run["repairs"][0] for run in runs])
    p50, p99 = np.quantile(times, _PERCENTILES) if len(times) else (0.0, 0.0)
    recorders = [run["elements"]["repairer"] for run in runs]
    rate = statistics.median(rates)
    return {
        "benchmark": "record",
        "part": f"repairs at {format_fraction(share)}, {part}",
        "contender": f"ours-repairs-{share:g}-{part}",
        "title": f"pgm, repairs at {format_fraction(share)}, {part}",
        "size": SIZE,
        "messages_per_s": round(rate),
        "mb_per_s": round(rate * SIZE / 1e6, 1),
        "packets_per_s": round(rate),
        "repair_p50_ms": round(float(p50), 3),
        "repair_p99_ms": round(float(p99), 3),
        "repairs_timed": len(times),
        "repairs_again": sum(run["repairs"][1] for run in runs),
        "lost": sum(run["snapshot"]["counters"].get("lost_sqns", 0) for run in runs),
        "recorder_lost": sum(snapshot["counters"].get("recorder_lost", 0) for snapshot in recorders),
        "cpu_s": round(statistics.median(snapshot["cpu_s"] for snapshot in recorders), 3),
        "disk_mb_per_s": round(disk / 1e6, 1),
    }
