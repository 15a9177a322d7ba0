"""The command `pgm serve`: the range service of an archive."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from deploy.terminal.log import end_log, log, log_format, name_log
from deploy.terminal.mutual_tls import mutual_tls_options
from deploy.terminal.options import PATH, option
from deploy.terminal.output import command, print_json
from deploy.terminal.target import require_node
from deploy.terminal.tls_files import certificate_of
from deploy.terminal.token_file import read_token
from pgm.errors import ProcessError, UsageError
from pgm.net.core_factory import stream_of
from pgm.net.endpoint.open import resolve
from pgm.parameters import ROWS, Parameters
from pgm.topology.node_plan import Role
from pgm.topology.url import is_url

if TYPE_CHECKING:
    import pyarrow as pa

    from pgm.archive.service.collection import Archives
    from pgm.archive.service.publications import PublicationTarget
    from pgm.mutual_tls.gate import PeerGate
from deploy.archive.inspect import _no_archive_text, _open
from deploy.archive.overrides import parameters_of

_PARAMETERS = tuple(name for name in ROWS if name.startswith("archive_"))


_END_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@click.command()
@click.argument("directory", type=PATH)
@option(
    "--listen", default="127.0.0.1:3057", metavar="HOST:PORT", help="Address to listen on; port 0 takes a free port."
)
@click.option("--node", default="", help="Node name that the service reports to clients.")
@click.option("--tls-cert", type=PATH, help="Certificate as PEM; clients then use grpc+tls://.")
@click.option("--tls-key", type=PATH, help="Private key of the certificate as PEM.")
@click.option(
    "--token-file", type=PATH, help="File with the token that clients must send, one word of at least 16 characters."
)
@option(
    "--files/--no-files",
    default=True,
    help="Give file positions of rows to clients on this machine.",
)
@click.option(
    "--publish",
    metavar="FILE",
    help="Publish the data that clients put, as the source --publish-node of this topology file.",
)
@click.option("--publish-node", metavar="NODE", help="Name of the source for --publish.")
@click.option("--publish-stream", metavar="STREAM", help="Stream of the source, if the source has several.")
@click.option(
    "--publish-state", type=PATH, help="File with the record of published batches; by default DIRECTORY/published.json."
)
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help=f"A parameter: {', '.join(_PARAMETERS)}. May be repeated.",
)
@log_format
@command
@mutual_tls_options
def serve(directory: Path, listen: str, node: str, overrides: Sequence[str], as_json: bool, **options: Any) -> None:
    """Serve the archive in DIRECTORY, or the archives in its subdirectories, to Arrow Flight clients such as Spark.

    \b
    pgm serve archive --listen 0.0.0.0:3057 --token-file token
    pgm serve archive --tls-cert cert.pem --tls-key key.pem
    pgm serve archive --mutual-tls tree.toml --identity recorder --client 'desk-*'

    The service reads an archive during its recording or afterwards; docs/guide/archive.md describes requests and answers. With --publish the
    service sends the data that clients put, as a source of a topology. Ends with 0 on Ctrl-C or SIGTERM.
    """
    _require_address(listen)
    name_log(node)
    archives = _open(directory)
    with ExitStack() as stack, _blocked_signals():
        target = _target(stack, options, archives.directory)
        is_over = _serve(
            archives, listen, node, parameters_of(overrides, _PARAMETERS, "the range service"), options, target, as_json
        )
    if not is_over:
        log("calls-cut", "open calls of clients were cut off")
        end_log()
        sys.stdout.flush()
        os._exit(0)  # a normal exit would wait for the threads of these calls in the Flight library


@contextmanager
def _blocked_signals() -> Iterator[None]:
    """Block the signals that end the service, in all threads, until `sigwait` takes one. No thread may start earlier."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _END_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(
    archives: Archives,
    listen: str,
    node: str,
    parameters: Parameters,
    options: dict[str, Any],
    target: PublicationTarget | None,
    as_json: bool,
) -> bool:
    """Serve until a signal. Return whether all calls had ended. Raises `ProcessError`, `UsageError`."""
    from pyarrow import ArrowException

    from pgm.archive.service.service import RangeService, ServiceAccess

    gate = options["gate"]
    if gate is not None:
        _require_no_other_access(options)
    certificate = _certificate(options["tls_cert"], options["tls_key"])
    access = ServiceAccess(certificate=certificate, token=read_token(options["token_file"]), gate=gate)
    scheme = access.scheme
    if reason := _listen_error(listen):  # gRPC would report the same problem less clearly
        raise _listen_failure(listen, reason)
    try:
        service = RangeService(
            archives,
            f"{scheme}://{listen}",
            parameters,
            node=node,
            access=access,
            target=target,
            files=options["files"],
        )
    except (ArrowException, OSError) as error:
        raise _listen_failure(listen, _listen_error(listen) or str(error)) from None
    location = f"{scheme}://{listen.rpartition(':')[0]}:{service.port}"
    if as_json:
        print_json({"location": location, "directory": str(archives.directory)})
    if not archives.readers and target is None:
        log("no-archive", f"{_no_archive_text(archives.directory)}: later recordings will be served")
    log("ready", f"serves {archives.directory} on {location}{_clients_text(gate)}")
    signal.sigwait(_END_SIGNALS)
    return service.end()


