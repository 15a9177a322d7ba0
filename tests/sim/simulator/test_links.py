"""Links and segments: effects on trains, and independence of the links."""

import attrs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deploy.node.roles import build_core
from pgm.core.effects import Send
from pgm.errors import UsageError
from pgm.impairments import Impairment, Injector
from pgm.sim.faults import Fault, Faults
from pgm.sim.links import LinkSetup, SimulatedLink
from pgm.sim.trees import TreeBuilder
from pgm.sim.world import Wiring, World
from pgm.units import KIB, MICROSECOND, NEVER, SECOND
from pgm.wire.train import Train
from tests.sim.support.worlds import MS, finish, lossy, make_world, parameters, streams, traffic


def train(count: int = 40, size: int = 100, shorter: int = 0) -> Train:
    """Return packets numbered in their first octet; the last one may be shorter."""
    rows = np.repeat(np.arange(count, dtype=np.uint8), size)
    return Train.of(rows[: len(rows) - shorter], size)


def numbers(arrivals) -> list[int]:
    return [packet[0] for _, one in arrivals for packet in one.packets()]


def test_link_without_impairment_passes_the_same_train_on():
    link = SimulatedLink(LinkSetup(delay=70), "seed")
    whole = train()
    assert link.pass_whole(whole, 1000) == 1070
    ((at_ns, arrived),) = link.carry(whole, 1000)
    assert at_ns == 1070
    assert arrived is whole


@pytest.mark.parametrize("impairment", [Impairment(loss=0.1), Impairment(burst_loss=0.1, burst_length=6)])
def test_link_loses_what_it_was_told_to(impairment):
    link = SimulatedLink(LinkSetup(impairment=impairment), "seed")
    sent = came = 0
    for number in range(3000):
        whole = train(1 + number % 40, shorter=number % 2)
        sent += whole.count
        if link.pass_whole(whole, 0) >= 0:
            came += whole.count
        else:
            came += sum(one.count for _, one in link.carry(whole, 0))
    assert abs((sent - came) / sent - 0.1) < 0.01


def outages(link: SimulatedLink, gap_ns: int, packets: int = 3000) -> list[int]:
    """Return the outages of a link that carries single packets every `gap_ns`.

    An outage lasts from the first lost packet to the next arrival, ns.
    """
    found, since_ns = [], None
    for now_ns in range(0, packets * gap_ns, gap_ns):
        if link.carry(train(1), now_ns):
            if since_ns is not None:
                found.append(now_ns - since_ns)
            since_ns = None
        elif since_ns is None:
            since_ns = now_ns
    return found


@settings(max_examples=30)
@given(st.integers(0, 1000), st.sampled_from([0.0, 0.2]))
def test_burst_on_slow_link_ends_after_burst_ivl(seed, loss):
    impairment = Impairment(loss=loss, burst_loss=0.2, burst_length=30)
    free, bounded = (
        SimulatedLink(LinkSetup(impairment=impairment, burst_ivl=ivl), str(seed)) for ivl in (NEVER, 4 * SECOND)
    )
    assert max(outages(free, SECOND)) > 4 * SECOND
    if not loss:  # a single loss may follow the end of a burst
        assert max(outages(bounded, SECOND)) == 4 * SECOND
    assert bounded.lost < free.lost


def test_burst_on_fast_link_keeps_its_length_in_packets():
    impairment = Impairment(burst_loss=0.2, burst_length=30)
    free, bounded = (
        SimulatedLink(LinkSetup(impairment=impairment, burst_ivl=ivl), "seed") for ivl in (NEVER, 4 * SECOND)
    )
    assert outages(free, MS) == outages(bounded, MS)


@pytest.mark.parametrize("seen", range(40, 50))
def test_injector_end_burst_spares_one_run_of_losses(seen):
    ended, other = (Injector(Impairment(loss=0.5), "seed") for _ in range(2))
    assert ended.draw_places(seen) == other.draw_places(seen)
    ended.end_burst()
    spared, lost = ended.draw_places(900), other.draw_places(900)
    run = next(place for place, found in enumerate([*lost, -1]) if place != found)
    assert spared == lost[run:]


@pytest.mark.parametrize("seen", [5, 1023, 1024, 1030])
def test_injector_end_burst_ends_what_is_not_drawn_yet(seen):
    """The burst begins with the second packet and never ends by itself."""
    injector = Injector(Impairment(burst_loss=1.0, burst_length=1e18), "seed")
    assert injector.draw_places(seen) == list(range(1, seen))
    injector.end_burst()
    assert injector.draw_places(1) == []


