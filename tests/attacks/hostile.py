"""Hostile repairers and relays: honest cores whose data packets are altered, withheld, moved or multiplied."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

import attrs
import numpy as np

from pgm.core.effects import Effect, Effects, Send
from pgm.wire import checksum
from pgm.wire.formats import DATA_HEADER_OCTETS, SQN_AT
from pgm.wire.train import Octets
from tests.sim.support.signed import parts_of

_ALTERED = 0.5  # share of the packets

Change = Callable[[Octets, random.Random], Octets]  # packets of one train, of equal length


def _alters(rows: Octets, rng: random.Random) -> Octets:
    for row in rows:
        if rng.random() < _ALTERED and len(row) > DATA_HEADER_OCTETS:
            row[rng.randrange(DATA_HEADER_OCTETS, len(row))] ^= 1 << rng.randrange(8)
    return rows


def _withholds(rows: Octets, _: random.Random) -> Octets:
    return rows[:0]


def _invents(rows: Octets, rng: random.Random) -> Octets:
    """Return packets of which half are at other sqns near them."""
    for row in rows:
        if rng.random() < _ALTERED:
            sqn = int.from_bytes(row[SQN_AT : SQN_AT + 4].tobytes(), "big") + rng.choice((-3, -1, 1, 5, 50, 1000))
            row[SQN_AT : SQN_AT + 4] = np.frombuffer((sqn & 0xFFFFFFFF).to_bytes(4, "big"), np.uint8)
    return rows


HOSTILITIES: Mapping[str, Change] = {"alters": _alters, "withholds": _withholds, "invents": _invents}


@attrs.define(eq=False)
class HostileElement:
    """Core that changes the data that it sends; everything else is that of the honest core."""

    core: Any
    change: Change
    rng: random.Random
    changed: int = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.core, name)

    def receive(self, *arguments: Any) -> Effects:
        """Take packets, and change what answers them."""
        return self._changed(self.core.receive(*arguments))

    def handle_deadline(self, now_ns: int) -> Effects:
        """Run what is due, and change what is sent."""
        return self._changed(self.core.handle_deadline(now_ns))

    def _changed(self, effects: Effects) -> Effects:
        made: list[Effect] = []
        for effect in parts_of(effects):
            if isinstance(effect, Send) and effect.is_data:
                rows = np.frombuffer(bytes(effect.octets), np.uint8).reshape(-1, effect.stride).copy()
                rows = self.change(rows, self.rng)
                self.changed += 1
                if len(rows):
                    checksum.fill(rows)
                    effect = attrs.evolve(effect, octets=rows.reshape(-1))
                else:
                    effect = attrs.evolve(effect, hops=0)  # it goes nowhere
            made.append(effect)
        return made
