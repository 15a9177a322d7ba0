"""docs/internals/walk.md against a running tree: real sockets, one lost packet, every function that each node enters."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from types import FrameType

import attrs
import numpy as np
import trio

import aggregator.process
import repairer.process
from pgm.core.effects import NOTHING, Effect, Effects
from pgm.core.structures.arena import Arena
from pgm.impairments import Impairment, Injector
from pgm.net.driver.trio_driver import TrioDriver
from pgm.net.endpoint.open import driven, open_receiver, open_source
from pgm.net.endpoint.receiver import Receiver
from pgm.net.endpoint.source import Source
from pgm.net.link.link import open_links
from pgm.topology.load import loads
from pgm.topology.plan import plan_node
from tests.net.support.places import Place, below_a_relay

ROOT = Path(__file__).resolve().parents[2]
STEP = re.compile(r"^- (\w+): `([\w/]+\.py)` `([\w.]+)`$", re.MULTILINE)
MESSAGES = [b"%04d" % number for number in range(40)]
LOST_ROW = 20

NODES = {"aggregator": "relay", "x": "desk-1", "y": "desk-2"}  # names in the walk, and in the tree


class OneLoss(Injector):
    """Impairment that drops one packet of the first train that is long enough."""

    def __init__(self) -> None:
        super().__init__(Impairment(), "walk")
        self.is_done = False

    def draw(self, count: int) -> np.ndarray | None:
        if self.is_done or count != len(MESSAGES):
            return None
        self.is_done = True
        return np.arange(count) == LOST_ROW


@attrs.define
class Tracer:
    """Trace of the functions that each node enters.

    The node is that of the nearest driver, source or receiver up the stack.
    """

    names: dict[int, str] = attrs.field(factory=dict)
    wanted: set[tuple[str, str]] = attrs.field(factory=set)
    seen: list[tuple[str, str, str]] = attrs.field(factory=list)

    def name(self, node: str, *owners: object) -> None:
        for owner in owners:
            self.names[id(owner)] = node

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(str(ROOT)):
            return
        step = (code.co_filename[len(str(ROOT)) + 1 :], code.co_qualname)
        if step in self.wanted:
            self.seen.append((self._node_of(frame), *step))

    def _node_of(self, frame: FrameType | None) -> str:
        while frame is not None:
            owner = frame.f_locals.get("self")
            if id(owner) in self.names:
                return self.names[id(owner)]
            frame = frame.f_back
        return "?"


class IdleApplication:
    """Application of an element."""

    def take(self, effect: Effect) -> None:
        """Accept no delivery."""

    def after(self) -> Effects:
        return NOTHING


async def run_tree(tracer: Tracer) -> list[bytes]:
    """Send the messages through the tree; return the messages of X."""
    topology = loads(below_a_relay(Place.new(), has_repairer=True, quiet="10ms"))
    async with AsyncExitStack() as stack:
        builders: dict[str, Callable[..., object]] = {
            "aggregator": aggregator.process.build,
            "repairer": repairer.process.build,
        }
        elements: list[TrioDriver] = []
        for name, build in builders.items():
            plan = plan_node(topology, NODES.get(name, name))
            links = open_links(plan, Arena())
            driver = TrioDriver(build(plan, [link.segment for link in links]), links, IdleApplication())  # type: ignore[arg-type]
            tracer.name(name, driver)
            elements.append(driver)
            await stack.enter_async_context(driven(driver))
        receivers: dict[str, Receiver] = {}
        for name in ("x", "y"):
            receivers[name] = await stack.enter_async_context(open_receiver(topology, node=NODES[name]))
            tracer.name(name, receivers[name], receivers[name].driver)
        receivers["x"].links[0].injector = OneLoss()
        source: Source = await stack.enter_async_context(open_source(topology, node="source"))
        tracer.name("source", source, source.driver)
        for receiver in receivers.values():
            assert await receiver.next_batch() is not None  # Opened: the path is known
        sys.setprofile(tracer)
        try:
            await source.send_batch(MESSAGES)
            got: dict[str, list[bytes]] = {"x": [], "y": []}
            for name in ("y", "x"):
                # An application that waits would read the socket itself, which is another path than the documented one.
                while receivers[name].counters.delivered_packets < len(MESSAGES):
                    await trio.lowlevel.checkpoint()
                while len(got[name]) < len(MESSAGES):
                    batch = await receivers[name].next_batch()
                    got[name] += list(batch)  # type: ignore[arg-type]
            while any(row.pending_sqns for one in elements for row in one.core.status(one.now_ns())):
                await trio.lowlevel.checkpoint()  # an element may hear the repair after X
        finally:
            sys.setprofile(None)
        assert got["y"] == MESSAGES
    return got["x"]


def follow(steps: list[tuple[str, str, str]], seen: list[tuple[str, str, str]]) -> tuple[str, str, str] | None:
    """Return the first step that does not follow in the trace; None if all follow."""
    at = 0
    for step in steps:
        while at < len(seen) and seen[at] != step:
            at += 1
        if at == len(seen):
            return step
        at += 1
    return None


def sections() -> dict[str, list[tuple[str, str, str]]]:
    text = (ROOT / "docs" / "internals" / "walk.md").read_text()
    parts = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    return {part.splitlines()[0]: STEP.findall(part) for part in parts}


def test_the_walk_is_what_a_running_tree_does() -> None:
    tracer = Tracer()
    chapters = sections()
    tracer.wanted = {(file, function) for steps in chapters.values() for _, file, function in steps}

    async def main() -> list[bytes]:
        with trio.fail_after(30):
            return await run_tree(tracer)

    assert trio.run(main) == MESSAGES
    for title, steps in chapters.items():
        assert steps, f"chapter {title!r} names no functions"
        for node in {node for node, _, _ in steps}:
            own = [step for step in steps if step[0] == node]
            missing = follow(own, tracer.seen)
            assert missing is None, f"chapter {title!r}: {missing} does not follow at {node}"
    whole = [step for title in chapters if title[:1] in "1245" for step in chapters[title]]
    assert follow([step for step in whole if step[0] != "y"], tracer.seen) is None
