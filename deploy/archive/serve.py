"""`pgm serve`: the range service of an archive."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click

from deploy.terminal.output import command, log, print_json, warn
from deploy.terminal.target import require_node
from pgm.errors import ProcessError, UnitError, UsageError
from pgm.net.core_factory import stream_of
from pgm.net.endpoint.open import resolve
from pgm.parameters import ROWS, Parameters
from pgm.topology.node_plan import Role
from pgm.topology.url import is_url

if TYPE_CHECKING:
    from pgm.archive.service.collection import Archives
    from pgm.archive.service.publications import Publish, Where
from deploy.archive.inspect import _nothing_in, _open

_PARAMETERS = tuple(name for name in ROWS if name.startswith("archive_"))


_ENDING = (signal.SIGTERM, signal.SIGINT)


@click.command()
@click.argument("directory", type=click.Path(path_type=Path))
@click.option(
    "--listen", default="127.0.0.1:3057", show_default=True, metavar="HOST:PORT", help="Where; port 0 takes a free one."
)
@click.option("--node", default="", help="The name it gives itself to clients.")
@click.option("--tls-cert", type=click.Path(path_type=Path), help="Certificate as PEM: then clients use grpc+tls://.")
@click.option("--tls-key", type=click.Path(path_type=Path), help="Its private key as PEM.")
@click.option("--token-file", type=click.Path(path_type=Path), help="File with the token that clients must show.")
@click.option(
    "--files/--no-files",
    default=True,
    show_default=True,
    help="Whether clients that see DIRECTORY may be told where in its files the rows are, and read them there.",
)
@click.option(
    "--publish", metavar="FILE", help="Publish what is put as the source --publish-node of this topology file."
)
@click.option("--publish-node", metavar="NODE", help="Name of that source.")
@click.option("--publish-stream", metavar="STREAM", help="Its stream, if it has several.")
@click.option(
    "--publish-state",
    type=click.Path(path_type=Path),
    help="File that remembers which batches were published; DIRECTORY/published.json without it.",
)
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help=f"A parameter: {', '.join(_PARAMETERS)}. May be repeated.",
)
@command
def serve(directory: Path, listen: str, node: str, overrides: Sequence[str], as_json: bool, **options: Any) -> None:
    """Serve the archive in DIRECTORY, or those in its subdirectories, over Arrow Flight, to Spark or to any Flight client.

    \b
    pgm serve archive --listen 0.0.0.0:3057 --token-file token
    pgm serve archive --tls-cert cert.pem --tls-key key.pem

    It reads what a recorder writes, while it is written or afterwards; docs/guide/archive.md describes requests and answers. With
    --publish what clients put is sent as a source of a topology. Ends with 0 on Ctrl-C or SIGTERM.
    """
    _require_address(listen)
    archives = _open(directory)
    with ExitStack() as stack, _signals_waiting():
        publish, where = _publisher(stack, options)
        is_over = _serve(archives, listen, node, _parameters(overrides), options, publish, where, as_json)
    if not is_over:
        warn("clients that held calls open were cut off")
        sys.stdout.flush()
        os._exit(0)  # their threads are in the Flight library and would be waited for


@contextmanager
def _signals_waiting() -> Iterator[None]:
    """Signals that end the service wait for `sigwait`, whichever thread they are for: no thread starts before this."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
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
    publish: Publish | None,
    where: Where | None,
    as_json: bool,
) -> bool:
    """Until a signal comes; whether all calls were over by then."""
    from pyarrow import ArrowException

    from pgm.archive.service.service import RangeService

    certificate = _certificate(options["tls_cert"], options["tls_key"])
    token = _token(options["token_file"])
    scheme = "grpc" if certificate is None else "grpc+tls"
    if reason := _why_not(listen):  # before gRPC complains of it in its own words
        raise _not_listening(listen, reason)
    try:
        service = RangeService(
            archives,
            f"{scheme}://{listen}",
            parameters,
            node=node,
            certificate=certificate,
            token=token,
            publish=publish,
            published=options["publish_state"] or archives.directory / "published.json",
            where=where,
            files=options["files"],
        )
    except (ArrowException, OSError) as error:
        raise _not_listening(listen, _why_not(listen) or str(error)) from None
    location = f"{scheme}://{listen.rpartition(':')[0]}:{service.port}"
    if as_json:
        print_json({"location": location, "directory": str(archives.directory)})
    if not archives.readers and publish is None:
        warn(f"{_nothing_in(archives.directory)}: what comes there will be served")
    log("ready", f"serves {archives.directory} on {location}")
    signal.sigwait(_ENDING)
    return service.end()


