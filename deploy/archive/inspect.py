"""`pgm archive`: what an archive holds, whether it is sound, and its messages. `pgm serve`: the range service."""

from __future__ import annotations

import base64
import os
import signal
import socket
import ssl
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click

from deploy.archive.record import need_arrow
from deploy.terminal.exit_codes import EXIT_FAILED
from deploy.terminal.output import command, log, print_json, warn
from deploy.terminal.target import require_node
from pgm.errors import ProcessError, UnitError, UsageError
from pgm.net.core_factory import stream_of
from pgm.net.endpoint.open import resolve
from pgm.parameters import ROWS, Parameters
from pgm.topology.node_plan import Role
from pgm.topology.url import is_url
from pgm.units import format_octets

if TYPE_CHECKING:
    from pgm.archive.requests import Holding
    from pgm.archive.service.collection import Archives
    from pgm.archive.service.publications import Publish, Where

_WRITE_ROWS = 1000
_SHOW_S = 0.5
_PARAMETERS = tuple(name for name in ROWS if name.startswith("archive_"))
_ENDING = (signal.SIGTERM, signal.SIGINT)


def _open(directory: Path) -> Archives:
    need_arrow()
    from pgm.archive.service.collection import Archives

    return Archives(directory)


def _open_found(directory: Path) -> Archives:
    """The same, where there must be something: what is sound or empty else may be the wrong directory."""
    from pgm.archive.errors import ArchiveError

    archives = _open(directory)
    if not archives.readers:
        raise ArchiveError(
            _nothing_in(directory), remedy="name the directory that was given to a recorder, or the one above"
        )
    return archives


def _nothing_in(directory: Path) -> str:
    return f"{directory} holds no archive, or nothing was recorded there yet"


def _ls(directory: Path, as_json: bool) -> int:
    archives = _open_found(directory)
    holdings = archives.holdings()
    if as_json:
        print_json(
            {"holdings": [one.as_json() for one in holdings], "damage": [str(one.message) for one in archives.damage]}
        )
    else:
        from deploy.terminal.tables import Column, console, table

        terminal = console()
        heads = ("session", "stream", "source", "node", "segment", "oldest", "next sqn", "rows", "size", "until (UTC)")
        columns = [Column(head, rank) for head, rank in zip(heads, (0, 0, 2, 1, 3, 0, 0, 4, 5, 6), strict=True)]
        terminal.print(table("Held", columns, [_row(one) for one in holdings], terminal.width))
        for error in archives.damage:
            warn(error.message)
    return EXIT_FAILED if archives.damage else 0


def _row(one: Holding) -> list[str]:
    until = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(one.last_received_us / 1e6))
    octets = format_octets(one.octets >> 20 << 20 or one.octets)
    names = (one.tsi, one.stream or "-", one.source or "-", one.node, one.segment or "-")
    return [*names, str(one.oldest), str(one.next_sqn), f"{one.rows:,}", octets, "closed" if one.closed else until]


def _verify(directory: Path, as_json: bool) -> int:
    """Read every batch, with its checksum, and see that sessions have no gaps."""
    archives = _open_found(directory)
    from pgm.archive.store.segment import SegmentFile

    batches = rows = octets = 0
    problems = [error.message for error in archives.damage]
    shown = 0.0
    for reader, session in archives.sessions():
        at = session.oldest
        for entry in list(session.entries):
            if entry.first != at:
                problems.append(f"session {session.session.tsi} has no rows for the sqns {at} to {entry.first - 1}")
            at = entry.end
            try:
                with SegmentFile(reader.directory, entry.segment) as file:
                    file.batch_of(entry)
            except _corrupt() as error:
                problems.append(error.message)
            except FileNotFoundError as error:
                reader.refresh(is_forced=True)
                # Else the recorder has dropped it meanwhile, as the oldest that was held.
                if session.oldest <= entry.first:
                    problems.append(f"{error.filename} is gone, and with it the sqns {entry.first} to {entry.end - 1}")
                continue
            batches, rows, octets = batches + 1, rows + entry.rows, octets + entry.octets
            if sys.stderr.isatty() and time.monotonic() - shown > _SHOW_S:
                shown = time.monotonic()
                print(f"\rverified {octets / 1e6:,.1f} MB  ", end="", file=sys.stderr, flush=True)
    if shown:
        print(file=sys.stderr)
    found = {"ok": not problems, "batches": batches, "rows": rows, "octets": octets, "problems": problems}
    if as_json:
        print_json(found)
    else:
        for problem in problems:
            warn(problem)
        print(f"{batches:,} batches, {rows:,} rows, {octets / 1e6:,.1f} MB: {'sound' if not problems else 'damaged'}")
    return 0 if not problems else EXIT_FAILED


