"""Tape of an endpoint: a block in which the inputs of its core are kept."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from pgm.net.driver.effects import EffectPerformer
from pgm.topology.node_plan import NodePlan

if TYPE_CHECKING:
    from pgm.tape.recorder import TapeRecorder


def taping_of(plan: NodePlan | None, driver: EffectPerformer) -> AbstractContextManager[TapeRecorder | None]:
    """Return a block that keeps a tape of a driver's core if the plan names a folder. Entering it raises `TapeError`."""
    if plan is None or not plan.tape:
        return nullcontext()
    from pgm.tape.taping import taping  # few nodes keep tapes, and the others start sooner without it

    return taping(plan, driver.core, [link.segment for link in driver.links], driver.now_ns(), driver.tell)
