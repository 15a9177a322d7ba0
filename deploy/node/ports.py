"""UDP ports of what runs on one machine at the same time: of demos, benchmarks and tests, each in a range of its own.

All lie below the ports that the kernel gives away.
"""

from __future__ import annotations

import attrs


@attrs.frozen
class Ports:
    """A range of ports, taken by numbers: numbers that follow one another have different ports."""

    first: int
    count: int

    def of(self, number: int) -> int:
        """The port of a number."""
        return self.first + number % self.count


OF_TESTS = Ports(20_000, 8_000)
OF_DEMOS = Ports(28_000, 2_000)
OF_BENCHMARKS = Ports(30_000, 2_000)
