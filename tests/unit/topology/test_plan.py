"""From names to addresses: the plan of each process."""

from __future__ import annotations

import pytest

from pgm.errors import TopologyError
from pgm.impairments import Impairment
from pgm.topology.load import loads
from pgm.topology.node_plan import LinePlan, Role
from pgm.topology.plan import plan_all, plan_node, plan_receiver_at
from tests.unit.topology.trees import GOOD, changed, line_of, topology
from tests.unit.trust.keys import private_keys


def test_source_answers_where_it_sits():
    plan = plan_node(topology(), "exchange")
    (seat,) = plan.segments
    assert (plan.topology, plan.name, plan.role) == ("good", "exchange", Role.SOURCE)
    assert (seat.name, seat.group, seat.port, seat.unicast_port) == ("core", "239.192.0.1", 3056, 3056)
    assert (seat.address, seat.interface, seat.upstream, seat.downstream) == ("10.0.0.10", "10.0.0.0/24", False, True)
    assert plan.upstream is seat
    assert plan.downstream == (seat,)
    assert [(one.name, one.data_port, one.order, one.flow) for one in plan.streams] == [
        ("quotes", 7500, "ordered", "rate")
    ]
    assert plan.parents == ()


def test_plan_receiver_at_a_source_asks_the_repairers_of_its_segment():
    """Its late joins find history there; the path of the SPMs, which names the other sources, comes after them."""
    plan = plan_receiver_at(topology(), plan_node(topology(), "exchange"))
    assert plan.role is Role.RECEIVER
    assert plan.parents == plan.keepers == ("10.0.0.11",)
    assert plan.local_repairers == {"10.0.0.11"}
    assert plan.asks_below_trail


def test_on_lan_repairer_has_one_segment_for_both():
    plan = plan_node(topology(), "core-repairer")
    (seat,) = plan.segments
    assert seat.upstream
    assert seat.downstream
    assert plan.parents == ("10.0.0.10",)
    assert not plan.asks_below_trail


def test_plan_relay_orders_segments_and_lists_repairers():
    plan = plan_node(topology(), "relay")
    up, down = plan.segments
    assert (up.address, up.upstream, up.downstream) == ("10.0.0.12", True, False)
    assert (down.address, down.upstream, down.downstream) == ("10.0.1.1", False, True)
    assert plan.parents == ("10.0.0.11", "10.0.0.10")
    assert plan.repairers == (("10.0.1.2",),)
    assert plan.asks_below_trail


def test_repairers_stand_under_the_segment_they_are_on():
    third = '[segments.roof]\ngroup = "239.192.0.3"\ninterface = "10.0.2.0/24"\n[nodes.roof-repairer]\nrole = "repairer"\nsegment = "roof"\naddress = "10.0.2.2"\nparents = ["relay"]\n[nodes.relay]'
    places = '[{ segment = "roof", address = "10.0.2.1" }, { segment = "floor", address = "10.0.1.1" }]'
    found = topology(
        ("[nodes.relay]", third),
        ('[{ segment = "floor", address = "10.0.1.1" }]', places),
        ('repairers = ["floor-repairer"]', 'repairers = ["floor-repairer", "roof-repairer"]'),
        ('[{ segment = "floor", address = "10.0.1.3" }]', '[{ segment = "roof", address = "10.0.2.3" }, { segment = "floor", address = "10.0.1.3" }]'),
    )  # fmt: skip
    plan = plan_node(found, "relay")
    assert [seat.name for seat in plan.downstream] == ["roof", "floor"]
    assert plan.repairers == (("10.0.2.2",), ("10.0.1.2",))


def test_relays_of_a_pair_know_each_other():
    relay, standby = (plan_node(topology(), name) for name in ("relay", "standby"))
    assert relay.partners == {"10.0.0.13", "10.0.1.3"}
    assert standby.partners == {"10.0.0.12", "10.0.1.1"}
    assert (relay.is_standby, standby.is_standby) == (False, True)
    assert plan_node(topology(), "floor-repairer").partners == frozenset()


def test_receiver_knows_its_parents_and_the_repairers_of_its_segment():
    plan = plan_node(topology(), "desk-3")
    assert (plan.name, plan.role) == ("desk-3", Role.RECEIVER)
    (seat,) = plan.segments
    assert (seat.address, seat.upstream, seat.downstream) == ("10.0.1.12", True, False)
    assert plan.parents == ("10.0.1.1", "10.0.1.3", "10.0.1.2")
    assert plan.local_repairers == {"10.0.1.2"}
    assert plan.asks_below_trail


