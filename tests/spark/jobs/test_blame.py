"""Attribution of losses: feeder, link of the relay, and child with excessive NAKs.

The feeder loses packets that no node of its segment gets. The relay's own link loses packets that come late below.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from pgm.parameters import Parameters
from pgm.spark.jobs import events, losses, repairs
from pgm.telemetry.events import EventLog
from pgm.telemetry.schema import Event
from tests.spark.support.generated import START_US

NODES = [f"desk-{number}" for number in range(5)]


def lacked(node: str, first: int, count: int, kind: str = "repaired") -> Event:
    return Event(START_US, node, "receiver", "floor", kind, "tsi", first, count, "10.0.0.2", 3000, 0, "WAIT_DATA")


def test_blame(spark: SparkSession, tmp_path: Path) -> None:
    log = EventLog(tmp_path, "made", Parameters(), in_background=False)
    log.add(Event(START_US, "relay", "aggregator", "floor", "sent", "tsi", 0, 1000, "", 1_000_000))
    for number, node in enumerate(NODES):
        log.add(Event(START_US, node, "receiver", "floor", "address", "", 0, 0, f"10.0.0.1{number}", cause="up"))
        log.add(Event(START_US, node, "receiver", "floor", "received", "tsi", 0, 990, "10.0.0.1", 1_000_000))
        log.add(lacked(node, 100, 3))  # no node got these
        log.add(lacked(node, 500, 2, "late"))  # the relay lost these and sent them again
    log.add(lacked("desk-1", 200, 4))
    log.add(lacked("desk-1", 204, 1))  # one burst, repaired in two parts
    log.add(lacked("desk-2", 200, 1))
    log.add(lacked("desk-2", 0xFFFF_FFFF, 1, "lost"))
    for number in range(len(NODES)):
        for sqn in range(400 if number == 3 else 10):
            log.add(Event(START_US, "relay", "aggregator", "floor", "nak_in", "tsi", sqn, 1, f"10.0.0.1{number}"))
    log.close()
    table = events.read(spark, tmp_path)
    rows = {row["link"]: row for row in losses.links(table).collect()}
    found = {link: (row["lost"], row["bursts"]) for link, row in rows.items()}
    assert found == {
        "relay > floor": (3, 1),
        "floor > desk-0": (0, 0),
        "floor > desk-1": (5, 1),
        "floor > desk-2": (2, 2),
        "floor > desk-3": (0, 0),
        "floor > desk-4": (0, 0),
    }
    assert [rows["floor > desk-1"][f"pairs_{lag}"] for lag in losses.LAGS] == [4, 3, 1, 0]
    children = repairs.excess_naks(table).collect()
    assert [(child["node"], child["child"], child["asked"], child["times"]) for child in children] == [
        ("relay", "desk-3", 400, 40)
    ]
