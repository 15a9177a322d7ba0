"""The command `pgm plan`: addresses and timers of every node with reasons, and the predicted sends, NAKs and latencies."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from deploy.terminal.completion import node_names
from deploy.terminal.options import NEW_FILE, PATH, loss_options, option, pattern_counts, segment_delays, topology_file
from deploy.terminal.output import command, print_json, warn
from pgm.errors import UsageError
from pgm.topology.check import load_checked
from pgm.topology.describe import plan_json, plan_lines, topology_json, topology_lines
from pgm.topology.model import Topology
from pgm.topology.plan import plan_node

if TYPE_CHECKING:
    from pgm.prediction.machine import MachineProfile

_LOSSES = ("loss", "burst_loss", "uplink_loss")  # options


@click.command()
@topology_file
@click.option(
    "--node",
    shell_complete=node_names,
    help="Print only this node, with every parameter that its role uses and that differs from the default.",
)
@click.option(
    "--predict",
    is_flag=True,
    help="Predict sends, NAKs and repair latency, from the losses that the file or --loss names.",
)
@click.option(
    "--telemetry", type=PATH, help="Predict from the losses and round trips in this folder of telemetry of the tree."
)
@option(
    "--rate", type=click.IntRange(0), default=0, show_default="half of the stream's rate", help="Messages a second."
)
@option("--size", type=click.IntRange(8), default=1400, help="Octets of a message.")
@pattern_counts
@loss_options
@segment_delays
@click.option("--machine", type=PATH, help="Predict processor time and memory, too, from this profile of a machine.")
@click.option(
    "--measure-machine",
    type=NEW_FILE,
    metavar="PROFILE",
    help="Measure this machine for one or two minutes, and write its profile for --machine.",
)
@command
def plan(
    file: Path,
    node: str | None,
    as_json: bool,
    predict: bool,
    telemetry: Path | None,
    machine: Path | None,
    measure_machine: Path | None,
    **offer: Any,
) -> None:
    """Print the tree of a topology FILE: segments, nodes, parents, and timers with their reasons. Or predict its costs.

    With --predict or --telemetry, formulas predict for each link the sends and NAKs of a packet and the latency of repairs,
    and for each node what it sends and is asked for. With a profile of a machine they predict processor time and memory.
    docs/internals/predictions.md states the errors. The output of --json is the input of `pgm status --predicted` and
    `pgm report --predicted`, which show what was measured beside it.

    \b
    pgm plan tree.toml
    pgm plan tree.toml --node desk-7
    pgm plan tree.toml --predict --count 'desk-*=1000' --loss 1%
    pgm plan tree.toml --telemetry events --json > plan.json
    pgm status tree.toml --predicted plan.json
    pgm plan tree.toml --predict --measure-machine machine.json
    """  # fmt: skip
    topology = load_checked(file)
    has_losses = any(offer[key] is not None for key in _LOSSES)
    has_prediction = predict or has_losses or telemetry is not None or machine is not None
    if node is not None:
        if has_prediction:
            raise UsageError(
                "--node prints no prediction", remedy="leave out --node: a prediction has a row for each node"
            )
        node_plan = plan_node(topology, node)
        if as_json:
            print_json(plan_json(node_plan))
        else:
            print("\n".join(plan_lines(node_plan)))
        return
    if machine is not None and measure_machine is not None:
        raise UsageError("--machine and --measure-machine name two profiles", remedy="leave out one of them")
    if has_losses and telemetry is not None:
        raise UsageError("--telemetry and --loss both tell the losses", remedy="leave out one of them")
    if has_prediction:
        _predict(topology, telemetry, machine or measure_machine, offer, as_json=as_json, is_new=machine is None)
    elif measure_machine is not None:
        _measure(measure_machine)
    elif as_json:
        print_json(topology_json(topology))
    else:
        print("\n".join(topology_lines(topology)))


def _measure(new: Path) -> MachineProfile:
    """Measure this machine, and write its profile. Raises `UsageError` if the file cannot be written."""
    from deploy.plan.measure import measured

    if not new.absolute().parent.is_dir():
        raise UsageError(
            f"--measure-machine: {new.parent} is no folder", remedy="create the folder, or write to another one"
        )
    profile = measured(warn)
    profile.write(new)
    warn(f"wrote {new}")
    return profile


def _predict(
    topology: Topology,
    telemetry: Path | None,
    machine: Path | None,
    offer: dict[str, Any],
    *,
    as_json: bool,
    is_new: bool,
) -> None:
    """Print the prediction. `machine` is the profile of a machine, to be measured if it `is_new`. Raises `UsageError`."""
    from deploy.plan.prediction import conditions_of, prediction_lines, with_given_losses
    from pgm.prediction.machine import MachineProfile
    from pgm.prediction.predict import predict

    topology = with_given_losses(topology, offer)
    conditions = conditions_of(topology, telemetry, offer)
    profile = None
    if machine is not None:
        profile = _measure(machine) if is_new else MachineProfile.read(machine)
    prediction = predict(topology, conditions, profile)
    if as_json:
        print_json({**topology_json(topology), "prediction": prediction})
        return
    from deploy.terminal.tables import console

    terminal = console()
    for part in prediction_lines(prediction, terminal.width):
        terminal.print(part)
    if machine is None:
        warn(
            "no processor time and memory: --measure-machine PROFILE measures this machine, --machine PROFILE uses a profile"
        )
