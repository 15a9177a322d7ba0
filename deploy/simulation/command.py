"""The command `pgm sim`: the tree of a topology file in virtual time, with the cores of the real processes."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import attrs
import click

from deploy.node.roles import build_core
from deploy.simulation.in_parts import run_cut
from deploy.terminal.exit_codes import EXIT_FAILED
from deploy.terminal.options import FOLDER, loss_options, option, pattern_counts, tape_folder, topology_file
from deploy.terminal.output import command, print_json, warn
from pgm.errors import UsageError
from pgm.impairments import Impairment
from pgm.sim.checks.checker import Checker
from pgm.sim.faults import FOR_GOOD, KINDS, LASTING, Fault
from pgm.sim.invariant_broken import InvariantBroken
from pgm.sim.load import Load, NetworkConditions
from pgm.sim.parts.account import Progress
from pgm.sim.runs.report import Observation, simulate, whole_tree
from pgm.sim.runs.tapes import TapeChecker
from pgm.topology.load import load_checked
from pgm.topology.node_plan import NodePlan, Role
from pgm.topology.plan import PatternRest, plan_all, plan_some
from pgm.units import parse_duration, parse_fraction

_FAULT = re.compile(r"(?P<kind>\w+):(?P<node>[^@]+)@(?P<at>[^+]+)(?:\+(?P<for>.+))?")


def parse_fault(text: str) -> Fault:
    """Parse a fault such as "crash:NODE@2s" or "pause:NODE@2s+500ms". Raises `UsageError` or `UnitError`."""
    match = _FAULT.fullmatch(text)
    if match is None or match["kind"] not in KINDS:
        raise UsageError(
            f"{text!r} is not a fault",
            remedy=f"write KIND:NODE@WHEN or KIND:NODE@WHEN+HOW_LONG with one of {', '.join(KINDS)}",
        )
    kind, lasts = match["kind"], match["for"]
    if lasts is None and kind in LASTING:
        raise UsageError(f"{text!r} has no duration", remedy=f"write {text}+1s")
    if lasts is not None and kind in FOR_GOOD:
        raise UsageError(
            f"{text!r} has a duration, but a {kind} does not end by itself",
            remedy=f"leave out +{lasts}, or write crash_and_restart",
        )
    return Fault(kind, match["node"], parse_duration(match["at"]), parse_duration(lasts or "0ns"))


def parse_counts(texts: tuple[str, ...]) -> dict[str, int]:
    """Parse counts such as "desk-*=100" into a mapping from pattern to count. Raises `UsageError`."""
    counts = {}
    for text in texts:
        pattern, _, number = text.partition("=")
        if not number.isdecimal():
            raise UsageError(f"{text!r} is not a count", remedy="write PATTERN=NUMBER, such as 'desk-*=100'")
        counts[pattern] = int(number)
    return counts


def with_losses(plan: NodePlan, last_hop: Impairment | None, uplink: float | None) -> NodePlan:
    """Return a plan with `last_hop` losses for a receiver, or `uplink` losses for an element. None keeps the file's losses."""
    segments = []
    for segment in plan.segments:
        impairment = segment.impairment
        if plan.role is Role.RECEIVER and last_hop is not None:
            impairment = last_hop
        elif plan.role in (Role.AGGREGATOR, Role.REPAIRER) and segment.upstream and uplink is not None:
            impairment = Impairment(loss=uplink)
        segments.append(attrs.evolve(segment, impairment=impairment))
    return attrs.evolve(plan, segments=tuple(segments))


def last_hop_losses(loss: str | None, burst_loss: str | None) -> Impairment | None:
    """Return the losses of last hops that options name; None keeps those of the file. Raises `UnitError`."""
    if loss is None and burst_loss is None:
        return None
    return Impairment(loss=parse_fraction(loss or "0%"), burst_loss=parse_fraction(burst_loss or "0%"))


