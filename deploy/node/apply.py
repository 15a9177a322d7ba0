"""The command `pgm apply`: bring a running tree to another topology file."""

from __future__ import annotations

from pathlib import Path

import click

from deploy.node.apply_text import lines_of
from deploy.terminal.options import PATH
from deploy.terminal.output import command, print_json
from pgm.errors import UsageError
from pgm.topology.changes.steps import ChangePlan, plan_change
from pgm.topology.load import load_checked


@click.command()
@click.argument("new", metavar="NEW.toml", type=PATH)
@click.option("--from", "old", type=PATH, help="File to compare with.")
@click.option("--dry-run", is_flag=True, help="Print the steps, and change nothing.")
@click.option("--allow-loss", is_flag=True, help="Do also what may lose data.")
@command
def apply(new: Path, old: Path | None, dry_run: bool, allow_loss: bool, as_json: bool) -> None:
    """Show what brings a tree from one topology file to another: what changes in place, and which nodes restart.

    \b
    pgm apply new.toml --from tree.toml --dry-run

    Receivers and repairers are added and removed while the tree runs. Parents, rates, budgets and timers change in place,
    and windows and caches grow in place. Anything else restarts its node. The output names what differs, the order of the
    steps, the cost of each, and what may lose data.

    Exits with 0 if the steps lose nothing, with 2 if some may and --allow-loss is missing.
    """
    if old is None or not dry_run:
        raise UsageError(
            "--from and --dry-run are needed", remedy="as in: pgm apply new.toml --from tree.toml --dry-run"
        )
    plan = plan_change(load_checked(old), load_checked(new))
    if as_json:
        print_json(plan.row())
    else:
        print("\n".join(lines_of(plan)))
    if not allow_loss:
        require_no_loss(plan)


def require_no_loss(plan: ChangePlan) -> None:
    """Raise `UsageError` for a change that may lose data."""
    if plan.losses:
        named = "; ".join(f"{step.action.value} {step.node}: {step.cost.loss}" for step in plan.losses[:3])
        more = len(plan.losses) - 3
        raise UsageError(
            f"this change may lose data: {named}" + (f"; and {more} more steps" if more > 0 else ""),
            remedy="leave those values as they are, or accept the loss with --allow-loss",
        )
