"""Replay of a run that the search has found, step by step, on production cores. The tests that the search writes use it."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from tests.explore.endings import Endings
from tests.explore.setups import RECEIVERS, Bounds
from tests.explore.tree import PropertyBroken, State, Step, Tree

_SOURCE = 0


@attrs.frozen
class Event:
    """A step by names. `choice` is the number of the outcome among those of the random draws."""

    kind: str
    node: str
    packet: str = ""
    choice: int = 0


def send(choice: int = 0) -> Event:
    """Return the event that the application sends the next message."""
    return Event("send", "source", "", choice)


def wake(node: str, choice: int = 0) -> Event:
    """Return the event that a node's next timer runs."""
    return Event("wake", node, "", choice)


def arrive(node: str, packet: str, choice: int = 0) -> Event:
    """Return the event that a packet arrives at a node."""
    return Event("arrive", node, packet, choice)


def copy(node: str, packet: str, choice: int = 0) -> Event:
    """Return the event that a packet arrives at a node, and a copy of it stays in flight."""
    return Event("copy", node, packet, choice)


def lose(node: str, packet: str) -> Event:
    """Return the event that a packet to a node is lost."""
    return Event("lose", node, packet)


def replay(setup: str, events: Sequence[Event], before: int = 0) -> bool:
    """Take the steps of a run after `before` messages, and go on without losses until the tree is at rest.

    Return whether all steps could be taken: a mended core sends other packets, so that a step may find none. Raises
    `PropertyBroken`.
    """
    tree = Tree(setup, Bounds(before=before))
    state, is_whole = tree.begin(), True
    for event in events:
        step = _step_of(tree, state, event)
        if step is None:
            is_whole = False
            break
        state = tree.take(state, step)
    Endings(tree).run(state)
    return is_whole


def _step_of(tree: Tree, state: State, event: Event) -> Step | None:
    node = tree.nodes.names.index(event.node)
    if not event.packet:
        step = Step(event.kind, node, 0, event.choice)
    else:
        flights = {number: tree.nodes.packets[number] for number in state[4]}
        found = [number for number, one in flights.items() if one.to == node and one.text == event.packet]
        if not found:
            return None
        step = Step(event.kind, node, found[0], event.choice)
    is_far = event.kind == "wake" and tree.wait_ns(state, node) > tree.bounds.horizon_ns
    return step if event.kind == "lose" or (not is_far and step.choice < tree.choices(state, step)) else None


def events_of(tree: Tree, steps: Sequence[Step]) -> list[Event]:
    """Return steps by names."""
    names, packets = tree.nodes.names, tree.nodes.packets
    return [
        Event(step.event, names[step.node], packets[step.packet].text if step.packet else "", step.choice)
        for step in steps
    ]


def minimised(setup: str, events: Sequence[Event], before: int = 0) -> Counterexample:
    """Return the fewest steps that break the property which the given steps break: none of them can be left out."""
    kept = list(events)
    text = _broken_by(setup, kept, before) or ""
    wanted = kind_of(text)
    at = len(kept) - 1
    while at >= 0:
        fewer = kept[:at] + kept[at + 1 :]
        shorter = _broken_by(setup, fewer, before)
        if shorter is not None and kind_of(shorter) == wanted:
            kept, text = fewer, shorter
        at -= 1
    return Counterexample(setup, before, tuple(kept), text)


def _broken_by(setup: str, events: Sequence[Event], before: int) -> str | None:
    try:
        replay(setup, events, before)
    except PropertyBroken as error:
        return error.message
    return None


def kind_of(text: str) -> str:
    """Return the text of a broken property without numbers and names."""
    words = (word for word in text.split() if not any(one.isdigit() for one in word))
    return " ".join("receiver" if word in RECEIVERS else word for word in words)


@attrs.frozen
class Counterexample:
    """Shortest run found that breaks a property."""

    setup: str
    before: int  # messages before its first event
    events: tuple[Event, ...]
    text: str

    def module(self, name: str) -> str:
        """Return a module of one test that takes the steps, and fails while the property is broken."""
        lines = "".join(f"        {_call(event)},\n" for event in self.events)
        used = ", ".join(sorted({"replay", *(event.kind for event in self.events)}))
        before = f", before={self.before}" if self.before else ""
        return (
            f'"""Counterexample of the search of states: {self.text}."""\n\n'
            f"from __future__ import annotations\n\nfrom tests.explore.replay import {used}\n\n\n"
            f"def test_run_{name}_keeps_all_properties():\n    steps = (\n{lines}    )\n"
            f'    replay("{self.setup}", steps{before})\n'
        )


def _call(event: Event) -> str:
    names = [] if event.kind == "send" else [event.node, *([event.packet] if event.packet else [])]
    words = [f'"{name}"' for name in names]
    if event.choice:
        words.append(f"choice={event.choice}")
    return f"{event.kind}({', '.join(words)})"