def _token(file: Path | None) -> str | None:
    if file is None:
        return None
    try:
        token = file.read_text().strip()
    except UnicodeDecodeError:
        raise UsageError(f"{file} is no text", remedy="put a long random word into it") from None
    if not token:
        raise UsageError(f"{file} is empty", remedy="put a long random word into it")
    return token


def _not_listening(listen: str, reason: str) -> ProcessError:
    return ProcessError(
        f"{listen} cannot be listened on: {reason}",
        remedy="another process has it, or it is no address of this machine: see ss -ltnp, and take another --listen",
    )


def _why_not(listen: str) -> str:
    """Why an address cannot be listened on, as the kernel says it, since gRPC does not; empty where it can."""
    host, _, port = listen.rpartition(":")
    try:
        family, _, _, _, where = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)[0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections that have ended are no hindrance
            probe.bind(where)
            probe.listen()
    except OSError as error:
        return error.strerror or str(error)
    except UnicodeError:  # of a name with an empty part, or too long a one
        return "it is no host's name"
    return ""


def _require_address(listen: str) -> None:
    host, colon, port = listen.rpartition(":")
    if not (host and colon and port.isdecimal() and int(port) < 1 << 16):
        raise UsageError(
            f"--listen {listen}: no address to listen on",
            remedy="write HOST:PORT, as in 0.0.0.0:3057; port 0 is a free one",
        )


def _certificate(certificate: Path | None, key: Path | None) -> tuple[bytes, bytes] | None:
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise UsageError("a certificate and its key go together", remedy="give --tls-cert and --tls-key")
    octets = certificate.read_bytes(), key.read_bytes()
    try:
        # A key that wants a password gets none: gRPC could not ask for it either.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password=bytes)
    except ssl.SSLError as error:
        raise UsageError(
            f"{certificate} and {key} are no certificate with its key: {error.reason or error}",
            remedy="both are PEM, the key without a password, the server's own certificate first, then those it was signed with",
        ) from None
    return octets


def _parameters(overrides: Sequence[str]) -> Parameters:
    values: dict[str, Any] = {}
    for text in overrides:
        key, equals, value = text.partition("=")
        if not equals or key not in _PARAMETERS:
            known = ", ".join(_PARAMETERS)
            raise UsageError(
                f"--set {text}: no parameter of the range service", remedy=f"as in archive_streams=8; there are {known}"
            )
        try:
            values[key] = ROWS[key].read(int(value) if value.isdecimal() else value)
        except UnitError as error:
            raise UsageError(f"--set {text}: {error.message}", remedy=error.remedy) from None
    return attrs.evolve(Parameters(), **values)


def _publisher(stack: ExitStack, options: dict[str, Any]) -> tuple[Publish | None, Where | None]:
    """What puts messages into a stream, and where that is; None without --publish."""
    target = options["publish"]
    if target is None:
        for key in ("publish_node", "publish_stream", "publish_state"):
            if options[key] is not None:
                raise UsageError(
                    f"--{key.replace('_', '-')} goes with --publish",
                    remedy="as in: pgm serve archive --publish tree.toml --publish-node exchange",
                )
        return None, None
    require_node(target, options["publish_node"], "--publish-node")
    from pgm import blocking
    from pgm.archive.errors import BadRequest
    from pgm.wire.formats import tsi_text

    plan = resolve(target, options["publish_node"], Role.SOURCE, {})
    name = stream_of(plan, options["publish_stream"]).name
    source = stack.enter_context(blocking.open_source(plan, stream=name))

    def publish(stream: str, values: Sequence[bytes]) -> None:
        if stream not in ("", name) and not is_url(target):  # an address gives its stream no name of its own
            raise BadRequest(f"{stream!r} is not published here", remedy=f"put into {name!r}")
        if values:
            source.send_batch(list(values))

    def where() -> tuple[str, int]:
        source.flush()
        return tsi_text(source.tsi), source.next_sqn

    return publish, where