def test_injected_losses_that_are_changed_count_on():
    """New losses apply from the next packet on, also to packets drawn ahead."""
    injector = Injector(Impairment(loss=1.0), "seed")
    assert injector.draw(100).all()
    injector.change(Impairment())
    assert injector.draw(5000) is None
    injector.change(Impairment(loss=0.1))
    for _ in range(100):
        injector.draw(100)
    assert injector.seen == 15_100
    assert abs((injector.lost - 100) / 10_000 - 0.1) < 0.02


def test_fate_of_a_packet_does_not_depend_on_the_trains_around_it():
    """The thousandth packet has the same fate alone and in a train."""
    setup = LinkSetup(impairment=Impairment(loss=0.2))

    def lost(sizes: list[int]) -> list[bool]:
        link, fates = SimulatedLink(setup, "seed"), []
        for size in sizes:
            whole = train(size)
            arrived = set(range(size)) if link.pass_whole(whole, 0) >= 0 else set(numbers(link.carry(whole, 0)))
            fates += [index not in arrived for index in range(size)]
        return fates

    assert lost([40] * 25) == lost([1] * 1000) == lost([7] * 100 + [30] * 10)


@settings(max_examples=200)
@given(
    st.lists(
        st.tuples(st.integers(1, 300), st.sampled_from(["draw", "spare", "again", "foresee"])), min_size=1, max_size=40
    ),
    st.sampled_from([Impairment(), Impairment(loss=0.01), Impairment(loss=0.3), Impairment(burst_loss=0.1)]),
)
def test_fate_is_the_same_however_it_is_asked_for(asked, impairment):
    """The fate is the same for packets that a link refused, and that come again."""
    injector, found = Injector(impairment, "seed"), []
    for count, how in asked:
        if how == "again":
            places = injector.draw_places(count)
            injector.give_back(count, places)
            assert injector.draw_places(count) == places
        elif how == "spare" and injector.spares(count):
            places = []
        else:
            if how == "foresee":
                injector.foresee(5 * count)
            places = injector.draw_places(count)
        found += [injector.seen - count + place for place in places]
    fate = Injector(impairment, "seed").draw(injector.seen)
    assert found == ([] if fate is None else fate.nonzero()[0].tolist())
    assert injector.lost == len(found)


@pytest.mark.parametrize(
    ("impairment", "share"),
    [
        (Impairment(), 0.0),
        (Impairment(loss=1.0), 1.0),
        (Impairment(burst_loss=1e-18), 0.0),
        (Impairment(burst_loss=0.5, burst_length=1e18), 0.0),
        (Impairment(burst_loss=1.0, burst_length=1e18), 1.0),
    ],
)
def test_shares_at_the_edge(impairment, share):
    """Extreme shares of loss: none, all, and bursts beyond the precision of a float."""
    drawn = Injector(impairment, "seed")
    for count in (1, 2000, 50):
        drawn.draw(count)
    assert drawn.seen == 2051
    assert drawn.lost == pytest.approx(share * drawn.seen, abs=1)


def test_links_limited_rate_delays_and_drops_overflow():
    link = SimulatedLink(LinkSetup(delay=0, rate=1_000_000, queue=8000), "seed")
    # An idle line takes any train; 4,000 octets take 4 ms.
    assert link.carry(train(40, 100), 0)[0][0] == 4 * MS
    # The queue then has room for 4,000 octets more: half of these.
    ((at_ns, arrived),) = link.carry(train(80, 100), 0)
    assert (at_ns, arrived.count) == (8 * MS, 40)
    assert link.overflowed == 40
    assert not link.has_room(100, 0)
    assert link.room_at_ns(100) == 100 * MICROSECOND
    assert link.has_room(100, 100 * MICROSECOND)
    assert link.carry(train(1, 100), 20 * MS)[0][0] == 20 * MS + 100 * MICROSECOND


