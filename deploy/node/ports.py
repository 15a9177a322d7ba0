"""UDP port ranges of demos, benchmarks and tests: disjoint, and below the ephemeral ports of the kernel."""

from __future__ import annotations

import attrs


@attrs.frozen
class Ports:
    """Range of ports. Consecutive numbers have different ports."""

    first: int
    count: int

    def of(self, number: int) -> int:
        """Return the port of a number."""
        return self.first + number % self.count


OF_TESTS = Ports(20_000, 8_000)
OF_DEMOS = Ports(28_000, 2_000)
OF_BENCHMARKS = Ports(30_000, 2_000)