def test_relaying_repairer_is_local_below_and_not_above():
    found = topology(
        ('role = "aggregator"\nupstream', 'role = "repairer"\nupstream'), ('repairers = ["floor-repairer"]\n', ""),
        ("[nodes.relay]", '[nodes.watch]\nrole = "receiver"\nsegment = "core"\nparents = ["exchange"]\n[nodes.relay]'),
    )  # fmt: skip
    assert plan_node(found, "desk-1").local_repairers == {"10.0.1.1", "10.0.1.2"}
    watch = plan_node(found, "watch")
    assert watch.local_repairers == {"10.0.0.11"}
    assert not watch.asks_below_trail
    assert watch.segments[0].address is None


@pytest.mark.parametrize(
    ("parents", "asks"), [('["relay"]', True), ('["floor-repairer"]', True), ('["standby"]', True), ("[]", False)]
)
def test_plan_nodes_that_ask_below_the_trail(parents: str, asks: bool):
    found = topology(('parents = ["relay", "standby", "floor-repairer"]', f"parents = {parents}"))
    assert plan_node(found, "desk-1").asks_below_trail is asks


def test_losses_of_segment_node_and_place():
    found = topology(
        ('interface = "10.0.1.0/24"', 'interface = "10.0.1.0/24"\nloss = { loss = "1%" }'),
        ('address = "10.0.1.2"', 'address = "10.0.1.2"\nloss = { loss = "2%" }'),
        ('address = "10.0.1.1" }', 'address = "10.0.1.1", loss = { loss = "3%" } }'),
    )
    seats = {name: plan.segments[-1].impairment for name, plan in plan_all(found).items()}
    assert seats["exchange"] == Impairment()
    assert seats["desk-1"] == seats["standby"] == Impairment(loss=0.01)
    assert seats["floor-repairer"] == Impairment(loss=0.02)
    assert seats["relay"] == Impairment(loss=0.03)


def test_all_plans_by_name():
    plans = plan_all(topology())
    assert list(plans) == [
        "exchange", "core-repairer", "relay", "standby", "floor-repairer", "desk-1", "desk-2", "desk-3", "desk-4",
    ]  # fmt: skip
    assert all(plans[name] == plan_node(topology(), name) for name in plans)


def test_counts_of_patterns_may_be_given():
    assert len(plan_all(topology(), {"desk-*": 10})) == 15
    assert len(plan_all(topology(), {"desk-*": 0})) == 5
    assert len(plan_all(topology(("count = 4\n", "")))) == 6
    with pytest.raises(TopologyError, match=r"'desk-11' has no address: 'desk-\*' has 10 .*extend the range"):
        plan_all(topology(), {"desk-*": 11})
    with pytest.raises(TopologyError, match=r"no pattern 'dsk-\*' to count \(did you mean 'desk-\*'\?\)"):
        plan_all(topology(), {"dsk-*": 1})


def test_any_number_where_no_address_is_needed():
    found = topology(('addresses = "10.0.1.10-10.0.1.19"\n', ""))
    plan = plan_node(found, "desk-700")
    assert (plan.name, plan.segments[0].address) == ("desk-700", None)


def test_number_beyond_the_addresses_is_refused():
    assert plan_node(topology(), "desk-10").segments[0].address == "10.0.1.19"
    text = changed()
    with pytest.raises(TopologyError, match=rf"tree.toml:{line_of(text, 'addresses')}: 'desk-11' has no address"):
        plan_node(topology(), "desk-11")


def test_entry_of_its_own_goes_before_a_number_of_a_pattern():
    own = '[nodes.desk-7]\nrole = "receiver"\nsegment = "floor"\naddress = "10.0.1.77"\nparents = ["relay"]\n'
    found = topology(('[nodes."desk-*"]', own + '[nodes."desk-*"]'))
    assert plan_node(found, "desk-7").segments[0].address == "10.0.1.77"
    assert plan_all(found, {"desk-*": 9})["desk-7"].segments[0].address == "10.0.1.77"


@pytest.mark.parametrize(
    ("name", "remedy"),
    [("exchnge", "did you mean 'exchange'"), ("desk-*", "give it a number, as in \"desk-1\""), ("desk-x", "did you mean 'desk-1'"), ("desk-01", "did you mean")],
)  # fmt: skip
def test_unknown_node_is_refused_with_a_suggestion(name: str, remedy: str):
    with pytest.raises(TopologyError) as caught:
        plan_node(topology(), name)
    assert remedy in caught.value.problems[0]


def test_broken_tree_is_not_planned():
    broken = topology(('parents = ["exchange"]', 'parents = ["nobody"]'), ("239.192.0.2", "10.1.1.1"))
    with pytest.raises(TopologyError) as caught:
        plan_node(broken, "exchange")
    assert len(caught.value.problems) == 2


