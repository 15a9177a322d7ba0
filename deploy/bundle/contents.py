"""Parts of a bundle: what each has, and how it is made. A part that fails says why, and the others are not affected."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs

from deploy.bundle.host_facts import host_facts, kernel_files
from deploy.bundle.redaction import Redactor
from deploy.bundle.telemetry_rows import recent_rows
from deploy.bundle.topology_copy import topology_copy
from deploy.doctor.command import nodes_to_check
from deploy.doctor.fleet import fleet_findings
from deploy.doctor.machine import check_machine
from deploy.doctor.network import check_interfaces, check_nodes
from deploy.doctor.view import rows_of
from deploy.status.explain import gather_here
from deploy.status.recorders import Query, worst_of
from deploy.status.status import gather
from pgm.errors import ProcessError, UsageError
from pgm.fleet.nodes import TreeView
from pgm.fleet.runtime_folders import tree_folders
from pgm.flight.contents import SUFFIX, RingContents, read_ring, ring_octets, rings_in
from pgm.net.sockets.interfaces import multicast_interfaces
from pgm.telemetry.snapshot import Snapshot
from pgm.topology.check import check
from pgm.topology.reading import ParsedTopology
from pgm.units import MIB

if TYPE_CHECKING:
    from pgm.fleet.watch import FleetWatch

WORST = 20  # packets that `explain` explains: more are rarely read
MOST_TEXT = 16 * MIB  # octets of one text, of which the first ones stay; a thousand nodes have 16 KiB each
MOST_LOG = MIB  # octets of one log, of which the last ones stay: some ten thousand lines
MOST_LOG_LINES = 10_000  # of the journal
_JOURNAL_S = 20.0  # until journalctl is given up
_MOST_RECORDS = 262_144  # of a ring, the newest: those of 16 MiB

File: TypeAlias = tuple[str, bytes]  # name in the archive, and content


@attrs.define
class BundleCase:
    """Tree of a bundle, and what the command line wants of it. `topology` is the name of the tree, if it is known."""

    file: Path
    octets: bytes
    parsed: ParsedTopology
    topology: str
    redactor: Redactor
    telemetry: Path | None
    minutes_s: float
    logs: tuple[Path, ...]
    fleet: FleetWatch | None
    _snapshots: list[Snapshot] | None = attrs.field(init=False, default=None)
    _view: TreeView | None = attrs.field(init=False, default=None)

    def ask_nodes(self) -> list[Snapshot]:
        """Return the snapshots of the nodes of this host, which are asked once. Raises `ProcessError`, `TopologyError`."""
        if self._snapshots is None:
            where = str(self.file) if self.parsed.topology is not None and not self.parsed.problems else self.topology
            rows, silent, stuck = gather(where, ())
            if stuck or not rows:
                told = (
                    f"not answering: {', '.join(stuck)}" if stuck else f"none of {len(silent)} nodes runs on this host"
                )
                raise ProcessError(told, remedy="start the nodes, or run the command as their user")
            self._snapshots = rows
        return self._snapshots

    def ask_fleet(self) -> tuple[FleetWatch, TreeView]:
        """Return the fleet and its view; the agents are asked once. Raises `UsageError` without --fleet."""
        if self.fleet is None:
            raise UsageError("not asked for", remedy="give --fleet")
        if self._view is None:
            self._view = self.fleet.look()
        return self.fleet, self._view

    def json(self, value: Any) -> bytes:
        """Return plain values as the text of a JSON file, without secrets."""
        return (json.dumps(self.redactor.value(value), indent=1, default=str) + "\n").encode()

    def lines(self, rows: Iterable[Any]) -> bytes:
        """Return a text with one JSON object on each line, without secrets. Lines beyond `MOST_TEXT` are left out."""
        kept = bytearray()
        for row in rows:
            line = json.dumps(self.redactor.value(row), separators=(",", ":"), default=str).encode() + b"\n"
            if len(kept) + len(line) > MOST_TEXT:
                break
            kept += line
        return bytes(kept)


@attrs.frozen
class BundlePart:
    """Part of a bundle: its name in the archive, its meaning for the reader, and its maker."""

    name: str
    meaning: str
    make: Callable[[BundleCase], Iterator[File]]
    is_of_fleet: bool = False


def _topology(case: BundleCase) -> Iterator[File]:
    copy = topology_copy(case.octets, case.parsed, case.redactor)
    if not copy.text:
        raise UsageError(f"the file has errors of form ({'; '.join(copy.problems)})", remedy="see pgm check")
    yield "topology.toml", copy.text.encode()
    assert case.parsed.topology is not None
    report = check(case.parsed.topology)
    rows = [attrs.asdict(problem) for problem in (*report.errors, *report.warnings)]
    yield (
        "check.json",
        case.json({"ok": report.is_good, "problems": [{**row, "file": "topology.toml"} for row in rows]}),
    )


def _machine(case: BundleCase) -> Iterator[File]:
    yield "machine.json", case.json(host_facts())
    for name, text in kernel_files():
        yield f"kernel/{name}.txt", case.redactor.text(text).encode()


def _status(case: BundleCase) -> Iterator[File]:
    rows = case.ask_nodes()
    yield "status.jsonl", case.lines(_without_subjects(row) for row in rows)
    events = [{"node": row.get("node", ""), **event} for row in rows for event in row.get("events", ())]
    yield "events.jsonl", case.lines(sorted(events, key=lambda event: event.get("at_s") or 0))


def _without_subjects(row: Snapshot) -> Snapshot:
    """Return a snapshot with the number of subjects of each stream alone: applications choose the names."""
    subjects = row.get("subjects")
    counts = {stream: len(own) for stream, own in subjects.items()} if isinstance(subjects, dict) else {}
    return {**row, "subjects": counts}


def _doctor(case: BundleCase) -> Iterator[File]:
    try:
        checked = nodes_to_check(case.file, ())
    except UsageError:  # no node of the file has an address of this host
        findings = [*check_machine([]), *check_interfaces(multicast_interfaces())]
    else:
        findings = [*check_machine(checked.plans), *check_nodes(checked.plans, checked.uses)]
    yield "doctor.json", case.json({"checks": rows_of(findings)})


def _worst(case: BundleCase) -> Iterator[File]:
    found = worst_of(lambda _: gather_here(case.topology or None), WORST, None, is_excerpt=False)
    yield "explain-worst.json", case.json(found.row())


def _logs(case: BundleCase) -> Iterator[File]:
    for at, path in enumerate(case.logs, 1):
        yield f"logs/{at}-{safe_name(path.name)}", case.redactor.text(_end_of(path)).encode()
    journal = _journal(case.topology) if case.topology and shutil.which("journalctl") else ""
    if journal:
        yield "logs/journal.log", case.redactor.text(journal).encode()
    elif not case.logs:
        raise UsageError("the journal has no lines of the tree's units", remedy="give the logs of the nodes by --log")


def _end_of(path: Path) -> str:
    """Return the last lines of a file."""
    with open(path, "rb") as file:
        octets = file.seek(0, 2)
        file.seek(max(0, octets - MOST_LOG))
        return _whole_lines(file.read(MOST_LOG), is_cut=octets > MOST_LOG)


def _whole_lines(octets: bytes, *, is_cut: bool) -> str:
    """Return the text of a log. A cut log loses its first line: half of a secret, or one without its name, has no form."""
    text = octets.decode("utf-8", "replace")
    return text.partition("\n")[2] if is_cut else text


def _journal(topology: str) -> str:
    units = [f"pgm-{safe_name(topology)}-*.service", f"pgm-agent-{safe_name(topology)}.service"]
    line = ["journalctl", "--no-pager", "--quiet", "--output=short-iso", f"--lines={MOST_LOG_LINES}"]
    line += [f"--unit={unit}" for unit in units]
    try:
        done = subprocess.run(line, capture_output=True, timeout=_JOURNAL_S, check=False, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        raise ProcessError(f"journalctl took more than {_JOURNAL_S:g} s", remedy="give the logs by --log") from None
    return _whole_lines(done.stdout[-MOST_LOG:], is_cut=len(done.stdout) > MOST_LOG)


def _flight(case: BundleCase) -> Iterator[File]:
    paths = [path for folder in tree_folders(case.topology or None) for path in rings_in(folder)]
    if not paths:
        raise ProcessError("no flight recorder of the tree on this host", remedy="set flight_bytes above 0")
    for path in paths:
        ring = read_ring(path)
        yield f"flight/{safe_name(path.parent.name)}/{safe_name(path.stem)}{SUFFIX}", _ring(case, ring)


def _ring(case: BundleCase, ring: RingContents) -> bytes:
    """Return a ring of whole records and checked facts alone: nothing else of the file is copied."""
    facts = case.redactor.value(ring.facts)
    return ring_octets(attrs.evolve(ring, facts=facts, records=ring.records[-_MOST_RECORDS:]))


def _telemetry(case: BundleCase) -> Iterator[File]:
    if case.telemetry is None:
        raise UsageError("the tree writes no telemetry", remedy="set `telemetry` in the file, or give --telemetry")
    content = recent_rows(case.telemetry, time.time() - case.minutes_s, case.redactor)
    yield "telemetry/recent.parquet", content


def _fleet_status(case: BundleCase) -> Iterator[File]:
    _, view = case.ask_fleet()
    row = view.row()
    nodes = [_without_subjects(node) for node in row.pop("nodes")]
    yield "fleet/hosts.json", case.json(row)
    yield "fleet/status.jsonl", case.lines(nodes)


def _fleet_doctor(case: BundleCase) -> Iterator[File]:
    fleet, _ = case.ask_fleet()
    yield "fleet/doctor.json", case.json({"checks": rows_of(fleet_findings(fleet))})


def _fleet_flight(case: BundleCase) -> Iterator[File]:
    fleet, view = case.ask_fleet()
    rings: dict[str, RingContents] = {}
    problems: list[str] = []

    def ask(query: Query) -> list[RingContents]:
        found: list[RingContents] = []
        for host, answer in fleet.flight(view, query).items():
            if isinstance(answer, ProcessError):
                problems.append(f"{host}: {answer.message}")
                continue
            rings.update({f"{safe_name(ring.node)}@{safe_name(host)}": ring for ring in answer})
            found += answer
        if not found:
            raise ProcessError(f"no agent gave a flight recorder; {'; '.join(problems[:10])}")
        return found

    worst = worst_of(ask, WORST, None, is_excerpt=True)
    yield "fleet/explain-worst.json", case.json({**worst.row(), "silent": problems})
    for name, ring in rings.items():
        yield f"fleet/flight/{safe_name(fleet.name)}/{name}{SUFFIX}", _ring(case, ring)


# In the order of their use to support: a full archive lacks the last ones.
PARTS: Sequence[BundlePart] = (
    BundlePart("topology.toml", "The topology file, without comments, reasons of revocations and key paths; `check.json` has what `pgm check` says of it.", _topology),
    BundlePart("machine.json", "Versions, kernel, memory, interfaces, and settings of the kernel (`sysctl`) that matter; `kernel/` has its tables of networks.", _machine),
    BundlePart("status.jsonl", "What `pgm status --json` prints: one node of this host a line, with every counter. `events.jsonl` has their last events, by time.", _status),
    BundlePart("doctor.json", "What `pgm doctor --json` finds on this host.", _doctor),
    BundlePart("explain-worst.json", f"What `pgm explain --worst {WORST} --json` says of the losses and the slowest repairs.", _worst),
    BundlePart("fleet/", "Of all hosts, by their agents: `hosts.json` has silent hosts and other files, `status.jsonl` the nodes.", _fleet_status, is_of_fleet=True),
    BundlePart("fleet/doctor.json", "What `pgm doctor --fleet --json` finds on all hosts.", _fleet_doctor, is_of_fleet=True),
    BundlePart("fleet/flight/", "Excerpts of the flight recorders of all hosts about the worst packets, and their explanations.", _fleet_flight, is_of_fleet=True),
    BundlePart("logs/", "Last lines of the journal of the tree's units, and of the files of `--log`.", _logs),
    BundlePart("flight/", "Flight recorders of the nodes of this host, for `pgm explain`.", _flight),
    BundlePart("telemetry/", "Last minutes of the tree's telemetry on this host, for `pgm report`.", _telemetry),
)  # fmt: skip


def safe_name(text: str) -> str:
    """Return a name for a path in the archive, of letters, digits, dots, hyphens, at signs and underscores."""
    return re.sub(r"[^A-Za-z0-9@._-]", "_", text).lstrip(".")[:128] or "_"
