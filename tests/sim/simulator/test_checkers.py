"""Every checker fails a run with a core that breaks its invariant on purpose."""

import attrs
import numpy as np
import pytest

from deploy.node.roles import build_core
from pgm.core.effects import CloseCause, Closed, Deliver, LossCause, Lost, Opened, Send
from pgm.core.segment import Channel
from pgm.impairments import Impairment
from pgm.sim.checks.completion import check_complete
from pgm.sim.faults import Faults
from pgm.sim.invariant_broken import InvariantBroken
from pgm.sim.links import LinkSetup, SimulatedLink
from pgm.sim.trees import TreeBuilder
from pgm.sim.world import tsi_of
from pgm.topology.node_plan import Role
from pgm.units import KIB, SECOND
from pgm.wire.formats import PacketType
from pgm.wire.parity import ParityPacket, build_parity
from pgm.wire.train import Run, Train
from tests.sim.support.worlds import MS, Tap, finish, is_a, lossy, make_world, parameters, stream, traffic
from tests.unit.core.makers import nak_packet, train_of


class Liar:
    """Core whose effects pass through a function before the driver gets them."""

    def __init__(self, core, change):
        self._core = core
        self._change = change

    def __getattr__(self, name):
        return getattr(self._core, name)

    def receive(self, *args):
        return self._changed(self._core.receive(*args))

    def handle_deadline(self, now_ns):
        return self._changed(self._core.handle_deadline(now_ns))

    def grant(self, octets):
        return self._changed(self._core.grant(octets))

    def _changed(self, effects):
        return [changed for effect in effects for changed in self._change(effect)]


def world_with(role, change, starts=None, **changes):
    """Return a world in which the cores of one role are `Liar`s.

    The tree is one source, a relaying repairer and two receivers at 5 % loss.
    """
    tree = TreeBuilder(parameters(**changes))
    tree.source("source", "core")
    tree.repairer("relay", "core", "floor", parents=("source",))
    for index in range(2):
        tree.receiver(f"receiver-{index}", "floor", "relay")

    def factory(plan, rng, tsi, now_ns):
        core = build_core(plan, rng, tsi, now_ns)
        return _liar(core, change) if plan.role is role else core

    offered, wirings = traffic(close_at_ns=2 * SECOND), {"receiver": lossy(0.05)}
    return make_world(tree, offered, factory=factory, wirings=wirings, starts=starts, seed=7)


def _liar(core, change):
    """Wrap a core in a subclass of its own class, since the world checks that class."""
    kind = type("Liar", (Liar, type(core)), {})
    liar = kind.__new__(kind)
    liar.__dict__.update(core.__dict__)
    Liar.__init__(liar, core, change)
    return liar


def changed_run(run: Run) -> Run:
    octets = run.rows.copy()
    octets[-1, -1] ^= 1
    return Run(run.first, run.count, octets.reshape(-1), 0, run.stride, run.payload_at)


def items(send: Send) -> list:
    return Train.of(np.frombuffer(bytes(send.octets), np.uint8), send.stride).parse_untrusted()[0]


def is_kind(effect, kind) -> bool:
    return isinstance(effect, Send) and any(item.type is kind for item in items(effect))


RECEIVER_LIES = {
    "twice": (lambda e: [e, e] if isinstance(e, Deliver) else [e], "delivery of"),
    "gap": (lambda e: [] if isinstance(e, Deliver) and e.run.first <= 100 < e.run.end else [e], "delivery of"),
    "octets": (
        lambda e: [Deliver(e.tsi, changed_run(e.run))] if isinstance(e, Deliver) else [e],
        "are not the source's",
    ),
    "unopened": (lambda e: [] if isinstance(e, Opened) else [e], "was not opened"),
    "opened twice": (lambda e: [e, e] if isinstance(e, Opened) else [e], "while the session is open"),
    "end": (
        lambda e: [attrs.evolve(e, next_sqn=e.next_sqn + 1)] if isinstance(e, Closed) else [e],
        "stands at",
    ),
    "after the end": (
        lambda e: [e, Lost(e.tsi, e.next_sqn, 1, LossCause.RETRIES)] if isinstance(e, Closed) else [e],
        "is closed",
    ),
    "nak again": (lambda e: [e, e] if is_kind(e, PacketType.NAK) else [e], "too early after a NAK"),
    "no nak": (lambda e: [] if is_kind(e, PacketType.NAK) else [e], "a NAK was due"),
}


