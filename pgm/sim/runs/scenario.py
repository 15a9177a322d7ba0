"""Scenarios drawn from one integer: tree, parameters, links, traffic and faults.

A drawn scenario always lets the protocol succeed. Windows outlast outages, and a live parent always exists. Receivers
that may lose data are listed in `may_lose`. All other data must arrive.
"""

from __future__ import annotations

import random
from typing import Any

import attrs

from pgm.core.effects import LossCause
from pgm.impairments import Impairment
from pgm.parameters import Parameters, ProfileInputs, lan, lossy
from pgm.sim.applications import ConsumptionRate, Traffic
from pgm.sim.faults import Fault
from pgm.sim.links import LinkSetup
from pgm.sim.trees import TreeBuilder
from pgm.sim.world import Wiring
from pgm.topology.node_plan import NodePlan, Role
from pgm.units import KIB, MIB, MICROSECOND, MILLISECOND, SECOND

START_NS = 2 * SECOND  # traffic begins once every relay has learnt its role, and all nodes have received an SPM
_MAX_PACKETS = 1500  # in a run, which keeps the run short
_REPAIR_NS = 8 * SECOND  # from the last fault and the last message to the close of the sources
_LONGEST_OUTAGE_MS = 4000
# Bursts of loss end after the longest outage that is drawn. Receivers repeat a request for some 20 s (`repair_budget`)
# and then give up: with a burst that long a repair is impossible.
_LONGEST_BURST_NS = _LONGEST_OUTAGE_MS * MILLISECOND
_ON_DEMAND = 0.7  # share of the scenarios with parity that send proactive parity and also serve requests
_SERVES_SINGLE = 0.3  # share of the scenarios with parity
_CARRIED_OTHERWISE = 0.2  # share of the segments that are unicast legs, and share that use IPv6


@attrs.define
class Scenario:
    """All settings of one run."""

    seed: int
    plans: dict[str, NodePlan]
    traffic: dict[str, Traffic]
    appetites: dict[str, ConsumptionRate]
    wirings: dict[str, dict[str, Wiring]]
    first_sqns: dict[str, int]
    faults: list[Fault]
    may_lose: dict[str, frozenset[LossCause]]
    cut_short: frozenset[str]  # sources that crash: their first session has no end
    timer_slack_ns: int
    closes_ns: int

    def describe(self) -> str:
        """Return a few lines that describe the scenario of a failure."""
        lines = [f"seed {self.seed}: {len(self.plans)} nodes, timer slack {self.timer_slack_ns} ns"]
        for plan in self.plans.values():
            segments = ", ".join(f"{s.name} {'u' * s.upstream}{'d' * s.downstream} {s.address}" for s in plan.segments)
            lines.append(
                f"  {plan.name}: {plan.role.value} on {segments}; parents {plan.parents} {plan.repairers or ''}"
            )
        lines += [f"  {name}: {traffic} from {self.first_sqns[name]}" for name, traffic in self.traffic.items()]
        lines += [f"  {name}: {appetite}" for name, appetite in self.appetites.items()]
        lines += [f"  {fault}" for fault in self.faults]
        return "\n".join(lines)


def scenario(seed: int, *, parity: bool = False) -> Scenario:
    """Draw the scenario of a seed; with `parity` its streams have some kind of parity."""
    return ScenarioGenerator(seed, parity=parity).draw()


