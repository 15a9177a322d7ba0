"""A day of 100 nodes: the time, the processor time and the findings of `pgm fleet tables`.

    python -m tests.spark.figures.fleet_day

The simulator runs a tree of 100 nodes with the real cores for some minutes, once as it is and once with a worse link. Both
patterns are repeated with shifted times and sqns, as event logs of the nodes: the worse one from 10:00 to 14:00.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pgm.telemetry.events import EARLIER_RUNS, FIRST_ROW, arrow_schema

if TYPE_CHECKING:
    from pgm.spark.fleet.tables import TableFolder

FLOORS, DESKS, RATE = 9, 9, 10
WORSE = (3, 5)  # floor and desk of the link that is worse from 10:00 to 14:00
WORSE_HOURS = range(10, 14)
_HOUR_US = 3600 * 1_000_000
_FILE_HOURS = 2
_RUN = "6473000000000"
_ONCE = ("address", "timer", "opened", "closed")  # kinds of the first pattern alone
_PATIENT = {"spark.python.authenticate.socketTimeout": "300s"}  # on a machine that others use, too
_TICKS = os.sysconf("SC_CLK_TCK")


def topology(worse_loss: str) -> str:
    """Return a topology file of 100 nodes: a source, and nine floors with a relay, a repairer and nine receivers."""
    lines = [
        'version = 1\nname = "day"\nprofile = "lan"\nrtt = "1ms"',
        '[streams.ticks]\ndata_port = 7500\nrate = "1Mbit/s"\nwindow = "10s"',
        '[segments.core]\ngroup = "239.192.10.1"\ninterface = "10.1.0.0/24"',
        *(
            f'[segments.floor-{floor}]\ngroup = "239.192.11.{floor}"\ninterface = "10.1.{floor}.0/24"'
            for floor in range(1, FLOORS + 1)
        ),
        '[nodes.exchange]\nrole = "source"\nsegment = "core"\naddress = "10.1.0.10"\nstreams = ["ticks"]',
    ]
    for floor in range(1, FLOORS + 1):
        up = f'{{ segment = "core", address = "10.1.0.{10 + floor}", loss = {{ loss = "0.2%" }} }}'
        lines += [
            f'[nodes.relay-{floor}]\nrole = "aggregator"\nupstream = {up}\nparents = ["exchange"]',
            f'downstream = [{{ segment = "floor-{floor}", address = "10.1.{floor}.1" }}]\nrepairers = ["repairer-{floor}"]',
            f'[nodes.repairer-{floor}]\nrole = "repairer"\nsegment = "floor-{floor}"\naddress = "10.1.{floor}.2"',
            f'parents = ["relay-{floor}"]\ncache = {{ bytes = "16MiB", seconds = 60 }}',
        ]
        for desk in range(1, DESKS + 1):
            loss = worse_loss if (floor, desk) == WORSE else "0.5%"
            lines += [
                f'[nodes.desk-{floor}-{desk}]\nrole = "receiver"\nsegment = "floor-{floor}"\naddress = "10.1.{floor}.{10 + desk}"',
                f'streams = ["ticks"]\nloss = {{ loss = "{loss}" }}\nparents = ["repairer-{floor}", "relay-{floor}"]',
            ]
    return "\n".join(lines) + "\n"


def simulated(folder: Path, name: str, loss: str, minutes: int) -> pa.Table:
    """Return the events of some minutes of the tree, by the real cores in virtual time."""
    file, events = folder / f"{name}.toml", folder / name
    file.write_text(topology(loss))
    words = ["sim", str(file), "--messages", str(minutes * 60 * RATE), "--rate", str(RATE), "--size", "200"]
    subprocess.run([sys.executable, "-m", "deploy", *words, "--telemetry", str(events)], check=True, stdout=subprocess.DEVNULL)  # fmt: skip
    table = pq.read_table(events).cast(arrow_schema())
    begins = table.column("time").cast(pa.int64()).to_numpy()
    return table.filter(pa.array(begins < begins.min() + minutes * 60_000_000))


def write_day(folder: Path, usual: pa.Table, worse: pa.Table, minutes: int, hours: int) -> tuple[int, int]:
    """Write the event logs of all nodes of `hours`; return the rows and octets."""
    rows = 0
    for node in pc.unique(usual.column("node")).to_pylist():
        # Only the nodes of the worse link differ: two runs of another link have different losses by chance.
        is_worse = node in (f"desk-{WORSE[0]}-{WORSE[1]}", f"repairer-{WORSE[0]}")
        tables = (usual, worse if is_worse else usual)
        patterns = [_pattern(table.filter(pc.equal(table.column("node"), node))) for table in tables]
        first = 0
        for begin in range(0, hours, _FILE_HOURS):
            tiles = range(begin * 60 // minutes, min(hours, begin + _FILE_HOURS) * 60 // minutes)
            table = pa.concat_tables(list(_tiled(patterns, tiles, minutes)))
            metadata = {FIRST_ROW: str(first).encode(), EARLIER_RUNS: b"{}"}
            pq.write_table(table.replace_schema_metadata(metadata), folder / f"{node}-{_RUN}-{begin:06}.parquet")
            first += table.num_rows
        rows += first
    return rows, sum(file.stat().st_size for file in folder.iterdir())


def _pattern(table: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return a node's events in order of time: all of them, and those that are repeated."""
    table = table.sort_by("time")
    return table, table.filter(pc.invert(pc.is_in(table.column("kind"), pa.array(_ONCE))))


