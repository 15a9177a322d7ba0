"""The command `pgm archive`: list the sessions of an archive, verify the checksums, print the messages, export them."""

from __future__ import annotations

import base64
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from deploy.archive.export import KINDS, PARAMETERS, export
from deploy.archive.record import need_arrow
from deploy.archive.schema import CODECS, SAMPLE, is_address, print_schema
from deploy.terminal.exit_codes import EXIT_FAILED
from deploy.terminal.options import FOLDER, PATH
from deploy.terminal.output import command, print_json, warn
from pgm.errors import UsageError
from pgm.units import format_octets

if TYPE_CHECKING:
    from pgm.archive.requests import SessionExtent
    from pgm.archive.service.collection import Archives

_WRITE_ROWS = 1000
_OWNERS = {
    **dict.fromkeys(("tsi", "node", "first", "end"), "cat"),
    **dict.fromkeys(("signatures", "topologies", "key_file"), "verify"),
    "companions": "ls",
    **dict.fromkeys(("subjects", "sample", "codec"), "schema"),
    **dict.fromkeys(("target", "to", "table", "catalog", "compact", "missing", "overrides"), "export"),
}  # option -> its action
_SPELLED = {
    "topologies": "--topology",
    "key_file": "--keys",
    "overrides": "--set",
    "target": "the second folder",
    "subjects": "--subject",
    "codec": "--decode",
}


def _open(directory: Path) -> Archives:
    need_arrow()
    from pgm.archive.service.collection import Archives

    return Archives(directory)


def _open_nonempty(directory: Path) -> Archives:
    """Open the archives in `directory`. Raises `ArchiveError` if there are none: the directory may be the wrong one."""
    from pgm.archive.errors import ArchiveError

    archives = _open(directory)
    if not archives.readers:
        raise ArchiveError(
            _no_archive_text(directory), remedy="name the directory of a recorder, or its parent directory"
        )
    return archives


def _no_archive_text(directory: Path) -> str:
    return f"{directory} holds no archive, or nothing was recorded there yet"


def _ls(directory: Path, as_json: bool, has_companions: bool) -> int:
    archives = _open_nonempty(directory)
    holdings = _holdings(archives, has_companions=has_companions)
    if as_json:
        print_json(
            {
                "holdings": [extent.as_json() for extent in holdings],
                "damage": [str(error.message) for error in archives.damage],
            }
        )
    else:
        from deploy.terminal.tables import TableColumn, console, table

        terminal = console()
        heads = ("session", "stream", "source", "node", "segment", "oldest", "next sqn", "rows", "size", "until (UTC)")
        columns = [TableColumn(head, rank) for head, rank in zip(heads, (0, 0, 2, 1, 3, 0, 0, 4, 5, 6), strict=True)]
        terminal.print(table("Held", columns, [_row(extent) for extent in holdings], terminal.width))
        for error in archives.damage:
            warn(error.message)
    return EXIT_FAILED if archives.damage else 0


def _holdings(archives: Archives, *, has_companions: bool = False) -> list[SessionExtent]:
    """Return the sessions of messages, or all sessions."""
    from pgm.archive.session import COMPANIONS

    return [extent for extent in archives.holdings() if has_companions or extent.kind not in COMPANIONS]


def _row(extent: SessionExtent) -> list[str]:
    until = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(extent.last_received_us / 1e6))
    octets = format_octets(extent.octets >> 20 << 20 or extent.octets)
    names = (extent.tsi, extent.stream or "-", extent.source or "-", extent.node, extent.segment or "-")
    return [
        *names,
        str(extent.oldest),
        str(extent.next_sqn),
        f"{extent.rows:,}",
        octets,
        "closed" if extent.closed else until,
    ]


def _cat(directory: Path, as_json: bool, tsi: str | None, node: str | None, first: int | None, end: int | None) -> int:
    """Write the messages of a session, or its rows as JSON. Raises `UsageError` for an empty range."""
    if first is not None and end is not None and first >= end:
        raise UsageError(
            f"--first {first} --end {end}: the range is empty",
            remedy="--end is the sqn after the last one of the range",
        )
    archives = _open_nonempty(directory)
    from pgm.archive.requests import RangeRequest

    tsi = tsi or _only_session(directory, archives)
    selection = archives.read(RangeRequest(tsi, first=first, end=end, node=node))
    rows = 0
    for batch in selection.batches():
        rows += batch.num_rows
        for at in range(0, batch.num_rows, _WRITE_ROWS):
            _cat_rows(batch.slice(at, _WRITE_ROWS).to_pylist(), as_json)
    if not rows:
        held = ", ".join(
            f"{extent.oldest} to {extent.next_sqn - 1}" for extent in archives.holdings() if extent.tsi == tsi
        )
        warn(f"session {tsi} has no rows in this range; the archive holds the sqns {held}")
    return 0


