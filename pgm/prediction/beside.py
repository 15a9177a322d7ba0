"""Measured figures beside predicted ones. Those that differ by more than a third are marked."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from pgm.errors import UsageError
from pgm.trust.node_identity import names_node

DIFFERS = 1 / 3  # of the predicted figure
_LEAST_COUNT = 30  # events behind a figure: a third is then some two standard deviations
_REMEDY = "write one with: pgm plan TOPOLOGY --predict --json > FILE"

Row = Mapping[str, Any]


@attrs.frozen
class Comparison:
    """One figure. `differs` is None if too few events were measured for a judgement."""

    place: str  # node or segment
    figure: str
    measured: float
    predicted: float
    differs: bool | None

    def as_json(self) -> dict[str, Any]:
        """Return the comparison as a value for JSON."""
        return attrs.asdict(self)


def compared(place: str, figure: str, measured: float, predicted: float, events: float) -> Comparison:
    """Return a comparison. `events` is the number of events behind the measured or the predicted figure, the larger one."""
    differs = None if events < _LEAST_COUNT else abs(measured - predicted) > DIFFERS * predicted
    return Comparison(place, figure, measured, predicted, differs)


def read_prediction(file: Path) -> dict[str, Any]:
    """Return the prediction in the output of `pgm plan --predict --json`. Raises `UsageError`."""
    try:
        content = json.loads(file.read_text())
        prediction: dict[str, Any] = content["prediction"]
        assert prediction["feeds"]
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}", remedy=_REMEDY) from None
    except (ValueError, KeyError, TypeError, AssertionError):
        raise UsageError(f"{file} has no prediction", remedy=_REMEDY) from None
    return prediction


def of_status(prediction: Row, rows: Iterable[Row]) -> list[Comparison]:
    """Compare the counters of running nodes, which count all feeds of a node together."""
    found = []
    for row in rows:
        counters = row["counters"]
        packets = counters.get(_DATA[row["role"]], 0)
        for figure, measured, predicted in _of_counters(prediction, row, packets):
            found.append(
                compared(row["node"], figure, measured / max(1, packets), predicted, max(measured, predicted * packets))
            )
    return found


# counter of the packets of data that a node of each role sent or took
_DATA = {
    "source": "odata_packets",
    "aggregator": "odata_packets",
    "repairer": "received_packets",
    "receiver": "delivered_packets",
}


def _of_counters(prediction: Row, row: Row, packets: int) -> Iterator[tuple[str, float, float]]:
    """Yield figure, measured count, and prediction per packet, if the node has packets and a prediction."""
    expected = _node_of(prediction, row["node"])
    if expected is None or not packets:
        return
    counters = row["counters"]
    links = 1 if row["role"] != "aggregator" else max(1, expected["links"])
    if row["role"] == "receiver":
        yield "NAKs sent", counters.get("nak_sqns", 0), expected["naks_out"]
        return
    repairs = counters.get("rdata_packets", 0) + counters.get("rdata_forwarded", 0)
    yield "repairs sent", repairs * links, expected["repairs"]
    yield "NAKs received", counters.get("nak_sqns_in", 0) * links, expected["naks_in"]


def _node_of(prediction: Row, name: str) -> Row | None:
    """Return the predicted row of a node, whose entry may be a pattern: the mean over its feeds, by their packets."""
    rows = [
        (feed["packets_per_s"], row)
        for feed in prediction["feeds"]
        for row in feed["nodes"]
        if names_node(row["node"], name)
    ]
    if not rows:
        return None
    total = sum(weight for weight, _ in rows)
    keys = ("repairs", "naks_in", "naks_out")
    return {**rows[0][1], **{key: sum(weight * row[key] for weight, row in rows) / total for key in keys}}


def of_report(prediction: Row, summary: Row) -> list[Comparison]:
    """Compare the figures of telemetry: repairs and NAKs of nodes, and the waits on each segment."""
    found = [one for row in summary["traffic"] for one in _of_traffic(prediction, summary, row)]
    links = {row["link"]: row for feed in prediction["feeds"] for row in feed["links"]}
    for row in summary["repairs"]:
        expected = links.get(row["segment"])
        if expected is None or expected["p50_ms"] is None:
            continue
        for key, figure in (("p50_ms", "median wait, ms"), ("p99_ms", "99 % within, ms")):
            found.append(compared(row["segment"], figure, row[key], expected[key], row["repaired"]))
    return found


def _of_traffic(prediction: Row, summary: Row, row: Row) -> Iterator[Comparison]:
    expected = _node_of(prediction, row["node"])
    if expected is None or row["role"] == "receiver":
        return
    packets = row["sent"] or max(
        (link["packets"] for link in summary["links"] if link["node"] == row["node"]), default=0
    )
    if not packets:
        return
    figures = (
        ("repairs sent", row["rdata"], expected["repairs"]),
        ("NAKs received", row["nak_in"], expected["naks_in"]),
    )
    for figure, measured, predicted in figures:
        yield compared(row["node"], figure, measured / packets, predicted, max(measured, predicted * packets))


def cells(comparisons: Iterable[Comparison]) -> list[tuple[str, ...]]:
    """Return the comparisons as rows of text: place, figure, measured, predicted, difference, mark."""
    return [
        (one.place, one.figure, f"{one.measured:.4g}", f"{one.predicted:.4g}", _difference(one), _mark(one))
        for one in comparisons
    ]


def _difference(one: Comparison) -> str:
    return f"{100 * (one.measured / one.predicted - 1):+.0f} %" if one.predicted else "-"


def _mark(one: Comparison) -> str:
    return "too few" if one.differs is None else "DIFFERS" if one.differs else "fits"
