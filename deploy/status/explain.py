"""The command `pgm explain`: the life of one packet, from the flight recorders of the nodes."""

from __future__ import annotations

from pathlib import Path

import click

from deploy.status.explain_text import print_explanation, print_worst
from deploy.terminal.output import command, print_json, warn
from pgm.errors import ProcessError, UsageError
from pgm.fleet.runtime_folders import is_file, tree_folders
from pgm.flight.contents import RingContents, read_ring, rings_in
from pgm.flight.verdicts.explanation import explain as explain_packet
from pgm.flight.verdicts.ladder import ladder_svg
from pgm.flight.verdicts.qlog import explanation_as_json, worst_as_json
from pgm.flight.verdicts.view import FlightView
from pgm.flight.verdicts.worst import explained, worst_troubles
from pgm.topology.check import load_checked


def gather_rings(where: str | None) -> list[RingContents]:
    """Return the flight recorders of a tree on this host, or of all trees. Raises `ProcessError`, `TopologyError`."""
    name = where
    if where is not None and is_file(where):
        name = load_checked(Path(where)).name
    found: list[RingContents] = []
    for folder in tree_folders(name):
        for path in rings_in(folder):
            try:
                found.append(read_ring(path))
            except ProcessError as error:
                warn(error.message)
    if not found:
        raise ProcessError(
            f"no flight recorder of {where or 'any tree'} on this machine",
            remedy="start the nodes as this user, with flight_bytes above 0; or name their user in $PGM_RUNTIME_USER",
        )
    return found


@click.command()
@click.argument("stream", required=False)
@click.argument("sqn", required=False)
@click.argument("where", required=False, metavar="[TOPOLOGY|FILE]")
@click.option(
    "--at", "at", metavar="NODE", help="Explain what this node saw. By default the node that it went worst for."
)
@click.option("--worst", type=click.IntRange(1, 1000), help="List so many losses and slowest repairs.")
@click.option(
    "--svg", "svg", type=click.Path(dir_okay=False, path_type=Path), help="Write a ladder diagram to this file."
)
@command
def explain(
    stream: str | None,
    sqn: str | None,
    where: str | None,
    at: str | None,
    worst: int | None,
    svg: Path | None,
    as_json: bool,
) -> None:
    """Explain what befell packet SQN of STREAM: where it was lost, and why its repair was late.

    \b
    pgm explain quotes 184467 tree.toml
    pgm explain quotes 184467 --at desk-7
    pgm explain quotes 184467 --svg packet.svg
    pgm explain --worst 10            # losses and slowest repairs of late
    pgm explain --worst 10 quotes tree.toml

    The command reads the flight recorders of all nodes on this machine that run as this user, or ran and died. A node
    keeps what befell lost packets in $PGM_RUNTIME_DIR, $XDG_RUNTIME_DIR/pgm or /tmp/pgm-UID (flight_bytes).
    """
    if worst is not None:
        names = [one for one in (stream, sqn, where) if one is not None]
        files = [one for one in names if is_file(one)]
        streams = [one for one in names if one not in files]
        if len(files) > 1 or len(streams) > 1 or at or svg:
            raise UsageError("--worst takes a stream and a file", remedy="pgm explain --worst 10 [STREAM] [FILE]")
        view = FlightView.of(gather_rings(files[0] if files else None))
        troubles = worst_troubles(view, worst, streams[0] if streams else None)
        explanations = [explained(view, trouble) for trouble in troubles]
        if as_json:
            print_json(worst_as_json(troubles, explanations))
        else:
            print_worst(view, troubles, explanations)
        return
    if stream is None or sqn is None:
        raise UsageError("STREAM and SQN are missing", remedy="pgm explain STREAM SQN, or pgm explain --worst 10")
    explanation = explain_packet(FlightView.of(gather_rings(where)), stream, _sqn(sqn), at)
    if svg is not None:
        svg.write_text(ladder_svg(explanation))
    if as_json:
        print_json(explanation_as_json(explanation))
    else:
        print_explanation(explanation)


def _sqn(text: str) -> int:
    digits = text.replace(",", "").replace("_", "")
    if not digits.isdecimal():
        raise UsageError(f"{text!r} is no sequence number", remedy="write a number such as 184467")
    return int(digits)
