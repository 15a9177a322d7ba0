"""`pgm monitor`: the numbers of running nodes over HTTP."""

from __future__ import annotations

import ipaddress
import os
import socket
import stat
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import click
import trio

from deploy.monitor.extra import need
from deploy.monitor.nodes import NodeWatch
from deploy.node.supervisor import heed_signals
from deploy.terminal.output import command, log, print_json, warn
from pgm.errors import TransportError, UsageError
from pgm.net.driver.nurseries import open_plain_nursery

DEFAULT_PORT = 9764
_BACKLOG = 64
_REST_S = 0.5  # what is being answered may take so long after SIGTERM
_IDLE_S = 10  # a connection that asks nothing, or is slow to say what, is closed
_STUCK_MS = 5_000  # one that takes nothing of its answer too
_LEAST_TOKEN = 16
_MOST_TOKEN = 4096


def read_token(file: Path | None) -> str | None:
    """The token in a file, without white space around it. Raises `UsageError` for one that is none."""
    if file is None:
        return None
    try:
        octets = file.read_bytes()[: _MOST_TOKEN + 1]
        mode = file.stat().st_mode
    except OSError as error:
        raise UsageError(
            f"--token-file {file}: {error.strerror}", remedy=f"openssl rand -hex 32 > {file}; chmod 600 {file}"
        ) from error
    token = octets.decode("ascii", errors="replace").strip()
    if not _LEAST_TOKEN <= len(token) <= _MOST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise UsageError(
            f"--token-file {file}: a token is one word of {_LEAST_TOKEN} to {_MOST_TOKEN} ASCII characters",
            remedy=f"openssl rand -hex 32 > {file}",
        )
    if mode & (stat.S_IRGRP | stat.S_IROTH):
        warn(f"{file} can be read by others: chmod 600 {file}")
    return token


def listen(host: str, port: int) -> socket.socket:
    """A TCP socket on an address of this host. Raises `UsageError` for what is no address, `TransportError` where it is taken."""
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        raise UsageError(f"--bind {host}: not an IP address", remedy="127.0.0.1, ::1, or one of this host's") from None
    sock = socket.socket(socket.AF_INET6 if address.version == 6 else socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _STUCK_MS)  # connections inherit it
        sock.bind((str(address), port))
    except OSError as error:
        sock.close()
        raise TransportError(
            f"cannot listen on {host}, port {port}: {error.strerror}",
            remedy="choose another --port or --bind; 0 is any port",
        ) from error
    return sock


def warn_of_others(address: ipaddress.IPv4Address | ipaddress.IPv6Address, token: str | None) -> None:
    """Say who may read what, where others than this host reach the address."""
    if address.is_loopback:
        return
    if token is None:
        warn(f"whoever reaches {address} can read the numbers: give --token-file, or bind to 127.0.0.1")
    else:
        warn("the token travels in clear text: put a proxy with TLS before this")


def url_of(sock: socket.socket) -> str:
    """Where a browser finds it."""
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def serve(nodes: NodeWatch, sock: socket.socket, token: str | None, say: Callable[[], None]) -> None:
    """Answer until a signal; `say` is called as soon as it does."""
    from hypercorn.config import Config
    from hypercorn.trio import serve as serve_http

    from deploy.monitor.http_service import application

    config = Config()
    config.bind = [f"fd://{os.dup(sock.fileno())}"]
    config.backlog = _BACKLOG
    config.loglevel = "ERROR"
    config.graceful_timeout = _REST_S
    config.keep_alive_timeout = config.read_timeout = _IDLE_S
    config.include_server_header = False
    is_running, stop = trio.Event(), trio.Event()
    is_running.set()
    async with open_plain_nursery() as nursery:
        await nursery.start(heed_signals, is_running, stop)
        nursery.start_soon(_end, stop)
        serving: Any = application(nodes, token)  # Starlette and Hypercorn type the same thing differently
        await _serve_http(partial(serve_http, serving, config, shutdown_trigger=stop.wait), say)
        nursery.cancel_scope.cancel()


async def _serve_http(serve_http: Callable[..., Awaitable[None]], say: Callable[[], None]) -> None:
    async with open_plain_nursery() as nursery:
        await nursery.start(serve_http)
        say()


async def _end(stop: trio.Event) -> None:
    """End the process some time after the signal, unless it has ended by itself, as it does where all clients are served.

    It has nothing to save, and some client may take of its answer nothing, or so little at a time that `_STUCK_MS` never
    run out. Hypercorn (0.18) shields its sends from being cancelled, and shows nobody the connections that it accepts, so
    that they could be closed.
    """
    await stop.wait()
    await trio.sleep(2 * _REST_S)
    os._exit(0)


@click.command()
@click.argument("topologies", metavar="[TOPOLOGY]...", nargs=-1)
@click.option("--bind", "host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=DEFAULT_PORT, show_default=True, help="Port; 0 for any free one."
)
@click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    help="Answer only to who sends the token in this file: as bearer token, or as the password in a browser.",
)
@command
def monitor(topologies: tuple[str, ...], host: str, port: int, token_file: Path | None, as_json: bool) -> None:
    """Serve what the nodes on this machine have counted over HTTP, until Ctrl-C or SIGTERM.

    / is a page for people, /metrics is for Prometheus, /status.json is what `pgm status FILE --json` says, and
    /healthz says that the monitor itself is there. TOPOLOGY is a file, whose nodes are then missed when they do not
    run, or the name of a topology that runs; without any, all that run as this user are shown.

    \b
    pgm monitor
    pgm monitor tree.toml --port 9000 --token-file /etc/pgm/token

    It reads the nodes' status sockets and sends nothing to anybody else. docs/guide/monitoring.md has the configuration of
    Prometheus and alarms. It needs pip install 'pgm-repair-network[monitor]'. Exits with 0 when it was stopped.
    """
    need("pgm monitor", "hypercorn", "starlette", "prometheus_client")
    token = read_token(token_file)
    nodes = NodeWatch(topologies)
    with listen(host, port) as sock:
        address = ipaddress.ip_address(sock.getsockname()[0])
        warn_of_others(address, token)

        def say() -> None:
            url = url_of(sock)
            if as_json:
                print_json({"url": url, "host": str(address), "port": sock.getsockname()[1]})
            log("ready", f"{url}/ for people, {url}/metrics for Prometheus")

        trio.run(serve, nodes, sock, token, say)
