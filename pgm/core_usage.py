"""Cost of many runs of a function, in one process or in many."""

from __future__ import annotations

import attrs


@attrs.define
class CoreUsage:
    """Total cost of runs on `cores` cores. `cpu_s` is the processor time of the runs themselves."""

    runs: int = 0
    cpu_s: float = 0.0
    wall_s: float = 0.0
    cores: int = 1

    @property
    def share(self) -> float:
        """Share of the cores that the runs used."""
        return self.cpu_s / max(1e-9, self.wall_s * self.cores)
