"""Drawn trees with drawn faults, among stale, damaged and forged packets: a campaign by seed.

python -m tests.sim.campaigns.run_seeds --kind fuzz --packets 1000000

A seed is the scenario of `run_seeds`, plain or with parity, and a `Mangler` that sends `PACKETS` mutated copies of what
the nodes send. A seed without forged packets must pass every check of the plain campaign: order, once, octet for octet,
delivered and lost add up to sent, nothing lost that the scenario does not explain, timing, rates and bounds.

Forged packets have a correct checksum, so a node must believe them: they may carry false octets, and they may say that
more was sent than was. A seed with forged packets keeps these rules:

* no exception, and no core that runs without end at one instant;
* every sqn from the opening of a session on is delivered or reported lost, in order and once, up to its end;
* only sqns that the core counts as skipped are left out (`skipped_sqns`);
* octets that are not the source's are octets of a forged packet, in streams without parity;
* rates of repairs, bounds of memory and tables, NCFs before RDATA.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Collection

from deploy.node.roles import build_core
from pgm.core.effects import Opened
from pgm.core.window.reassembly import LargeMessage, WholeMessages
from pgm.sim.applications import ConsumptionRate, ReceiverApplication
from pgm.sim.checks.invariants import MemoryBounds, NcfFirst, RateLimits, all_checkers
from pgm.sim.delivery_check import DeliveryCheck
from pgm.sim.runs import swarm
from pgm.sim.runs.scenario import START_NS, scenario
from pgm.sim.runs.swarm import repeat_command
from pgm.sim.world import World
from pgm.units import SECOND
from tests.sim.support.mangler import HARMLESS, Mangler, Mutation

PACKETS = 2000  # mutated copies of a seed
_AFTER_NS = 5 * SECOND  # copies are sent until so long after the close of the sources
# Elements ask for sqns never sent until their sessions expire, one `session_expiry` (30 s) later in each of five tiers.
_FORGED_REST_NS = 240 * SECOND


class ForgedDeliveryCheck(DeliveryCheck):
    """Check of a session among forged packets: in order, once, without gaps except those that the core counts."""

    def __init__(self, *opening: object, forged: Collection[bytes], is_plain: bool) -> None:
        super().__init__(*opening)  # type: ignore[arg-type]
        self.skipped = 0
        self._forged = forged
        self._is_plain = is_plain  # payloads are those of packets, so foreign ones must be forged ones

    def resumed(self, opened: Opened) -> None:
        """Check that a silent session resumes where it stands, or later behind skipped sqns."""
        self._skip_unused(opened.first)
        super().resumed(opened)

    def _skip_unused(self, sqn: int) -> None:
        if sqn > self.next_sqn:
            self.skipped += sqn - self.next_sqn
            self.next_sqn = sqn

    def _check_message(self, part: object) -> None:
        if isinstance(part, LargeMessage) or not isinstance(part, WholeMessages) or not self._is_plain:
            return
        if self.ledger is not None and self.ledger.has_rows(part.run):
            return
        for sqn in range(part.run.first, part.run.end):
            row = part.run.part(sqn, sqn + 1)
            if self.ledger is not None and self.ledger.has_rows(row):
                continue
            payload = row.payloads.tobytes()
            if not any(octets.endswith(payload) for octets in self._forged):
                self._fail(f"octets of {row.first} are neither the source's nor those of a forged packet")


def _has_parity(rng: random.Random) -> bool:
    return rng.random() < 0.3


def describe(seed: int) -> str:
    """Return the description of a seed's scenario."""
    return scenario(seed, parity=_has_parity(random.Random(f"fuzz:{seed}"))).describe()


def run(seed: int) -> str:
    """Run one seed. Raises `InvariantBroken`."""
    rng = random.Random(f"fuzz:{seed}")
    has_parity, is_forged = _has_parity(rng), rng.random() < 0.4
    drawn = scenario(seed, parity=has_parity)
    mutations = rng.sample(HARMLESS, rng.randint(1, len(HARMLESS)))
    mangler = Mangler(
        rng,
        [*mutations, Mutation.FORGE] if is_forged else mutations,
        PACKETS,
        from_ns=START_NS // 2,
        until_ns=drawn.closes_ns + _AFTER_NS,
    )
    # The models of speakers and of NAK timing believe every packet: a forged one tells them of sqns never sent.
    checkers = [NcfFirst(), RateLimits(), MemoryBounds()] if is_forged else all_checkers()
    world = swarm.build(drawn, build_core, [mangler, *checkers], repeat=repeat_command("fuzz", seed))
    if not is_forged:
        swarm.play(world, drawn)
        outcome = swarm.finish(world, drawn)
        return f"{mangler.packets} copies, {outcome}"
    for node in world.receivers:
        check = functools.partial(ForgedDeliveryCheck, forged=mangler.forged, is_plain=not has_parity)
        appetite = drawn.appetites.get(node.name, ConsumptionRate())
        node.application = ReceiverApplication(node, appetite, check=check)
    swarm.play(world, drawn, _FORGED_REST_NS)
    _check_accounts(world)
    return f"{mangler.packets} copies, {len(mangler.forged)} forged"


def _check_accounts(world: World) -> None:
    """Check that receivers left out only sqns that they counted, and that all their sessions ended."""
    for node in world.receivers:
        application = node.application
        assert isinstance(application, ReceiverApplication)
        skipped = 0
        for stream in application.all_streams:
            assert isinstance(stream, ForgedDeliveryCheck)
            skipped += stream.skipped
        if skipped > node.total("skipped_sqns"):
            node.fail(f"{skipped} sqns were neither delivered nor reported, {node.total('skipped_sqns')} skipped")
        if node.core is not None and any(stream.closed is None for stream in application.streams.values()):
            node.fail("a session stays open without its source")
