"""Addresses of one test on the loopback interface, and small trees on them.

Every test gets a network, groups and a port of its own, so that tests of several processes run side by side. A test
with addresses written by hand, or with text of others, replaces them by those of a `Place`.
"""

from __future__ import annotations

import fcntl
import functools
import os
import tempfile
from pathlib import Path
from typing import BinaryIO

import attrs

from deploy.node.ports import OF_TESTS

# Numbers in use at the same time differ by their ports. Nodes with no address but 127.0.0.1, or with a port bound at
# all addresses, therefore do not meet.
_NUMBERS = 40 * OF_TESTS.count


@functools.cache
def _claims() -> BinaryIO:
    """Open a file with an octet for each port. A process locks the octets in use; any end of the process frees them."""
    return (Path(tempfile.gettempdir()) / f"pgm-test-places-{os.getuid()}").open("ab")


def _is_claimed(port: int) -> bool:
    """Claim a port number for this process. Return True if it is free or already claimed by this process."""
    try:
        fcntl.lockf(_claims(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    return True


class _Next:
    """Next number that this process tries. Processes that start together begin at different numbers."""

    number = os.getpid() * 61


@attrs.frozen
class Place:
    """Network 127.x.y.0/24 with its groups and its port."""

    number: int

    @classmethod
    def new(cls) -> Place:
        """Return a place that no other test uses at the same time."""
        for _ in range(OF_TESTS.count):
            number, _Next.number = _Next.number % _NUMBERS, _Next.number + 1
            if _is_claimed(number % OF_TESTS.count):
                return cls(number)
        raise AssertionError("other runs of the tests have every port")

    @property
    def net(self) -> str:
        """Return the first three numbers of every address."""
        return f"127.{20 + self.number % 200}.{self.number // 200 % 250}"

    @property
    def port(self) -> int:
        """Return the UDP port of groups and addresses."""
        return OF_TESTS.of(self.number)

    def address(self, host: int) -> str:
        """Return one node's address."""
        return f"{self.net}.{host}"

    def group(self, segment: int = 0) -> str:
        """Return one segment's group."""
        return f"239.{192 + segment}.{self.number % 250}.{self.number // 250 % 250}"

    def segment(self, name: str, number: int = 0) -> str:
        """Return the table of a multicast segment in a topology file."""
        keys = f'group = "{self.group(number)}"\nport = {self.port}\ninterface = "{self.net}.0/24"'
        return f"[segments.{name}]\n{keys}"

    def url(self, **query: object) -> str:
        """Return the address of segment 0 for `open_source` and `open_receiver`."""
        pairs = {"interface": "lo", "data_port": 7500, **query}
        return f"pgm://{self.group()}:{self.port}?" + "&".join(f"{key}={value}" for key, value in pairs.items())


# Timers of tests that end their streams: the source leaves soon, and losses are noticed soon.
BRISK = 'fin_quiet_ivl = "300ms", ihb_min = "20ms", open_hold_ivl = "200ms", spmr_bo_ivl = "50ms", end_confirm_ivl = "100ms"'
# With losses, one repair and two NAKs lost in turn take that long: the source stays for several more.
LOSSY = BRISK.replace('"300ms"', '"1s"')


def one_segment(
    place: Place,
    *,
    loss: str = "",
    parameters: str = "",
    rate: str = "400Mbit/s",
    window: str = "10s",
    sources: int = 1,
) -> str:
    """Return a topology file with one segment.

    Sources `source` (`source-2`, ...) are at .1 (.2, ...), receivers `desk-1` to `desk-50` from .100 on.
    """
    settings = ", ".join(filter(None, (LOSSY if loss else BRISK, parameters)))
    lines = [
        f'version = 1\nname = "t{place.number}"\nparameters = {{ {settings} }}',
        f'[streams.s]\ndata_port = 7500\nrate = "{rate}"\nwindow = "{window}"',
        place.segment("lan"),
        f"loss = {loss}" if loss else "",
    ]
    names = [f"source-{number}" if number > 1 else "source" for number in range(1, sources + 1)]
    for number, name in enumerate(names, 1):
        lines.append(
            f'[nodes.{name}]\nrole = "source"\nsegment = "lan"\naddress = "{place.address(number)}"\nstreams = ["s"]'
        )
    pool = f'addresses = "{place.address(100)}-{place.address(149)}"'
    lines.append(f'[nodes."desk-*"]\nrole = "receiver"\nsegment = "lan"\ncount = 1\n{pool}\nparents = {names}')
    return "\n".join(lines).replace("'", '"')


def below_a_relay(
    place: Place,
    role: str = "aggregator",
    *,
    parameters: str = "",
    relay: str = "",
    rate: str = "400Mbit/s",
    quiet: str = "50ms",
    loss: str = "",
    has_repairer: bool = False,
) -> str:
    """Return a topology file with a relay between a source and receivers.

    `source` is on core, `relay` of some role between core and floor, and `desk-1` to `desk-50` on floor. `parameters`
    apply to all nodes, beside a stream's end after `quiet`; `relay` are the relay's own. The desks lose `loss`, and
    have a `repairer` on floor.
    """
    settings = ", ".join(filter(None, (f'fin_quiet_ivl = "{quiet}"', parameters)))
    text = f"""
version = 1
name = "t{place.number}"
parameters = {{ {settings} }}
[streams.s]
data_port = 7500
rate = "{rate}"
{place.segment("core", 0)}
{place.segment("floor", 1)}
[nodes.source]
role = "source"
segment = "core"
address = "{place.address(1)}"
streams = ["s"]
[nodes.relay]
role = "{role}"
upstream = {{ segment = "core", address = "{place.address(2)}" }}
downstream = [{{ segment = "floor", address = "{place.address(3)}" }}]
parents = ["source"]
parameters = {{ {relay} }}
{'repairers = ["repairer"]' if has_repairer and role == "aggregator" else ""}
[nodes."desk-*"]
role = "receiver"
segment = "floor"
count = 1
addresses = "{place.address(100)}-{place.address(149)}"
parents = {["relay", "repairer"] if has_repairer else ["relay"]}
{f"loss = {loss}" if loss else ""}
"""
    if has_repairer:
        text += f"""
[nodes.repairer]
role = "repairer"
segment = "floor"
address = "{place.address(4)}"
parents = ["relay"]
"""
    return text
