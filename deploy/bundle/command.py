"""The command `pgm bundle`."""

from __future__ import annotations

import json
import platform
import time
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import click

from deploy.bundle.archive_file import BoundedArchive
from deploy.bundle.contents import PARTS, BundleCase, BundlePart, safe_name
from deploy.bundle.known_secrets import known_secrets
from deploy.bundle.page import readme
from deploy.bundle.redaction import Redactor
from deploy.terminal.fleet_options import FleetAccess, fleet_options
from deploy.terminal.options import FOLDER, NEW_FILE, PATH, option, parsed, topology_file
from deploy.terminal.output import command, print_json, warn
from deploy.terminal.version import VERSION
from pgm.errors import PgmError, UsageError
from pgm.own_files import forbid_core_dumps
from pgm.topology.model import Topology
from pgm.topology.reading import read
from pgm.units import MIB, format_octets, parse_octets

MOST_OCTETS = "64MiB"  # of an archive: trackers of issues and mail take little more
_LEAST_OCTETS = MIB
_MINUTES = 10.0  # the flight recorder keeps about as long
_DAY_MINUTES = 1440.0


@attrs.frozen
class LeftOut:
    """Part that a bundle lacks, and the reason."""

    part: str
    reason: str


@click.command()
@topology_file
@click.option("--out", type=NEW_FILE, help="Archive to write; by default pgm-bundle-TREE-HOST-TIME.tar.gz here.")
@click.option("--log", "logs", type=PATH, multiple=True, help="Log of a node without journal; may be repeated.")
@click.option("--telemetry", type=FOLDER, help="Folder of the telemetry; by default that of FILE.")
@option("--minutes", type=click.FloatRange(0, _DAY_MINUTES), default=_MINUTES, help="Minutes of telemetry.")
@option(
    "--limit",
    default=MOST_OCTETS,
    callback=partial(parsed, parse_octets),
    help="Greatest size of the archive; what has no room is left out and named.",
)
@command
@fleet_options()
def bundle(file: Path, out: Path | None, limit: int, as_json: bool, **options: Any) -> None:
    """Write one archive with all that support needs to look into a fault of the tree of FILE, without secrets.

    \b
    pgm bundle tree.toml
    pgm bundle tree.toml --out fault.tar.gz --log desk-7.log
    pgm bundle tree.toml --fleet            # also of all hosts that run pgm agent

    The archive has the topology file, facts of this machine, the findings of pgm doctor, status and counters of the
    nodes here, their flight recorders, logs and telemetry of the last minutes, and a README. Comments, key paths,
    tokens and private keys are left out, and so is whatever looks like one. Messages of streams are in none of the parts.
    The command changes nothing and needs no stop of a node. docs/guide/bundle.md explains each part.

    An existing file is never replaced. The exit status is 0 if the archive was written, even if parts are missing.
    """
    if limit < _LEAST_OCTETS:
        raise UsageError(f"--limit {format_octets(limit)} is too little", remedy="give 1MiB or more")
    forbid_core_dumps()  # private keys are read, to find them where they must not be
    case = _case(file, **options)
    name = (
        f"pgm-bundle-{safe_name(case.topology or 'tree')}-{safe_name(platform.node())}-{time.strftime('%Y%m%d-%H%M%S')}"
    )
    path = out or Path(f"{name}.tar.gz")
    say = (lambda _: None) if as_json else warn
    left_out: list[LeftOut] = []
    with BoundedArchive(path, name, limit) as archive:
        for part in PARTS:
            if part.is_of_fleet and case.fleet is None:
                continue
            say(f"{part.name}: collecting")
            missing = _add(archive, part, case)
            for one in missing:
                say(f"{part.name}: left out: {one.reason}")
            left_out += missing
        result = {
            "file": str(path),
            "members": [attrs.asdict(member) for member in archive.members],
            "left_out": [attrs.asdict(one) for one in left_out],
            "removed": case.redactor.removed,
        }
        page = readme(case.topology, archive.members, [(one.part, one.reason) for one in left_out])
        archive.add("README.md", page.encode(), is_last=True)
        archive.add("contents.json", _contents(case, result), is_last=True)
    octets = path.stat().st_size
    if as_json:
        print_json({**result, "octets": octets})
    else:
        say(
            f"{path}: {octets / 1e6:.2f} MB; removed texts: {case.redactor.removed}; look at its README.md before you send it"
        )


def _case(
    file: Path,
    logs: tuple[Path, ...],
    telemetry: Path | None,
    minutes: float,
    fleet: FleetAccess | None,
) -> BundleCase:
    """Return what to collect. Raises `UsageError` for a file that cannot be read."""
    try:
        octets = file.read_bytes()
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}", remedy="give the path of a topology file") from error
    reading = read(file)
    topology = reading.topology
    redactor = Redactor(tuple(known_secrets(topology, fleet.token if fleet else None)))
    return BundleCase(
        file,
        octets,
        reading,
        topology.name if topology is not None else "",
        redactor,
        telemetry or _telemetry_of(topology),
        minutes * 60,
        logs,
        fleet.watch(file) if fleet else None,
    )


def _telemetry_of(topology: Topology | None) -> Path | None:
    return Path(topology.telemetry) if topology is not None and topology.telemetry else None


def _add(archive: BoundedArchive, part: BundlePart, case: BundleCase) -> list[LeftOut]:
    """Add a part. Return what it lacks."""
    missing: list[LeftOut] = []
    try:
        for name, content in part.make(case):
            if not archive.add(name, content):
                missing.append(
                    LeftOut(part.name, f"{name}: no room for {len(content):,} octets; give a greater --limit")
                )
    except (PgmError, OSError) as error:
        first = error.message if isinstance(error, PgmError) else str(error)
        missing.append(LeftOut(part.name, case.redactor.text(first.splitlines()[0] if first else type(error).__name__)))
    return missing


def _contents(case: BundleCase, result: dict[str, Any]) -> bytes:
    digest = case.parsed.topology.digest if case.parsed.topology is not None else ""
    facts = {"version": VERSION, "topology": case.topology, "topology_digest": digest, "time_s": round(time.time(), 3)}
    return json.dumps({**facts, **{key: value for key, value in result.items() if key != "file"}}, indent=1).encode()