def _only_session(directory: Path, archives: Archives) -> str:
    known = sorted({extent.tsi for extent in _holdings(archives)})
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
    """Return a message as text. A message that is not UTF-8 also has its octets in base64."""
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
@click.argument("action", type=click.Choice(["ls", "verify", "cat", "schema", "export"]))
@click.argument("directory", metavar="DIRECTORY|URL")
@click.argument("target", type=FOLDER, required=False)
@click.option("--companions", is_flag=True, help="ls: list the sessions of proofs and key records, too.")
@click.option("--signatures", is_flag=True, help="verify: judge each row of signed streams by its proof.")
@click.option(
    "--topology",
    "topologies",
    type=PATH,
    multiple=True,
    help="verify --signatures: the file with the public keys. Repeat it for files with earlier keys.",
)
@click.option(
    "--keys",
    "key_file",
    type=PATH,
    help="verify --signatures: private file of a reader, to prove rows that a recorder has decrypted.",
)
@click.option("--tsi", help="cat: the session, if there are several.")
@click.option("--node", help="cat: the node of the archive, if DIRECTORY holds several.")
@click.option("--first", type=click.IntRange(0), help="cat: the first sqn; by default the oldest held.")
@click.option("--end", type=click.IntRange(0), help="cat: the sqn after the last one.")
@click.option(
    "--subject",
    "subjects",
    multiple=True,
    help="schema: only messages with this subject; a final * matches any ending.",
)
@click.option(
    "--sample", type=click.IntRange(1), metavar="N", help=f"schema: number of values to read; by default {SAMPLE}."
)
@click.option(
    "--decode", "codec", type=click.Choice(CODECS), help="schema: codec of the values; by default that of most."
)
@click.option("--to", type=click.Choice(KINDS), help="export: the kind of the table in the folder TARGET.")
@click.option("--table", metavar="NAME", help="export --to iceberg: name of the table; by default pgm.rows.")
@click.option(
    "--catalog", metavar="NAME", help="export --to iceberg: catalog of .pyiceberg.yaml; by default TARGET/catalog.db."
)
@click.option("--compact", is_flag=True, help="export: merge the small files of the table afterwards.")
@click.option(
    "--missing",
    type=click.Choice(["error", "loss"]),
    help="export: whether rows that the archive no longer has are an error, the default, or a row of a loss.",
)
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help=f"export: a parameter: {', '.join(PARAMETERS)}. May be repeated.",
)
@command
def archive(action: str, directory: str, as_json: bool, **options: Any) -> None:
    """Inspect the archive in DIRECTORY, or the archives in its subdirectories, also during a recording.

    \b
    pgm archive ls archive
    pgm archive verify archive
    pgm archive verify archive --signatures --topology tree.toml
    pgm archive cat archive --first 1000 --end 2000 > messages
    pgm archive schema archive --subject '/trades/*'
    pgm archive export archive --to iceberg lake --compact

    `ls` lists the sessions with the range held of each. `verify` reads the whole archive and checks every checksum. `cat` writes the
    messages, one per line. `cat --json` writes rows, one object per line; a message that is not UTF-8 also has `value_base64`. Exits with
    1 if the archive is damaged; the message names the file and the position.

    `verify --signatures` counts for each session of a signed stream the rows that are proved, unproved because their proof is missing,
    forged, and proved by revoked keys. Exits with 1 unless every row is proved. Keys count by the start of the session. Without
    --topology the keys are those that the recorder has copied into the archive.

    `schema` reads a sample of the values, from all sessions and times, and prints their fields for the option decodeSchema of Spark. Standard
    error tells how many values were read and how many differ. The URL of a range service, such as grpc://127.0.0.1:3057, serves as well.

    `export` writes the rows that the table in the folder TARGET lacks. The progress is in the table, so a killed export goes on with the
    first row that is missing, and a repeated one writes what is new.
    """
    for name, value in options.items():
        is_given = value is not None and value is not False and value != ()
        if is_given and (owner := _OWNERS[name]) != action:
            option = _SPELLED.get(name, f"--{name}")
            raise UsageError(f"{option} is an option of `{owner}`, not of `{action}`", remedy=f"leave out {option}")
    for name in ("topologies", "key_file"):
        if options[name] and not options["signatures"]:
            raise UsageError(f"{_SPELLED[name]} is for a check of signatures", remedy="add --signatures")
    folder = Path(directory)
    if action == "schema":
        need_arrow()
        code = print_schema(directory if is_address(directory) else _open_nonempty(folder), as_json, options)
    elif is_address(directory):
        raise UsageError(
            f"`{action}` reads a directory, not a service", remedy="name the directory, on the host of the service"
        )
    elif action == "ls":
        code = _ls(folder, as_json, options["companions"])
    elif action == "verify":
        from deploy.archive.verify import verify

        archives = _open_nonempty(folder)
        code = verify(
            archives,
            signatures=options["signatures"],
            topologies=options["topologies"],
            key_file=options["key_file"],
            as_json=as_json,
        )
    elif action == "export":
        code = export(_open_nonempty(folder), options["target"], as_json, options)
    else:
        code = _cat(folder, as_json, options["tsi"], options["node"], options["first"], options["end"])
    sys.exit(code)
