"""Measured figures beside predicted ones. Those that differ by more than a third are marked."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from pgm.errors import UsageError
from pgm.prediction.json_files import fault_of
from pgm.trust.node_identity import names_node

DIFFERS = 1 / 3  # of the predicted figure
_LEAST_COUNT = 30  # events behind a figure: a third is then some two standard deviations
_OF_NODE = ("repairs", "naks_in", "naks_out")
_WAITS = (("p50_ms", "median wait, ms"), ("p99_ms", "99 % within, ms"))
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
        prediction: dict[str, Any] = json.loads(file.read_text())["prediction"]
        _require_figures(prediction)
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}", remedy=_REMEDY) from None
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{file} has no whole prediction: {fault_of(error)}", remedy=_REMEDY) from None
    return prediction


def _require_figures(prediction: Row) -> None:
    """Check all that comparisons read. Raises `ValueError`, `KeyError` or `TypeError`."""
    if not prediction["feeds"]:
        raise ValueError("no feeds")
    for feed in prediction["feeds"]:
        if not feed["packets_per_s"] > 0:
            raise ValueError("packets_per_s is not positive")
        for node in feed["nodes"]:
            _require_row(node, "node", *_OF_NODE, "links")
        for link in feed["links"]:
            _require_row(link, "link", "missed", *(key for key, _ in _WAITS if link[key] is not None))


def _require_row(row: Row, name: str, *keys: str) -> None:
    if not isinstance(row[name], str):
        raise TypeError(f"{name} is no text")
    for key in keys:
        if not 0 <= row[key] < math.inf:
            raise ValueError(f"{key} of {row[name]} is no figure")


def of_status(prediction: Row, rows: Iterable[Row]) -> list[Comparison]:
    """Compare the counters of running nodes, which count all feeds of a node together."""
    return [one for row in rows for one in _of_counters(prediction, row)]


# counter of the packets of data that a node of each role sent or took
_DATA = {
    "source": "odata_packets",
    "aggregator": "odata_packets",
    "repairer": "received_packets",
    "receiver": "delivered_packets",
}


def _of_counters(prediction: Row, row: Row) -> Iterator[Comparison]:
    """Yield the comparisons of a node, if it has packets and a prediction."""
    counters = row["counters"]
    packets = counters.get(_DATA[row["role"]], 0)
    expected = _node_of(prediction, row["node"])
    if expected is None or not packets:
        return
    if row["role"] == "receiver":
        yield _per_packet(row["node"], packets, "NAKs sent", counters.get("nak_sqns", 0), expected["naks_out"])
        return
    links = 1 if row["role"] != "aggregator" else max(1, expected["links"])
    repairs = counters.get("rdata_packets", 0) + counters.get("rdata_forwarded", 0)
    yield _per_packet(row["node"], packets, "repairs sent", repairs * links, expected["repairs"])
    naks = counters.get("nak_sqns_in", 0)
    yield _per_packet(row["node"], packets, "NAKs received", naks * links, expected["naks_in"])


def _per_packet(node: str, packets: int, figure: str, measured: int, predicted: float) -> Comparison:
    """Return the comparison of a measured count with a prediction per packet of data."""
    return compared(node, figure, measured / packets, predicted, max(measured, predicted * packets))


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
    return {**rows[0][1], **{key: _mean(rows, key) for key in _OF_NODE}}


def _mean(rows: Sequence[tuple[float, Row]], key: str) -> float:
    """Return the mean of a figure over rows with weights."""
    return float(sum(weight * row[key] for weight, row in rows) / sum(weight for weight, _ in rows))


def of_report(prediction: Row, summary: Row) -> list[Comparison]:
    """Compare the figures of telemetry: repairs and NAKs of nodes, and the waits on each segment."""
    found = [one for row in summary["traffic"] for one in _of_traffic(prediction, summary, row)]
    for row in summary["repairs"]:
        for key, figure in _WAITS:
            rows = _waits_on(prediction, row["segment"], key)
            if rows:
                found.append(compared(row["segment"], figure, row[key], _mean(rows, key), row["repaired"]))
    return found


def _waits_on(prediction: Row, segment: str, key: str) -> list[tuple[float, Row]]:
    """Return the rows of a link that several feeds may share, by the packets that wait there each second.

    A quantile of all waits lies between those of the feeds, and their mean stands for it.
    """
    return [
        (feed["packets_per_s"] * row["missed"], row)
        for feed in prediction["feeds"]
        for row in feed["links"]
        if row["link"] == segment and row["missed"] and row[key] is not None
    ]


def _of_traffic(prediction: Row, summary: Row, row: Row) -> Iterator[Comparison]:
    expected = _node_of(prediction, row["node"])
    if expected is None or row["role"] == "receiver":
        return
    packets = row["sent"] or max(
        (link["packets"] for link in summary["links"] if link["node"] == row["node"]), default=0
    )
    if packets:
        yield _per_packet(row["node"], packets, "repairs sent", row["rdata"], expected["repairs"])
        yield _per_packet(row["node"], packets, "NAKs received", row["nak_in"], expected["naks_in"])


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