def _tiled(patterns: list[tuple[pa.Table, pa.Table]], tiles: range, minutes: int) -> Iterator[pa.Table]:
    for tile in tiles:
        hour = tile * minutes // 60
        table = patterns[int(hour in WORSE_HOURS)][int(tile > 0)]
        times = table.column("time").cast(pa.int64()).to_numpy() + tile * minutes * 60_000_000
        sqns = np.where(table.column("tsi").to_numpy() == "", 0, tile * minutes * 60 * RATE)
        firsts = (table.column("first").to_numpy() + sqns) % (1 << 32)
        table = table.set_column(
            0, arrow_schema().field("time"), pa.array(times).cast(arrow_schema().field("time").type)
        )
        yield table.set_column(table.column_names.index("first"), "first", pa.array(firsts))


def cpu_s() -> float:
    """Return the processor time of this process and all below it."""
    parents, times = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(stat.parent.name)] = int(fields[1])
        times[int(stat.parent.name)] = sum(map(int, fields[11:15])) / _TICKS
    own = {os.getpid()}
    while more := {child for child, parent in parents.items() if parent in own} - own:
        own |= more
    return sum(times[process] for process in own)


def main() -> None:
    """Make the day, keep its tables, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=int, default=24)
    parser.add_argument("--pattern-minutes", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="Folder to work in; it is kept.")
    asked = parser.parse_args()
    folder = asked.folder or Path(tempfile.mkdtemp(prefix="fleet-day-"))
    events = folder / "events"
    try:
        if not events.exists():
            folder.mkdir(parents=True, exist_ok=True)
            patterns = [simulated(folder, name, loss, asked.pattern_minutes) for name, loss in (("usual", "0.5%"), ("worse", "1.5%"))]  # fmt: skip
            events.mkdir()
            rows, octets = write_day(events, *patterns, asked.pattern_minutes, asked.hours)
            print(f"{rows:,} events of {FLOORS * (DESKS + 2) + 1} nodes in {asked.hours} hours, {octets / 1e6:.0f} MB")
        measure(events, folder / f"tables-{time.time():.0f}")
    finally:
        if asked.folder is None:
            shutil.rmtree(folder, ignore_errors=True)


def measure(events: Path, out: Path) -> None:
    """Keep the tables of the events by the streaming job on two cores, and find the changes."""
    from pgm.spark import fleet_tables, register, start
    from pgm.spark.fleet.findings import Findings
    from pgm.spark.fleet.tables import TableFolder

    began, cpu = time.monotonic(), cpu_s()
    spark = register(start("fleet day", master="local[2]", settings=_PATIENT))
    try:
        print(f"Spark started: {cpu_s() - cpu:.0f} s of CPU", flush=True)
        where = {"path": str(events), "trigger": "now"}
        query = fleet_tables(spark, where, out, on_batch=lambda tables: _progress(tables, cpu))
        query.awaitTermination()
        tables = TableFolder(out)
        found = Findings(tables).look()
        took, used = time.monotonic() - began, cpu_s() - cpu
    finally:
        spark.stop()
    batches = len({progress.batchId for progress in query.recentProgress})
    sums = {table: sum(pq.read_metadata(file).num_rows for file in tables.files(table)) for table in ("links", "repairs", "capacity", "nodes")}  # fmt: skip
    print(f"{took:.0f} s, {used:.0f} s of CPU, {batches} micro-batches or more; rows {sums}")
    print("\n".join(finding["text"] for finding in found) or "no changes")


def _progress(tables: TableFolder, cpu: float) -> None:
    minutes = sum(len(pc.unique(pq.read_table(file, columns=["minute"]).column("minute"))) for file in tables.files("links"))  # fmt: skip
    print(f"{minutes / 60:.1f} hours of tables: {cpu_s() - cpu:.0f} s of CPU", flush=True)


if __name__ == "__main__":
    main()
