"""Input of simulations and predictions from a summary of telemetry."""

from __future__ import annotations

from typing import Any

from pgm.impairments import Impairment
from pgm.units import MILLISECOND


def measured_of(summary: dict[str, Any]) -> tuple[dict[tuple[str, str], Impairment], dict[str, int]]:
    """Return the loss of each link into a node, and the round trip of each segment in ns, of a summary of telemetry."""
    losses = {(row["segment"], row["node"]): Impairment(**row["model"]) for row in summary["links"] if row["node"]}
    trips: dict[str, int] = {}
    for row in summary["timers"]:
        if row["timer"] == "nak_rpt_ivl" and row["answers_p50_ms"] is not None:
            trip = round(row["answers_p50_ms"] * MILLISECOND)
            trips[row["segment"]] = min(trip, trips.get(row["segment"], trip))
    return losses, trips
