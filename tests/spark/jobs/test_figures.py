"""Figures in memory and jobs of Spark: one summary of the same telemetry."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pgm.figures import event_rows
from pgm.figures import summary as in_memory
from pgm.parameters import Parameters
from pgm.spark.jobs import events, summary
from pgm.telemetry.events import EventLog
from pgm.telemetry.schema import Event
from tests.spark.support.generated import START_US

SECOND_US = 1_000_000
TOP = 0xFFFF_FFFF
TIMED = {
    "confirmed": "WAIT_NCF", "repaired": "WAIT_DATA", "ncf_timeout": "", "rdata_timeout": "", "suppressed": "", "gave_up": "",
}  # fmt: skip


def one_of(rng: random.Random, node: str, role: str, segment: str) -> list[Event]:
    """Return what a node tells at the start and of the data."""
    address = f"10.0.0.{rng.randrange(8)}"
    side = rng.choice(("up", "down", "both"))
    rows = [Event(START_US, node, role, segment, "address", peer=address, cause=side)]
    for timer in ("nak_bo_ivl", "nak_rpt_ivl", "nak_rdata_ivl"):
        rows.append(Event(START_US, node, role, "", "timer", cause=timer, value_us=rng.choice((500, 20_000, 10**6))))
    if rng.random() < 0.9:
        kind = "received" if role != "source" else "sent"
        rows += [Event(START_US, node, role, segment, kind, "1.7500", 0, rng.randrange(1, 3000), value_us=1)] * 2
    return rows


def lost_by(rng: random.Random, node: str, role: str, segment: str, spans: list[tuple[int, int]]) -> list[Event]:
    """Return the ends of some spans at a node, each sqn once."""
    rows = []
    for first, count in spans:
        if rng.random() < 0.6:
            kind, cause = rng.choice(
                (("repaired", "WAIT_DATA"), ("lost", "timeout"), ("lost", "malformed"), ("gave_up", ""), ("late", ""))
            )
            at = START_US + first % 700 * SECOND_US // 10
            value = rng.choice((None, rng.randrange(1, 10**6)))
            local = kind == "repaired" and rng.random() < 0.5
            rows.append(
                Event(at, node, role, segment, kind, "1.7500", first, count, "r", value, rng.randrange(3), cause, local)
            )
    return rows


def other_rows(rng: random.Random, node: str, role: str, segment: str) -> list[Event]:
    """Return requests, answers and the rest, in any amount."""
    rows = []
    for _ in range(rng.randrange(60)):
        at = START_US + rng.randrange(60 * SECOND_US)
        first = rng.choice((rng.randrange(20), TOP - rng.randrange(20)))
        count = rng.randrange(1, 5)
        count = min(count, TOP - first + 1)
        kind = rng.choice(("nak_sent", "rdata_sent", "gap", "skipped", "ncf_sent", "overflow", "delivered", *TIMED))
        value = rng.choice((None, 0, rng.randrange(1, 10**7))) if kind in TIMED else None
        cause = rng.choice((TIMED[kind], "BACK_OFF")) if kind in TIMED else ""
        if kind not in ("repaired", "gave_up"):  # whose sqns are those of `lost_by`
            rows.append(
                Event(at, node, role, segment, kind, "2.7500", first, count, "r", value, rng.randrange(3), cause)
            )
    if role != "receiver":
        for child in range(rng.randrange(6)):
            for _ in range(rng.choice((1, 3, 200))):
                at = START_US + rng.randrange(40 * SECOND_US)
                rows.append(Event(at, node, role, segment, "nak_in", "2.7500", 3, 1, f"10.0.0.{child}"))
    return rows


def write_drawn(folder: Path, seed: int) -> None:
    """Write events of segments that have one to six receivers, a feeder or none, and losses in common or alone."""
    rng = random.Random(seed)
    log = EventLog(folder, "made", Parameters(), in_background=False)
    for number in range(10):
        segment = f"floor-{number}"
        spans, first = [], 0
        while first < 600:
            first += rng.choice((1, 2, 4, 30))
            spans.append((first, length := rng.choice((1, 1, 1, 2, 3, 9, 80))))
            first += length
        spans.append((TOP - 3, 4))
        common = [span for span in spans if rng.random() < 0.5]
        roles = ["receiver"] * rng.randrange(1, 7) + rng.choice(
            ([], ["source"], ["aggregator"], ["aggregator", "repairer"])
        )
        for place, role in enumerate(roles):
            node = f"{role}-{number}-{place}"
            rows = one_of(rng, node, role, segment) + other_rows(rng, node, role, segment)
            own = spans if rng.random() < 0.5 else common
            if role != "source":
                rows += lost_by(rng, node, role, segment, own)
            if role == "receiver":
                kinds = [("repaired", "WAIT_DATA")] * (rng.random() < 0.9)
                rows += [
                    Event(START_US, node, role, segment, kind, "3.7500", at, 2, "r", 7_000, 0, cause)
                    for at in (10, 12, 17, 19)
                    for kind, cause in kinds
                ]
            for row in rows:
                log.add(row)
    log.close()


def as_close(value: Any) -> Any:
    """Return a value that compares floats up to rounding."""
    if isinstance(value, float):
        return pytest.approx(value, rel=1e-9)
    if isinstance(value, dict):
        return {key: as_close(one) for key, one in value.items()}
    return [as_close(one) for one in value] if isinstance(value, list) else value


def test_figures_in_memory_equal_those_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    write_drawn(tmp_path, 2)
    by_spark = summary.summarise(events.read(spark, tmp_path))
    ours = in_memory.summarise(event_rows.read(event_rows.files_of(tmp_path)))
    assert list(ours) == list(by_spark)
    for name, rows in by_spark.items():
        assert ours[name] == as_close(rows), name
    assert by_spark["longer_bursts"]["bursts"]
    assert by_spark["excess_naks"]
    assert len({row["verdict"] for row in by_spark["timers"]}) == 3
    assert {row["node"] is None for row in by_spark["links"] if row["lost"]} == {True, False}
