"""Account of a demo: deliveries, repairs and losses of each node, and the problems in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from deploy.demo.tree import DemoTree
from pgm.impairments import Impairment
from pgm.sim.parts.account import ELEMENT_COUNTERS

_TOLERANCE = 0.2  # allowed difference of the measured loss from the configured loss, as a share of the latter
# Or this many standard deviations, if chance alone makes more than a fifth: few packets, long bursts.
_DEVIATIONS = 3

Snapshots = Mapping[str, Mapping[str, Any]]


def build_account(
    tree: DemoTree,
    messages: int,
    seconds: float,
    results: Mapping[str, Mapping[str, Any]],
    snapshots: Snapshots,
    recorded: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Build the object that `pgm demo --json` prints at its end.

    `results` are the accounts of the receivers, `recorded` those of the recorders, and `snapshots` the last snapshot of every
    node. `seconds` is the duration of the transfer.
    """
    by_role: dict[str, list[dict[str, Any]]] = {"source": [], "aggregator": [], "repairer": []}
    for name, snapshot in snapshots.items():
        if snapshot["role"] in by_role:
            by_role[snapshot["role"]].append(_element_row(name, snapshot))
    receivers = [_receiver_row(row) for row in results.values()]
    account: dict[str, Any] = {
        "messages": messages,
        "seconds": round(seconds, 2),
        "source": by_role["source"][0],
        "aggregators": by_role["aggregator"],
        "repairers": by_role["repairer"],
        "receivers": receivers,
        "loss": _losses(tree, snapshots),
        "settings_changed": sum(int(node["counters"].get("settings_changed", 0)) for node in snapshots.values()),
    }
    if recorded:
        keys = ("node", "segment", "directory", "messages", "lost", "octets")
        account["recorders"] = [{key: row[key] for key in keys} for row in sorted(recorded, key=_node)]
    account["totals"] = _totals(account)
    account["problems"] = find_problems(account)
    account["ok"] = not account["problems"]
    return account


def _node(row: Mapping[str, Any]) -> str:
    return str(row["node"])


def _receiver_row(result: Mapping[str, Any]) -> dict[str, Any]:
    keys = (
        "node", "segment", "delivered", "lost", "duplicates", "out_of_order", "damaged",
        "nak_sqns", "repaired", "repaired_locally", "late", "sha256_ok",
    )  # fmt: skip
    return {key: result[key] for key in keys}


_ELEMENT_COUNTERS = {**ELEMENT_COUNTERS, "socket_drops": "socket_drops"}


def _element_row(name: str, snapshot: Mapping[str, Any]) -> dict[str, Any]:
    counts = {key: int(snapshot["counters"].get(counter, 0)) for key, counter in _ELEMENT_COUNTERS.items()}
    return {"node": name, **counts, "rss_bytes": snapshot["rss_bytes"], "cpu_s": snapshot["cpu_s"]}


def _losses(tree: DemoTree, snapshots: Snapshots) -> dict[str, dict[str, float]]:
    """Return the injected losses, counted by receivers for the last hops and by elements for the uplinks."""
    seen = {"last_hop": 0, "uplink": 0}
    lost = {"last_hop": 0, "uplink": 0}
    drops = 0
    for snapshot in snapshots.values():
        drops += int(snapshot["counters"].get("socket_drops", 0))
        for segment in snapshot["segments"]:
            injected = segment.get("injected")
            if injected is None:
                continue
            is_uplink = snapshot["role"] != "receiver" and abs(injected["asked"] - tree.uplink_loss) < 1e-9
            kind = "uplink" if is_uplink else "last_hop"
            seen[kind] += injected["seen"]
            lost[kind] += injected["lost"]
    injected_losses = {kind: _loss(impairment, seen[kind], lost[kind]) for kind, impairment in tree.losses.items()}
    return injected_losses | {"kernel": _loss(Impairment(), 0, drops)}


def _loss(impairment: Impairment, seen: int, lost: int) -> dict[str, float]:
    """Return the configured loss, the measured loss, and the tolerance as a share of the configured loss."""
    tolerance = _TOLERANCE
    if seen and impairment.asked:
        tolerance = max(tolerance, _DEVIATIONS * impairment.deviation(seen) / impairment.asked)
    return {
        "asked": impairment.asked,
        "measured": lost / max(1, seen),
        "tolerance": tolerance,
        "seen": seen,
        "lost": lost,
    }


def _totals(account: Mapping[str, Any]) -> dict[str, Any]:
    receivers = account["receivers"]
    keys = "delivered", "lost", "duplicates", "out_of_order", "nak_sqns", "repaired", "repaired_locally", "late"
    total = {key: sum(row[key] for row in receivers) for key in keys}
    source = account["source"]
    total["source_nak_share"] = source["nak_sqns"] / max(1, total["nak_sqns"])
    total["local_share"] = total["repaired_locally"] / max(1, total["repaired"])
    return total


def find_problems(account: Mapping[str, Any]) -> list[str]:
    """Return a sentence for every problem in an account; none after a correct run."""
    problems = []
    for row in account["receivers"]:
        wrong = [f"{key} {row[key]}" for key in ("lost", "duplicates", "out_of_order", "damaged") if row[key]]
        if row["delivered"] != account["messages"]:
            wrong.insert(0, f"delivered {row['delivered']} of {account['messages']}")
        if not row["sha256_ok"]:
            wrong.append("checksum differs")
        if wrong:
            problems.append(f"{row['node']}: {', '.join(wrong)}")
    for row in account.get("recorders", ()):
        if row["messages"] != account["messages"] or row["lost"]:
            problems.append(
                f"{row['node']}: recorded {row['messages']} of {account['messages']}, lost {row['lost'] or 0}"
            )
    # `pgm ctl` may have changed the losses, so that the options of the demo are no measure for them.
    for kind in () if account["settings_changed"] else ("last_hop", "uplink"):
        loss = account["loss"][kind]
        if abs(loss["measured"] - loss["asked"]) > loss["tolerance"] * loss["asked"]:
            problems.append(
                f"{kind.replace('_', '-')} loss: asked {loss['asked']:.3%}, measured {loss['measured']:.3%} of "
                f"{loss['seen']:,} packets; the difference is more than {loss['tolerance']:.0%}"
            )
    return problems
