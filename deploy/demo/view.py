"""Views of `pgm demo`: the live view during the run, and the account at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.progress_bar import ProgressBar
from rich.text import Text

from deploy.terminal.account_tables import TRAFFIC, received_table, traffic_table
from deploy.terminal.tables import Cell, TableColumn, table

Snapshots = Mapping[str, Mapping[str, Any]]

_NOW = (
    TableColumn("node"), TableColumn(""), TableColumn("delivered"), TableColumn("missing now"), TableColumn("repaired"),
    TableColumn("repaired locally", 1), TableColumn("NAKed sqns", 2),
)  # fmt: skip
_BAR = 16  # characters of a receiver's bar
_FRAME = 5  # lines of a table besides its rows: title, headings, rule


def _counter(snapshot: Mapping[str, Any], key: str) -> int:
    return int(snapshot["counters"].get(key, 0))


@attrs.frozen
class LiveView:
    """Live view that fits the terminal: a bar for each receiver, the traffic of each element.

    If the terminal has too few lines for all receivers, each subnet gets one bar.
    """

    snapshots: Snapshots
    octets: int  # of the complete stream
    phase: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(self.phase, style="bold", no_wrap=True, overflow="ellipsis")
        receivers = [node for node in self.snapshots.values() if node["role"] == "receiver"]
        elements = [node for node in self.snapshots.values() if node["role"] != "receiver"]
        room = console.height - 1 - _FRAME * (bool(receivers) + bool(elements))
        rows = [self._row(node["node"], [node]) for node in receivers]
        if len(rows) + len(elements) > room:
            rows = [self._row(f"{name} ({len(group)})", group) for name, group in _by_segment(receivers).items()]
        if rows:
            yield table("receivers", _NOW, _at_most(rows, room - len(elements)), options.max_width)
        if elements:
            traffic = [_traffic(node) for node in elements]
            yield table("source and elements", TRAFFIC, _at_most(traffic, room - len(rows)), options.max_width)

    def _row(self, name: str, group: Sequence[Mapping[str, Any]]) -> list[Cell]:
        def total(key: str) -> int:
            return sum(_counter(node, key) for node in group)

        delivered = total("delivered_packets")
        missing = sum(session["missing_sqns"] for node in group for session in node["sessions"])
        numbers = (delivered, missing, total("repaired_sqns"), total("repaired_locally"), total("nak_sqns"))
        bar = ProgressBar(total=max(1, self.octets * len(group)), completed=total("delivered_octets"), width=_BAR)
        return [name, bar, *(f"{number:,}" for number in numbers)]


def _by_segment(receivers: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for receiver in receivers:
        groups.setdefault(receiver["segments"][0]["segment"], []).append(receiver)
    return groups


def _at_most(rows: list[list[Cell]], most: int) -> list[list[Cell]]:
    """Return at most `most` rows; the last row then gives the number of rows left out."""
    most = max(2, most)
    if len(rows) <= most:
        return rows
    rest = len(rows) - most + 1
    return [*rows[: most - 1], [f"{rest} more", *[""] * (len(rows[0]) - 1)]]


def _traffic(snapshot: Mapping[str, Any]) -> list[Cell]:
    keys = ("odata_packets", "nak_sqns_in", "nak_sqns", "ncf_packets", "rdata_packets", "rdata_forwarded")
    return [snapshot["node"], *(f"{_counter(snapshot, key):,}" for key in keys)]


def account_view(account: Mapping[str, Any], width: int) -> RenderableType:
    """Return the account as tables and text, at most `width` characters wide."""
    totals = account["totals"]
    source, asked = account["source"]["nak_sqns"], totals["nak_sqns"]
    ratio = f"(1 to {asked / source:,.0f})" if source else "(none at the source)"
    lines = [
        f"{account['messages']:,} messages to {len(account['receivers'])} receivers in {account['seconds']} s:",
        f"{totals['delivered']:,} delivered, {totals['lost']:,} lost, {totals['duplicates']} twice, "
        f"{totals['out_of_order']} out of order",
        *(_loss_line(name, account["loss"][key]) for name, key in (("last-hop", "last_hop"), ("uplink", "uplink"))),
        f"dropped by the kernel in full socket buffers: {account['loss']['kernel']['lost']:,}",
        f"repairs from the same subnet: {totals['local_share']:.2%} of {totals['repaired']:,}"
        if totals["repaired"]
        else "no packet needed a repair",
        f"sqns NAKed at the source: {source:,}, by receivers: {asked:,} {ratio}",
    ]
    if changed := account["settings_changed"]:
        lines.append(f"settings changed during the run: {changed}; the losses may differ from the options")
    for row in account.get("recorders", ()):
        lines.append(f"{row['messages']:,} messages of {row['segment']} recorded in {row['directory']}")
    verdict = Text("every receiver got every message once and in order", style="bold green")
    if account["problems"]:
        verdict = Text("\n".join(["problems:", *account["problems"]]), style="bold red")
    blank = Text("")
    elements = (account["source"], *account["aggregators"], *account["repairers"])
    return Group(
        received_table(account["receivers"], width),
        blank,
        traffic_table("source and elements", elements, width),
        blank,
        Text("\n".join(lines)),
        verdict,
    )


def _loss_line(name: str, loss: Mapping[str, Any]) -> str:
    line = f"{name} loss: asked {loss['asked']:.2%}, measured {loss['measured']:.2%} of {loss['seen']:,} packets"
    return f"{line}, tolerance {loss['tolerance']:.0%}" if loss["asked"] else line
