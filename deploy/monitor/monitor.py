"""`pgm monitor`: numbers of running nodes over HTTP."""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click
import trio

from deploy.fleet.panel import FindingsPanel
from deploy.monitor.extra import need
from deploy.node.supervisor import while_running
from deploy.otlp.target import OtlpTarget, otlp_options
from deploy.terminal.fleet_options import FleetAccess, fleet_options, one_file
from deploy.terminal.log import log, log_format
from deploy.terminal.mutual_tls import mutual_tls_options
from deploy.terminal.options import FOLDER, PATH, option
from deploy.terminal.output import command, print_json
from deploy.terminal.tls_files import CertificateFiles, certificate_of
from deploy.terminal.token_file import read_token
from pgm.errors import TransportError, UsageError
from pgm.fleet.nodes import NodeWatch, Watch
from pgm.net.control.signals import heed_signals
from pgm.net.driver.nurseries import open_plain_nursery

if TYPE_CHECKING:
    from hypercorn.config import Config

    from deploy.monitor.http_service import PageService, Resources
    from pgm.mutual_tls.gate import PeerGate

DEFAULT_PORT = 9764
_EXPORTER = "opentelemetry.exporter.otlp.proto.http.metric_exporter"
_BACKLOG = 128  # agents of a large fleet are asked at once
_HANDSHAKE_S = 5  # until a connection without a complete TLS handshake is closed
_REST_S = 0.5  # for answers in progress after SIGTERM
_IDLE_S = 10  # until a connection without a complete request is closed
_STUCK_MS = 5_000  # until a connection whose client does not read its answer is closed


@attrs.frozen
class Access:
    """Conditions for clients: a token, TLS with a certificate, or mutual TLS by the keys of nodes.

    With a gate and a token, clients without keys need the token.
    """

    token: str | None = attrs.field(default=None, repr=False)
    certificate: CertificateFiles | None = None
    gate: PeerGate | None = None

    @property
    def has_tls(self) -> bool:
        """Whether clients use https."""
        return self.certificate is not None or self.gate is not None

    @property
    def may_change(self) -> bool:
        """Whether some clients may change settings: those with the token, and nodes that --client names."""
        return self.token is not None or (self.gate is not None and bool(self.gate.names))


def access_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add --token-file, --tls-cert, --tls-key and those of mutual TLS to a command, which gets them as one `access`."""

    @click.option(
        "--token-file",
        type=PATH,
        help="Answer only requests with the token in this file: as bearer token, or as the password in a browser.",
    )
    @click.option("--tls-cert", type=PATH, help="Certificate as PEM; clients then use https://.")
    @click.option("--tls-key", type=PATH, help="Private key of the certificate as PEM.")
    @mutual_tls_options
    @wraps(function)
    def wrapper(
        *args: Any,
        token_file: Path | None,
        tls_cert: Path | None,
        tls_key: Path | None,
        gate: PeerGate | None,
        **kwargs: Any,
    ) -> Any:
        certificate = certificate_of(tls_cert, tls_key)
        if gate is not None and certificate is not None:
            raise UsageError(
                "--mutual-tls and --tls-cert exclude each other",
                remedy="leave out --tls-cert and --tls-key: the keys of the node make the certificate",
            )
        return function(*args, access=Access(read_token(token_file), certificate, gate), **kwargs)

    return wrapper


def listen(host: str, port: int) -> socket.socket:
    """Return a TCP socket bound to an address of this host. Raises `UsageError`, `TransportError`."""
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        raise UsageError(
            f"--bind {host}: not an IP address", remedy="use 127.0.0.1, ::1, or an address of this host"
        ) from None
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


def warn_of_others(access: Access, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    """Warn of other hosts' access if they can reach the address."""
    if address.is_loopback:
        return
    if access.token is None and access.gate is None:
        log(
            "open-access",
            f"any host that reaches {address} can read the numbers: give --token-file, or bind to 127.0.0.1",
        )
    elif not access.has_tls:
        log(
            "clear-token",
            "the token travels in clear text: give --tls-cert and --tls-key, or put a proxy with TLS in front",
        )


def url_of(sock: socket.socket, access: Access) -> str:
    """Return the URL for a browser."""
    host, port = sock.getsockname()[:2]
    scheme = "https" if access.has_tls else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


async def serve(serving: Any, sock: socket.socket, access: Access, say: Callable[[], None]) -> None:
    """Serve requests by an ASGI application until a signal; call `say` as soon as the service answers."""
    from hypercorn.trio import serve as serve_http

    config = _config_of(access)
    config.bind = [f"fd://{os.dup(sock.fileno())}"]
    config.alpn_protocols = ["http/1.1"]
    config.ssl_handshake_timeout = _HANDSHAKE_S
    config.backlog = _BACKLOG
    config.loglevel = "ERROR"
    config.graceful_timeout = _REST_S
    config.keep_alive_timeout = config.read_timeout = _IDLE_S
    config.include_server_header = False
    is_running, stop = trio.Event(), trio.Event()
    is_running.set()
    async with open_plain_nursery() as nursery:
        await nursery.start(heed_signals, while_running(is_running, stop, stop.set))
        nursery.start_soon(_end, stop)
        await _serve_http(partial(serve_http, serving, config, shutdown_trigger=stop.wait), say)
        nursery.cancel_scope.cancel()