def _require_no_other_access(options: dict[str, Any]) -> None:
    for key in ("tls_cert", "tls_key", "token_file"):
        if options[key] is not None:
            raise UsageError(
                f"--mutual-tls and --{key.replace('_', '-')} exclude each other",
                remedy="leave out one of them: with --mutual-tls the keys of nodes stand for certificates and tokens",
            )


def _clients_text(gate: PeerGate | None) -> str:
    return "" if gate is None else f", to {', '.join(gate.names) or 'all nodes with keys'}"


def _listen_failure(listen: str, reason: str) -> ProcessError:
    return ProcessError(
        f"{listen} cannot be listened on: {reason}",
        remedy="the port is in use, or the address is not of this machine: see ss -ltnp, and take another --listen",
    )


def _listen_error(listen: str) -> str:
    """Return the kernel's reason why `listen` cannot be listened on; empty if it can. gRPC does not report the reason."""
    host, _, port = listen.rpartition(":")
    try:
        family, _, _, _, where = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)[0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # closed connections do not block the port
            probe.bind(where)
            probe.listen()
    except OSError as error:
        return error.strerror or str(error)
    except UnicodeError:  # a name with an empty label, or with a label that is too long
        return "it is no host name"
    return ""


def _require_address(listen: str) -> None:
    host, colon, port = listen.rpartition(":")
    if not (host and colon and port.isdecimal() and int(port) < 1 << 16):
        raise UsageError(
            f"--listen {listen}: no address to listen on",
            remedy="write HOST:PORT, as in 0.0.0.0:3057; port 0 takes a free port",
        )


def _certificate(certificate: Path | None, key: Path | None) -> tuple[bytes, bytes] | None:
    files = certificate_of(certificate, key)
    return None if files is None else (files.certificate.read_bytes(), files.key.read_bytes())


def _target(stack: ExitStack, options: dict[str, Any], directory: Path) -> PublicationTarget | None:
    """Return the source that publishes messages; None without --publish. Raises `UsageError`."""
    topology = options["publish"]
    if topology is None:
        for key in ("publish_node", "publish_stream", "publish_state"):
            if options[key] is not None:
                raise UsageError(
                    f"--{key.replace('_', '-')} needs --publish",
                    remedy="as in: pgm serve archive --publish tree.toml --publish-node exchange",
                )
        return None
    require_node(topology, options["publish_node"], "--publish-node")
    from pgm import blocking
    from pgm.archive.errors import BadRequest
    from pgm.archive.service.publications import PublicationTarget
    from pgm.wire.formats import tsi_text

    plan = resolve(topology, options["publish_node"], Role.SOURCE, {})
    name = stream_of(plan, options["publish_stream"]).name
    source = stack.enter_context(blocking.open_source(plan, stream=name))

    def publish(stream: str, rows: pa.Table) -> None:
        if stream not in ("", name) and not is_url(topology):  # the stream of an address has no name
            raise BadRequest(f"{stream!r} is not published here", remedy=f"put into {name!r}")
        if len(rows):
            subject, to = (
                None if column.null_count == len(rows) else column for column in (rows["subject"], rows["to"])
            )
            source.send_batch(rows["value"], subject=subject, to=to)

    def where() -> tuple[str, int]:
        source.flush()
        return tsi_text(source.tsi), source.next_sqn

    state = options["publish_state"] or directory / "published.json"
    return PublicationTarget(publish, state, where, stream_of(plan, name).framing == "batch")
