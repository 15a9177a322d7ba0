"""The command `pgm tune`: search timers for a tree by simulations with the tree's measured losses."""

from __future__ import annotations

import contextlib
import math
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click

from deploy.report.command import spark_session, summarised
from deploy.report.measured import measured_of
from deploy.simulation.command import parse_counts
from deploy.terminal import svg as pictures
from deploy.terminal.options import NEW_FILE, PATH, option, pattern_counts, segment_delays, topology_file
from deploy.terminal.output import command, print_json, warn
from deploy.terminal.tables import TableColumn, console, table
from deploy.tune import placing
from deploy.tune.place import MOST_PROVED, SEARCH_DRAWS, LocalRuns, PlaceResult, PlaceSearch, Runs, proved
from deploy.tune.score import SCORE_COLUMNS, Score
from deploy.tune.space import TunableParameter, overrides_of, tunable_parameters
from deploy.tune.trial import Candidate, TrialSetting, TuneTrial, asked_segments, has_room, run
from deploy.tune.tuned_file import placed_text, require_places, require_tables, tuned_text
from pgm.core_usage import CoreUsage
from pgm.errors import UsageError
from pgm.parameters import ROWS
from pgm.prediction.delays import delays_of
from pgm.prediction.predict import Conditions, Offer
from pgm.prediction.tree import Losses
from pgm.topology.load import load_checked, loads
from pgm.topology.model import Topology
from pgm.topology.node_plan import Role
from pgm.topology.precedence import settings_of, value_of
from pgm.units import SECOND

if TYPE_CHECKING:
    from rich.table import Table

    from deploy.tune.search import SearchResult

_LEAST_MISSED = 60  # missed packets in one run; fewer give no useful measure
_ASKED_RUNS = 4  # runs that tell the segments on which nothing is requested
_TELL_S = 15.0  # interval of lines about a long step, without a terminal; keeps a log short
_MOST_MESSAGES = 20_000
_CACHE_MARGIN = 4  # factor over the cache time that was sufficient in simulations
_LEAST_CACHE = 2 * SECOND  # least cache time that is written to a file
_PICTURE = ".svg"
_LEAST_PLACE_SEEDS = 4
_PLACE_SHARE = 100  # a placement has this part of --runs
_LONGEST_S = 20.0  # processor time of simulations that are run in this process, less than the start of Spark saves


@click.command()
@topology_file
@click.option(
    "--telemetry",
    type=PATH,
    help="Folder with telemetry of this tree. Its losses and round trips replace those of the file.",
)
@option("--runs", type=click.IntRange(100), default=2000, help="Approximate number of simulations.")
@option("--out", type=NEW_FILE, default="tuned.toml", help="File to write; the picture goes into the same folder.")
@click.option(
    "--beside",
    type=PATH,
    help="File with the same tree and other timers, which are also simulated; a table compares all.",
)
@click.option(
    "--messages",
    type=click.IntRange(0),
    default=0,
    show_default="enough for losses",
    help="Messages of every source in each simulation.",
)
@option("--size", type=click.IntRange(8), default=1000, help="Octets of a message.")
@pattern_counts
@segment_delays
@click.option(
    "--master",
    default="",
    metavar="URL",
    help="Spark master; by default this process for small searches, else all cores of this machine.",
)
@option("--seed", type=int, default=1, help="The same seed gives the same result.")
@click.option(
    "--place",
    type=click.IntRange(1),
    metavar="K",
    help="Place K more repairers where they help most, instead of the search for timers.",
)
@click.option("--timers", is_flag=True, help="With --place: search timers and caches together with the places.")
@command
def tune(
    file: Path, telemetry: Path | None, out: Path, beside: Path | None, master: str, as_json: bool, **options: Any
) -> None:
    """Find better timers for the tree of a topology FILE, and write a file with these timers.

    The command runs thousands of simulations with the cores of the real processes. It varies back-offs, repeat and data
    intervals and the hold time of repairers, segment by segment. The simulated losses come from telemetry, or from FILE.
    The best candidate repairs fastest with little traffic and few NAKs at the source, and loses no more packets than FILE
    itself. The new file has the former value beside each value, and names the segment where one more repairer would help most.

    \b
    pgm demo --write tree.toml && pgm demo --telemetry events
    pgm tune tree.toml --telemetry events --out tuned.toml && pgm plan tuned.toml
    pgm tune deploy/topologies/lossy-wan.toml --runs 400

    With --place the command computes by formulas where more repairers help most, and simulates the best placements beside an
    even spread. The new file has these repairers, and the receivers ask them first.

    \b
    pgm tune tree.toml --place 2 --telemetry events
    pgm tune tree.toml --place 2 --timers

    Simulations of more than some 20 s of a core, telemetry of more than 16 MiB, or a --master, need
    pip install 'pgm-repair-network[spark]' and Java 17 or later.
    """
    pictures.require_matplotlib()
    check_out(out)
    topology = load_checked(file)
    require_tables(file, topology)
    if options["place"] or options["timers"]:
        if beside is not None:
            raise UsageError("--beside compares timers, not places", remedy="leave out --beside or --place")
        _place(file, topology, telemetry, out, master, as_json, options)
        return
    other = None if beside is None else same_tree(file, topology, beside)
    started = time.monotonic()
    with _line(as_json) as say:
        search = _search(file, topology, telemetry, master, other, options, say)
    result, setting, parameters, usage = search
    chosen, why = with_caches(result, topology)
    untouched = untouched_lines(topology, parameters)
    head = _head(result, file, telemetry, usage.runs, options["seed"], beside, untouched)
    out.write_text(tuned_text(setting.text, topology, chosen, head, _reasons(result, parameters) | why))
    load_checked(out)
    picture = out.with_suffix(_PICTURE)
    picture.write_text(_picture(result))
    seconds = time.monotonic() - started
    if as_json:
        print_json(_as_json(result, usage, seconds, out))
    else:
        _print(result, usage, seconds, out, picture, file, beside)