def test_reordered_packets_leave_their_train_and_come_later():
    link = SimulatedLink(LinkSetup(delay=0, impairment=Impairment(reorder=0.2, reorder_ivl=MS)), "seed")
    arrivals = link.carry(train(50), 0)
    (at_ns, on_time), *late = arrivals
    assert at_ns == 0
    assert link.reordered == len(late) == 50 - on_time.count > 0
    assert all(MS // 2 < when <= MS + 1 and one.count == 1 for when, one in late)
    assert sorted(numbers(arrivals)) == list(range(50))


def test_duplicated_packets_come_twice():
    link = SimulatedLink(LinkSetup(impairment=Impairment(duplicate=0.2)), "seed")
    arrivals = link.carry(train(50), 0)
    assert link.duplicated == len(arrivals) - 1 > 0
    assert sorted(set(numbers(arrivals))) == list(range(50))


def test_jitter_does_not_reorder():
    link = SimulatedLink(LinkSetup(delay=0, jitter=MS), "seed")
    times = [link.carry(train(1), at_ns)[0][0] for at_ns in range(0, 10 * MS, MS // 10)]
    assert times == sorted(times)
    assert len({when - at_ns for when, at_ns in zip(times, range(0, 10 * MS, MS // 10), strict=True)}) > 5


def test_addresses_are_given_once_and_faults_must_be_known():
    tree = TreeBuilder(parameters())
    tree.source("source", "lan")
    tree.receiver("receiver", "lan", "source")
    world = World(build_core)
    plans = tree.plans
    for plan in plans.values():
        world.add_node(plan)
    other = TreeBuilder(parameters())
    other.source("neighbour", "lan")
    other.repairer("impostor", "lan")
    place = {"segments": plans["source"].segments}
    world.add_node(attrs.evolve(other.plans["neighbour"], **place))  # sources are known by their TSIs
    with pytest.raises(UsageError, match="taken"):
        world.add_node(attrs.evolve(other.plans["impostor"], **place))
    with pytest.raises(UsageError, match="no node"):
        Faults(world).add(Fault("crash", "nobody", SECOND))
    with pytest.raises(UsageError, match="cannot be"):
        Faults(world).add(Fault("explode", "source", SECOND))
    with pytest.raises(UsageError, match="already"):
        tree.source("source", "lan")
    with pytest.raises(UsageError, match="not on segment"):
        tree.address("receiver", "moon")


def test_another_receiver_changes_nothing_for_the_first():
    """Losses are drawn per link, so a receiver on another subnet changes nothing here."""

    def run(receivers: int) -> tuple[int, int, int]:
        tree = TreeBuilder(parameters())
        tree.source("source", "core")
        for index in range(receivers):
            tree.repairer(f"relay-{index}", "core", f"floor-{index}", parents=("source",))
            tree.receiver(f"receiver-{index}", f"floor-{index}", f"relay-{index}")
        world = make_world(tree, traffic(), wirings={"receiver": lossy(0.05)})
        finish(world)
        node = world.nodes["receiver-0"]
        return node.total("missing_sqns"), node.total("nak_sqns"), node.total("trains_in")

    assert run(1) == run(2) == run(5)


def test_source_is_held_back_by_a_slow_line_and_loses_nothing():
    """A train that the line refuses is held, and the core is not called: backpressure."""
    tree = TreeBuilder(parameters(txw_max_rte=2_000_000))
    tree.source("source", "lan")
    tree.receiver("receiver", "lan", "source")
    slow = Wiring(egress=LinkSetup(delay=0, rate=200_000, queue=8 * KIB))
    world = make_world(tree, traffic(1000, size=500, rate=4000, burst=40), wirings={"source": slow})
    finish(world)
    assert all(one.is_complete for one in streams(world))
    assert world.nodes["source"].attachments[0].egress.overflowed == 0
    # 524 kB at 200 kB/s.
    assert 3.5 * SECOND < world.log.last_delivery_ns < 4.5 * SECOND


def test_links_immediate_repairs_wait_for_a_slow_link():
    """A repair waits behind held data, as in the real drivers."""
    tree = TreeBuilder(parameters())
    tree.source("source", "lan")
    tree.receiver("receiver", "lan", "source")
    slow = Wiring(egress=LinkSetup(delay=0, rate=200_000, queue=8 * KIB))
    world = make_world(tree, traffic(100), wirings={"source": slow})
    node = world.nodes["source"]
    world.run_until(SECOND // 2)
    [attachment] = node.attachments
    before = attachment.egress.packets
    train = Send(attachment.segment, bytes(6000), 1000, is_data=True)
    for channel in (None, None, attachment.by_unicast, attachment.by_unicast):
        node.perform([train], channel)
    assert attachment.egress.packets == before + 6
    world.run_until(SECOND * 3 // 4)
    assert attachment.egress.packets >= before + 24
    assert node.core.counters.sends_dropped == attachment.egress.overflowed == 0


def slow_relay(role: str, rate: int, **changes: object) -> World:
    """Return a world with a slow relay and two receivers below it.

    The relay's line takes `rate` octets a second. The data comes in bursts at 1.05 MB/s.
    """
    tree = TreeBuilder(parameters(txw_max_rte=2_000_000, **changes))
    tree.source("source", "core")
    getattr(tree, role)("relay", "core", "floor", parents=("source",))
    for index in range(2):
        tree.receiver(f"receiver-{index}", "floor", "relay")
    slow = {"floor": Wiring(egress=LinkSetup(delay=0, rate=rate, queue=8 * KIB))}
    world = make_world(tree, traffic(2000, size=500, rate=2000, burst=40), wirings={"relay": slow})
    finish(world)
    return world


ROLES = ("aggregator", "repairer")


@pytest.mark.parametrize("role", ROLES)
def test_links_relayed_packets_wait_for_a_slow_link(role):
    """Later packets of the same socket wait as well, and none is lost."""
    world = slow_relay(role, 1_200_000)
    assert sum(node.total("nak_sqns") for node in world.receivers) == 0
    assert world.nodes["relay"].total("sends_dropped") < 10  # SPMs


@pytest.mark.parametrize("role", ROLES)
def test_links_backlog_is_bounded_by_the_socket_buffer(role):
    """Other sockets are read meanwhile, so NAKs for the dropped packets are answered."""
    world = slow_relay(role, 700_000, so_rcvbuf=64 * KIB)
    relay = world.nodes["relay"]
    assert relay.total("socket_drops") > 500
    assert relay.total("sends_dropped") < 20
    assert all(one.is_complete for one in streams(world))


def test_links_full_link_blocks_only_the_causing_socket():
    tree = TreeBuilder(parameters())
    tree.source("source", "core")
    tree.aggregator("relay", "core", "floor", parents=("source",))
    tree.receiver("receiver", "floor", "relay")
    slow = {"floor": Wiring(egress=LinkSetup(delay=0, rate=200_000, queue=8 * KIB))}
    world = make_world(tree, traffic(0), wirings={"relay": slow})
    world.run_until(SECOND // 2)
    relay = world.nodes["relay"]
    up, down = relay.attachments
    sent, heard = down.egress.packets, relay.total("trains_in")
    for _ in range(2):
        relay.perform([Send(down.segment, bytes(6000), 1000, is_data=True)], up.by_group)
    for channel in (up.by_group, up.by_unicast, down.by_group, down.by_unicast):
        relay.hear(Train.of(bytes(100), 100), channel, "10.0.0.1")
    assert (down.egress.packets - sent, relay.total("trains_in") - heard) == (6, 3)
    world.run_until(world.now_ns + 20 * MS)  # the second train has room once 19 ms of the first have left
    assert down.egress.packets - sent == 12
    assert relay.total("trains_in") - heard > 3  # SPMs arrive at the same socket


def test_no_data_overtake_what_waits_for_a_line_and_control_does():
    tree = TreeBuilder(parameters())
    tree.source("source", "core")
    slow = Wiring(egress=LinkSetup(delay=0, rate=200_000, queue=8 * KIB))
    world = make_world(tree, traffic(0), wirings={"source": slow})
    world.run_until(SECOND // 2)
    node = world.nodes["source"]
    [attachment] = node.attachments
    before = attachment.egress.packets
    for octets, is_data in (
        (6000, True),
        (6000, True),
        (500, True),
        (300, False),
    ):  # the queue has room for 2 KiB after the first
        node.perform([Send(attachment.segment, bytes(octets), 1000, is_data=is_data)])
    assert attachment.egress.packets - before == 6 + 1
    world.run_until(world.now_ns + SECOND // 4)
    assert attachment.egress.packets - before >= 6 + 1 + 6 + 1
    assert node.core.counters.sends_dropped == 0


def test_links_read_packets_free_their_socket_room():
    tree = TreeBuilder(parameters(so_rcvbuf=64 * KIB))
    tree.source("source", "core")
    world = make_world(tree, traffic(0))
    world.run_until(SECOND // 2)
    node = world.nodes["source"]
    [attachment] = node.attachments
    for number in range(1, 4):
        node.pause()
        for _ in range(3):
            node.hear(Train.of(bytes(30 * KIB), 1 * KIB), attachment.by_unicast, "10.0.0.1")
        assert node.core.counters.socket_drops == number * 30
        node.resume()
