"""Rule about repairers without help on their segment, and the requests that they leave to the source."""

from __future__ import annotations

from collections.abc import Iterator

from pgm.models.sends import share_at_source
from pgm.topology.model import NodeTable
from pgm.topology.node_plan import Role
from pgm.topology.rules.rule import Rule, RuleFinding
from pgm.topology.tree import Tree

_UNKNOWN_LOSS = 0.01  # assumed where the file names no loss: the share hardly depends on a small one


def _lone_repairers(tree: Tree) -> Iterator[RuleFinding]:
    for name in tree.topology.segments:
        receivers = sum(node.instances for node in tree.on.get(name, ()) if node.role is Role.RECEIVER)
        answering = tree.answering_on(name)
        repairers = tree.repairers_on(name)
        if not receivers or len(repairers) != 1 or any(node.is_relay for node in answering):
            continue
        [repairer] = repairers
        if repairer.lines:  # which lacks only what every line has lost
            continue
        loss = _loss_of(tree, repairer, name) or _UNKNOWN_LOSS
        message = (
            f"{repairer.name!r} is the only repairer of {name}, and no relay is there: at {loss:.0%} loss the source is asked for "
            f"{share_at_source(loss, receivers):.0%} of the sqns that the receivers there ask for ({receivers})"
        )
        remedy = f"add a second repairer on {name}: each asks the other first"
        yield RuleFinding(("nodes", repairer.name), message, remedy, (("nodes",),))


def _loss_of(tree: Tree, node: NodeTable, segment: str) -> float:
    impairment = node.loss or tree.topology.segments[segment].loss
    return 0.0 if impairment is None else impairment.asked


# fmt: off
RULES = (
    Rule("lone-repairer", "A segment without a relay has two repairers or none: they repair each other's losses.", _lone_repairers, is_warning=True),
)
# fmt: on
