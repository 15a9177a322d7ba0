"""`pgm tune`: timers for a tree, found by simulating it with the losses that it really has."""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click

from deploy.report.command import spark_session
from deploy.simulation.command import parse_counts
from deploy.terminal import svg as pictures
from deploy.terminal.output import command, print_json, warn
from deploy.terminal.tables import TableColumn, console, table
from deploy.tune.space import TunableParameter, knobs, overrides_of
from deploy.tune.trial import Candidate, RunMeasures, TrialSetting, TuneTrial, run
from deploy.tune.tuned_file import require_tables, tuned_text
from pgm.errors import UnitError, UsageError
from pgm.impairments import Impairment
from pgm.parameters import ROWS
from pgm.topology.load import load_checked
from pgm.topology.model import Topology
from pgm.topology.node_plan import Role
from pgm.topology.precedence import settings_of, value_of
from pgm.units import MILLISECOND, SECOND, parse_duration

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.table import Table

    from deploy.tune.search import Score, SearchResult

_LEAST_MISSED = 60  # packets in one run: fewer say nothing
_TELL_S = 15.0  # between lines about a step that takes long, where there is no terminal: a log stays short
_MOST_MESSAGES = 20_000
_LOCAL_NS = MILLISECOND // 2  # from a segment to a node where no line of `rtt` is crossed
_CACHE_MARGIN = 4  # times what was enough in simulations
_LEAST_CACHE = 2 * SECOND  # of what is written
_LEAST_DELAY_NS = MILLISECOND // 20
_PICTURE = ".svg"


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--telemetry",
    type=click.Path(path_type=Path),
    help="Folder with telemetry of this tree: its losses and round trips are simulated instead of the file's.",
)
@click.option("--runs", type=click.IntRange(100), default=2000, show_default=True, help="About how many simulations.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    default="tuned.toml",
    show_default=True,
    help="The file to write; the picture goes beside it.",
)
@click.option(
    "--beside",
    type=click.Path(path_type=Path),
    help="A file with the same tree and other timers, which are tried as well; a table compares all.",
)
@click.option(
    "--messages",
    type=click.IntRange(0),
    default=0,
    show_default="enough to lose some",
    help="Messages of every source in each simulation.",
)
@click.option("--size", type=click.IntRange(8), default=1000, show_default=True, help="Octets of a message.")
@click.option(
    "--count",
    "counts",
    multiple=True,
    metavar="PATTERN=N",
    help="How many nodes a pattern stands for; may be repeated.",
)
@click.option(
    "--delay",
    "delays",
    multiple=True,
    metavar="SEGMENT=TIME",
    help="Way from a segment to a node, where neither telemetry nor rtt says; may be repeated.",
)
@click.option("--master", default="", metavar="URL", help="Where Spark runs; all cores of this machine by default.")
@click.option("--seed", type=int, default=1, show_default=True, help="The same seed gives the same result.")
@command
def tune(
    file: Path, telemetry: Path | None, out: Path, beside: Path | None, master: str, as_json: bool, **how: Any
) -> None:
    """Find timers for the tree of a topology FILE, and write the file with them.

    Thousands of simulations of the very cores that the processes run try back-offs, repeat and data intervals and the
    repairers' hold time, segment by segment, with the losses that telemetry shows, or that FILE injects. The best is what
    repairs soonest for little traffic and few NAKs at the source, and loses nothing that FILE as it is does not lose. The new
    file says why beside each value. It also says on which segment one more repairer would help most.

    \b
    pgm demo --write tree.toml && pgm demo --telemetry events
    pgm tune tree.toml --telemetry events --out tuned.toml && pgm plan tuned.toml
    pgm tune deploy/topologies/lossy-wan.toml --runs 400

    It needs pip install 'pgm-repair-network[spark]' and Java 17 or later.
    """
    pictures.require_matplotlib()
    check_out(out)
    topology = load_checked(file)
    require_tables(file, topology)
    other = None if beside is None else same_tree(file, topology, beside)
    with spark_session("pgm tune", master, quick=True) as spark:
        started = time.monotonic()
        with _line(as_json) as say:
            result = _tuned(spark, file, topology, telemetry, other, how, say)
    found, place, all_knobs, usage = result
    chosen, why = with_caches(found, topology)
    head = _head(found, file, telemetry, usage.runs, how["seed"], beside)
    out.write_text(tuned_text(place.text, topology, chosen, head, _reasons(found, all_knobs) | why))
    load_checked(out)
    picture = out.with_suffix(_PICTURE)
    picture.write_text(_picture(found))
    seconds = time.monotonic() - started
    if as_json:
        print_json(_as_json(found, usage, seconds, out))
    else:
        _print(found, usage, seconds, out, picture, file, beside)


