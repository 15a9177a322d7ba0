"""`pgm agent`: the state of this host's nodes, for the fleet view of other hosts."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING

import click

from deploy.monitor.extra import need
from deploy.monitor.monitor import Access, access_options, run_service
from deploy.terminal.log import log, log_format
from deploy.terminal.options import FOLDER, option, topology_file
from deploy.terminal.output import command, print_json
from pgm.errors import UsageError
from pgm.fleet.apply_host import HostChange
from pgm.fleet.nodes import NodeWatch
from pgm.topology.load import load_checked

if TYPE_CHECKING:
    from deploy.monitor.http_service import PageService, Resources


@click.command()
@topology_file
@option("--bind", "host", default="127.0.0.1", help="Address to listen on; 0.0.0.0 for all of this machine.")
@click.option(
    "--port", type=click.IntRange(0, 65535), help="Port; by default `port` of [fleet] in FILE. 0 for any free one."
)
@click.option(
    "--apply",
    "may_apply",
    is_flag=True,
    help="Let clients that may change settings replace FILE, too, and start and stop nodes: pgm apply --fleet.",
)
@click.option("--telemetry", type=FOLDER, help="Folder of the nodes' events, for pgm fleet; by default that of FILE.")
@log_format
@command
@access_options
def agent(
    file: Path,
    host: str,
    port: int | None,
    may_apply: bool,
    telemetry: Path | None,
    access: Access,
    as_json: bool,
) -> None:
    """Serve the state of this machine's nodes of FILE to the commands with --fleet, until Ctrl-C or SIGTERM.

    Each host of the tree runs one agent. Any host then sees all nodes: pgm status FILE --fleet, and top, ctl, monitor
    and doctor with the same option, pgm netcheck FILE, and pgm fleet FILE. The agent has the pages of pgm monitor too, for this host.

    \b
    pgm agent tree.toml
    pgm agent tree.toml --bind 0.0.0.0 --token-file /etc/pgm/token
    pgm agent tree.toml --bind 0.0.0.0 --token-file /etc/pgm/token --apply
    pgm agent tree.toml --tls-cert agent.pem --tls-key agent-key.pem

    Without --token-file or --client the agent changes no settings and sends no probes. The certificate must have the addresses of this host. docs/guide/monitoring.md shows
    a fleet, and docs/reference/agent.md each resource. Install the packages by
    pip install 'pgm-repair-network[monitor]'. The exit status is 0 after a signal.
    """
    need("pgm agent", "hypercorn", "starlette", "prometheus_client")
    from deploy.fleet.event_service import EventService
    from deploy.monitor.agent_service import AgentService
    from deploy.monitor.http_service import Resources, application

    topology = load_checked(file)
    if may_apply and not access.may_change:
        raise UsageError(
            "--apply needs a token or named nodes: any client could replace the file",
            remedy="give --token-file, or --mutual-tls with --client",
        )
    if telemetry is None and topology.telemetry:
        telemetry = Path(topology.telemetry)
    events = EventService(telemetry)
    change = HostChange(topology.name, file) if may_apply else None

    def resources(pages: PageService) -> Resources:
        own = AgentService(pages, file.resolve(), topology.name, access.may_change, change).resources()
        return Resources([*own.routes, *events.routes()], own.tasks)

    def say(url: str, sock: socket.socket) -> None:
        if as_json:
            print_json({"url": url, "host": sock.getsockname()[0], "port": sock.getsockname()[1]})
        log("ready", f"the agent of this host answers at {url}")

    serving = application(NodeWatch([str(file)]), access.token, resources, access.gate)
    run_service(serving, host, topology.fleet.port if port is None else port, access, say)
