"""The command `pgm replay`: a tape of `pgm run --tape` once more, with the decisions of the core."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import attrs
import click

from deploy.terminal.exit_codes import EXIT_FAILED
from deploy.terminal.options import PATH
from deploy.terminal.output import command, print_json, warn
from pgm.core.events import EVENTS
from pgm.errors import TapeError, UsageError
from pgm.tape.decisions import ACTIONS, DecidedStep, DecisionLog, is_action
from pgm.tape.replay import Differs, Replay
from pgm.tape.segments import segments_of
from pgm.tape.taping import code_fingerprint, tapes_of
from pgm.topology.problems import suggestion
from pgm.units import SECOND

_SHOWN_BEFORE = 12  # steps with decisions that are printed before the one at which a replay stops


@attrs.frozen
class _Stops:
    """Where a replay stops: a sqn, some actions, or an input."""

    sqn: int | None
    actions: tuple[str, ...]
    number: int | None

    @property
    def has_any(self) -> bool:
        return self.sqn is not None or bool(self.actions) or self.number is not None

    def reached_by(self, step: DecidedStep) -> str:
        """Return why a replay stops behind a step; empty if it goes on."""
        if self.number is not None and step.number >= self.number:
            return f"input {step.number}"
        if self.sqn is not None and step.concerns(self.sqn):
            return f"sqn {self.sqn}"
        found = next((one.action for one in step.decisions if one.action in self.actions), "")
        return f"event {found}" if found else ""


@click.command()
@click.argument("tape", type=PATH)
@click.option("--until", "sqn", type=int, metavar="SQN", help="Stop where the core first does something about a sqn.")
@click.option(
    "--until-input", "number", type=click.IntRange(1), metavar="N", help="Stop behind the input of this number."
)
@click.option(
    "--break",
    "actions",
    multiple=True,
    metavar="EVENT",
    help="Stop at an event, such as lost-retries, or at an action, such as sends-nak; may be repeated.",
)
@click.option(
    "--from", "segment", type=click.IntRange(1), default=1, metavar="N", help="Begin at this segment of the tape."
)
@click.option("--decisions", is_flag=True, help="Print each input and what the core did, also without a stop.")
@command
def replay(
    tape: Path,
    sqn: int | None,
    number: int | None,
    actions: tuple[str, ...],
    segment: int,
    decisions: bool,
    as_json: bool,
) -> None:
    """Run the core of a node once more on a TAPE of `pgm run --tape`, and prove that it does the same.

    TAPE is the folder of one tape, or a folder with tapes, of which the newest is taken. The same code gets the same
    datagrams, times, calls and random draws. Its effects must have the same hash: each datagram sent, each delivery,
    event and timer. With --until or --break the replay stops there, and prints the last decisions before it and the
    state of the sessions. Times are relative to the first state on the tape.

    \b
    pgm replay tapes
    pgm replay tapes/desk-7.20261126T120000Z.4711.0 --break lost-retries
    pgm replay tapes --until 81234 --json

    Exits with 1 if the effects differ.
    """
    unknown = [action for action in actions if not is_action(action)]
    if unknown:
        raise UsageError(f"there is no event {unknown[0]!r}", remedy=suggestion(unknown[0], [*EVENTS, *ACTIONS]))
    folder = _tape_in(tape)
    run = Replay(folder, segment)
    if run.description.get("code") not in (None, code_fingerprint()) and not as_json:
        warn("the cores of this version differ from those that wrote the tape: the effects may differ")
    stops = _Stops(sqn, actions, number)
    shown: list[DecidedStep] = []
    reason = difference = ""
    try:
        for step in DecisionLog(run).steps():
            reason = stops.reached_by(step) if stops.has_any else ""
            if decisions and step.decisions:
                print_json(step.row()) if as_json else print("\n".join(step.lines()))
            elif step.decisions:
                shown = [*shown[-_SHOWN_BEFORE:], step]
            if reason:
                break
    except Differs as error:
        difference = error.message
    _print_end(run, folder, shown, stops, reason, difference, as_json=as_json)
    if difference or (stops.has_any and not reason):
        sys.exit(EXIT_FAILED)


def _tape_in(path: Path) -> Path:
    """Return the tape at a path, or the newest one in it. Raises `TapeError`."""
    if segments_of(path):
        return path
    tapes = tapes_of(path)
    if not tapes:
        raise TapeError(f"{path} has no tape", remedy="name a folder that `pgm run --tape` has made")
    return tapes[-1]


def _summary(run: Replay, folder: Path, reason: str, difference: str) -> dict[str, Any]:
    ending = "replay stopped" if reason else "killed" if run.end is None else "exception" if run.end else "ended"
    return {
        "tape": str(folder),
        **{key: run.description.get(key) for key in ("topology", "node", "role", "stream", "began")},
        "is_same_code": run.description.get("code") == code_fingerprint(),
        "first_input": run.first_input,
        "inputs": run.inputs - run.first_input,
        "seconds": round((run.now_ns - run.begun_ns) / SECOND, 6),
        "checks": run.checks,
        "proved_inputs": run.checked_inputs - run.first_input,
        "hash": f"{run.fold:08x}",
        "ending": "differs" if difference else ending,
        "error": run.end or "",
        "stopped_at": reason,
        "difference": difference,
    }


def _print_end(
    run: Replay, folder: Path, shown: list[DecidedStep], stops: _Stops, reason: str, difference: str, *, as_json: bool
) -> None:
    summary = _summary(run, folder, reason, difference)
    sessions = [attrs.asdict(row) for row in run.core.status(run.now_ns)]
    if as_json:
        print_json(
            summary | {"last": [step.row() for step in shown] if reason or difference else [], "sessions": sessions}
        )
        return
    if reason or difference:
        for step in shown:
            print("\n".join(step.lines()))
    if reason:
        print(f"stopped at {reason}, after {summary['inputs']:,} inputs and {summary['seconds']:.6f} s")
        for row in sessions:
            print(
                f"session {row['tsi']} of {row['source']}: {row['state']}, trail {row['trail']}, lead {row['lead']}, next {row['next_sqn']}, missing {row['missing_sqns']}"
            )
    elif stops.has_any and not difference:
        warn("the tape ended without that event")
    where = f"{summary['role']} {summary['node']}" if summary["node"] else str(folder)
    if difference:
        warn(difference)
        return
    print(
        f"{where}: {summary['inputs']:,} inputs of {summary['seconds']:.3f} s replayed, the same effects; hash {summary['hash']}, {summary['checks']} checks"
    )
    if run.end:
        print(f"the node ended by an exception:\n{run.end.rstrip()}")
    elif run.end is None and not reason:
        print("the tape has no end: the node was killed")