def check_out(out: Path) -> None:
    """Check, before an hour of simulations, that the result can be written. Raises `UsageError`."""
    if out.suffix == _PICTURE:
        raise UsageError(f"--out {out} is the file of the picture", remedy="use a name that ends with .toml")
    if not out.absolute().parent.is_dir():
        raise UsageError(f"--out: {out.parent} is no folder", remedy="create the folder, or write to another one")
    for file in (out, out.with_suffix(_PICTURE)):
        is_new = not file.exists()
        try:
            file.open("a").close()
        except OSError as error:
            raise UsageError(f"--out: {file}: {error.strerror}", remedy="write to another folder") from None
        if is_new:
            file.unlink()


def same_tree(file: Path, topology: Topology, beside: Path) -> Topology:
    """Load the topology of `beside`, which must have the same nodes as `topology`. Raises `TopologyError`, `UsageError`."""
    other = load_checked(beside)
    ours, theirs = (
        {(node.name, node.role, node.places, node.parents) for node in tree.nodes.values()}
        for tree in (topology, other)
    )
    if ours != theirs:
        names = ", ".join(sorted({name for name, *_ in ours ^ theirs}))
        raise UsageError(
            f"--beside {beside} has another tree than {file}: {names}",
            remedy=f"copy {file}, and change only the timers",
        )
    return other


def _measured(telemetry: Path | None, master: str, say: Callable[[str], None]) -> tuple[Losses, dict[str, int]]:
    """Return the losses and round trips of telemetry; none without telemetry."""
    if telemetry is None:
        return {}, {}
    say("reading the telemetry")
    return measured_of(summarised(telemetry, master, say))


def _search(
    file: Path,
    topology: Topology,
    telemetry: Path | None,
    master: str,
    other: Topology | None,
    options: dict[str, Any],
    say: Callable[[str], None],
) -> tuple[SearchResult, TrialSetting, list[TunableParameter], CoreUsage]:
    from deploy.tune.search import TimerSearch

    losses, trips = _measured(telemetry, master, say)
    delays = delays_of(topology, trips, options["delays"])
    setting, seconds = _calibrated(_setting(file, options, delays, losses), options["messages"], say)
    parameters = _asked_parameters(setting, topology, delays)
    known: list[Candidate] = []
    if other is not None:
        parameters, candidate = with_timers_of(other, parameters)
        known.append(candidate)
    steps = _Steps(say, "simulating")
    with _runner(master, seconds, options["runs"], steps.progress) as runs:
        search = TimerSearch(runs, setting, parameters, topology, options["seed"], options["runs"], steps.begin)
        shapes = [segment for segment in shapes_of(topology) if has_room(topology, segment)]
        return search.go(shapes, known), setting, parameters, runs.usage