def check_out(out: Path) -> None:
    """Raise `UsageError`, before an hour of simulations, where their result could not be written."""
    if out.suffix == _PICTURE:
        raise UsageError(f"--out {out} is where the picture goes", remedy="name it .toml")
    if not out.absolute().parent.is_dir():
        raise UsageError(f"--out: {out.parent} is no folder", remedy="make it, or write to another place")
    for file in (out, out.with_suffix(_PICTURE)):
        is_new = not file.exists()
        try:
            file.open("a").close()
        except OSError as error:
            raise UsageError(f"--out: {file}: {error.strerror}", remedy="write to another place") from None
        if is_new:
            file.unlink()


def same_tree(file: Path, topology: Topology, beside: Path) -> Topology:
    """The topology of `beside`, whose nodes are those of `topology`. Raises `TopologyError`, and `UsageError` where they are not."""
    other = load_checked(beside)
    ours, theirs = (
        {(one.name, one.role, one.places, one.parents) for one in tree.nodes.values()} for tree in (topology, other)
    )
    if ours != theirs:
        names = ", ".join(sorted({name for name, *_ in ours ^ theirs}))
        raise UsageError(
            f"--beside {beside} has another tree than {file}: {names}",
            remedy=f"copy {file}, and change nothing but its timers",
        )
    return other


def _tuned(
    spark: SparkSession,
    file: Path,
    topology: Topology,
    telemetry: Path | None,
    other: Topology | None,
    how: dict[str, Any],
    say: Callable[[str], None],
) -> tuple[SearchResult, TrialSetting, list[TunableParameter], Any]:
    from deploy.tune.search import TimerSearch
    from pgm.spark.jobs.parallel_runs import Sweep

    losses: dict[tuple[str, str], Impairment] = {}
    trips: dict[str, int] = {}
    if telemetry is not None:
        from pgm.spark.jobs import events, summary

        say("reading the telemetry")
        losses, trips = summary.measured(events.read(spark, telemetry))
    delays = delays_of(topology, trips, how["delays"])
    text = file.read_text()
    place = TrialSetting(text, str(file), how["messages"] or 500, how["size"], tuple(delays.items()), tuple(losses.items()), tuple(parse_counts(how["counts"]).items()))  # fmt: skip
    place, seconds = _calibrated(place, how["messages"], say)
    all_knobs = knobs(topology, delays)
    known: list[Candidate] = []
    if other is not None:
        all_knobs, candidate = with_timers_of(other, all_knobs)
        known.append(candidate)
    what = ["simulating"]

    def told(text: str) -> None:
        what[0] = text
        say(text)

    sweep = Sweep(spark, run, seconds, lambda done, of: say(f"{what[0]}: {done:,} of {of:,} simulations"))
    search = TimerSearch(sweep, place, all_knobs, topology, how["seed"], how["runs"], told)
    return search.go(shapes_of(topology), known), place, all_knobs, sweep.usage


def _calibrated(place: TrialSetting, messages: int, say: Callable[[str], None]) -> tuple[TrialSetting, float]:
    """With so many messages that a run says something; and how long such a run takes. Raises `UsageError` where nothing is lost."""
    say("a first simulation")
    run(TuneTrial(attrs.evolve(place, messages=50), Candidate(), 0))  # imports and compiles
    while True:
        began = time.process_time()
        outcome = run(TuneTrial(place, Candidate(), 0))
        seconds = time.process_time() - began
        if outcome.missed and (messages or outcome.missed >= _LEAST_MISSED or place.messages >= _MOST_MESSAGES):
            return place, seconds
        if messages or place.messages >= _MOST_MESSAGES:
            raise UsageError(
                f"nothing is lost in this tree in {place.messages:,} messages, so there is nothing to tune",
                remedy="give --telemetry of the real tree, or loss = {...} in the file"
                + ", or more --messages" * bool(messages),
            )
        place = attrs.evolve(place, messages=min(_MOST_MESSAGES, 2 * place.messages))


