"""`pgm bench record`: cost of recording at a share of the disk's measured rate."""

from __future__ import annotations

import shutil
import statistics
from typing import Any

import trio

from deploy.archive.record import need_arrow
from deploy.bench.benchmarks.recorded_repairs import repairs
from deploy.bench.benchmarks.recorded_tree import SIZE, disk_rate, head, run_tree
from deploy.bench.place import ETHERNET_MTU, open_place
from deploy.bench.ratios import part_of
from deploy.bench.settings import BenchSettings, Row

SHARE = 0.6  # of the disk's rate
_PARTS = ("plain", "recorded")
_TOPOLOGY = """\
{head}
[nodes.desk]
role = "receiver"
segment = "lan"
address = "{desk}"
parents = ["source"]
"""


async def record(settings: BenchSettings) -> list[Row]:
    """Measure recording by a receiver at 60 % of the disk's rate, and by a repairer at 60 % and above; return rows."""
    return [*await receivers(settings), *await repairs(settings)]


async def receivers(settings: BenchSettings) -> list[Row]:
    """Measure a receiver with and without recording; return their rows.

    The stream has 60 % of the disk's rate of sequential writes with syncs. The disk holds the folder for temporary
    files, `TMPDIR`.
    """
    need_arrow()
    settings.say(f"writing to {settings.folder} for {settings.seconds:g} s")
    disk = await trio.to_thread.run_sync(disk_rate, settings.folder, settings.seconds)
    rate = int(SHARE * disk)
    messages = max(1, int(rate * settings.seconds) // SIZE)
    file = settings.folder / "record.toml"
    runs: dict[str, list[dict[str, Any]]] = {part: [] for part in _PARTS}
    with open_place("loopback", ETHERNET_MTU) as place:
        file.write_text(_TOPOLOGY.format(head=head(place, rate, "256MiB"), desk=place.seat(1, 0).address))
        for _ in range(settings.runs):
            for part in _PARTS:
                settings.say(f"{messages:,} messages, {part}")
                archive = settings.folder / "archive"
                is_recorded = part == "recorded"
                verb, options = ("record", ["--dir", str(archive)]) if is_recorded else ("run", [])
                try:
                    runs[part].append(await run_tree(settings.folder, file, messages, options, verb=verb))
                finally:
                    shutil.rmtree(archive, ignore_errors=True)
    rows = [_row(part, part_runs, disk) for part, part_runs in runs.items()]
    for row in rows:
        row["of_plain"] = part_of(row["mb_per_s"], rows[0]["mb_per_s"])
        settings.emit(row)
    return rows


def _row(part: str, runs: list[dict[str, Any]], disk: float) -> Row:
    counters = [run["snapshot"]["counters"] for run in runs]
    packets = [run_counters.get("delivered_packets", 0) for run_counters in counters]
    rates = [count / run["seconds"] for count, run in zip(packets, runs, strict=True)]
    return {
        "benchmark": "record",
        "part": part,
        "contender": f"ours-{part}",
        "title": f"pgm, {part}",
        "size": SIZE,
        "messages_per_s": round(statistics.median(rates)),
        "mb_per_s": round(statistics.median(rates) * SIZE / 1e6, 1),
        "packets_per_s": round(statistics.median(rates)),
        "lost": sum(run_counters.get("lost_sqns", 0) for run_counters in counters),
        "recorder_lost": sum(run_counters.get("recorder_lost", 0) for run_counters in counters),
        "cpu_s": round(statistics.median(run["snapshot"]["cpu_s"] + run.get("writer_cpu_s", 0) for run in runs), 3),
        "disk_mb_per_s": round(disk / 1e6, 1),
    }
