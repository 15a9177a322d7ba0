"""Walks through the code: the lists of docs/internals/walk.md, the calls of a running tree, and the figures of a walk."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import attrs

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "internals" / "walk.md"
_LINE = re.compile(r"^((?: {4})*)- (\w+): `([\w/]+\.py)` `([\w.]+)`$", re.MULTILINE)
ROW = re.compile(r"^\| \[(.+)\]\(#[\w-]+\) \| (\d+) \| (\d+) \| (\d+) \|$", re.MULTILINE)
_PRODUCT = tuple(f"{ROOT}/{package}/" for package in ("pgm", "aggregator", "repairer"))

Step = tuple[str, str, str]  # a node, a file and a function
Line = tuple[int, Step]  # a step, and the number of listed functions above it on the stack


@attrs.frozen
class Figures:
    """Figures of one walk.

    A step is a listed function that is entered from another module. A climb is a step at which the listed function
    before it has returned: control went up to a caller, and down again elsewhere.
    """

    steps: int
    climbs: int
    modules: int


@attrs.define(eq=False)
class Call:
    """Call of a listed function: its depth among them, the files above it on the stack, and the times of both ends."""

    step: Step
    depth: int
    above: tuple[str, ...]
    began: int
    ended: int = sys.maxsize


@attrs.define
class Tracer:
    """Trace of the functions that each node enters.

    The node is that of the nearest driver, source or receiver up the stack.
    """

    wanted: set[tuple[str, str]]
    names: dict[int, str] = attrs.field(factory=dict)
    calls: list[Call] = attrs.field(factory=list)
    _open: dict[int, Call] = attrs.field(factory=dict)
    _now: int = 0

    def name(self, node: str, *owners: object) -> None:
        for owner in owners:
            self.names[id(owner)] = node

    @contextmanager
    def running(self) -> Iterator[None]:
        """Trace the calls of a block, without those of earlier blocks."""
        self.calls.clear()
        sys.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(None)
            self._open.clear()

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if not code.co_filename.startswith(_PRODUCT):
            return
        self._now += 1
        if event == "return" and (call := self._open.pop(id(frame), None)) is not None:
            call.ended = self._now
        elif event == "call" and (_path(frame), code.co_qualname) in self.wanted:
            above = [*_product_frames_above(frame)]
            depth = sum(id(one) in self._open for one in above)
            step = self._node_of(frame), _path(frame), code.co_qualname
            call = self._open[id(frame)] = Call(step, depth, tuple(map(_path, above)), self._now)
            self.calls.append(call)

    def _node_of(self, frame: FrameType | None) -> str:
        while frame is not None:
            owner = frame.f_locals.get("self")
            if id(owner) in self.names:
                return self.names[id(owner)]
            frame = frame.f_back
        return "?"


def _path(frame: FrameType) -> str:
    return frame.f_code.co_filename[len(str(ROOT)) + 1 :]


def _product_frames_above(frame: FrameType) -> Iterator[FrameType]:
    above = frame.f_back
    while above is not None:
        if above.f_code.co_filename.startswith(_PRODUCT):
            yield above
        above = above.f_back


def lines_of(text: str) -> list[Line]:
    """Return the lines of a walk. An indented function is called, perhaps by others in between, by the one above it."""
    return [(len(indent) // 4, (node, file, function)) for indent, node, file, function in _LINE.findall(text)]


def steps_of(text: str) -> list[Step]:
    """Return the steps of a walk."""
    return [step for _, step in lines_of(text)]


def follow(steps: Sequence[Step], calls: list[Call]) -> Step | None:
    """Return the first step that does not follow in the order of the calls; None if all follow."""
    remaining = iter(calls)
    return next((step for step in steps if all(call.step != step for call in remaining)), None)


def follow_lines(lines: Sequence[Line], calls: list[Call]) -> tuple[list[Call], Line | None]:
    """Return the calls of lines, in order, and the first line that does not follow; None if all follow.

    A call follows only inside the call of the line above it, and below modules that the lines name. The calls of another
    packet, an SPM for example, are skipped.
    """
    named = {file for _, (_, file, _) in lines}
    found = _longest(lines, [call for call in calls if named.issuperset(call.above)], [], 0)
    return found, (None if len(found) == len(lines) else lines[len(found)])


def _longest(lines: Sequence[Line], calls: list[Call], found: list[Call], begin: int) -> list[Call]:
    """Return the longest continuation of `found` by calls from a place on."""
    longest = found
    if len(found) == len(lines):
        return longest
    depth, step = lines[len(found)]
    above = next((call for call in reversed(found) if call.depth < depth), None)
    for place in range(begin, len(calls)):
        call = calls[place]
        if above is not None and above.ended < call.began:
            break
        if (call.depth, call.step) == (depth, step):
            longest = max(longest, _longest(lines, calls, [*found, call], place + 1), key=len)
            if len(longest) == len(lines):
                break
    return longest


def figures_of(calls: list[Call]) -> Figures:
    """Return the figures of the calls of one walk, in order. A first function, or one of another task, is no step."""
    steps = climbs = 0
    for place, call in enumerate(calls):
        if call.above and call.above[0] != call.step[1]:
            steps += 1
            climbs += place > 0 and calls[place - 1].ended < call.began
    return Figures(steps, climbs, len({call.step[1] for call in calls}))


def chapters(mark: str, text: str) -> dict[str, str]:
    """Return the chapters of a text by their titles; `mark` precedes a title."""
    parts = re.split(rf"^{mark} ", text, flags=re.MULTILINE)[1:]
    return {part.splitlines()[0]: part for part in parts}