def test_unicast_leg_reaches_everybody_else_on_it():
    leg = topology(('group = "239.192.0.2"\ninterface = "10.0.1.0/24"', "unicast = true"))
    relay, desk = plan_node(leg, "relay"), plan_node(leg, "desk-2")
    seat = relay.downstream[0]
    assert (seat.group, seat.interface, seat.address) == ("0.0.0.0", "10.0.1.1", "10.0.1.1")
    assert seat.peers == ("10.0.1.3", "10.0.1.2", *(f"10.0.1.{number}" for number in range(10, 14)))
    assert relay.upstream.peers is None
    assert (desk.upstream.address, desk.upstream.interface) == ("10.0.1.11", "10.0.1.11")
    assert desk.upstream.peers == ("10.0.1.1", "10.0.1.3", "10.0.1.2", "10.0.1.10", "10.0.1.12", "10.0.1.13")
    more = plan_all(leg, {"desk-*": 6})
    assert more["relay"].downstream[0].peers == (*seat.peers, "10.0.1.14", "10.0.1.15")


def test_source_makes_packets_that_fit_the_ipv6_segments_it_reaches():
    six = (
        ('group = "239.192.0.2"\ninterface = "10.0.1.0/24"', 'group = "ff15::2"\ninterface = "fd00:1::/64"'),
        ('"10.0.1.1"', '"fd00:1::1"'),
        ('"10.0.1.3"', '"fd00:1::3"'),
        ('"10.0.1.2"', '"fd00:1::2"'),
        ("10.0.1.10-10.0.1.19", "fd00:1::10-fd00:1::19"),
    )
    plan = plan_node(topology(*six), "exchange")
    assert plan.parameters.max_tpdu == 1500 - 40 - 8
    assert dict(plan.reasons)["max_tpdu"] == "IPv6 on segment floor"
    told = (*six, ("[segments.core]", 'parameters = { max_tpdu = "1400B" }\n[segments.core]'))
    assert plan_node(topology(*told), "exchange").parameters.max_tpdu == 1400
    elsewhere = (*six, ('streams = ["quotes"]\n[nodes.core', 'streams = ["other"]\n[nodes.core'))
    beside = ("[segments.core]", "[streams.other]\ndata_port = 7501\n[segments.core]")
    narrow = ("repairers = [", 'streams = ["quotes"]\nrepairers = [')
    source = ("[nodes.relay]", '[nodes.second]\nrole = "source"\nsegment = "core"\naddress = "10.0.0.77"\nstreams = ["quotes"]\n[nodes.relay]')  # fmt: skip
    standby = ('standby_of = "relay"', 'standby_of = "relay"\nstreams = ["quotes"]')
    both = topology(*elsewhere, beside, narrow, source, standby)
    assert plan_node(both, "exchange").parameters.max_tpdu == 1472
    assert plan_node(both, "second").parameters.max_tpdu == 1452


def test_lines_have_addresses_and_parents_of_their_own() -> None:
    text = GOOD.replace(
        "[segments.core]", '[segments.second]\ngroup = "239.192.0.9"\ninterface = "10.0.9.0/24"\n[segments.core]'
    )
    text = text.replace(
        'address = "10.0.0.10"',
        'address = "10.0.0.10"\nlines = [{ segment = "second", address = "10.0.9.1" }]',
    )
    text += """
[nodes.both]
role = "repairer"
upstream = { segment = "core", address = "10.0.0.70" }
downstream = [{ segment = "cellar", address = "10.0.2.1" }]
parents = ["core-repairer"]
lines = [{ segment = "second", address = "10.0.9.70", parents = ["exchange"] }]
[segments.cellar]
group = "239.192.0.10"
interface = "10.0.2.0/24"
"""
    plans = plan_all(loads(text))
    exchange, both = plans["exchange"], plans["both"]
    assert [(one.name, one.address, one.downstream) for one in exchange.segments] == [
        ("core", "10.0.0.10", True),
        ("second", "10.0.9.1", True),
    ]
    assert [(one.name, one.upstream, one.downstream) for one in both.segments] == [
        ("core", True, False),
        ("second", True, False),
        ("cellar", False, True),
    ]
    assert both.lines == (LinePlan("second", ("10.0.9.1",)),)
    assert both.parents == ("10.0.0.11",)
    assert not exchange.lines


