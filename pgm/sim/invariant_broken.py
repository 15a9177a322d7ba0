"""The one error of the simulator: an invariant did not hold, and how to see it happen again."""

from __future__ import annotations

from pgm.units import SECOND


class InvariantBroken(AssertionError):
    """A checker found the protocol wrong.

    `seed`, `now_ns`, `node` and `what` say which run, when, where and what; the text also has the command
    that repeats the run.
    """

    def __init__(self, seed: int, now_ns: int, node: str, what: str, repeat: str = "") -> None:
        text = f"seed {seed}, at {now_ns / SECOND:.9f} s, node {node}: {what}"
        super().__init__(f"{text}\n  repeat: {repeat}" if repeat else text)
        self.seed = seed
        self.now_ns = now_ns
        self.node = node
        self.what = what