def _asked_parameters(setting: TrialSetting, topology: Topology, delays: dict[str, int]) -> list[TunableParameter]:
    """Return the tunable parameters of the segments on which something is requested."""
    asked = asked_segments(setting, _ASKED_RUNS)
    return [one for one in tunable_parameters(topology, delays) if one.segment in asked]


def _setting(file: Path, options: dict[str, Any], delays: dict[str, int], losses: Losses) -> TrialSetting:
    return TrialSetting(
        text=file.read_text(),
        path=str(file),
        messages=options["messages"] or 500,
        size=options["size"],
        delays=tuple(delays.items()),
        losses=tuple(losses.items()),
        counts=tuple(parse_counts(options["counts"]).items()),
    )


def _place(
    file: Path,
    topology: Topology,
    telemetry: Path | None,
    out: Path,
    master: str,
    as_json: bool,
    options: dict[str, Any],
) -> None:
    """Place repairers, write the file with them, and report. Raises `UsageError`."""
    if not options["place"]:
        raise UsageError("--timers is for --place", remedy="leave out --timers: without --place timers are searched")
    require_places(file, topology, shapes_of(topology))
    started = time.monotonic()
    with _line(as_json) as say:
        request = PlaceRequest(file, topology, telemetry, master, options["place"], options["runs"], options["seed"])
        result, timers, usage = _placed(request, options, say)
    best = result.best
    losses = _source_of_losses(telemetry)
    text = placed_text(file.read_text(), topology, best.place, placing.reasons(result))
    head = placing.head(result, file, losses, options["seed"])
    if timers is None:
        text = "".join(f"# {line}\n" for line in head) + text
    else:
        search, parameters = timers
        tree = loads(text, str(out))
        chosen, why = with_caches(search, tree)
        text = tuned_text(text, tree, chosen, head, _reasons(search, parameters) | why)
    out.write_text(text)
    load_checked(out)
    seconds = time.monotonic() - started
    if as_json:
        cost = {"simulations": usage.runs, "cpu_share": round(usage.share, 3), "seconds": round(seconds, 1)}
        chosen_timers = {} if timers is None else {"timers": _score_json(timers[0].best)}
        print_json({**placing.places_json(result), **chosen_timers, **cost, "written": str(out)})
        return
    terminal = console()
    terminal.print(placing.places_table(result, terminal.width))
    print(f"{result.tried:,} placements were computed, {result.method}; {usage.runs:,} simulations, {seconds:.0f} s")
    warn(f"wrote {out}; to print the tree: pgm plan {out}")