def delays_of(topology: Topology, trips: dict[str, int], given: tuple[str, ...]) -> dict[str, int]:
    """The way from each segment to its nodes, in ns: what was given, else half the round trip that was measured, else the file's `rtt`.

    In the profile `wan` that is the round trip of segments on which relays listen; others are local. Raises `UsageError`.
    """
    lines = {node.up.segment for node in topology.nodes.values() if node.is_relay and node.up is not None}
    delays = {}
    for name in topology.segments:
        is_far = topology.profile != "wan" or name in lines
        usual = topology.rtt // 2 if is_far else min(_LOCAL_NS, topology.rtt // 2)
        delays[name] = max(_LEAST_DELAY_NS, trips[name] // 2 if name in trips else usual)
    for one in given:
        name, _, text = one.partition("=")
        if name not in delays:
            raise UsageError(
                f"there is no segment {name!r}", remedy=f"write SEGMENT=TIME with one of {', '.join(delays)}"
            )
        try:
            delays[name] = parse_duration(text)
        except UnitError as error:
            raise UsageError(f"--delay {one}: {error.message}", remedy=error.remedy) from None
    return delays


def shapes_of(topology: Topology) -> list[str]:
    """Segments that could do with a repairer of their own: receivers that ask there first, and no repairer beside them."""
    found = []
    for name, segment in topology.segments.items():
        there = [node for node in topology.nodes.values() if any(place.segment == name for place in node.places)]
        has_receivers = any(node.role is Role.RECEIVER and node.segment == name for node in there)
        has_repairer = any(node.role is Role.REPAIRER and not node.is_relay for node in there)
        if has_receivers and not has_repairer and not segment.unicast:
            found.append(name)
    return found


def with_timers_of(other: Topology, all_knobs: list[TunableParameter]) -> tuple[list[TunableParameter], Candidate]:
    """What another file says of the same knobs, as a candidate; the knobs know its values then."""
    values: dict[tuple[str, str], int] = {}
    for node in other.nodes.values():
        settings = settings_of(other, node)
        sides = ((node.up, False), *((place, True) for place in node.downs[:1]))
        for place, is_below in sides:
            for knob in all_knobs:
                if place is not None and place.segment == knob.segment and is_below == (knob.key == "rdata_hold_ivl"):
                    values.setdefault((knob.segment, knob.key), value_of(settings, knob.key))
    chosen: dict[str, dict[str, int]] = {}
    wider = []
    for knob in all_knobs:
        value = values.get((knob.segment, knob.key), knob.now)
        chosen.setdefault(knob.segment, {})[knob.key] = value
        wider.append(attrs.evolve(knob, values=tuple(sorted({*knob.values, value}))))
    return wider, Candidate(overrides_of(chosen))


def _reasons(found: SearchResult, all_knobs: list[TunableParameter]) -> dict[tuple[str, str], str]:
    was = {(knob.segment, knob.key): knob.now for knob in all_knobs}
    reasons = {}
    for segment, values in found.best.candidate.overrides:
        for key, value in values:
            now = was.get((segment, key))
            if now is None:
                reasons[segment, key] = "below nak_rdata_ivl, so that no repeat is taken for an echo"
            elif now == value:
                reasons[segment, key] = "as it was"
            else:
                reasons[segment, key] = f"was {ROWS[key].spell(now)}: {_effect(key, value < now)}"
    return reasons


def _effect(key: str, is_shorter: bool) -> str:
    effects = {
        ("nak_bo_ivl", True): "requests leave sooner; what more of them cost is in the figures above",
        ("nak_bo_ivl", False): "more of the others hear a request before they make it too",
        ("nak_rpt_ivl", True): "a lost request is made again sooner",
        ("nak_rpt_ivl", False): "fewer requests while the answer is on its way",
        ("nak_rdata_ivl", True): "a lost repair is asked for again sooner",
        ("nak_rdata_ivl", False): "fewer requests while the repair is on its way",
        ("rdata_hold_ivl", True): "repairs leave sooner",
        ("rdata_hold_ivl", False): "one repair answers more requests",
    }
    return effects[key, is_shorter]


def gain(ours: float, theirs: float) -> str:
    """How one figure differs from another, in words."""
    if theirs <= 0:
        return "as before" if ours <= 0 else "none before"
    change = 100 * (ours / theirs - 1)
    return f"{change:+.0f} %"


def _compared(best: RunMeasures, file: RunMeasures) -> list[str]:
    return [
        f"mean wait for a repair {file.mean_ms:.1f} -> {best.mean_ms:.1f} ms ({gain(best.mean_ms, file.mean_ms)})",
        f"99 % of the repairs within {file.p99_ms:.0f} -> {best.p99_ms:.0f} ms ({gain(best.p99_ms, file.p99_ms)})",
        f"packets that repairing takes, for each one missed {file.traffic:.2f} -> {best.traffic:.2f} ({gain(best.traffic, file.traffic)})",
        f"NAKs at the source, for each one missed {file.source_naks:.3f} -> {best.source_naks:.3f} ({gain(best.source_naks, file.source_naks)})",
    ]


def _shape_lines(found: SearchResult) -> list[str]:
    return [
        f"one more repairer on segment {segment}: mean wait {score.outcome.mean_ms:.1f} ms, 99 % within {score.outcome.p99_ms:.0f} ms, "
        f"{score.outcome.source_naks:.3f} NAKs at the source; score {_spelled(score)} of that without"
        for segment, score in found.shapes
    ]


def cache_lines(found: SearchResult) -> list[str]:
    """What was found out about the caches of repairers."""
    if not found.caches:
        return []
    least, tried = found.least_cache, [ROWS["cache_secs"].spell(one.candidate.cache_secs) for one in found.caches]
    if not least:
        return [f"even caches of {tried[0]} repair worse than those of the file: leave these as they are"]
    worse = [size for size, one in zip(tried, found.caches, strict=True) if one.candidate.cache_secs < least]
    told = f"; {worse[0]} does worse" if worse else ", the shortest that was tried"
    return [
        f"repairers that keep packets for {ROWS['cache_secs'].spell(least)} repair as well as with the file's caches{told}"
    ]


def with_caches(found: SearchResult, topology: Topology) -> tuple[Candidate, dict[tuple[str, str], str]]:
    """The best, with shorter caches of repairers whose own tables do not say how long they keep packets; and why."""
    wanted = max(_LEAST_CACHE, _CACHE_MARGIN * found.least_cache)
    if not found.least_cache:
        return found.best.candidate, {}
    chosen: dict[str, int] = {}
    for node in topology.nodes.values():
        now = settings_of(topology, node).get("cache_secs")
        is_own = now is not None and now.path[0] == "nodes"
        if (
            node.role is Role.REPAIRER
            and node.up is not None
            and not is_own
            and value_of(settings_of(topology, node), "cache_secs") > wanted
        ):
            chosen[node.up.segment] = wanted
    why = f"{_CACHE_MARGIN} times what was enough, and not below {ROWS['cache_secs'].spell(_LEAST_CACHE)}: pauses of processes are not simulated"
    segments = {segment: dict(values) for segment, values in found.best.candidate.overrides}
    for segment, value in chosen.items():
        segments.setdefault(segment, {})["cache_secs"] = value
    overrides = tuple((segment, tuple(sorted(values.items()))) for segment, values in sorted(segments.items()))
    return attrs.evolve(found.best.candidate, overrides=overrides), {(segment, "cache_secs"): why for segment in chosen}


def _head(
    found: SearchResult, file: Path, telemetry: Path | None, runs: int, seed: int, beside: Path | None
) -> list[str]:
    losses = f"the losses seen in {telemetry}" if telemetry is not None else "the losses that the file injects"
    best = found.best
    return [
        f"{file.name} with the timers that pgm tune chose: {runs} simulations with {losses}, seed {seed}.",
        f"Over {best.runs} last simulations, against the file as it was:",
        *(f"  {line}" for line in _compared(best.outcome, found.file.outcome)),
        *(f"Its score, less is better: {best.value:.2f}, that of {beside} {_spelled(one)}." for one in found.known),
        f"The longest that any repair took was {best.outcome.worst_ms / 1000:.2g} s.",
        *cache_lines(found),
        *_shape_lines(found),
    ]


def _picture(found: SearchResult) -> str:
    """All candidates by p99 and traffic, the front, the file, the best."""
    from deploy.tune.search import front

    figure, axis = pictures.axes(5.0)
    usable = [one for one in found.tried if one.value < math.inf]
    axis.scatter(
        [one.outcome.p99_ms for one in usable],
        [one.outcome.traffic for one in usable],
        s=9,
        color=pictures.COLOURS[3],
        label="tried",
    )
    best = front(found.tried)
    axis.plot(
        [one.outcome.p99_ms for one in best],
        [one.outcome.traffic for one in best],
        color=pictures.COLOURS[0],
        marker=".",
        label="none is better in both",
    )
    for score, name, colour in (
        (found.file, "the file as it was", pictures.COLOURS[1]),
        (found.best, "chosen", pictures.COLOURS[2]),
    ):
        axis.scatter([score.outcome.p99_ms], [score.outcome.traffic], s=70, color=colour, label=name, zorder=3)
    pictures.logarithmic(axis.xaxis, axis.set_xscale)
    axis.set_xlabel("99 % of the repairs took at most, ms")
    axis.set_ylabel("packets that repairing takes, for each one missed")
    axis.legend(frameon=False)
    return pictures.svg(figure)


def _spelled(score: Score) -> str:
    return "out" if score.value == math.inf else f"{score.value:.2f}"


_ROWS = (
    TableColumn("timers"), TableColumn("mean wait"), TableColumn("99 % within"), TableColumn("packets per missed"),
    TableColumn("NAKs at source", 1), TableColumn("lost", 2), TableColumn("score"),
)  # fmt: skip


def comparison(found: SearchResult, file: Path, beside: Path, width: int) -> Table:
    """The file, the one beside it and what was chosen, all over the same seeds."""
    rows = []
    for name, score in ((f"{file}", found.file), *((f"{beside}", one) for one in found.known), ("chosen", found.best)):
        one = score.outcome
        figures = (f"{one.mean_ms:.1f} ms", f"{one.p99_ms:.0f} ms", f"{one.traffic:.2f}", f"{one.source_naks:.3f}")
        rows.append([name, *figures, f"{one.lost:,}", _spelled(score)])
    return table(f"over {found.best.runs} last simulations each; of scores less is better", _ROWS, rows, width)


def _score_json(score: Score) -> dict[str, Any]:
    value = None if score.value == math.inf else round(score.value, 4)
    chosen = {
        segment: {key: ROWS[key].spell(one) for key, one in values} for segment, values in score.candidate.overrides
    }
    return {"score": value, "runs": score.runs, **attrs.asdict(score.outcome), "parameters": chosen}


def _as_json(found: SearchResult, usage: Any, seconds: float, out: Path) -> dict[str, Any]:
    return {
        "file": _score_json(found.file),
        "best": _score_json(found.best),
        "finals": [_score_json(score) for score in found.finals],
        "beside": [_score_json(score) for score in found.known],
        "shapes": [{"segment": segment, **_score_json(score)} for segment, score in found.shapes],
        "caches": [
            {"cache_secs": ROWS["cache_secs"].spell(score.candidate.cache_secs), **_score_json(score)}
            for score in found.caches
        ],
        "simulations": usage.runs,
        "cpu_share": round(usage.share, 3),
        "sweep_seconds": round(usage.wall_s, 1),
        "seconds": round(seconds, 1),
        "written": str(out),
    }


def _print(
    found: SearchResult, usage: Any, seconds: float, out: Path, picture: Path, file: Path, beside: Path | None
) -> None:
    if beside is not None:
        terminal = console()
        terminal.print(comparison(found, file, beside, terminal.width))
        terminal.print()
    for line in (*_compared(found.best.outcome, found.file.outcome), *cache_lines(found), *_shape_lines(found)):
        print(line)
    print(f"{usage.runs:,} simulations in {seconds:.0f} s, which used {100 * usage.share:.0f} % of {usage.cores} cores")
    warn(f"wrote {out} and {picture}; look at it with: pgm plan {out}")


@contextlib.contextmanager
def _line(is_quiet: bool) -> Iterator[Callable[[str], None]]:
    """What is going on: one line that changes on a terminal, elsewhere a line for each step and more for a long one."""
    if is_quiet:
        yield lambda _: None
    elif sys.stderr.isatty():
        from rich.console import Console

        with Console(stderr=True).status("starting") as status:
            yield status.update
    else:
        yield paced(warn, time.monotonic)


def paced(tell: Callable[[str], None], now: Callable[[], float]) -> Callable[[str], None]:
    """What tells of `STEP` or `STEP: HOW FAR` at once where the step is new, and of the same step each `_TELL_S` seconds of `now`."""
    step, until = "", 0.0

    def say(what: str) -> None:
        nonlocal step, until
        name = what.partition(":")[0]
        if name != step or now() >= until:
            step, until = name, now() + _TELL_S
            tell(what)

    return say