class ScenarioGenerator:
    """Generator that draws one scenario, step by step."""

    def __init__(self, seed: int, *, parity: bool = False) -> None:
        self._seed = seed
        self._rng = random.Random(f"scenario:{seed}")
        self._worst = self._rng.choice([0.0, 0.02, 0.02, 0.1, 0.1, 0.3])
        self._parameters = attrs.evolve(self._draw_parameters(), **(self._draw_parity() if parity else {}))
        self._tree = TreeBuilder(self._parameters, legs=self._some_segments("legs"), ipv6=self._some_segments("ipv6"))
        self._sources: list[str] = []
        self._receivers: list[str] = []
        self._on_lan: list[str] = []
        self._relays: list[str] = []
        self._paired: set[str] = set()  # relays that are half of a pair
        self._parents_on: dict[str, tuple[str, ...]] = {}  # segment -> parents of its nodes, in order of preference

    def _chance(self, share: float) -> bool:
        return self._rng.random() < share

    def _some_segments(self, purpose: str) -> frozenset[str]:
        """Return the segments with another kind of transport, by a generator of its own that spares other draws."""
        rng = random.Random(f"{purpose}:{self._seed}")
        names = ["core", *(f"tier-{tier}-{index}-{letter}" for tier in (1, 2) for index in (0, 1) for letter in "ab")]
        return frozenset(name for name in names if rng.random() < _CARRIED_OTHERWISE)

    def draw(self) -> Scenario:
        """Draw the scenario, always in the same order."""
        self._draw_tree()
        traffic = self._draw_traffic()
        offered_ns = max(START_NS + stream.messages * SECOND // stream.rate for stream in traffic.values())
        faults = self._draw_faults(START_NS, offered_ns)
        appetites = self._draw_appetites()
        crashed = frozenset(fault.node for fault in faults if fault.node in self._sources and "crash" in fault.kind)
        gone = {LossCause.SOURCE_GONE, LossCause.RETRIES} if crashed else set()
        overrun = {LossCause.OVERRUN, LossCause.OVERLOAD}
        closes_ns = max(offered_ns, *(fault.at_ns + fault.for_ns for fault in faults), 0) + _REPAIR_NS
        if self._paired:
            # before that time no node below knows which sqns are missing
            closes_ns += self._parameters.relay_takeover_ivl
        plans = self._tree.plans
        return Scenario(
            seed=self._seed,
            plans={name: self._with_appetite(plan, appetites) for name, plan in plans.items()},
            traffic={name: attrs.evolve(stream, close_at_ns=closes_ns) for name, stream in traffic.items()},
            appetites=appetites,
            wirings={name: self._draw_wiring(plan) for name, plan in plans.items()},
            first_sqns={name: self._draw_first_sqn() for name in self._sources},
            faults=faults,
            may_lose={name: frozenset(gone | (overrun if name in appetites else set())) for name in self._receivers},
            cut_short=crashed,
            timer_slack_ns=self._rng.choice([0, 0, 100 * MICROSECOND, MILLISECOND]),
            closes_ns=closes_ns,
        )

    # Parameters

    def _draw_parameters(self) -> Parameters:
        rng = self._rng
        inputs = ProfileInputs(
            rtt=rng.choice([MILLISECOND, MILLISECOND, 5 * MILLISECOND]), repair_budget=20 * SECOND, rate=2_000_000
        )
        profile = lossy(inputs) if self._worst > 0.1 or self._chance(0.2) else lan(inputs)
        ambient = rng.choice([100, 200, 500]) * MILLISECOND
        ihb_max = rng.choice([500, 1000, 2000]) * MILLISECOND
        drawn = {
            "txw_secs": 60 * SECOND,
            "txw_max_rte": rng.choice([500_000, 2_000_000, 25_000_000]),
            "txw_burst_ivl": rng.choice([5, 10, 50]) * MILLISECOND,
            "rdata_share": rng.choice([0.25, 0.5, 1.0]),
            "max_tpdu": rng.choice([300, 600, 1472]),
            "ambient_spm_ivl": ambient,
            "ihb_min": rng.choice([20, 50]) * MILLISECOND,
            "ihb_max": ihb_max,
            "nak_group_copy": self._chance(0.4),
            "nak_max_outstanding": rng.choice([63, 1008, 1008]),
            "repair_states": rng.choice([64, 16_384, 16_384]),
            "cache_bytes": rng.choice([MIB, 256 * MIB]),
            "cache_secs": rng.choice([5, 60]) * SECOND,
            "assist_on_ncf": self._chance(0.7),
            "parent_patience": rng.choice([1, 3, 6]),
            "parent_retry_ivl": rng.choice([1, 5]) * SECOND,
            "relay_takeover_ivl": 8 * max(ambient, ihb_max),
            "stall_ivl": 2 * ihb_max + SECOND,
            "peer_expiry": 10 * SECOND,
            "session_expiry": 30 * SECOND,
        }
        return Parameters(**(profile | drawn))

    def _draw_parity(self) -> dict[str, Any]:
        """Draw parity settings. The draw uses a generator of its own, so that all other draws stay the same."""
        rng = random.Random(f"parity:{self._seed}")
        size = rng.choice([2, 8, 16, 32, 128])
        proactive = rng.choice([0, 0, 1, 3, 9])
        return {
            "fec_group": size,
            "fec_proactive": proactive,
            "fec_on_demand": not proactive or rng.random() < _ON_DEMAND,
            "fec_close_ivl": rng.choice([5, 20, 80]) * MILLISECOND,
            "fec_serves_single": rng.random() < _SERVES_SINGLE,
            "fec_groups": rng.choice([4, 512]),
        }

    # The tree

    def _draw_tree(self) -> None:
        rng, tree = self._rng, self._tree
        for index in range(rng.choice([1, 1, 1, 2, 3])):
            self._sources.append(tree.source(f"source-{index}", "core"))
        # Several sources are known by their SPMs: a list of parents would serve all sessions.
        self._parents_on["core"] = tuple(self._sources) if len(self._sources) == 1 else ()
        self._draw_on_lan("core")
        leaves = ["core"]
        for tier in range(1, rng.choice([1, 2, 2, 3])):
            above, leaves = leaves, []
            for index in range(rng.choice([1, 1, 2])):
                leaves += self._draw_relay(rng.choice(above), f"tier-{tier}-{index}")
        segments = [*tree.segments]
        for index in range(rng.randint(2, 12)):
            segment = rng.choice(leaves if index < 2 else segments)
            self._receivers.append(tree.receiver(f"receiver-{index}", segment, *self._some_parents(segment)))

    def _draw_relay(self, up: str, name: str) -> list[str]:
        """Draw a relay and the nodes below it; return its downstream segments. The relay may have a standby."""
        tree, rng = self._tree, self._rng
        downs = [f"{name}-{letter}" for letter in "ab"[: rng.choice([1, 1, 2])]]
        is_aggregator = self._chance(0.5)
        parents = self._some_parents(up)
        repairers = [f"repairer-{down}" for down in downs] if is_aggregator and self._chance(0.4) else []
        pair = [f"relay-{name}"]
        if self._chance(0.3):
            pair.append(f"standby-{name}")
            self._paired.update(pair)
        for relay in pair:
            standby_of = pair[0] if relay != pair[0] else None
            if is_aggregator:
                tree.aggregator(relay, up, *downs, parents=parents, repairers=tuple(repairers), standby_of=standby_of)
            else:
                tree.repairer(relay, up, *downs, parents=parents, standby_of=standby_of)
        self._relays += pair
        for down in downs:
            self._parents_on[down] = tuple(pair)
            if repairers:
                self._on_lan.append(tree.repairer(f"repairer-{down}", down, parents=tuple(pair)))
                if self._chance(0.5):
                    self._parents_on[down] = (f"repairer-{down}", *pair)
            else:
                self._draw_on_lan(down)
        return downs

    def _draw_on_lan(self, segment: str) -> None:
        """Draw an element beside the nodes of a segment, or none. A second element may follow in front of the first."""
        for kind in ("repairer", "aggregator"):
            if not self._chance(0.3):
                continue
            name, parents = f"{kind}-{segment}", self._parents_on[segment]
            if kind == "repairer":
                self._tree.repairer(name, segment, parents=parents)
            else:
                self._tree.aggregator(name, segment, parents=parents)
            self._on_lan.append(name)
            self._parents_on[segment] = (name, *parents)

    def _some_parents(self, segment: str) -> tuple[str, ...]:
        """Return the parents of a segment; for some nodes none, so that they use SPM_PATH."""
        return () if self._chance(0.1) else self._parents_on[segment]

    # Traffic

    def _draw_traffic(self) -> dict[str, Traffic]:
        rng = self._rng
        rate = self._parameters.txw_max_rte // len(self._sources)
        traffic = {}
        for name in self._sources:
            size = rng.choice([20, 100, 250])
            until = rng.choice([0, 0, 400, 5000])
            mean = max(size, (size + until) // 2) + 40
            packets = 1 + mean // (self._parameters.max_tpdu - 44)  # packets of a mean message, in fragments
            messages = min(rng.choice([100, 300, 600]), _MAX_PACKETS // packets) // len(self._sources)
            seconds = rng.choice([1, 2, 4])
            # Repairs need their share too: offer at most a third of the rate.
            rate_limit = max(1, rate // 3 // mean)
            traffic[name] = Traffic(
                messages=messages,
                size=size,
                size_until=until,
                rate=min(rate_limit, max(1, messages // seconds)),
                burst=rng.choice([1, 5, 40]),
                start_ns=START_NS + rng.randint(0, SECOND),
            )
        return traffic

    def _draw_first_sqn(self) -> int:
        rng = self._rng
        return rng.choice([0, (1 << 32) - rng.randint(1, 300), (1 << 32) - 1, (1 << 31) - rng.randint(0, 99), 1 << 20])

    def _draw_appetites(self) -> dict[str, ConsumptionRate]:
        appetites = {}
        for name in self._receivers:
            if self._chance(0.05):
                appetites[name] = ConsumptionRate(octets_per_s=self._rng.choice([5_000, 50_000]))
            elif self._chance(0.04):
                stops = START_NS + self._rng.randint(0, 2 * SECOND)
                appetites[name] = ConsumptionRate(
                    stops_at_ns=stops, resumes_at_ns=stops + self._rng.randint(1, 8) * SECOND
                )
        return appetites

    @staticmethod
    def _with_appetite(plan: NodePlan, appetites: dict[str, ConsumptionRate]) -> NodePlan:
        """Give the nodes of slow applications small queues. Otherwise the slowness would have no effect."""
        if plan.name not in appetites:
            return plan
        small = attrs.evolve(plan.parameters, inbox_bytes=64 * KIB, rxw_bytes=64 * KIB)
        return attrs.evolve(plan, parameters=small)

    # Links

    def _draw_wiring(self, plan: NodePlan) -> dict[str, Wiring]:
        delay = self._rng.choice([20, 50, 200]) * MICROSECOND
        wirings = {}
        for segment in plan.segments:
            # The halves of a pair detect each other by SPMs. A long loss of SPMs would rightly make both active.
            worst = min(self._worst, 0.01) if plan.name in self._paired else self._worst
            if segment.downstream and plan.role is Role.SOURCE:
                worst = min(worst, 0.1)
            ingress = LinkSetup(delay=delay, jitter=self._rng.choice([0, 0, 100, 1000]) * MICROSECOND)
            ingress = attrs.evolve(ingress, burst_ivl=_LONGEST_BURST_NS)
            if self._chance(0.7):
                ingress = attrs.evolve(ingress, impairment=self._draw_impairment(worst))
            if self._chance(0.1):
                ingress = attrs.evolve(ingress, rate=2 * self._parameters.txw_max_rte, queue=256 * KIB)
            egress = LinkSetup(delay=0)
            if self._chance(0.1):
                egress = attrs.evolve(egress, rate=2 * self._parameters.txw_max_rte, queue=64 * KIB)
            wirings[segment.name] = Wiring(ingress=ingress, egress=egress)
        return wirings

    def _draw_impairment(self, worst: float) -> Impairment:
        rng = self._rng
        return Impairment(
            loss=rng.uniform(0, worst),
            burst_loss=rng.choice([0, 0, worst / 4]),
            burst_length=rng.choice([2.0, 8.0, 30.0]),
            duplicate=rng.choice([0, 0, 0.02, 0.1]),
            reorder=rng.choice([0, 0, 0.05, 0.2]),
            reorder_ivl=rng.choice([200, 2000, 8000]) * MICROSECOND,
        )

    # Faults

    def _draw_faults(self, from_ns: int, until_ns: int) -> list[Fault]:
        rng = self._rng
        kinds: list[tuple[str, list[str], int]] = [
            ("crash", self._on_lan, 0),
            ("crash", sorted(self._paired)[:1], 0),
            ("crash_and_restart", [*self._on_lan, *self._relays, *self._receivers], _LONGEST_OUTAGE_MS),
            ("pause", [*self._on_lan, *self._relays, *self._receivers, *self._sources], 2000),
            ("partition", [*self._on_lan, *self._relays, *self._receivers, *self._sources], 3000),
            ("deafen", [*self._receivers, *(relay for relay in self._relays if relay not in self._paired)], 3000),
        ]
        if self._chance(0.08):
            kinds.append(("crash_and_restart", self._sources, 2000))
        faults: list[Fault] = []
        busy: set[str] = set()
        for _ in range(rng.choice([0, 0, 1, 2, 4])):
            kind, nodes, longest_ms = rng.choice(kinds)
            candidates = [node for node in nodes if node not in busy and not self._is_last(node, busy)]
            if candidates:
                node = rng.choice(candidates)
                busy.add(node)
                duration_ns = rng.randint(50, longest_ms) * MILLISECOND if longest_ms else 0
                faults.append(Fault(kind, node, rng.randint(from_ns, until_ns), duration_ns))
        return faults

    def _is_last(self, node: str, busy: set[str]) -> bool:
        """Return whether the other half of the node's pair already has a fault."""
        return node in self._paired and bool(self._paired & busy)
