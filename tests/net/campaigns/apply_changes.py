"""Twelve changes of the topology file, one after the other, while a stream flows with losses.

python -m tests.net.campaigns.apply_changes --rate 100Mbit/s --loss 1% --pause 2

`pgm up` runs the tree, and `pgm apply` changes it: repairers and receivers come and go, parents, rates, budgets and timers
change, and windows and caches grow. Every receiver that was there from the beginning must deliver each message once, in
order, with its content, and lose none. The source still sends what it has accepted while it leaves, so that the
receiver may deliver more than the source has counted.
"""

from __future__ import annotations

import argparse
import json
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs

from deploy.node.run import FAULTS
from pgm.units import format_rate, parse_rate
from tests.net.support.places import LOSSY, Place
from tests.net.support.processes import Process, Processes, count

_TOPOLOGY = """\
version = 1
name = "t{number}"
rtt = "1ms"
repair_budget = "20s"
parameters = {{ {parameters} }}

[streams.s]
data_port = 7500
rate = "{rate}"
window = "10s"

{segment}
loss = {{ loss = "{loss}" }}

[nodes.source]
role = "source"
segment = "lan"
address = "{net}.1"
streams = ["s"]

[nodes.first]
role = "repairer"
segment = "lan"
address = "{net}.2"
parents = ["source"]
cache = {{ bytes = "256MiB", seconds = 20 }}

[nodes.desk-1]
role = "receiver"
segment = "lan"
address = "{net}.101"
parents = ["first", "source"]
"""
_SECOND = """
[nodes.second]
role = "repairer"
segment = "lan"
address = "{net}.3"
parents = ["source"]
cache = {{ bytes = "256MiB", seconds = 20 }}
"""
_GUEST = """
[nodes.desk-2]
role = "receiver"
segment = "lan"
address = "{net}.102"
parents = ["second", "source"]
"""
_ASKED = 'parents = ["first", "source"]'


def file_of(place: Place, rate: str, loss: str) -> str:
    """Return the first file of a tree on one segment."""
    return _TOPOLOGY.format(
        number=place.number,
        parameters=LOSSY,
        rate=rate,
        segment=place.segment("lan"),
        net=place.net,
        loss=loss,
    )


def changes(place: Place, text: str, rate: str, *, has_guest: bool = True) -> Iterator[tuple[str, str]]:
    """Yield the name of each of twelve changes, and the file after it. A guest is a receiver that comes and goes."""
    slower = format_rate(parse_rate(rate) * 3 // 4)
    second, guest = _SECOND.format(net=place.net), _GUEST.format(net=place.net)
    notices = " }\n\n[streams.s]", ', notice_ivl = "20s" }\n\n[streams.s]'
    edits: list[tuple[str, Callable[[str], str]]] = [
        ("a second repairer", lambda old: old + second),
        ("other parents", lambda old: old.replace(_ASKED, 'parents = ["second", "first", "source"]')),
        ("a guest", lambda old: old + guest) if has_guest else ("more notices", lambda old: old.replace(*notices)),
        ("a lower rate", lambda old: old.replace(f'rate = "{rate}"', f'rate = "{slower}"')),
        ("other timers", lambda old: old.replace('rtt = "1ms"', 'rtt = "2ms"')),
        ("other budgets", lambda old: old.replace("parameters = { ", 'parameters = { rdata_share = "40%", child_nak_rte = 2000, ')),
        ("a longer window", lambda old: old.replace('window = "10s"', 'window = "15s"')),
        ("a larger cache", lambda old: old.replace("seconds = 20", "seconds = 30")),
        ("the first rate", lambda old: old.replace(f'rate = "{slower}"', f'rate = "{rate}"')),
        ("no first repairer", lambda old: without_first(old).replace('"second", "first", ', '"second", ')),
        ("no guest", lambda old: old.replace(guest, "")) if has_guest else ("fewer notices", lambda old: old.replace(*notices[::-1])),
        ("another repair budget", lambda old: old.replace('repair_budget = "20s"', 'repair_budget = "15s"')),
    ]  # fmt: skip
    for name, edit in edits:
        new = edit(text)
        assert new != text, name
        yield name, new
        text = new


def without_first(text: str) -> str:
    """Return a file without the first repairer."""
    return text[: text.index("[nodes.first]")] + text[text.index("[nodes.desk-1]") :]


@attrs.frozen
class Applied:
    """Outcome of a campaign. `sent` is the count of packets when the source was told to leave."""

    changes: int
    sent: int
    desk: dict[str, Any]
    seconds: float
    cpu_s: float  # of all processes, their starts included


def run_changes(
    apply: Callable[[Path], None], *, rate: str, loss: str, pause_packets: int, has_guest: bool = True
) -> Applied:
    """Run the tree and apply all changes. Between two changes the desk delivers `pause_packets` more."""
    place = Place.new()
    text = file_of(place, rate, loss)
    began_s, done = time.monotonic(), 0
    with tempfile.TemporaryDirectory(prefix="pgm") as name:
        tree = Processes(Path(name), text, f"t{place.number}")
        arguments = ["up", str(tree.file), "--generate", str(1 << 40), "--json"]
        up = Process("up", arguments, env={"PGM_RUNTIME_DIR": name})
        tree.running["desk-1"] = up
        try:
            up.line_with("nodes run; Ctrl-C")
            for told, new in changes(place, text, rate, has_guest=has_guest):
                before = count(tree.status("desk-1"), "delivered_packets")
                tree.until("desk-1", lambda one, least=before: count(one, "delivered_packets") >= least + pause_packets)
                path = tree.folder / "new.toml"
                path.write_text(new)
                at_s = time.monotonic()
                apply(path)
                done += 1
                print(f"{done}. {told}: {time.monotonic() - at_s:.2f} s")
            up.process.send_signal(signal.SIGTERM)
            accounts = up.account()
        finally:
            up.close()
    rows = {row["node"]: row for row in accounts["nodes"]}
    sent = rows["source"]["counters"]["odata_packets"]
    cpu_s = sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
    assert not accounts["failed"], accounts["failed"]
    return Applied(done, sent, rows["desk-1"], time.monotonic() - began_s, cpu_s)


def _apply_by_command(file: Path) -> None:
    process = Process("apply", ["apply", str(file), "--json"], env={"PGM_RUNTIME_DIR": str(file.parent)})
    assert process.wait() == 0, f"{process.log}\n{process.printed}"


def main() -> int:
    """Run the campaign, and return 0 if nothing was lost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", default="100Mbit/s")
    parser.add_argument("--loss", default="1%")
    parser.add_argument("--pause", type=float, default=2.0, help="seconds of the stream between two changes")
    wanted = parser.parse_args()
    pause_packets = int(parse_rate(wanted.rate) * wanted.pause / 1400)
    found = run_changes(_apply_by_command, rate=wanted.rate, loss=wanted.loss, pause_packets=pause_packets)
    keys = ("delivered", *FAULTS, "repaired", "nak_sqns")
    print(json.dumps({**attrs.asdict(found), "desk": {key: found.desk[key] for key in keys}}))
    is_good = found.desk["delivered"] >= found.sent and not any(found.desk[key] for key in FAULTS)
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
