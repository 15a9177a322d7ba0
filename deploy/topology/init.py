"""The command `pgm init`: a first topology file, for this machine alone or for given hosts."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from pathlib import Path

import attrs
import click

from deploy.terminal.options import NEW_FILE
from deploy.terminal.output import command, print_json, warn
from pgm.errors import UsageError
from pgm.topology.check import check_reading
from pgm.topology.problems import error_of
from pgm.topology.reading import read_text

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_LOOPBACK = (("exchange", "127.0.91.1"), ("repairer-1", "127.0.91.2"), ("repairer-2", "127.0.91.3"), ("desk-1", "127.0.91.11"), ("desk-2", "127.0.91.12"))  # fmt: skip
_LOOPBACK_REPAIRERS = 2

_HEAD = """\
# A first tree, made by `pgm init`: {summary}
# All keys: docs/reference/topology.md. Check a change with: pgm check {file}
version = 1
name = "{name}"

[streams.quotes]
data_port = 7500
rate = "100Mbit/s"
window = "10s"

[segments.lan]
group = "{group}"
interface = "{interface}"

[nodes.{source}]                    # sends the stream
role = "source"
segment = "lan"
address = "{source_address}"
streams = ["quotes"]
"""
_REPAIRER = """
[nodes.{repairer}]                  # keeps the packets of the last seconds, and repairs on the same subnet
role = "repairer"
segment = "lan"
address = "{repairer_address}"
parents = ["{source}"]
"""
_RECEIVER = """
[nodes.{receiver}]
role = "receiver"
segment = "lan"
address = "{address}"
streams = ["quotes"]
parents = [{parents}]
"""


@attrs.frozen
class NamedHost:
    """Host of a tree: the name of its node, and its address."""

    name: str
    address: str


def hosts_of(words: Sequence[str]) -> list[NamedHost]:
    """Return the hosts of words such as `exchange=10.0.0.10`. Raises `UsageError`."""
    hosts = []
    for word in words:
        name, equals, address = word.partition("=")
        try:
            ipaddress.IPv4Address(address)
        except ValueError:
            equals = ""
        if not equals or not _NAME.fullmatch(name):
            raise UsageError(f"--host {word}: no NAME=ADDRESS", remedy="write as in --host exchange=10.0.0.10")
        hosts.append(NamedHost(name, address))
    if len(hosts) < 3:
        raise UsageError(
            f"--host names {len(hosts)} of 3 hosts or more",
            remedy="name a source, a repairer and a receiver, in this order",
        )
    return hosts


def network_of(hosts: Sequence[NamedHost]) -> ipaddress.IPv4Network:
    """Return the smallest network of 256 addresses or more that has all hosts. Raises `UsageError`."""
    network = ipaddress.ip_network(f"{hosts[0].address}/24", strict=False)
    assert isinstance(network, ipaddress.IPv4Network)
    for host in hosts[1:]:
        while ipaddress.IPv4Address(host.address) not in network:
            if network.prefixlen <= 16:
                raise UsageError(
                    f"{hosts[0].address} and {host.address} are on different subnets",
                    remedy="name hosts of one subnet, and add relays to the file: docs/guide/deploy.md",
                )
            network = network.supernet()
    return network


def first_tree(name: str, file: str, hosts: Sequence[NamedHost], repairers: int = 1) -> str:
    """Return the text of a topology file: a source, `repairers`, and receivers on one subnet. Raises `UsageError`."""
    source, servers, receivers = hosts[0], hosts[1 : 1 + repairers], hosts[1 + repairers :]
    network = network_of(hosts)
    octets = network.network_address.packed
    text = _HEAD.format(
        summary="all nodes run on this machine." if network.is_loopback else "each node runs on its host.",
        file=file,
        name=name,
        group=f"239.192.{octets[1] ^ octets[2]}.{octets[2] or 1}",
        interface=network,
        source=_key(source.name),
        source_address=source.address,
    )
    for server in servers:
        text += _REPAIRER.format(repairer=_key(server.name), source=source.name, repairer_address=server.address)
    parents = ", ".join(f'"{one.name}"' for one in (*servers, source))
    for receiver in receivers:
        text += _RECEIVER.format(receiver=_key(receiver.name), address=receiver.address, parents=parents)
    return text


def _key(name: str) -> str:
    return f'"{name}"' if "." in name else name


@click.command()
@click.argument("file", type=NEW_FILE, default="tree.toml")
@click.option("--name", default="first-tree", show_default=True, help="Name of the tree.")
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="NAME=ADDRESS",
    help="A host of the tree; repeated: the source, the repairer, then receivers. Without it the tree is for this machine.",
)
@click.option("--force", is_flag=True, help="Replace an existing file.")
@command
def init(file: Path, name: str, hosts: tuple[str, ...], force: bool, as_json: bool) -> None:
    """Write a first topology FILE: a source, a repairer and receivers on one subnet.

    \b
    pgm init && pgm up tree.toml --generate 10000
    pgm init --host source=10.0.0.1 --host keeper=10.0.0.2 --host desk=10.0.0.3

    Without --host all nodes have loopback addresses, so that the whole tree runs on this machine. The file is checked
    before it is written. Exits with 2 if the file exists, or if a name or an address is wrong.
    """
    if file.exists() and not force:
        raise UsageError(f"{file} exists", remedy="name another file, or replace it with --force")
    chosen = hosts_of(hosts) if hosts else [NamedHost(*one) for one in _LOOPBACK]
    text = first_tree(name, str(file), chosen, 1 if hosts else _LOOPBACK_REPAIRERS)
    report = check_reading(read_text(text, str(file)))
    if report.errors:
        raise error_of(report.errors)
    file.write_text(text)
    if as_json:
        print_json({"written": [str(file)]})
        return
    following = (
        f"pgm run {file} --node {chosen[0].name}, and so on, on each host"
        if hosts
        else f"pgm up {file} --generate 10000"
    )
    warn(f"wrote {file}; to print the tree: pgm plan {file}; to run it: {following}")
