"""All figures over telemetry in memory, as one plain value for `pgm report`: the value of `pgm.spark.jobs.summary`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pgm.deprecated import KEYS, with_former_names
from pgm.errors import UsageError
from pgm.figures import event_rows, losses, repairs, rules, timers
from pgm.figures.event_rows import EventRows
from pgm.figures.rules import Summary
from pgm.figures.values import iso

# Files are compressed, some 4 to 9 octets a row, and rows take 104 octets in memory. A report of this size took 1.4 GB,
# less than the 4 GiB of a Spark driver, and less time than its start.
SMALL_OCTETS = 16 << 20
_SMALL_SQNS = 20_000_000  # that are unfolded, some 80 octets each
_UNFOLDED = ("repaired", "gave_up", "lost", "nak_sent", "rdata_sent")


def is_small(folder: Path) -> bool:
    """Return whether a report reads the files of a folder at once. Raises `UsageError` if there are none."""
    return sum(file.stat().st_size for file in event_rows.files_of(folder)) <= SMALL_OCTETS


def fits(events: EventRows) -> bool:
    """Return whether the lost and repaired packets of these events can be unfolded in memory."""
    return int(events.of_kind(*_UNFOLDED)["count"].sum()) <= _SMALL_SQNS


def no_events(name: str) -> UsageError:
    """Return the error for files without a row."""
    return UsageError(
        f"the Parquet files in {name} hold no events",
        remedy="wait one telemetry_ivl until nodes have written events, or choose another folder",
    )


def summarise(events: EventRows, *, name: str = "the folder") -> Summary:
    """Return all figures over these events. Raises `UsageError` if there are none; the error refers to them by `name`."""
    if not len(events):
        raise no_events(name)
    begins, ends = int(events["time"].min()), int(events["time"].max())
    window_s = rules.timeline_window_s((ends - begins) / 1_000_000)
    bursts = losses.Bursts.of(events)
    lengths, longer = bursts.by_length()
    by_segment, of_all = repairs.latencies(events)
    outcomes = repairs.Outcomes.of(events, window_s)
    doubled = repairs.duplicates(events)
    summary: Summary = {
        "events": len(events),
        "begins": iso(begins),
        "ends": iso(ends),
        "nodes": len(np.unique(events["node"])),
        "window_s": window_s,
        "links": losses.links(events, bursts),
        "burst_lengths": lengths,
        "longer_bursts": longer,
        "repairs": by_segment,
        "repairs_of_all": of_all,
        "shares": outcomes.by_segment(),
        "duplicates": doubled,
        "excess_naks": repairs.excess_naks(events),
        "timers": timers.timers(events, doubled),
        "traffic": repairs.traffic(events),
        "timeline": outcomes.timeline(),
        "left_out": repairs.left_out(events),
    }
    return with_former_names(summary, KEYS)
