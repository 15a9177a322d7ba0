"""Input of a run: the load of its sources, and the conditions of its network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from pgm.sim.applications import Traffic
from pgm.sim.faults import Fault
from pgm.sim.links import LinkSetup
from pgm.sim.node import STREAM_MARK
from pgm.sim.world import Wiring
from pgm.topology.node_plan import NodePlan, Role
from pgm.units import SECOND
from pgm.wire.formats import DATA_HEADER_OCTETS

START_NS = SECOND  # by then every relay has learnt its role, and all nodes have received an SPM
_RATE_SHARE = 2  # the default offer is half of txw_max_rte, so that repairs have room


@attrs.frozen
class Load:
    """Messages of every source: `size` in octets, `rate` a second; rate 0 means half of txw_max_rte."""

    messages: int = 1000
    size: int = 1000
    rate: int = 0

    def traffic_of(self, plan: NodePlan) -> Traffic:
        """Return the traffic of a source."""
        octets, limits = self.size + DATA_HEADER_OCTETS, plan.parameters_of(plan.streams[0])
        per_s = self.rate or max(1, limits.txw_max_rte // _RATE_SHARE // octets)
        # A burst fills at most one train, like the batches of a typical application.
        burst = max(1, min(64, 65_507 // octets, per_s * limits.txw_burst_ivl // SECOND))
        return Traffic(messages=self.messages, size=self.size, rate=per_s, burst=burst, start_ns=START_NS)


@attrs.frozen(kw_only=True)
class NetworkConditions:
    """Delays and faults of a run, besides the losses configured in plans.

    `delay` is the delay from a segment to a node in ns. `wiring` replaces it for the named nodes.
    """

    delay: int = LinkSetup().delay
    wiring: Mapping[str, Wiring | dict[str, Wiring]] = attrs.field(factory=dict)
    faults: Sequence[Fault] = ()

    def wiring_of(self, name: str) -> Wiring | dict[str, Wiring]:
        """Return the wiring of a node."""
        own = self.wiring.get(name.partition(STREAM_MARK)[0])
        return Wiring(ingress=LinkSetup(delay=self.delay)) if own is None else own

    def delay_of(self, name: str, segment: str) -> int:
        """Return the delay from a segment to a node, ns."""
        own = self.wiring_of(name)
        wiring = own.get(segment, Wiring()) if isinstance(own, dict) else own
        return wiring.ingress.delay

    @property
    def instants(self) -> tuple[int, ...]:
        """Return the instants at which faults begin or end, in order."""
        return tuple(sorted({at for fault in self.faults for at in (fault.at_ns, fault.at_ns + fault.for_ns)}))


def split_streams(plans: Mapping[str, NodePlan]) -> dict[str, NodePlan]:
    """Return the plans, with one source for each stream of a source. The sources of one plan share an address."""
    split: dict[str, NodePlan] = {}
    for name, plan in plans.items():
        if plan.role is not Role.SOURCE or len(plan.streams) == 1:
            split[name] = plan
            continue
        for stream in plan.streams:
            own = f"{name}{STREAM_MARK}{stream.name}"
            split[own] = attrs.evolve(plan, name=own, streams=(stream,))
    return split
