"""Predictions of `pgm plan` for people, and their input from a file or from telemetry."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from deploy.report.command import steps, summarised
from deploy.report.measured import measured_of
from deploy.simulation.command import last_hop_losses, parse_counts
from deploy.terminal.tables import TableColumn, table
from pgm.errors import UsageError
from pgm.impairments import Impairment
from pgm.prediction.delays import delays_of
from pgm.prediction.predict import Conditions, Offer
from pgm.topology.model import NodeTable, Topology
from pgm.topology.node_plan import Role
from pgm.topology.plan import require_patterns
from pgm.units import parse_fraction

if TYPE_CHECKING:
    from rich.table import Table

_LINKS = (
    TableColumn("link"), TableColumn("sender", 3), TableColumn("nodes", 4), TableColumn("missed above", 5),
    TableColumn("sends"), TableColumn("of the sender", 6), TableColumn("NAKs"), TableColumn("mean wait", 2),
    TableColumn("median", 1), TableColumn("99 % within"),
)  # fmt: skip
_NODES = (
    TableColumn("node"), TableColumn("role", 5), TableColumn("nodes", 4), TableColumn("repairs/s"),
    TableColumn("NAKs in/s", 1), TableColumn("NAKs out/s", 2), TableColumn("of repair share", 3),
    TableColumn("median", 6), TableColumn("99 % within", 6),
)  # fmt: skip
_MACHINE = (TableColumn("processor", 1), TableColumn("memory", 1))


def with_given_losses(topology: Topology, offer: Mapping[str, Any]) -> Topology:
    """Return the tree with the losses that the options name, as `pgm sim` injects them. Raises `UnitError`."""
    last_hop = last_hop_losses(offer["loss"], offer["burst_loss"])
    uplink = None if offer["uplink_loss"] is None else Impairment(loss=parse_fraction(offer["uplink_loss"]))
    nodes = {name: _with_loss(node, last_hop, uplink) for name, node in topology.nodes.items()}
    return attrs.evolve(topology, nodes=nodes)


def _with_loss(node: NodeTable, last_hop: Impairment | None, uplink: Impairment | None) -> NodeTable:
    loss = {Role.SOURCE: None, Role.RECEIVER: last_hop}.get(node.role, uplink)
    if loss is None:
        return node
    lines = tuple(attrs.evolve(line, loss=loss) for line in node.lines)
    if node.upstream is not None:  # a relay: the losses of its segments below stay as they are
        return attrs.evolve(node, upstream=attrs.evolve(node.upstream, loss=loss), lines=lines)
    return attrs.evolve(node, loss=loss, lines=lines)


def conditions_of(topology: Topology, telemetry: Path | None, offer: Mapping[str, Any]) -> Conditions:
    """Return the conditions that the options and telemetry name.

    Raises `UsageError` if nothing is lost, and `TopologyError` for the count of a pattern that is not in the file.
    """
    counts = parse_counts(offer["counts"])
    require_patterns(topology, counts)
    losses: dict[tuple[str, str], Impairment] = {}
    trips: dict[str, int] = {}
    if telemetry is not None:
        with steps(is_quiet=True) as say:
            summary = summarised(telemetry, "", say)
        losses, trips = measured_of(summary)
    elif not _loses(topology):
        raise UsageError(
            "the file injects no losses, so there is nothing to predict",
            remedy="give --loss, or --telemetry of the real tree, or loss = {...} in the file",
        )
    return Conditions(
        delays=delays_of(topology, trips, offer["delays"]),
        losses=losses,
        counts=counts,
        offer=Offer(rate=offer["rate"], size=offer["size"]),
    )


def _loses(topology: Topology) -> bool:
    of_nodes = [place.loss or node.loss for node in topology.nodes.values() for place in node.places]
    losses = [*of_nodes, *(segment.loss for segment in topology.segments.values())]
    return any(loss is not None and not loss.is_lossless for loss in losses)


def prediction_lines(prediction: dict[str, Any], width: int) -> Iterator[Table | str]:
    """Yield the tables and notes of a prediction, for a terminal."""
    for feed in prediction["feeds"]:
        per_s = feed["packets_per_s"]
        title = f"{feed['source']}, stream {feed['stream']}: {per_s:,.0f} packets a second of {feed['octets']:,} octets"
        yield f"{title}\n"
        yield table("links, per packet", _LINKS, [_link_cells(row) for row in feed["links"]], width)
        yield ""
        has_machine = any("cpu" in row for row in feed["nodes"])
        columns = (*_NODES, *(_MACHINE if has_machine else ()))
        yield table("one node of each entry", columns, [_node_cells(row, per_s) for row in feed["nodes"]], width)
        yield ""
        for name in feed["overloaded"]:
            yield (
                f"{name}: the repairs need nearly all of rdata_share, or more, so they queue, and latencies grow beyond "
                "those above. Raise rdata_share or the rate, or lower the offered rate."
            )


def _link_cells(row: dict[str, Any]) -> list[str]:
    return [
        row["link"],
        row["sender"],
        f"{row['nodes']:,}",
        f"{100 * row['missing_at_sender']:.2g} %",
        f"{row['sends']:.3f}",
        f"{row['sends_of_sender']:.3f}",
        f"{row['naks']:.3g}",
        *_waits(row, "mean_ms", "p50_ms", "p99_ms"),
    ]


def _node_cells(row: dict[str, Any], per_s: float) -> list[str]:
    own = [
        row["node"],
        row["role"],
        f"{row['count']:,}",
        *(f"{row[key] * per_s:,.1f}" for key in ("repairs", "naks_in", "naks_out")),
        f"{100 * row['repair_load']:.0f} %",
        *_waits(row, "p50_ms", "p99_ms"),
    ]
    if "cpu" in row:
        own += [f"{100 * row['cpu']:.1f} %", f"{row['memory_bytes'] / 1e6:,.0f} MB"]
    return own


def _waits(row: dict[str, Any], *keys: str) -> list[str]:
    return ["-" if row[key] is None else f"{row[key]:.1f} ms" for key in keys]
