"""Result of `pgm tune --place` for people and files, and the choice of timers together with places."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deploy.terminal.tables import TableColumn, table
from deploy.tune.place import Placement, PlaceResult
from deploy.tune.score import SCORE_COLUMNS, finite, spelled
from deploy.tune.trial import RunMeasures

if TYPE_CHECKING:
    from rich.table import Table

_ROWS = (TableColumn("placement"), TableColumn("by formula"), *SCORE_COLUMNS)


def reasons(result: PlaceResult) -> dict[str, str]:
    """Return the reason of each repairer of the best placement, for the file."""
    best, even = result.best, result.even
    beside = "the even spread is best" if best.is_even else f"{_named(even.place)} scores {even.score}"
    why = f"placed by pgm tune: score {best.score} relative to the file; {beside}"
    return dict.fromkeys(best.place, why)


def head(result: PlaceResult, file: Path, losses: str, seed: int) -> list[str]:
    """Return the comment at the head of the file that is written."""
    best = result.best
    return [
        f"{file.name} with repairers where pgm tune placed them: {_named(best.place)}, with {losses}, seed {seed}.",
        f"{result.tried:,} placements were computed by formulas, {result.method}. The best were simulated with {best.score.runs} seeds each.",
        *lines(result),
    ]


def lines(result: PlaceResult) -> list[str]:
    """Return sentences that compare the best placement with the file and with the even spread."""
    best, even = result.best, result.even
    found = [f"the file: {_measured(result.file.outcome)}", f"{_named(best.place)}: {_measured(best.score.outcome)}"]
    if not best.is_even:
        found.append(f"even spread, {_named(even.place)}: {_measured(even.score.outcome)}")
    return found


def places_table(result: PlaceResult, width: int) -> Table:
    """Return a table of the file and all simulated placements, the best first."""
    rows = [["the file", "1.00", *result.file.cells()]]
    for one in result.placements:
        name = _named(one.place) + (" (even spread)" if one.is_even else "")
        name += ", chosen" if one is result.best else ""
        rows.append([name, spelled(one.predicted), *one.score.cells()])
    title = f"{result.best.score.runs} simulations each; less is better in scores"
    return table(title, _ROWS, rows, width)


def places_json(result: PlaceResult) -> dict[str, Any]:
    """Return the result as a value for JSON."""
    return {
        "method": result.method,
        "tried": result.tried,
        "chosen": list(result.best.place),
        "file": result.file.as_json(),
        "placements": [_placement_json(one) for one in result.placements],
    }


def _placement_json(one: Placement) -> dict[str, Any]:
    placement = {"place": list(one.place), "is_even": one.is_even, "predicted_score": finite(one.predicted)}
    return {**placement, **one.score.as_json()}


def _named(place: Sequence[str]) -> str:
    return " and ".join(place)


def _measured(run: RunMeasures) -> str:
    return (
        f"mean wait {run.mean_ms:.1f} ms, 99 % within {run.p99_ms:.0f} ms, {run.traffic:.2f} packets and "
        f"{run.source_naks:.3f} NAKs at the source per missed packet"
    )
