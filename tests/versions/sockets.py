"""Trees of processes of two versions: `python -m tests.versions.sockets --old COMMIT --messages 5000`.

    source ── core ── relay ── floor ── repairer, desk-1 of the older version, desk-2 of this one

Each of source, relay and repairer is of either version in turn. Receivers lose 5 % of the packets of their segment, and the relay
2 %. A row tells the versions, what the receivers got, and how many packets were repaired.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from tests.net.support.places import Place, below_a_relay
from tests.net.support.processes import count, processes
from tests.versions.checkout import BEFORE, unpack, why_not
from tests.versions.cores import ELEMENTS, NEW_DESK, OLD_DESK, all_mixtures

DESKS = {OLD_DESK: True, NEW_DESK: False}  # whether the version is the older one
SIZE = 1400


def topology(place: Place, role: str) -> str:
    """Return a file that both versions read, and that places every node.

    The source stays for the requests of elements whose turn on a busy machine comes late.
    """
    timers, loss = 'ihb_min = "20ms", open_hold_ivl = "200ms"', '{ loss = "5%" }'
    text = below_a_relay(place, role, parameters=timers, rate="80Mbit/s", quiet="5s", loss=loss, has_repairer=True)
    up = f'segment = "core", address = "{place.address(2)}"'
    return text.replace(up, f'{up}, loss = {{ loss = "2%" }}').replace("count = 1", "count = 2")


@attrs.frozen
class Outcome:
    """Elements of the older version, accounts of the receivers, and repairs by each element."""

    older: tuple[str, ...]
    accounts: Mapping[str, dict[str, Any]]
    repairs: Mapping[str, int]

    @property
    def is_whole(self) -> bool:
        """Return whether both receivers have everything once and in order, with equal checksums."""
        bad = ("lost", "duplicates", "out_of_order", "damaged")
        none_bad = all(not account[key] for account in self.accounts.values() for key in bad)
        return none_bad and len({(one["delivered"], one["sha256"]) for one in self.accounts.values()}) == 1


def run(old: Path, older: tuple[str, ...], messages: int, role: str = "aggregator") -> Outcome:
    """Send messages through one tree. `older` names the elements that run the files in `old`."""
    place = Place.new()
    files = {"cwd": old, "env": {"PYTHONPATH": str(old)}}

    def settings(node: str) -> dict[str, Any]:
        return files if node in older or DESKS.get(node) else {}

    work = ("--generate", str(messages), "--size", str(SIZE))
    with processes(topology(place, role), f"t{place.number}") as tree:
        started = [tree.start(node, **settings(node)) for node in ELEMENTS[1:]]
        desks = [tree.start(node, *work, "--until-closed", **settings(node)) for node in DESKS]
        for process in (*started, *desks):
            process.line_with("ready:")
        source = tree.start("source", *work, **settings("source"))
        accounts = {desk.name: desk.account() for desk in desks}
        source.account()
        snapshots = {node: tree.status(node) for node in ELEMENTS[1:]}  # this version asks, both answer
    return Outcome(older, accounts, {node: count(one, "rdata_packets") for node, one in snapshots.items()})


def main() -> int:
    """Run all mixtures. Return 1 if a receiver lacks something."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--old", default=BEFORE, help="commit of the older version; default: the last one of 0.1.0")
    parser.add_argument("--messages", type=int, default=5000)
    parser.add_argument("--relay", choices=("aggregator", "repairer"), default="aggregator")
    words = parser.parse_args()
    if reason := why_not(words.old):
        parser.error(reason)
    failed = 0
    with tempfile.TemporaryDirectory(prefix="pgm-old-") as folder:
        old = unpack(words.old, Path(folder))
        for older in all_mixtures():
            try:
                outcome = run(old, older, words.messages, words.relay)
            except AssertionError as error:
                failed += 1
                print(json.dumps({"older": older, "error": str(error)}), flush=True)
                continue
            failed += not outcome.is_whole
            repaired = {name: account.get("repaired") for name, account in outcome.accounts.items()}
            row = {"older": older, "whole": outcome.is_whole, "repaired": repaired, "repairs": outcome.repairs}
            if not outcome.is_whole:
                row["lost"] = {name: account["lost"] for name, account in outcome.accounts.items()}
                row["events"] = {
                    name: [one["text"] for one in account["events"]] for name, account in outcome.accounts.items()
                }
            print(json.dumps(row), flush=True)
    return int(bool(failed))


if __name__ == "__main__":
    raise SystemExit(main())
