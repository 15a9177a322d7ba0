"""Addresses of simulated nodes whose plan leaves them open: from 10.128.0.1 or fd00:80::1 on, by segment and order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from pgm.topology.node_plan import NodePlan
from pgm.topology.plan import PatternRest
from pgm.wire.formats import Nla


class AddressBook:
    """Addresses in use on each segment."""

    def __init__(self) -> None:
        self._taken: set[tuple[str, Nla]] = set()
        self._members: dict[str, int] = {}  # nodes on each segment so far
        self._numbers: dict[str, int] = {}  # of the segments, in order of their first node

    def fill(self, plan: NodePlan) -> NodePlan:
        """Return a plan with all open addresses filled in, and note all its addresses."""
        segments = []
        for segment in plan.segments:
            number = self._members.setdefault(segment.name, 0) + 1
            index = self._numbers.setdefault(segment.name, 128 + len(self._numbers))
            if segment.address is None:
                is_v6 = ":" in segment.group
                while (segment.name, address := _address(index, number, is_v6=is_v6)) in self._taken:
                    number += 1
                segment = attrs.evolve(segment, address=address)
            assert segment.address is not None
            self._members[segment.name] += 1
            self._taken.add((segment.name, segment.address))
            segments.append(segment)
        return attrs.evolve(plan, segments=tuple(segments))

    def fill_rest(self, rest: PatternRest) -> tuple[Nla, ...]:
        """Return the addresses of the rest of a pattern."""
        if rest.addresses:
            return rest.addresses
        return tuple(str(self.fill(rest.plan).segments[0].address) for _ in range(rest.count))

    def reserve_all(self, segment: str, addresses: Iterable[Nla]) -> None:
        """Note addresses of a segment."""
        self._taken.update((segment, address) for address in addresses)

    def reserve(self, plan: NodePlan) -> None:
        """Note the addresses of a node that is still to be added."""
        for segment in plan.segments:
            if segment.address is not None:
                self.reserve_all(segment.name, [segment.address])


def with_addresses(
    plans: Mapping[str, NodePlan], rest: Iterable[PatternRest] = ()
) -> tuple[dict[str, NodePlan], list[PatternRest]]:
    """Return the plans of a whole tree, and the rest of its patterns, with all open addresses filled in."""
    book, rest = AddressBook(), tuple(rest)
    for plan in plans.values():
        book.reserve(plan)
    for one in rest:
        book.reserve_all(one.plan.segments[0].name, one.addresses)
    filled = {name: book.fill(plan) for name, plan in plans.items()}
    return filled, [attrs.evolve(one, addresses=book.fill_rest(one)) for one in rest]


def _address(number: int, number_on_segment: int, *, is_v6: bool) -> Nla:
    if is_v6:
        return f"fd00:{number:x}::{number_on_segment:x}"
    # Segments beyond the 128th get addresses of 11.0.0.0 and above.
    return ".".join(map(str, ((10 << 24) + (number << 16) + number_on_segment).to_bytes(4, "big")))