def _config_of(access: Access) -> Config:
    """Return the settings of Hypercorn that concern TLS."""
    import ssl

    from hypercorn.config import Config

    if access.gate is None:
        config = Config()
        if access.certificate is not None:
            config.certfile, config.keyfile = str(access.certificate.certificate), str(access.certificate.key)
        return config
    from pgm.mutual_tls.contexts import context_of_gate

    context = context_of_gate(access.gate, may_be_unnamed=access.token is not None)

    class NodeConfig(Config):
        """Settings with a context in place of files."""

        ssl_enabled = True

        def create_ssl_context(self) -> ssl.SSLContext:
            return context

    return NodeConfig()


async def _serve_http(serve_http: Callable[..., Awaitable[None]], say: Callable[[], None]) -> None:
    async with open_plain_nursery() as nursery:
        await nursery.start(serve_http)
        say()


async def _end(stop: trio.Event) -> None:
    """End the process some time after the signal.

    Hypercorn usually ends before, once all clients are served. A client may read nothing of its answer, or too slowly
    for `_STUCK_MS` to expire. Hypercorn (0.18) shields its sends from cancellation and does not expose its connections,
    so they cannot be closed. The process has nothing to save.
    """
    await stop.wait()
    await trio.sleep(2 * _REST_S)
    os._exit(0)


def run_service(serving: Any, host: str, port: int, access: Access, say: Callable[[str, socket.socket], None]) -> None:
    """Serve an ASGI application at an address until a signal. `say` gets its URL and socket when it answers."""
    with listen(host, port) as sock:
        address = ipaddress.ip_address(sock.getsockname()[0])
        warn_of_others(access, address)
        trio.run(serve, serving, sock, access, lambda: say(url_of(sock, access), sock))


@click.command()
@click.argument("topologies", metavar="[TOPOLOGY]...", nargs=-1)
@option("--bind", "host", default="127.0.0.1", help="Address to listen on.")
@option("--port", type=click.IntRange(0, 65535), default=DEFAULT_PORT, help="Port; 0 for any free one.")
@log_format
@command
@access_options
@fleet_options("--agents-token-file")
@otlp_options
@click.option("--tables", type=FOLDER, help="Folder of pgm fleet tables, whose findings the first page shows.")
def monitor(topologies: tuple[str, ...], host: str, port: int, access: Access, as_json: bool, **options: Any) -> None:
    """Serve the numbers of this machine's nodes, or of all hosts, over HTTP, until Ctrl-C or SIGTERM.

    / is a page for people, and /metrics is for Prometheus. /status.json has the output of `pgm status FILE --json`.
    /healthz reports that the monitor itself runs. TOPOLOGY is a topology file, or the name of a running topology.
    Nodes of a file are shown even if they do not run. Without any TOPOLOGY, all nodes of this user are shown.

    \b
    pgm monitor
    pgm monitor tree.toml --port 9000 --token-file /etc/pgm/token
    pgm monitor --mutual-tls tree.toml --identity exchange --client 'desk-*'
    pgm monitor tree.toml --fleet           # of all hosts that run pgm agent
    pgm monitor tree.toml --fleet --tables tables
    pgm monitor --otlp http://127.0.0.1:4318

    The command reads the nodes' status sockets and sends no other packets. docs/guide/monitoring.md has the configuration of
    Prometheus and alarms. With --otlp it also sends the metrics to a collector of
    OpenTelemetry. Install the packages by pip install 'pgm-repair-network[monitor]', and those of [otlp] for --otlp. The
    exit status is 0 after a signal.
    """
    need("pgm monitor", "hypercorn", "starlette", "prometheus_client")
    from deploy.monitor.http_service import application

    def say(url: str, sock: socket.socket) -> None:
        if as_json:
            print_json({"url": url, "host": sock.getsockname()[0], "port": sock.getsockname()[1]})
        log("ready", f"{url}/ for people, {url}/metrics for Prometheus")

    fleet: FleetAccess | None = options["fleet"]
    nodes: Watch = NodeWatch(topologies) if fleet is None else fleet.watch(one_file(topologies))
    serving = application(
        nodes, access.token, otlp_resources(options["otlp"]), access.gate, panel_of(options["tables"])
    )
    run_service(serving, host, port, access, say)


def panel_of(tables: Path | None) -> Callable[[], Sequence[str]]:
    """Return the findings of a folder of tables as parts of the first page, without a folder nothing."""
    return tuple if tables is None else FindingsPanel(tables).parts


def otlp_resources(otlp: OtlpTarget | None) -> Callable[[PageService], Resources]:
    """Return the task that sends metrics, if a collector is given. Raises `UsageError` without the extra."""
    from deploy.monitor.http_service import Resources, no_resources

    if otlp is None:
        return no_resources
    need("pgm monitor --otlp", "opentelemetry.sdk.metrics", _EXPORTER, extra="otlp")
    from deploy.monitor.prometheus import Metrics
    from deploy.otlp.sender import OtlpSender

    def sending(pages: PageService) -> Resources:
        return Resources(tasks=[partial(OtlpSender(otlp, Metrics(pages.refusals).families).run, pages.view)])

    return sending