@contextmanager
def _bar(is_quiet: bool) -> Iterator[Callable[[Progress], None] | None]:
    if is_quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("simulating", total=None)

        def show(now: Progress) -> None:
            bar.update(
                task,
                description=f"virtual time {now.now_ns / 1e9:6.2f} s",
                completed=now.delivered,
                total=max(now.expected, now.delivered, 1),
            )

        yield show


@click.command()
@topology_file
@option("--messages", type=click.IntRange(1), default=10_000, help="Messages of every source.")
@option("--size", type=click.IntRange(8), default=1400, help="Octets of a message.")
@click.option(
    "--rate", type=click.IntRange(0), default=0, show_default="half of the stream's rate", help="Messages a second."
)
@pattern_counts
@loss_options
@option("--delay", default="50us", help="Delay from a segment to a node.")
@click.option(
    "--fault",
    "faults",
    multiple=True,
    metavar="KIND:NODE@WHEN[+FOR]",
    help="Inject a fault; may be repeated. WHEN is virtual time; sources begin at 1s.",
)
@option("--seed", type=int, default=1, help="The same seed gives the same run.")
@click.option(
    "--telemetry",
    type=FOLDER,
    help="Write protocol events as Parquet files into this folder, for `pgm report`. Use an empty folder for each run.",
)
@tape_folder
@click.option(
    "--real",
    type=click.IntRange(1),
    metavar="K",
    help="Give K receivers of each pattern the production core, and all others one model.  [default: all]",
)
@click.option(
    "--parts",
    type=click.IntRange(1),
    metavar="N",
    help="Cut the tree at its relays into at most N parts. The result is the same.  [default: 1; with --spark one a core]",
)
@click.option(
    "--spark",
    "master",
    is_flag=False,
    flag_value="",
    metavar="[MASTER]",
    help="Run the parts in Spark tasks: on all cores of this machine, or on a cluster such as spark://host:7077.",
)
@command
def sim(
    file: Path,
    messages: int,
    size: int,
    rate: int,
    counts: tuple[str, ...],
    loss: str | None,
    burst_loss: str | None,
    uplink_loss: str | None,
    delay: str,
    faults: tuple[str, ...],
    seed: int,
    telemetry: Path | None,
    tape: Path | None,
    real: int | None,
    parts: int | None,
    master: str | None,
    as_json: bool,
) -> None:
    """Run the tree of a topology FILE in virtual time and account for every packet.

    The simulation uses the cores and the encoded packets of the real processes; network and clock are simulated. Order,
    content and bounds are checked at every step. A violated invariant ends the run with a command that repeats it.

    \b
    pgm sim tree.toml --count 'desk-*=1000' --loss 1%
    pgm sim tree.toml --fault crash:floor-2-repairer@2s --fault pause:desk-3@2s+1s
    pgm sim tree.toml --count 'desk-*=1000' --spark

    The kinds of fault are crash and restart, and with +FOR crash_and_restart, pause, partition and deafen. Packets
    "repaired locally" came from a repairer of the same subnet, packets "from above" from a higher tier. A "late" packet
    arrived as data after its loss was detected. Exits with 1 if a message did not arrive once and in order.
    """
    _warn_of_other_runs(telemetry)
    is_cut = any(option is not None for option in (parts, real, master))
    if is_cut:
        _refuse_records(telemetry, tape)
    last_hop = last_hop_losses(loss, burst_loss)
    uplink = None if uplink_loss is None else parse_fraction(uplink_loss)
    plans, rest = _planned(file, counts, real, lambda plan: with_losses(plan, last_hop, uplink))
    try:
        load = Load(messages=messages, size=size, rate=rate)
        conditions = NetworkConditions(delay=parse_duration(delay), faults=[parse_fault(text) for text in faults])
        repeat = shlex.join(["pgm", *sys.argv[1:]])
        with _bar(as_json) as progress, _tapes_in(tape) as checkers:
            if is_cut:
                whole = whole_tree(plans, build_core, seed, load, conditions, repeat, rest)
                report = run_cut(whole, parts, master, progress)
            else:
                seen = Observation(progress=progress, telemetry=str(telemetry or ""), checkers=checkers, repeat=repeat)
                report = simulate(plans, build_core, seed=seed, load=load, conditions=conditions, observation=seen)
    except InvariantBroken as broken:
        _end_broken(broken, seed, as_json=as_json)
    if as_json:
        print_json(report)
    else:
        _print(report)
    if not report["ok"]:
        sys.exit(EXIT_FAILED)


