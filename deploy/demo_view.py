"""What `pgm demo` shows: the live picture while it runs, and the account at its end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

Snapshots = Mapping[str, Mapping[str, Any]]


def _counter(snapshot: Mapping[str, Any], key: str) -> int:
    return int(snapshot["counters"].get(key, 0))


def live_view(snapshots: Snapshots, messages: int, phase: str) -> RenderableType:
    """Receivers with a bar each, elements with their traffic."""
    receivers = Table(title="receivers", title_justify="left", expand=False)
    for heading in ("node", "", "delivered", "missing now", "repaired", "of that locally", "NAKed sqns"):
        receivers.add_column(heading, justify="left" if heading in ("node", "") else "right")
    elements = Table(title="source and elements", title_justify="left", expand=False)
    for heading in ("node", "ODATA out", "NAKed sqns in", "NAKed sqns out", "NCFs", "RDATA out", "RDATA passed on"):
        elements.add_column(heading, justify="left" if heading == "node" else "right", no_wrap=heading == "node")
    for name, snapshot in snapshots.items():
        if snapshot["role"] == "receiver":
            delivered = _counter(snapshot, "delivered_packets")
            missing = sum(row["missing_sqns"] for row in snapshot["sessions"])
            receivers.add_row(
                name,
                ProgressBar(total=max(1, messages), completed=delivered, width=24),
                f"{delivered:,}",
                f"{missing:,}",
                f"{_counter(snapshot, 'repaired_sqns'):,}",
                f"{_counter(snapshot, 'repaired_locally'):,}",
                f"{_counter(snapshot, 'nak_sqns'):,}",
            )
        else:
            keys = ("odata_packets", "nak_sqns_in", "nak_sqns", "ncf_packets", "rdata_packets", "rdata_forwarded")
            elements.add_row(name, *(f"{_counter(snapshot, key):,}" for key in keys))
    return Group(Text(phase, style="bold"), receivers, elements)


def account_view(account: Mapping[str, Any]) -> RenderableType:
    """The account, for people."""
    totals, loss = account["totals"], account["loss"]
    lines = [
        f"{account['messages']:,} messages to {len(account['receivers'])} receivers in {account['seconds']} s: "
        f"{totals['delivered']:,} delivered, {totals['lost']:,} lost, {totals['duplicates']} twice, {totals['out_of_order']} out of order",
        *(
            f"{name} loss: asked {loss[key]['asked']:.2%}, measured {loss[key]['measured']:.2%} of {loss[key]['seen']:,} packets"
            for name, key in (("last-hop", "last_hop"), ("uplink", "uplink"))
        ),
        f"dropped by the kernel for want of buffer: {loss['kernel']['lost']:,}",
        f"repairs from the own subnet: {totals['local_share']:.2%} of {totals['repaired']:,}",
        f"sqns NAKed at the source: {account['source']['nak_sqns']:,}, by receivers: {totals['nak_sqns']:,} "
        f"(1 to {1 / totals['source_nak_share']:.0f})"
        if totals["source_nak_share"]
        else f"sqns NAKed at the source: none, by receivers: {totals['nak_sqns']:,}",
    ]
    verdict = Text("everything arrived everywhere, in order, once", style="bold green")
    if account["problems"]:
        verdict = Text("\n".join(["not as it should be:", *account["problems"]]), style="bold red")
    return Group(_receivers_table(account), _elements_table(account), Text("\n".join(lines)), verdict)


def _receivers_table(account: Mapping[str, Any]) -> Table:
    table = Table(title="receivers", title_justify="left")
    headings = (
        "node",
        "delivered",
        "repaired locally",
        "repaired from above",
        "late",
        "lost",
        "NAKed sqns",
        "checksum",
    )
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "node" else "right", no_wrap=heading == "node")
    for row in account["receivers"]:
        table.add_row(
            row["node"],
            f"{row['delivered']:,}",
            f"{row['repaired_locally']:,}",
            f"{row['repaired'] - row['repaired_locally']:,}",
            f"{row['late']:,}",
            f"{row['lost']:,}",
            f"{row['nak_sqns']:,}",
            "equal" if row["sha256_ok"] else "DIFFERS",
        )
    return table


def _elements_table(account: Mapping[str, Any]) -> Table:
    table = Table(title="source and elements", title_justify="left")
    headings = (
        "node",
        "ODATA out",
        "NAKed sqns in",
        "NAKed sqns out",
        "NCFs",
        "RDATA out",
        "RDATA passed on",
        "memory",
        "CPU",
    )
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "node" else "right", no_wrap=heading == "node")
    for row in (account["source"], *account["aggregators"], *account["repairers"]):
        table.add_row(
            row["node"],
            *(f"{row[key]:,}" for key in ("odata", "nak_sqns_in", "nak_sqns_out", "ncfs", "rdata", "rdata_forwarded")),
            f"{row['rss_bytes'] / 1e6:.0f} MB",
            f"{row['cpu_s']:.1f} s",
        )
    return table
