"""Small tree that passes every rule, and functions that change it."""

from __future__ import annotations

from pgm.topology.check import CheckReport, check_reading
from pgm.topology.load import loads
from pgm.topology.model import Topology
from pgm.topology.reading import read_text

FILE = "tree.toml"

GOOD = """\
version = 1
name = "good"

[streams.quotes]
data_port = 7500
rate = "400Mbit/s"
window = "10s"

[segments.core]
group = "239.192.0.1"
interface = "10.0.0.0/24"
[segments.floor]
group = "239.192.0.2"
interface = "10.0.1.0/24"

[nodes.exchange]
role = "source"
segment = "core"
address = "10.0.0.10"
streams = ["quotes"]
[nodes.core-repairer]
role = "repairer"
segment = "core"
address = "10.0.0.11"
parents = ["exchange"]
cache = { bytes = "4GiB", seconds = 60 }
[nodes.relay]
role = "aggregator"
upstream = { segment = "core", address = "10.0.0.12" }
downstream = [{ segment = "floor", address = "10.0.1.1" }]
repairers = ["floor-repairer"]
parents = ["core-repairer", "exchange"]
[nodes.standby]
role = "aggregator"
standby_of = "relay"
upstream = { segment = "core", address = "10.0.0.13" }
downstream = [{ segment = "floor", address = "10.0.1.3" }]
parents = ["core-repairer", "exchange"]
[nodes.floor-repairer]
role = "repairer"
segment = "floor"
address = "10.0.1.2"
parents = ["relay", "standby"]
[nodes."desk-*"]
role = "receiver"
segment = "floor"
count = 4
addresses = "10.0.1.10-10.0.1.19"
streams = ["quotes"]
parents = ["relay", "standby", "floor-repairer"]
"""


def changed(*changes: tuple[str, str], text: str = GOOD) -> str:
    """Return the text with the first occurrence of each string replaced; each string must occur."""
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new, 1)
    return text


def topology(*changes: tuple[str, str], text: str = GOOD) -> Topology:
    return loads(changed(*changes, text=text), FILE)


def report(text: str) -> CheckReport:
    return check_reading(read_text(text, FILE))


def line_of(text: str, mark: str) -> int:
    """Return the line of a mark, which must occur once."""
    lines = [number for number, line in enumerate(text.splitlines(), 1) if mark in line]
    assert len(lines) == 1, (mark, lines)
    return lines[0]