def _refuse_records(telemetry: Path | None, tape: Path | None) -> None:
    if telemetry is not None or tape is not None:
        raise UsageError(
            "a tree in parts keeps no telemetry and no tapes", remedy="leave out --parts, --real and --spark"
        )


def _planned(
    file: Path, counts: tuple[str, ...], real: int | None, change: Callable[[NodePlan], NodePlan]
) -> tuple[dict[str, NodePlan], list[PatternRest]]:
    """Return the changed plans of a file, and the receivers of each pattern beyond the first `real`."""
    topology, many = load_checked(file), parse_counts(counts)
    plans, rest = (plan_all(topology, many), []) if real is None else plan_some(topology, many, real)
    changed = {name: change(plan) for name, plan in plans.items()}
    return changed, [attrs.evolve(one, plan=change(one.plan)) for one in rest]


@contextmanager
def _tapes_in(folder: Path | None) -> Iterator[list[Checker]]:
    """Yield the checkers that keep tapes: none without a folder."""
    if folder is None:
        yield []
        return
    tapes = TapeChecker(folder)
    try:
        yield [tapes]
    finally:
        tapes.finish()


def _end_broken(broken: InvariantBroken, seed: int, *, as_json: bool) -> NoReturn:
    if as_json:
        print_json({"ok": False, "seed": seed, "broken": str(broken)})
    else:
        print(f"an invariant is violated: {broken}", file=sys.stderr)
    sys.exit(EXIT_FAILED)


def _warn_of_other_runs(telemetry: Path | None) -> None:
    if telemetry is not None and any(telemetry.glob("*.parquet")):
        warn(f"{telemetry} has telemetry of another run: a report of this folder adds up both runs")


_MOST_ROWS = 24  # rows of a table; further rows are summed up or only in --json


def _print(report: dict[str, Any]) -> None:
    from deploy.terminal.account_tables import received_table, traffic_table
    from deploy.terminal.tables import console

    terminal = console()
    models = [row | {"node": f"{row['node']} ({row['members']} modelled)"} for row in report["crowds"]]
    rows = [*report["receivers"], *models]
    shown = rows if len(rows) <= _MOST_ROWS else rows[: _MOST_ROWS // 2]
    receivers = len(report["receivers"]) + sum(row["members"] for row in report["crowds"])
    total = {"node": f"all {receivers:,}", **report["totals"]}
    terminal.print(received_table([*shown, total], terminal.width))
    terminal.print()
    elements = [*report["aggregators"], *report["repairers"]]
    busiest = sorted(elements, key=lambda row: -row["nak_sqns_in"])[:_MOST_ROWS]
    left = len(elements) - len(busiest)
    title = f"sources and elements{f' (the busiest; --json has {left} more)' if left else ''}"
    terminal.print(
        traffic_table(title, [*report["sources"], *(row for row in elements if row in busiest)], terminal.width)
    )
    terminal.print()
    for notice in report["notices"]:
        print(f"{notice['at']:10.3f} s {notice['node']}: {notice['text']}")
    print(f"seed {report['seed']}, {report['virtual_seconds']} s of virtual time, {report['events']:,} events")
    for number, part in enumerate(report["parts"], 1):
        nodes = part["nodes"]
        print(
            f"part {number}: {nodes} {'node' if nodes == 1 else 'nodes'}, {part['cpu_seconds']} s of CPU, {part['memory_mb']} MB"
        )
    for problem in report["problems"]:
        print(f"problem: {problem}")
    if report["ok"]:
        print("every receiver got every message once and in order")
