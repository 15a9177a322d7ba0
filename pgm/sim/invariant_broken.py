"""Error of the simulator for a broken invariant. The text has the command that repeats the run."""

from __future__ import annotations

from pgm.units import SECOND


class InvariantBroken(AssertionError):
    """Broken invariant that a checker found.

    The attributes are the seed of the run, the virtual time in ns, the node, and the problem. The text also has the
    command that repeats the run.
    """

    def __init__(self, seed: int, now_ns: int, node: str, what: str, repeat: str = "") -> None:
        text = f"seed {seed}, at {now_ns / SECOND:.9f} s, node {node}: {what}"
        super().__init__(f"{text}\n  repeat: {repeat}" if repeat else text)
        self._repeat = repeat
        self.seed = seed
        self.now_ns = now_ns
        self.node = node
        self.what = what

    def __reduce__(self) -> tuple[type[InvariantBroken], tuple[int, int, str, str, str]]:
        return InvariantBroken, (self.seed, self.now_ns, self.node, self.what, self._repeat)