def test_plan_source_list_becomes_allowed_addresses():
    """The plan lists the sources on the node's segments, literal addresses, and adjacent elements."""
    listed = changed(('window = "10s"', 'window = "10s"\nsources = ["exchange", "10.0.0.77"]'))
    allowed = {name: plan_node(topology(text=listed), name).streams[0].allowed for name in ("relay", "desk-1")}
    floor, core = {"10.0.1.1", "10.0.1.2", "10.0.1.3"}, {"10.0.0.10", "10.0.0.11", "10.0.0.12", "10.0.0.13"}
    assert allowed == {"relay": {"10.0.0.77", *floor, *core}, "desk-1": {"10.0.0.77", *floor}}
    by_address = changed(('window = "10s"', 'window = "10s"\nsources = ["10.0.0.10"]'))
    assert "10.0.0.10" in (plan_node(topology(text=by_address), "relay").streams[0].allowed or ())


def allowed_of(*changes, name="desk-1"):
    return plan_node(topology(text=changed(*changes)), name).streams[0].allowed


def test_plan_permits_the_known_sources_by_default():
    """Without a list the file's sources and elements are the permitted senders, on each node's own segments."""
    floor, core = {"10.0.1.1", "10.0.1.2", "10.0.1.3"}, {"10.0.0.10", "10.0.0.11", "10.0.0.12", "10.0.0.13"}
    assert allowed_of(name="relay") == {*floor, *core}
    assert allowed_of() == floor
    assert allowed_of(('window = "10s"', 'window = "10s"\nsources = ["any"]')) is None


def test_plan_permits_any_sender_without_a_source_in_the_file():
    """A stream that the file's sources do not send comes from a sender that the file does not know."""
    assert (
        allowed_of(
            ("[streams.quotes]", "[streams.news]\ndata_port = 7600\n\n[streams.quotes]"),
        )
        is not None
    )
    text = changed(("[streams.quotes]", "[streams.news]\ndata_port = 7600\n\n[streams.quotes]"))
    allowed = {stream.name: stream.allowed for stream in plan_node(topology(text=text), "relay").streams}
    assert allowed["news"] is None
    assert allowed["quotes"] is not None


def test_receivers_know_the_archives_of_their_segment_and_above():
    served = 'record = {{ directory = "/a/{0}", serve = "{0}:3057" }}\n'
    found = topology(
        ("[nodes.relay]", served.format("10.0.0.11") + "[nodes.relay]"),
        ('[nodes."desk-*"]', served.format("10.0.1.2") + '[nodes."desk-*"]'),
    )
    assert plan_node(found, "desk-1").archives == ("10.0.1.2:3057", "10.0.0.11:3057")
    assert plan_node(found, "floor-repairer").record_service == "10.0.1.2:3057"
    assert "10.0.0.11:3057" in plan_node(found, "floor-repairer").archives
    assert plan_node(found, "relay").archives == ()
    assert plan_node(topology(), "desk-1").archives == ()


def test_plan_names_the_children_of_sources_and_elements():
    """A pattern names its whole range, since a node beyond `count` may be started."""
    children = plan_node(topology(), "relay").children
    desks = {f"10.0.1.{number}" for number in range(10, 20)}
    assert children.elements == {"10.0.1.1", "10.0.1.2", "10.0.1.3"}
    assert children.addresses == children.elements | desks
    assert children.are_all
    assert plan_node(topology(), "exchange").children.elements == {"10.0.0.11", "10.0.0.12", "10.0.0.13"}


def test_plan_does_not_name_all_children_if_one_has_no_address():
    children = plan_node(topology(('addresses = "10.0.1.10-10.0.1.19"\n', "")), "relay").children
    assert children.addresses == children.elements
    assert not children.are_all


def test_plan_knows_the_keys_of_all_nodes_by_address():
    """Keys of a pattern's node lie at its own address; revoked keys, and nodes of other streams, have no part in it."""
    names = ("exchange", "core-repairer", "relay", "standby", "floor-repairer", *(f"desk-{at}" for at in range(1, 5)))
    keys = {name: private_keys(at).public for at, name in enumerate(names)}
    lines = "\n".join(f'{name} = ["{one.line}"]' for name, one in keys.items())
    text = changed(("data_port = 7500", "data_port = 7500\nauthenticated = true")) + f"[keys]\n{lines}\n"
    plan = plan_node(loads(text), "desk-2")
    known = plan.streams[0].known_keys
    assert known is not None
    assert known["10.0.1.1"] == known["10.0.0.12"] == (keys["relay"],)
    assert known["10.0.1.11"] == (keys["desk-2"],)
    assert len(known) == 11
    assert plan_node(topology(), "desk-2").streams[0].known_keys is None
    revoked = text + f'[revoked]\n{keys["desk-4"].id} = "lost"\n' + ""
    with pytest.raises(TopologyError, match="are revoked"):
        plan_node(loads(revoked), "desk-2")