def _corrupt() -> type[Any]:
    from pgm.archive.errors import CorruptSegment

    return CorruptSegment


def _cat(directory: Path, as_json: bool, tsi: str | None, node: str | None, first: int | None, end: int | None) -> int:
    """Write the messages of a session, or its rows as JSON."""
    if first is not None and end is not None and first >= end:
        raise UsageError(
            f"--first {first} --end {end}: nothing lies between them", remedy="--end is the sqn behind the last wanted"
        )
    archives = _open_found(directory)
    from pgm.archive.requests import RangeRequest

    tsi = tsi or _only_session(directory, archives)
    wanted = archives.read(RangeRequest(tsi, first=first, end=end, node=node))
    rows = 0
    for batch in wanted.batches():
        rows += batch.num_rows
        for at in range(0, batch.num_rows, _WRITE_ROWS):
            _cat_rows(batch.slice(at, _WRITE_ROWS).to_pylist(), as_json)
    if not rows:
        held = ", ".join(f"{one.oldest} to {one.next_sqn - 1}" for one in archives.holdings() if one.tsi == tsi)
        warn(f"nothing of session {tsi} is in this range; held are the sqns {held}")
    return 0


def _only_session(directory: Path, archives: Archives) -> str:
    known = sorted({one.tsi for one in archives.holdings()})
    if len(known) == 1:
        return known[0]
    for error in archives.damage:
        raise error
    raise UsageError(f"{directory} holds {len(known)} sessions", remedy=f"name one with --tsi: {', '.join(known)}")


def _cat_rows(rows: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        for row in rows:
            print_json(row | _value_as_json(row["value"]))
        return
    for row in rows:
        if row["lost"] is not None:
            warn(f"sqns {row['sqn']} to {row['sqn'] + row['count'] - 1} are lost: {row['lost']}")
    _write(b"".join(row["value"] + b"\n" for row in rows if row["lost"] is None))


def _value_as_json(value: bytes | None) -> dict[str, str | None]:
    """A message as text; where it is none, the octets beside what can be read of it."""
    if value is None:
        return {"value": None}
    try:
        return {"value": value.decode()}
    except UnicodeDecodeError:
        return {"value": value.decode(errors="replace"), "value_base64": base64.b64encode(value).decode()}


def _write(octets: bytes) -> None:
    rest = memoryview(octets)
    while rest:
        rest = rest[os.write(sys.stdout.fileno(), rest) :]


@click.command()
@click.argument("action", type=click.Choice(["ls", "verify", "cat"]))
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--tsi", help="cat: the session, if there are several.")
@click.option("--node", help="cat: whose archive, if DIRECTORY holds several.")
@click.option("--first", type=click.IntRange(0), help="cat: the first sqn; the oldest held without it.")
@click.option("--end", type=click.IntRange(0), help="cat: the sqn behind the last.")
@command
def archive(
    action: str, directory: Path, tsi: str | None, node: str | None, first: int | None, end: int | None, as_json: bool
) -> None:
    """Look into the archive in DIRECTORY, or in its subdirectories, also while it is written.

    \b
    pgm archive ls archive
    pgm archive verify archive
    pgm archive cat archive --first 1000 --end 2000 > messages

    `ls` says what it holds of which session, `verify` reads all of it and checks every checksum, `cat` writes messages, a line each.
    `cat --json` writes rows, one object a line; a message that is no text is there as `value_base64`, too. Exits with 1 if anything is
    damaged; the message names file and place.
    """
    for option, value in {"--tsi": tsi, "--node": node, "--first": first, "--end": end}.items():
        if value is not None and action != "cat":
            raise UsageError(
                f"{option} says what `cat` writes, and nothing to `{action}`", remedy=f"leave out {option}"
            )
    if action == "ls":
        code = _ls(directory, as_json)
    elif action == "verify":
        code = _verify(directory, as_json)
    else:
        code = _cat(directory, as_json, tsi, node, first, end)
    sys.exit(code)


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

    It reads what a recorder writes, while it is written or afterwards; docs/archive.md describes requests and answers. With
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
