"""Options of services for mutual TLS by the keys of nodes: --mutual-tls, --identity and --client."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from deploy.terminal.log import log
from deploy.terminal.options import PATH
from pgm.errors import UsageError

if TYPE_CHECKING:
    from pgm.mutual_tls.gate import PeerGate


def mutual_tls_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options to a command, which gets them as one `gate`: a `PeerGate`, or None without --mutual-tls."""

    @click.option(
        "--mutual-tls",
        "tree",
        type=PATH,
        metavar="FILE",
        help="Topology file whose keys identify the clients, and this service as --identity. Clients without keys are refused.",
    )
    @click.option(
        "--identity", metavar="NODE", help="With --mutual-tls: node whose private keys on this host are used."
    )
    @click.option(
        "--client",
        "clients",
        multiple=True,
        metavar="NODE",
        help="With --mutual-tls: node or pattern that may connect; may be repeated. By default all nodes with keys.",
    )
    @wraps(function)
    def wrapper(*args: Any, tree: Path | None, identity: str | None, clients: tuple[str, ...], **kwargs: Any) -> Any:
        return function(*args, gate=gate_of(tree, identity, clients), **kwargs)

    return wrapper


def gate_of(tree: Path | None, identity: str | None, clients: tuple[str, ...]) -> PeerGate | None:
    """Return the admission of clients, or None without a file. Raises `UsageError`, `KeyRefused`, `TopologyError`."""
    if tree is None:
        if identity is not None or clients:
            name = "--identity" if identity is not None else "--client"
            raise UsageError(f"{name} needs --mutual-tls", remedy="as in: --mutual-tls tree.toml --identity exchange")
        return None
    if identity is None:
        raise UsageError(
            f"--mutual-tls {tree} does not say which node this service is",
            remedy="name the node whose keys are on this host: --identity NODE; see pgm keys show FILE",
        )
    from pgm.net.keys.tls_identity import node_identity

    own = node_identity(tree, identity, log)
    from pgm.mutual_tls.gate import PeerGate
    from pgm.mutual_tls.refusals import Refusals

    return PeerGate(own, clients, Refusals(log))