@pytest.mark.parametrize("lie", RECEIVER_LIES)
def test_wrong_receiver_is_caught(lie):
    change, complaint = RECEIVER_LIES[lie]
    world = world_with(Role.RECEIVER, change)
    with pytest.raises(InvariantBroken, match=complaint) as caught:
        finish(world)
    assert caught.value.node.startswith("receiver")


def test_right_receiver_is_not():
    finish(world_with(Role.RECEIVER, lambda effect: [effect]))


def test_missing_nak_of_a_late_joiner_is_caught_without_a_new_spm():
    """The path is known from the SPM that came before the session was opened."""
    starts = {"receiver-0": SECOND + 100 * MS, "receiver-1": SECOND + 100 * MS}
    spms = Tap(is_a(PacketType.SPM))
    late = {"join_from": "oldest", "ambient_spm_ivl": 10 * SECOND}
    world = world_with(Role.RECEIVER, RECEIVER_LIES["no nak"][0], starts=starts, **late)
    world.add_checker(spms)
    with pytest.raises(InvariantBroken, match="a NAK was due"):
        world.run_until(2 * SECOND)
    assert len([at_ns for at_ns, *_ in spms.by("relay") if at_ns > starts["receiver-0"]]) == 1


def test_stop_of_a_receiver_shortens_no_wait_for_data():
    """Some sqns never come, so the waits double; repairs of other sqns shorten only waits that begin later (RCV-38)."""

    def withheld(effect):
        is_repair = is_kind(effect, PacketType.RDATA)
        return [] if is_repair and any(item.wire_sqn % 10 == 7 for item in items(effect)) else [effect]

    world = world_with(Role.REPAIRER, withheld)
    Faults(world).pause("receiver-0", SECOND + 130 * MS, 2 * MS)
    world.run_until(3 * SECOND // 2)
    assert world.core_of("receiver-0").is_missing(tsi_of("source", 0), 47)


def test_repair_without_confirmation_is_caught():
    world = world_with(Role.REPAIRER, lambda e: [] if is_kind(e, PacketType.NCF) else [e])
    with pytest.raises(InvariantBroken, match="without an NCF"):
        finish(world)


def test_nak_to_an_element_without_its_session_needs_no_ncf():
    """Parity that answers a later NAK for a single sqn is no answer to the first NAK (FEC-44, RFC 11.4)."""
    tree = TreeBuilder(parameters(fec_group=8, relay_cache_ivl=0))
    tree.source("source", "core")
    tree.aggregator("relay", "core", "floor", parents=("source",))
    world = make_world(tree, traffic(), starts={"source": SECOND // 2})
    relay = world.nodes["relay"]
    up, down = (attachment.segment for attachment in relay.attachments)
    stream_is = {"tsi": tsi_of("source", 0), "data_port": 7500}
    naks = [nak_packet(3, parity=is_parity, **stream_is) for is_parity in (True, False)]
    parity = build_parity(PacketType.RDATA, ParityPacket(0, 0, bytes(200), False), size=8, trail=0, **stream_is)
    for nak, at_ns in zip(naks, (SECOND // 4, 3 * SECOND // 2), strict=True):
        world.run_until(at_ns)
        relay.hear(train_of(nak), Channel(down, is_group=False), "10.9.9.9")
    relay.hear(Train.of(parity), Channel(up, is_group=True), "10.9.9.8")
    assert (relay.core.counters.foreign_packets, relay.core.counters.rdata_forwarded) == (1, 1)


def test_repairs_beyond_their_share_are_caught():
    def often(effect):
        return [effect] * 40 if is_kind(effect, PacketType.RDATA) else [effect]

    with pytest.raises(InvariantBroken, match="exceed rdata_share"):
        finish(world_with(Role.REPAIRER, often, txw_max_rte=100_000))


def test_source_beyond_its_rate_is_caught():
    def often(effect):
        return [effect] * 40 if is_kind(effect, PacketType.ODATA) else [effect]

    with pytest.raises(InvariantBroken, match="exceed txw_max_rte"):
        finish(world_with(Role.SOURCE, often, txw_max_rte=1_000_000))


def test_two_speakers_are_caught():
    tree = TreeBuilder(parameters(ambient_spm_ivl=100 * MS))
    tree.source("source", "core")
    tree.aggregator("one", "core", "floor", parents=("source",))
    tree.aggregator("other", "core", "floor", parents=("source",))  # a pair without knowledge of each other
    tree.receiver("receiver", "floor", "one")
    with pytest.raises(InvariantBroken, match="sends SPMs of"):
        finish(make_world(tree, traffic(close_at_ns=2 * SECOND)))


def test_memory_over_its_bound_is_caught():
    """The core has larger limits than its plan allows."""
    tree = TreeBuilder(parameters(rxw_bytes=64 * KIB))
    tree.source("source", "lan")
    tree.receiver("receiver", "lan", "source")

    def generous(plan, rng, tsi, now_ns):
        return build_core(attrs.evolve(plan, parameters=parameters()), rng, tsi, now_ns)

    world = make_world(tree, traffic(2000, size=1000, rate=2000, close_at_ns=3 * SECOND), factory=generous)
    receiver = Faults(world)
    receiver.deafen(["receiver"], SECOND + 100 * MS, 3 * MS)
    # The NAKs are lost for a while, so all data waits behind the gap.
    world.at(SECOND + 102 * MS, lambda: setattr(world.nodes["receiver"].attachments[0].egress, "is_cut", True))
    with pytest.raises(InvariantBroken, match="exceeds rxw_bytes"):
        world.run_until(2 * SECOND)


def test_deadline_without_end_is_caught():
    class Restless(Liar):
        deadline_ns = 5 * SECOND

        def handle_deadline(self, now_ns):
            return ()

    tree = TreeBuilder(parameters())
    tree.source("source", "lan")
    tree.aggregator("restless", "lan", parents=("source",))

    def factory(plan, rng, tsi, now_ns):
        core = build_core(plan, rng, tsi, now_ns)
        return Restless(core, None) if plan.role is Role.AGGREGATOR else core

    world = make_world(tree, traffic(), factory=factory)
    with pytest.raises(InvariantBroken, match="without end"):
        world.run_until(6 * SECOND)
    assert world.now_ns == 5 * SECOND


def test_incomplete_run_and_illegitimate_loss_are_caught():
    def losing(effect):
        if isinstance(effect, Deliver) and effect.run.first <= 50 < effect.run.end:
            return [Lost(effect.tsi, effect.run.first, effect.run.count, LossCause.RETRIES)]
        return [effect]

    world = world_with(Role.RECEIVER, losing)
    with pytest.raises(InvariantBroken, match="reported lost"):
        finish(world)
    check_complete(world, may_lose={f"receiver-{index}": {LossCause.RETRIES} for index in range(2)})
    unfinished = world_with(Role.RECEIVER, lambda effect: [effect])
    unfinished.run_until(SECOND + 200 * MS)
    with pytest.raises(InvariantBroken, match="stands at"):
        check_complete(unfinished)
    with pytest.raises(InvariantBroken, match="no quiet"):
        unfinished.run_until_quiet(unfinished.now_ns + 10 * MS, quiet_ns=SECOND)


def cut_off(change):
    """Return a world in which a receiver's link changes in mid-stream.

    The run lasts until the receiver has dropped the session.
    """
    tree = TreeBuilder(parameters(peer_expiry=2 * SECOND, session_expiry=4 * SECOND))
    tree.source("source", "lan")
    tree.receiver("receiver", "lan", "source")
    world = make_world(tree, traffic(close_at_ns=2 * SECOND))
    [attachment] = world.nodes["receiver"].attachments
    world.at(SECOND + 200 * MS, lambda: change(attachment))
    world.run_until(10 * SECOND)
    assert stream(world, "receiver").closed is CloseCause.EXPIRED
    assert not stream(world, "receiver").is_accounted
    return world


def lose_all(attachment):
    attachment.ingress = SimulatedLink(LinkSetup(impairment=Impairment(loss=1.0)), "all")


def test_losses_that_took_every_fin_are_an_account():
    check_complete(cut_off(lose_all))


def test_a_receiver_that_drawn_losses_did_not_cut_off_is_caught():
    world = cut_off(lambda attachment: attachment.deafen(True))  # a fault of the scenario, which should have ended
    with pytest.raises(InvariantBroken, match="stands at"):
        check_complete(world)
    world = cut_off(lose_all)
    [attachment] = world.nodes["receiver"].attachments
    attachment.ingress.silenced_ns = stream(world, "receiver").ledger.closed_ns  # as if a packet had passed until then
    with pytest.raises(InvariantBroken, match="stands at"):
        check_complete(world)


def test_an_end_without_silence_before_it_is_caught():
    with pytest.raises(InvariantBroken, match="not called silent"):
        finish(world_with(Role.RECEIVER, expires))


def expires(effect):
    return [attrs.evolve(effect, cause=CloseCause.EXPIRED)] if isinstance(effect, Closed) else [effect]


def test_failure_says_how_to_repeat_it():
    broken = InvariantBroken(17, 1_500_000_000, "desk", "went wrong", "python run 17")
    assert str(broken) == "seed 17, at 1.500000000 s, node desk: went wrong\n  repeat: python run 17"