@attrs.frozen
class PlaceRequest:
    """Request for `number` repairers. `runs` is the approximate number of simulations for timers."""

    file: Path
    topology: Topology
    telemetry: Path | None
    master: str
    number: int
    runs: int
    seed: int

    @property
    def seeds(self) -> int:
        """Return the simulations of each placement."""
        return max(_LEAST_PLACE_SEEDS, self.runs // _PLACE_SHARE)


def _placed(
    request: PlaceRequest, options: dict[str, Any], say: Callable[[str], None]
) -> tuple[PlaceResult, tuple[SearchResult, list[TunableParameter]] | None, CoreUsage]:
    """Return the placements, and with --timers the timers found together with them, and the cost."""
    topology, seeds = request.topology, request.seeds
    losses, trips = _measured(request.telemetry, request.master, say)
    delays = delays_of(topology, trips, options["delays"])
    conditions = Conditions(
        delays=delays,
        losses=losses,
        counts=parse_counts(options["counts"]),
        offer=Offer(size=options["size"]),
        draws=SEARCH_DRAWS,
    )
    search = PlaceSearch(topology, conditions, shapes_of(topology), say)
    search.require(request.number)
    setting, seconds = _calibrated(_setting(request.file, options, delays, losses), options["messages"], say)
    number = 2 * seeds * MOST_PROVED + request.runs if options["timers"] else seeds * MOST_PROVED
    steps = _Steps(say, "simulating placements")
    with _runner(request.master, seconds, number, steps.progress) as runs:
        result = proved(search, request.number, setting, runs, seeds, request.seed)
        if not options["timers"]:
            return result, None, runs.usage
        from deploy.tune.search import TimerSearch

        text = placed_text(setting.text, topology, result.best.place, placing.reasons(result))
        tree = loads(text, str(request.file))
        placed = attrs.evolve(setting, text=text)
        parameters = _asked_parameters(placed, tree, delays)
        timers = TimerSearch(runs, placed, parameters, tree, request.seed, request.runs, steps.begin).go(())
        steps.begin("places with the chosen timers")
        chosen = timers.best.candidate
        timed = search.with_timers(chosen)
        result = proved(timed, request.number, setting, runs, seeds, request.seed, chosen)
        return result, (timers, parameters), runs.usage


@attrs.define
class _Steps:
    """Steps of a search, of which `say` gets the name, and the progress of the simulations."""

    say: Callable[[str], None]
    step: str

    def begin(self, step: str) -> None:
        self.step = step
        self.say(step)

    def progress(self, done: int, of: int) -> None:
        self.say(f"{self.step}: {done:,} of {of:,} simulations")


@contextlib.contextmanager
def _runner(master: str, seconds: float, trials: int, progress: Callable[[int, int], None]) -> Iterator[Runs]:
    """Yield a runner of trials: this process for few, else Spark. `seconds` is the expected time of a trial."""
    if not master and seconds * trials <= _LONGEST_S:
        yield LocalRuns(progress)
        return
    with spark_session("pgm tune", master, quick=True) as spark:
        from pgm.spark.jobs.parallel_runs import Sweep

        yield Sweep(spark, run, seconds, progress)


def _calibrated(setting: TrialSetting, messages: int, say: Callable[[str], None]) -> tuple[TrialSetting, float]:
    """Return the setting with enough messages, and the CPU seconds of a run. Raises `UsageError` without any loss."""
    say("first simulation")
    run(TuneTrial(attrs.evolve(setting, messages=50), Candidate(), 0))  # warm-up: imports and compiles
    while True:
        began = time.process_time()
        outcome = run(TuneTrial(setting, Candidate(), 0))
        seconds = time.process_time() - began
        if outcome.missed and (messages or outcome.missed >= _LEAST_MISSED or setting.messages >= _MOST_MESSAGES):
            return setting, seconds
        if messages or setting.messages >= _MOST_MESSAGES:
            raise UsageError(
                f"nothing is lost in this tree in {setting.messages:,} messages, so there is nothing to tune",
                remedy="give --telemetry of the real tree, or loss = {...} in the file"
                + ", or more --messages" * bool(messages),
            )
        setting = attrs.evolve(setting, messages=min(_MOST_MESSAGES, 2 * setting.messages))


def shapes_of(topology: Topology) -> list[str]:
    """Return the multicast segments that have receivers and no on-LAN repairer. One more repairer may help there."""
    candidates = []
    for name, segment in topology.segments.items():
        nodes = [node for node in topology.nodes.values() if any(place.segment == name for place in node.places)]
        has_receivers = any(node.role is Role.RECEIVER and node.segment == name for node in nodes)
        has_repairer = any(node.role is Role.REPAIRER and not node.is_relay for node in nodes)
        if has_receivers and not has_repairer and not segment.unicast:
            candidates.append(name)
    return candidates


def with_timers_of(other: Topology, parameters: list[TunableParameter]) -> tuple[list[TunableParameter], Candidate]:
    """Return the timers of another file as a candidate, and the tunable parameters with these values added."""
    values: dict[tuple[str, str], int] = {}
    for node in other.nodes.values():
        settings = settings_of(other, node)
        sides = ((node.up, False), *((place, True) for place in node.downs[:1]))
        for place, is_below in sides:
            for parameter in parameters:
                if (
                    place is not None
                    and place.segment == parameter.segment
                    and is_below == (parameter.key == "rdata_hold_ivl")
                ):
                    values.setdefault((parameter.segment, parameter.key), value_of(settings, parameter.key))
    chosen: dict[str, dict[str, int]] = {}
    wider = []
    for parameter in parameters:
        value = values.get((parameter.segment, parameter.key), parameter.now)
        chosen.setdefault(parameter.segment, {})[parameter.key] = value
        wider.append(attrs.evolve(parameter, values=tuple(sorted({*parameter.values, value}))))
    return wider, Candidate(overrides_of(chosen))


def _reasons(result: SearchResult, parameters: list[TunableParameter]) -> dict[tuple[str, str], str]:
    # A comment for each chosen value is its former value: only all values together were measured.
    file_values = {(parameter.segment, parameter.key): parameter.now for parameter in parameters}
    found = {}
    for segment, values in result.best.candidate.overrides:
        for key, value in values:
            now = file_values.get((segment, key))
            if now is None:
                found[segment, key] = f"at most a quarter of nak_rdata_ivl, and {ROWS[key].spell(ROWS[key].default)}"
            elif now == value:
                found[segment, key] = "unchanged"
            else:
                found[segment, key] = f"was {ROWS[key].spell(now)}; measured with all values together"
    return found


def gain(ours: float, theirs: float, error: float) -> str:
    """Return the relative change from `theirs` to `ours` as text in percent, with the error of their ratio."""
    if theirs <= 0:
        return "unchanged" if ours <= 0 else "was 0"
    change = 100 * (ours / theirs - 1)
    return f"{change:+.0f} ± {100 * error:.0f} %"


def _compared(chosen: Score, original: Score) -> list[str]:
    best, file, errors = chosen.outcome, original.outcome, chosen.errors
    return [
        f"mean wait for a repair {file.mean_ms:.1f} -> {best.mean_ms:.1f} ms ({gain(best.mean_ms, file.mean_ms, errors.mean_ms)})",
        f"99 % of the repairs within {file.p99_ms:.0f} -> {best.p99_ms:.0f} ms ({gain(best.p99_ms, file.p99_ms, errors.p99_ms)})",
        f"packets of repair traffic per missed packet {file.traffic:.2f} -> {best.traffic:.2f} ({gain(best.traffic, file.traffic, errors.traffic)})",
        f"NAKs at the source per missed packet {file.source_naks:.3f} -> {best.source_naks:.3f} ({gain(best.source_naks, file.source_naks, errors.source_naks)})",
        f"score relative to the file {chosen}; less is better",
    ]


def untouched_lines(topology: Topology, parameters: list[TunableParameter]) -> list[str]:
    """Return a sentence about the segments that keep their timers; no line if there are none."""
    tuned = {parameter.segment for parameter in parameters}
    left = [segment for segment in topology.segments if segment not in tuned]
    return [f"no packet was requested on {', '.join(left)}: timers there stay as they are"] if left else []


def front_line(result: SearchResult) -> str:
    """Return a sentence about the place of the chosen candidate: on the front, or what lies before it and why."""
    from deploy.tune.search import front

    finals = result.finals
    if result.best.candidate == result.file.candidate:
        return f"the timers of the file stay: no finalist is clearly better over {result.best.runs} simulations with new seeds"
    best = next(one for one in finals if one.candidate == result.best.candidate)
    better = sum(one.value < best.value for one in finals)
    if better:
        return f"chosen as the best finalist that new seeds confirm: {better} of a better score are not clearly better than the file"
    if best in front(finals):
        few = [one for one in front(result.tried) if one.outcome.p99_ms < best.outcome.p99_ms and one.runs < best.runs]
        runs = min((one.runs for one in few), default=best.runs)
        lucky = f"; points before it rest on {runs} runs or a few more" if few else ""
        return f"chosen: no finalist repairs faster with less traffic over {best.runs} runs{lucky}"
    before = [
        one
        for one in front(finals)
        if one.outcome.p99_ms <= best.outcome.p99_ms and one.outcome.traffic <= best.outcome.traffic
    ]
    other = min(before, key=lambda one: one.value)
    return (
        f"chosen by its score of {best.value:.2f}: the finalist before it has {other}, with a mean wait of "
        f"{other.outcome.mean_ms:.1f} instead of {best.outcome.mean_ms:.1f} ms and {other.outcome.source_naks:.3f} "
        f"instead of {best.outcome.source_naks:.3f} NAKs at the source"
    )


def search_line(result: SearchResult) -> str:
    """Return a sentence about the two halves of the search, which tells how much the luck of a search matters."""
    if result.other.candidate == result.best.candidate:
        return "both halves of the search chose the same timers"
    return f"the other half of the search, with other candidates, found timers with a score of {result.other}"


def _shape_lines(result: SearchResult) -> list[str]:
    return [
        f"one more repairer on segment {segment}: mean wait {score.outcome.mean_ms:.1f} ms, 99 % within {score.outcome.p99_ms:.0f} ms, "
        f"{score.outcome.source_naks:.3f} NAKs at the source; score {score} relative to the tree without it"
        for segment, score in result.shapes
    ]


def cache_lines(result: SearchResult) -> list[str]:
    """Return a sentence about the shortest sufficient cache of repairers; no line if no caches were tried."""
    if not result.caches:
        return []
    least = result.least_cache
    tried = [ROWS["cache_secs"].spell(score.candidate.cache_secs) for score in result.caches]
    if not least:
        return [f"even caches of {tried[0]} repair worse than the caches of the file: do not change the caches"]
    worse = [size for size, score in zip(tried, result.caches, strict=True) if score.candidate.cache_secs < least]
    next_shorter = f"; {worse[0]} repairs worse" if worse else ", the shortest time tried"
    return [
        f"repairers that keep packets for {ROWS['cache_secs'].spell(least)} repair as well as with the file's caches{next_shorter}"
    ]


def with_caches(result: SearchResult, topology: Topology) -> tuple[Candidate, dict[tuple[str, str], str]]:
    """Return the best candidate, with shorter caches but where a repairer has its own `cache_secs`, and the reasons."""
    cache_secs = max(_LEAST_CACHE, _CACHE_MARGIN * result.least_cache)
    if not result.least_cache:
        return result.best.candidate, {}
    chosen: dict[str, int] = {}
    for node in topology.nodes.values():
        now = settings_of(topology, node).get("cache_secs")
        is_own = now is not None and now.path[0] == "nodes"
        if (
            node.role is Role.REPAIRER
            and node.up is not None
            and not is_own
            and value_of(settings_of(topology, node), "cache_secs") > cache_secs
        ):
            chosen[node.up.segment] = cache_secs
    why = f"{_CACHE_MARGIN} times the sufficient time, and at least {ROWS['cache_secs'].spell(_LEAST_CACHE)}: pauses of processes are not simulated"
    segments = {segment: dict(values) for segment, values in result.best.candidate.overrides}
    for segment, value in chosen.items():
        segments.setdefault(segment, {})["cache_secs"] = value
    overrides = tuple((segment, tuple(sorted(values.items()))) for segment, values in sorted(segments.items()))
    return attrs.evolve(result.best.candidate, overrides=overrides), {
        (segment, "cache_secs"): why for segment in chosen
    }


def _source_of_losses(telemetry: Path | None) -> str:
    return f"the losses in {telemetry}" if telemetry is not None else "the losses that the file injects"


def _head(
    result: SearchResult,
    file: Path,
    telemetry: Path | None,
    runs: int,
    seed: int,
    beside: Path | None,
    untouched: list[str],
) -> list[str]:
    losses = _source_of_losses(telemetry)
    best = result.best
    return [
        f"{file.name} with the timers that pgm tune chose: {runs} simulations with {losses}, seed {seed}.",
        f"Comparison with the original file over {best.runs} simulations with seeds of their own; ± is an interval of 95 %:",
        *(f"  {line}" for line in _compared(best, result.file)),
        *(f"Score of {beside} {score}." for score in result.known),
        search_line(result),
        f"The longest repair took {best.outcome.worst_ms / 1000:.2g} s.",
        *cache_lines(result),
        *_shape_lines(result),
        *untouched,
    ]


def _picture(result: SearchResult) -> str:
    """Return an SVG of all candidates by p99 and traffic, with the Pareto front, the original file and the best."""
    from deploy.tune.search import front

    figure, axis = pictures.axes(5.0)
    axis.set_title("\n".join(textwrap.wrap(front_line(result), 80)), fontsize=8)
    usable = [score for score in result.tried if score.value < math.inf]
    axis.scatter(
        [score.outcome.p99_ms for score in usable],
        [score.outcome.traffic for score in usable],
        s=9,
        color=pictures.COLOURS[3],
        label="tried",
    )
    best = front(result.tried)
    axis.plot(
        [score.outcome.p99_ms for score in best],
        [score.outcome.traffic for score in best],
        color=pictures.COLOURS[0],
        marker=".",
        label="Pareto front",
    )
    for score, name, colour in (
        (result.file, "original file", pictures.COLOURS[1]),
        (result.best, "chosen", pictures.COLOURS[2]),
    ):
        axis.scatter([score.outcome.p99_ms], [score.outcome.traffic], s=70, color=colour, label=name, zorder=3)
    pictures.logarithmic(axis.xaxis, axis.set_xscale)
    axis.set_xlabel("99 % of the repairs took at most, ms")
    axis.set_ylabel("packets of repair traffic per missed packet")
    axis.legend(frameon=False)
    return pictures.svg(figure)


_ROWS = (TableColumn("timers"), *SCORE_COLUMNS)


def comparison(result: SearchResult, file: Path, beside: Path, width: int) -> Table:
    """Return a table of the file, the file `beside` and the chosen timers, all over the same seeds."""
    scores = [(f"{file}", result.file), *((f"{beside}", known) for known in result.known), ("chosen", result.best)]
    rows = [[name, *score.cells()] for name, score in scores]
    return table(
        f"over {result.best.runs} simulations each; less is better in scores; ± is an interval of 95 %",
        _ROWS,
        rows,
        width,
    )


def _score_json(score: Score) -> dict[str, Any]:
    chosen = {
        segment: {key: ROWS[key].spell(value) for key, value in values} for segment, values in score.candidate.overrides
    }
    return {**score.as_json(), "parameters": chosen}


def _as_json(result: SearchResult, usage: CoreUsage, seconds: float, out: Path) -> dict[str, Any]:
    return {
        "file": _score_json(result.file),
        "best": _score_json(result.best),
        "other_half": _score_json(result.other),
        "finals": [_score_json(score) for score in result.finals],
        "beside": [_score_json(score) for score in result.known],
        "shapes": [{"segment": segment, **_score_json(score)} for segment, score in result.shapes],
        "caches": [
            {"cache_secs": ROWS["cache_secs"].spell(score.candidate.cache_secs), **_score_json(score)}
            for score in result.caches
        ],
        "simulations": usage.runs,
        "cpu_share": round(usage.share, 3),
        "sweep_seconds": round(usage.wall_s, 1),
        "seconds": round(seconds, 1),
        "written": str(out),
    }


def _print(
    result: SearchResult, usage: CoreUsage, seconds: float, out: Path, picture: Path, file: Path, beside: Path | None
) -> None:
    if beside is not None:
        terminal = console()
        terminal.print(comparison(result, file, beside, terminal.width))
        terminal.print()
    compared = _compared(result.best, result.file)
    for line in (*compared, search_line(result), front_line(result), *cache_lines(result), *_shape_lines(result)):
        print(line)
    print(f"{usage.runs:,} simulations in {seconds:.0f} s, with {100 * usage.share:.0f} % of {usage.cores} cores")
    warn(f"wrote {out} and {picture}; to print the tree: pgm plan {out}")


@contextlib.contextmanager
def _line(is_quiet: bool) -> Iterator[Callable[[str], None]]:
    """Yield a function that shows the current step: on a terminal as one changing line, elsewhere as `paced` lines."""
    if is_quiet:
        yield lambda _: None
    elif sys.stderr.isatty():
        from rich.console import Console

        with Console(stderr=True).status("starting") as status:
            yield status.update
    else:
        yield paced(warn, time.monotonic)


def paced(tell: Callable[[str], None], now: Callable[[], float]) -> Callable[[str], None]:
    """Return a function that passes `STEP` or `STEP: PROGRESS` to `tell`.

    A new step is passed at once, progress of the same step every `_TELL_S` seconds of the clock `now`.
    """
    step, until = "", 0.0

    def say(text: str) -> None:
        nonlocal step, until
        name = text.partition(":")[0]
        if name != step or now() >= until:
            step, until = name, now() + _TELL_S
            tell(text)

    return say
