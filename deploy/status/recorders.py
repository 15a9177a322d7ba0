"""Flight recorders of a tree: those of this machine, or those of all hosts by their agents."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import attrs

from pgm.errors import ProcessError, UsageError
from pgm.fleet.nodes import TreeView
from pgm.fleet.runtime_folders import tree_folders
from pgm.flight.contents import RingContents, read_ring, rings_in
from pgm.flight.verdicts.explanation import Explanation
from pgm.flight.verdicts.qlog import worst_as_json
from pgm.flight.verdicts.view import FlightView
from pgm.flight.verdicts.worst import Trouble, explained, worst_troubles
from pgm.wire.formats import tsi_text

if TYPE_CHECKING:
    from pgm.fleet.watch import FleetWatch  # needs an extra

Query = Mapping[str, Sequence[str]]
Tell = Callable[[str], None]  # takes the reason why a recorder is left out
Gather = Callable[[str | None, TreeView, Query], list[RingContents]]


def rings_here(name: str | None, tell: Tell) -> list[RingContents]:
    """Return the flight recorders of a tree on this host, or of all trees. Raises `ProcessError`."""
    found: list[RingContents] = []
    for path in (path for folder in tree_folders(name) for path in rings_in(folder)):
        try:
            found.append(read_ring(path))
        except ProcessError as error:
            tell(error.message)
    if not found:
        raise ProcessError(
            f"no flight recorder of {name or 'any tree'} on this machine",
            remedy="start the nodes as this user, with flight_bytes above 0; or name their user in $PGM_RUNTIME_USER",
        )
    return found


def rings_of_fleet(watch: FleetWatch, view: TreeView, query: Query, tell: Tell) -> list[RingContents]:
    """Return the flight recorders of all hosts of a view, in the excerpt of a query. Raises `ProcessError`."""
    found: list[RingContents] = []
    for host, answer in watch.flight(view, query).items():
        if isinstance(answer, ProcessError):
            tell(f"{host}: {answer.message}")
        else:
            found += answer
    if not found:
        raise ProcessError("no agent gave a flight recorder", remedy="start pgm agent on each host, and the nodes")
    return found


def gather_of(fleet: FleetWatch | None) -> Gather:
    """Return a function that reads the recorders of a tree on this machine, or of a fleet."""
    if fleet is None:
        return lambda name, _, __: rings_here(name, _ignore)
    return lambda _, view, query: rings_of_fleet(fleet, view, query, _ignore)


def _ignore(_: str) -> None:
    """Leave out a recorder without a word: a page shows the nodes that it has."""


def view_of(rings: Iterable[RingContents], stream: str | None) -> FlightView:
    """Return the view of the tree that has a stream. Raises `UsageError` if several trees may be meant."""
    by_tree: dict[str, list[RingContents]] = {}
    for ring in rings:
        by_tree.setdefault(str(ring.facts["topology"]), []).append(ring)
    views = {tree: FlightView.of(own) for tree, own in by_tree.items()}
    having = {tree: view for tree, view in views.items() if stream is None or view.has_stream(stream)}
    if len(having) > 1:
        raise UsageError(
            f"several trees ran here: {', '.join(sorted(having))}",
            remedy="name the tree or its file, as in: pgm explain STREAM SQN TREE, or pgm explain --worst 10 STREAM TREE",
        )
    return next(iter((having or views).values()))


@attrs.frozen
class WorstPackets:
    """Losses and slowest repairs of a tree, each with its explanation."""

    view: FlightView
    troubles: list[Trouble]
    explanations: list[Explanation]

    def row(self) -> dict[str, object]:
        """Return plain values for JSON; docs/reference/flight.md describes them."""
        return worst_as_json(self.troubles, self.explanations)


def worst_of(
    gather: Callable[[Query], list[RingContents]], most: int, stream: str | None, *, is_excerpt: bool
) -> WorstPackets:
    """Return the worst of a tree. If `gather` gives excerpts, the packets that went worst need a second question.

    Raises `ProcessError` without any recorder, and `UsageError` if several trees may be meant.
    """
    view = view_of(gather({"worst": (str(most),)}), stream)
    troubles = worst_troubles(view, most, stream)
    if is_excerpt and troubles:
        view = view_of(gather({"packet": [f"{tsi_text(one.tsi)}:{one.first}" for one in troubles]}), stream)
    return WorstPackets(view, troubles, [explained(view, trouble) for trouble in troubles])
