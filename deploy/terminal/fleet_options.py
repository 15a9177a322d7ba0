"""Options of the commands that show all hosts of a tree: --fleet, and the access to the agents."""

from __future__ import annotations

import importlib
import ssl
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click

from deploy.terminal.log import log
from deploy.terminal.options import PATH
from deploy.terminal.tls_files import trusted_by
from deploy.terminal.token_file import read_token
from deploy.terminal.version import VERSION
from pgm.errors import UsageError
from pgm.net.keys.tls_identity import node_identity

if TYPE_CHECKING:
    from pgm.fleet.watch import FleetWatch


@attrs.frozen
class FleetAccess:
    """Access to the agents of a fleet."""

    token: str | None = attrs.field(default=None, repr=False)
    tls: ssl.SSLContext | None = None
    identity: str | None = None  # node whose keys are used for mutual TLS

    def watch(self, file: str | Path) -> FleetWatch:
        """Return the nodes of a topology file, on all of its hosts.

        Raises `TopologyError`, `KeyRefused`, and `UsageError` without h11.
        """
        try:
            importlib.import_module("h11")
        except ImportError:
            raise UsageError(
                "the agents cannot be asked without h11, which is not installed",
                remedy="pip install 'pgm-repair-network[monitor]'",
            ) from None
        from pgm.fleet.watch import FleetWatch

        return FleetWatch(Path(file), VERSION, self.token, self._tls_for(Path(file)))

    def _tls_for(self, file: Path) -> ssl.SSLContext | None:
        if self.identity is None:
            return self.tls
        identity = node_identity(file, self.identity, log)
        from pgm.mutual_tls.contexts import client_context

        return client_context(identity)


def one_file(topologies: Sequence[str]) -> str:
    """Return the only topology file of a command line. Raises `UsageError` for none or several."""
    if len(topologies) != 1:
        raise UsageError("--fleet needs one topology file", remedy="as in: pgm top tree.toml --fleet")
    return topologies[0]


def fleet_options(token_option: str = "--token-file") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add --fleet and the files for it. The command gets them as one `fleet`, which is None without --fleet.

    `token_option` is another name for the token's file where a command has a token of its own.
    """

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        @click.option("--fleet", is_flag=True, help="All hosts of the topology file, by their agents (pgm agent).")
        @_access_options(token_option, "With --fleet: ")
        @wraps(function)
        def wrapper(*args: Any, fleet: bool, files: _AccessFiles, **kwargs: Any) -> Any:
            return function(*args, fleet=files.access() if fleet else None, **kwargs)

        return wrapper

    return add


def agent_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the files of the access to agents. The command gets them as one `fleet`."""

    @_access_options("--token-file", "")
    @wraps(function)
    def wrapper(*args: Any, files: _AccessFiles, **kwargs: Any) -> Any:
        return function(*args, fleet=files.access(), **kwargs)

    return wrapper


@attrs.frozen
class _AccessFiles:
    """Values of the options, before the files are read."""

    token: Path | None
    authority: Path | None
    identity: str | None

    def access(self) -> FleetAccess:
        """Read the files. Raises `UsageError`."""
        if self.authority is not None and self.identity is not None:
            raise UsageError(
                "--as-node and --ca-file exclude each other",
                remedy="leave out --ca-file and PGM_CA_FILE if the agents have --mutual-tls, otherwise --as-node",
            )
        return FleetAccess(read_token(self.token), trusted_by(self.authority), self.identity)


def _access_options(token_option: str, condition: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        @click.option(
            token_option,
            "agents_token",
            type=PATH,
            envvar="PGM_TOKEN_FILE",
            help=_capital(f"{condition}file with the agents' token.  [env: PGM_TOKEN_FILE]"),
        )
        @click.option(
            "--ca-file",
            type=PATH,
            envvar="PGM_CA_FILE",
            help=_capital(
                f"{condition}certificate of the authority of the agents' certificates; requests then use TLS.  [env: PGM_CA_FILE]"
            ),
        )
        @click.option(
            "--as-node",
            metavar="NODE",
            envvar="PGM_AS_NODE",
            help=_capital(
                f"{condition}node whose private keys on this host identify the command to agents with --mutual-tls.  [env: PGM_AS_NODE]"
            ),
        )
        @wraps(function)
        def wrapper(
            *args: Any, agents_token: Path | None, ca_file: Path | None, as_node: str | None, **kwargs: Any
        ) -> Any:
            return function(*args, files=_AccessFiles(agents_token, ca_file, as_node), **kwargs)

        return wrapper

    return add


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
