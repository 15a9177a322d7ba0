"""The command `pgm explain`: the life of one packet, from the flight recorders of the nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import attrs
import click

from deploy.status.explain_text import print_explanation, print_worst
from deploy.status.recorders import Query, rings_here, rings_of_fleet, view_of, worst_of
from deploy.terminal.fleet_options import FleetAccess, fleet_options
from deploy.terminal.output import command, print_json, warn
from pgm.errors import UsageError
from pgm.fleet.runtime_folders import is_file
from pgm.flight.contents import RingContents
from pgm.flight.verdicts.explanation import explain as explain_packet
from pgm.flight.verdicts.ladder import ladder_svg
from pgm.flight.verdicts.qlog import explanation_as_json
from pgm.topology.check import load_checked


@attrs.frozen
class PacketQuestion:
    """Stream, sqn and place that the command line names, each of them if it is given."""

    stream: str | None
    sqn: int | None
    where: str | None


def gather_fleet(fleet: FleetAccess, where: str | None) -> Callable[[Query], list[RingContents]]:
    """Return a function that asks the agents of all hosts. Raises `UsageError`, `TopologyError`."""
    if where is None or not is_file(where):
        raise UsageError("--fleet needs a topology file", remedy="as in: pgm explain quotes 184467 tree.toml --fleet")
    watch = fleet.watch(where)
    view = watch.look()
    for host in view.hosts:
        if host.problem:
            warn(f"{host.name}: {host.problem}")
    return lambda query: rings_of_fleet(watch, view, query, warn)


def gather_here(where: str | None) -> list[RingContents]:
    """Return the recorders of a tree on this host, or of all trees. Raises `ProcessError`, `TopologyError`."""
    return rings_here(load_checked(Path(where)).name if where is not None and is_file(where) else where, warn)


@click.command()
@click.argument("names", nargs=-1, metavar="[STREAM SQN] [TOPOLOGY|FILE]")
@click.option(
    "--at", "at", metavar="NODE", help="Explain what this node saw. By default the node that it went worst for."
)
@click.option("--worst", type=click.IntRange(1, 1000), help="List so many losses and slowest repairs.")
@click.option(
    "--svg", "svg", type=click.Path(dir_okay=False, path_type=Path), help="Write a ladder diagram to this file."
)
@fleet_options()
@command
def explain(
    names: tuple[str, ...],
    at: str | None,
    worst: int | None,
    svg: Path | None,
    as_json: bool,
    fleet: FleetAccess | None,
) -> None:
    """Explain what befell packet SQN of STREAM: where it was lost, and why its repair was late.

    \b
    pgm explain quotes 184467 tree.toml
    pgm explain quotes 184467 --at desk-7
    pgm explain quotes 184467 --svg packet.svg
    pgm explain quotes 184467 tree.toml --fleet
    pgm explain --worst 10            # losses and slowest repairs of late
    pgm explain --worst 10 quotes tree.toml

    The command reads the flight recorders of all nodes on this machine that run as this user, or ran and died. A node
    keeps what befell lost packets in $PGM_RUNTIME_DIR, $XDG_RUNTIME_DIR/pgm or /tmp/pgm-UID (flight_bytes). With --fleet
    it asks the agents of all hosts. docs/guide/explain.md explains the answer.
    """
    question = _wanted(names, has_sqn=worst is None)
    gather = (lambda _: gather_here(question.where)) if fleet is None else gather_fleet(fleet, question.where)
    if worst is None:
        assert question.stream is not None
        assert question.sqn is not None
        packet = {"packet": (f"{question.stream}:{question.sqn}",)}
        explanation = explain_packet(view_of(gather(packet), question.stream), question.stream, question.sqn, at)
        if svg is not None:
            svg.write_text(ladder_svg(explanation))
        if as_json:
            print_json(explanation_as_json(explanation))
        else:
            print_explanation(explanation)
        return
    if at is not None or svg is not None:
        raise UsageError(
            "--worst goes with neither --at nor --svg", remedy="choose a packet of the list, and explain it"
        )
    found = worst_of(gather, worst, question.stream, is_excerpt=fleet is not None)
    if as_json:
        print_json(found.row())
    else:
        print_worst(found.view, found.troubles, found.explanations)


def _wanted(names: Sequence[str], *, has_sqn: bool) -> PacketQuestion:
    """Return the stream, the sqn and the tree of a command line. Raises `UsageError`."""
    if has_sqn:
        if not 2 <= len(names) <= 3:
            raise UsageError(
                "the command needs a stream and a sequence number",
                remedy="pgm explain STREAM SQN [FILE], or pgm explain --worst 10",
            )
        digits = names[1].replace(",", "").replace("_", "")
        if not digits.isdecimal() or len(digits) > 20:
            raise UsageError(f"{names[1][:80]!r} is no sequence number", remedy="write a number such as 184467")
        return PacketQuestion(names[0], int(digits), names[2] if names[2:] else None)
    files = [name for name in names if is_file(name)]
    others = [name for name in names if name not in files]
    if len(files) > 1 or len(others) > 2 or (files and others[1:]):
        raise UsageError("--worst takes a stream and a tree", remedy="pgm explain --worst 10 [STREAM] [FILE]")
    return PacketQuestion(others[0] if others else None, None, files[0] if files else others[1] if others[1:] else None)
