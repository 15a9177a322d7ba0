"""Tree over three hosts, with any kind of segments.

    source ── core ── relay ── floor ── repairer and two receivers

    host "source" ───── core ───── host "relay" ───── floor ───── host "floor"

The receivers lose packets on purpose. Some packets are lost on the way to the relay, too. All receivers must end with
all messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import attrs

from deploy.node.sample_messages import digest
from tests.net.support.lab import Host, Lab, lab
from tests.net.support.processes import Process, Processes

MESSAGES = 1000
DESKS = ("desk-1", "desk-2")
HOME = {"source": "source", "relay": "relay", "repairer": "floor", "desk-1": "floor", "desk-2": "floor"}
# Losses are noticed soon, and the source stays for elements whose turn on a busy machine comes late.
_SETTINGS = 'ihb_min = "20ms", fin_quiet_ivl = "1500ms"'
_LAST_BITS = {4: 24, 6: 64}


@attrs.frozen
class Segment:
    """Kind of one segment. `keys` go unchanged into its table of the topology."""

    version: int = 4
    net: int = 0
    keys: str = ""
    link_local: bool = False

    def address(self, host: int) -> str:
        """Return the address of one node."""
        if self.version == 4:
            return f"10.8.{self.net}.{host}"
        return f"fe80::8:{self.net}:{host}" if self.link_local else f"fd00:8:{self.net}::{host}"

    def with_length(self, host: int) -> str:
        """Return the address with the length of its network, as interfaces have it."""
        return f"{self.address(host)}/{_LAST_BITS[self.version]}"


@attrs.frozen
class Carried:
    """Tree with its two segments."""

    core: Segment
    floor: Segment
    relay: str = "aggregator"
    size: int = 1400
    parameters: str = ""

    @property
    def topology(self) -> str:
        """Return the topology file."""
        core, floor = self.core, self.floor
        settings = ", ".join(filter(None, (_SETTINGS, self.parameters)))
        repairers = 'repairers = ["repairer"]\n' if self.relay == "aggregator" else ""
        return f"""
version = 1
name = "carried"
parameters = {{ {settings} }}
[streams.s]
data_port = 7500
rate = "40Mbit/s"
[segments.core]
{core.keys}
[segments.floor]
{floor.keys}
[nodes.source]
role = "source"
segment = "core"
address = "{core.address(1)}"
streams = ["s"]
[nodes.relay]
role = "{self.relay}"
upstream = {{ segment = "core", address = "{core.address(2)}", loss = {{ loss = "2%" }} }}
downstream = [{{ segment = "floor", address = "{floor.address(1)}" }}]
parents = ["source"]
{repairers}
[nodes.repairer]
role = "repairer"
segment = "floor"
address = "{floor.address(2)}"
parents = ["relay"]
[nodes."desk-*"]
role = "receiver"
segment = "floor"
count = 2
addresses = "{floor.address(11)}-{floor.address(12)}"
parents = ["relay", "repairer"]
loss = {{ loss = "5%" }}
"""


@contextmanager
def hosts(case: Carried) -> Iterator[tuple[Mapping[str, Host], Lab]]:
    """Make and join the three hosts. An interface is named v and the host at its other end."""
    with lab() as made:
        found = {name: made.host(name) for name in ("source", "relay", "floor")}
        core, floor = case.core, case.floor
        made.join(found["source"], core.with_length(1), found["relay"], core.with_length(2))
        made.join(found["relay"], floor.with_length(1), found["floor"], floor.with_length(2))
        for host in (11, 12):
            found["floor"].add_address("vrelay", floor.with_length(host))
        yield found, made


def run(tree: Processes, case: Carried, found: Mapping[str, Host], home: Mapping[str, str] = HOME) -> dict[str, Any]:
    """Send everything through the tree. Return the receivers' accounts and the elements' last snapshots.

    Fails unless every receiver has everything, once and in order.
    """
    work = ("--generate", str(MESSAGES), "--size", str(case.size))
    elements = [name for name in home if name not in ("source", *DESKS) and not name.startswith("desk")]
    desks = [name for name in home if name.startswith("desk")]
    started = [tree.start(name, host=found[home[name]]) for name in elements]
    receivers = [tree.start(name, *work, "--until-closed", host=found[home[name]]) for name in desks]
    for process in (*started, *receivers):
        process.line_with("ready:")
    source = tree.start("source", *work, host=found[home["source"]])
    accounts: dict[str, Any] = {one.name: _whole(one, case.size) for one in receivers}
    accounts["source"] = source.account()
    for name in elements:
        accounts[name] = tree.status(name)
    return accounts


def _whole(receiver: Process, size: int) -> dict[str, Any]:
    account = receiver.account()
    got = {key: account[key] for key in ("delivered", "lost", "duplicates", "out_of_order", "damaged")}
    assert got == {"delivered": MESSAGES, "lost": 0, "duplicates": 0, "out_of_order": 0, "damaged": 0}, receiver.log
    assert account["sha256"] == digest(MESSAGES, size, 1)
    return account
