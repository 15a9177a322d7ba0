"""Nodes without a topology file, opened by an address."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgm.errors import UsageError
from pgm.parameters import ROWS
from pgm.topology.node_plan import Role
from pgm.topology.url import is_url, plan_url
from pgm.units import MILLISECOND, SECOND

PLAIN = "pgm://239.192.0.1:3056?interface=lo&data_port=7500"


def test_shortest_address():
    plan = plan_url(PLAIN, Role.RECEIVER)
    (seat,) = plan.segments
    assert (seat.group, seat.port, seat.unicast_port, seat.interface) == ("239.192.0.1", 3056, 3056, "lo")
    assert (seat.address, seat.upstream, seat.downstream) == (None, True, False)
    assert [stream.data_port for stream in plan.streams] == [7500]
    assert (plan.role, plan.parents) == (Role.RECEIVER, ())


@pytest.mark.parametrize(
    ("role", "query", "hears"),
    [(Role.SOURCE, "", True), (Role.SOURCE, "&transport=ip", False), (Role.RECEIVER, "", False)],
)
def test_source_by_address_may_be_asked_on_the_port_of_the_group(role, query, hears):
    assert plan_url(PLAIN + query, role).segments[0].hears_group_port is hears


def test_former_name_in_address_is_read_with_a_warning():
    with pytest.warns(DeprecationWarning, match="rx_look_ivl is now rx_poll_ivl"):
        plan = plan_url(f"{PLAIN}&rx_look_ivl=1ms", Role.RECEIVER)
    assert plan.parameters.rx_poll_ivl == MILLISECOND
    with (
        pytest.warns(DeprecationWarning, match="rx_look_ivl"),
        pytest.raises(UsageError, match="rx_poll_ivl is there twice"),
    ):
        plan_url(f"{PLAIN}&rx_look_ivl=1ms&rx_poll_ivl=1ms", Role.RECEIVER)


def test_every_key():
    plan = plan_url(
        f"{PLAIN}&address=127.0.0.9&unicast_port=3055&nak_bo_ivl=50ms&rxw_gaps=100&gro=false&parents=127.0.0.1,127.0.0.2"
        "&stream=quotes&order=unordered&profile=wan&rtt=90ms",
        Role.RECEIVER,
    )
    (seat,) = plan.segments
    assert (seat.address, seat.unicast_port) == ("127.0.0.9", 3055)
    assert plan.parents == ("127.0.0.1", "127.0.0.2")
    assert (plan.streams[0].name, plan.streams[0].order) == ("quotes", "unordered")
    own = plan.parameters
    assert (own.nak_bo_ivl, own.rxw_gaps, own.gro, own.peer_expiry) == (50 * MILLISECOND, 100, False, 30 * SECOND)
    assert dict(plan.reasons)["nak_bo_ivl"] == "address"
    assert dict(plan.reasons)["peer_expiry"] == "profile wan, rtt 90ms"


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("nak_bo_ivl", "50000000", 50 * MILLISECOND),
        ("nak_bo_ivl", "50ms", 50 * MILLISECOND),
        ("rxw_bytes", "67108865", 67_108_865),
        ("txw_max_rte", "1000001", 1_000_001),
        ("excess_nak_share", "0.25", 0.25),
        ("excess_nak_share", "1", 1.0),
        ("rxw_gaps", "100", 100),
        ("txw_secs", "10000000000", 10 * SECOND),
    ],
)
def test_url_number_without_unit_means_what_the_keyword_means(key, text, value):
    plan = plan_url(f"{PLAIN}&{key}={text}", Role.RECEIVER)
    assert getattr(plan.parameters, key) == value
    by_keyword = ROWS[key].take(text if "ms" in text else type(value)(text))
    assert by_keyword == value


def test_url_keys_of_the_file_take_the_same_units():
    plan = plan_url(f"{PLAIN}&address=127.0.0.9&rate=1000000&rtt=90000000&repair_budget=20000000000", Role.SOURCE)
    spelled = plan_url(f"{PLAIN}&address=127.0.0.9&rate=8Mbit/s&rtt=90ms&repair_budget=20s", Role.SOURCE)
    assert plan.parameters == spelled.parameters
    assert plan.parameters.txw_max_rte == 1_000_000


def test_url_number_out_of_range_names_the_key():
    with pytest.raises(UsageError, match="nak_bo_ivl"):
        plan_url(f"{PLAIN}&nak_bo_ivl=5", Role.RECEIVER)


def test_source():
    plan = plan_url(f"{PLAIN}&address=127.0.0.9&rate=8Mbit/s&window=5000", Role.SOURCE)
    assert (plan.role, plan.segments[0].downstream) == (Role.SOURCE, True)
    assert (plan.parameters.txw_max_rte, plan.parameters.txw_sqns) == (1_000_000, 5000)


def test_protocol_113_instead_of_udp():
    assert plan_url(f"{PLAIN}&transport=ip", Role.RECEIVER).segments[0].transport == "ip"
    assert plan_url(PLAIN, Role.RECEIVER).segments[0].transport == "udp"
    with pytest.raises(UsageError, match="transport"):
        plan_url(f"{PLAIN}&transport=tcp", Role.RECEIVER)


def test_ipv6_source_fills_a_frame():
    plan = plan_url("pgm://[ff15::1]?interface=eth0&data_port=7500&address=fd00::1", Role.SOURCE)
    assert plan.parameters.max_tpdu == 1500 - 40 - 8
    assert dict(plan.reasons)["max_tpdu"] == "IPv6 on segment url"
    own = plan_url("pgm://[ff15::1]?interface=eth0&data_port=7500&address=fd00::1&max_tpdu=8900B", Role.SOURCE)
    assert own.parameters.max_tpdu == 8900


def test_ipv6_group_without_port():
    plan = plan_url("pgm://[FF15::1]?interface=eth0&data_port=7500&parents=fd00::1", Role.RECEIVER)
    assert (plan.segments[0].group, plan.segments[0].port, plan.parents) == ("ff15::1", 3056, ("fd00::1",))


def test_addresses_of_zeromq():
    """INT-Z2, INT-Z9: one port for everything, the interface before the group, and ZeroMQ's own settings."""
    plan = plan_url("epgm://Eth0;239.192.1.1:5555", Role.SOURCE)
    (seat,) = plan.segments
    assert (seat.interface, seat.group, seat.port, seat.unicast_port) == ("Eth0", "239.192.1.1", 5555, 5555)
    assert [(stream.data_port, stream.framing) for stream in plan.streams] == [(5555, "zeromq")]
    own = plan.parameters
    assert (own.txw_max_rte, own.txw_secs, own.multicast_hops) == (12_500, 10 * SECOND, 1)
    assert (own.private_options, own.nak_bo_ivl, own.peer_expiry) == (False, 50 * MILLISECOND, 300 * SECOND)


def test_addresses_of_zeromq_take_the_same_keys():
    plan = plan_url(
        "epgm://10.0.0.0/24;239.192.1.1:5555?rate=40Mbit/s&address=10.0.0.7&multicast_hops=4&max_tpdu=1400B"
        "&parents=10.0.0.1&window=500",
        Role.RECEIVER,
    )
    own = plan.parameters
    assert (plan.segments[0].interface, plan.segments[0].address) == ("10.0.0.0/24", "10.0.0.7")
    assert (own.txw_max_rte, own.multicast_hops, own.max_tpdu) == (5_000_000, 4, 1400)
    assert plan.parents == ("10.0.0.1",)
    assert plan_url("epgm://eth0;[FF15::1]:5555", Role.RECEIVER).segments[0].group == "ff15::1"


def test_the_framing_of_zeromq_with_ports_of_our_own():
    plan = plan_url(f"{PLAIN}&framing=zeromq", Role.RECEIVER)
    assert plan.streams[0].framing == "zeromq"
    assert plan_url(PLAIN, Role.RECEIVER).streams[0].framing == "plain"


@pytest.mark.parametrize(
    ("url", "says", "remedy"),
    [
        ("epgm://239.192.0.1:5555", "names no interface, group and port", "epgm://eth0;239.192.1.1:5555"),
        ("epgm://;239.192.0.1:5555", "names no interface, group and port", "epgm://eth0;239.192.1.1:5555"),
        ("epgm://lo;239.192.0.1", "names no interface, group and port", "epgm://eth0;239.192.1.1:5555"),
        ("epgm://lo;239.192.0.1,239.192.0.2;239.192.0.3:5555", "names no interface, group and port", "one group"),
        ("epgm://lo;239.192.0.1:99999", "data_port: 99999 is not a port", "whole number"),
        ("epgm://lo;10.0.0.1:5555", "10.0.0.1", "239.192.0.0/14"),
        ("epgm://lo;239.192.0.1:5555?data_port=7500", "data_port does not go with epgm://", "framing=zeromq"),
        ("epgm://lo;239.192.0.1:5555?rat=1Mbit/s", "unknown key 'rat'", "did you mean 'rate'?"),
        (f"{PLAIN}&framing=zmq", "'zmq' is unknown", "did you mean 'zeromq'?"),
        ("http://239.192.0.1?interface=lo&data_port=7500", "no address of a group", "pgm://239"),
        ("pgm://?interface=lo&data_port=7500", "no address of a group", "pgm://239"),
        ("pgm://239.192.0.1/path?interface=lo&data_port=7500", "no address of a group", "pgm://239"),
        ("pgm://239.192.0.1", "interface is missing", "add it, as in"),
        ("pgm://239.192.0.1?interface=lo", "data_port is missing", "add it, as in"),
        (f"{PLAIN}&adress=127.0.0.9", "unknown key 'adress'", "did you mean 'address'?"),
        (f"{PLAIN}&nak_bo_ivll=5ms", "unknown key 'nak_bo_ivll'", "did you mean 'nak_bo_ivl'?"),
        (f"{PLAIN}&data_port=7501", "data_port is there twice", "once"),
        ("pgm://239.192.0.1?interface=lo&data_port=http", "data_port: 'http' is not a port", "whole number"),
        ("pgm://239.192.0.1:99999?interface=lo&data_port=7500", "Port out of range", "pgm://239"),
        ("pgm://239.192.0.1:0?interface=lo&data_port=7500", "0 is not a port", "whole number"),
        (
            "pgm://group.example?interface=lo&data_port=7500",
            "'group.example' is not an IP address",
            "the group's address",
        ),
        ("pgm://[ff15::1?interface=lo&data_port=7500", "is no address", "pgm://239"),
        ("pgm://10.0.0.1?interface=lo&data_port=7500", "10.0.0.1", "239.192.0.0/14"),
        (f"{PLAIN}&address=::1", "has the address ::1", "IPv4 address"),
        (
            "pgm://239.192.0.1?interface=10.0.0.0/24&data_port=7500&address=10.0.1.1",
            "outside 10.0.0.0/24",
            "choose an address",
        ),
        (f"{PLAIN}&nak_bo_ivl=50", "nak_bo_ivl = 50ns is out of range", "choose from 100us"),
        (f"{PLAIN}&gso=1", "gso = '1' is neither", "true or false"),
        (f"{PLAIN}&rxw_gaps=many", "rxw_gaps = 'many' is not a whole number", "a number"),
        (f"{PLAIN}&profile=wam", "'wam' is unknown", "did you mean 'wan'?"),
        (f"{PLAIN}&parents=127.0.0.1,host", "'host' is not an IP address", "commas"),
        (f"{PLAIN}&parents=::1", "not of one family", "commas"),
        (f"{PLAIN}&stall_ivl=20s", "stall_ivl = 20s is not below peer_expiry = 10s", 'peer_expiry = "40s"'),
    ],
)
def test_bad_address_is_refused_with_a_remedy(url: str, says: str, remedy: str):
    with pytest.raises(UsageError) as caught:
        plan_url(url, Role.RECEIVER)
    assert says in caught.value.message
    assert remedy in caught.value.remedy


def test_other_roles_need_a_file():
    with pytest.raises(UsageError, match="aggregator"):
        plan_url(PLAIN, Role.AGGREGATOR)
    with pytest.raises(UsageError, match="a source has no parents"):
        plan_url(f"{PLAIN}&parents=127.0.0.1", Role.SOURCE)


def test_addresses_are_told_from_paths():
    assert is_url(PLAIN)
    assert is_url("epgm://lo;239.192.0.1:5555")
    assert not is_url("tree.toml")
    assert not is_url("/etc/pgm/tree.toml")


_KEYS = st.sampled_from(
    ["interface", "data_port", "address", "parents", "window", "rtt", "stream", "gso", "nak_bo_ivl", "x"]
)
_TEXTS = st.one_of(
    st.text(max_size=6), st.sampled_from(["lo", "7500", "127.0.0.1", "5ms", "true", "*", "", "10.0.0.0/8"])
)


@given(st.text(max_size=60) | st.text(max_size=30).map(lambda text: f"epgm://{text}") | st.lists(st.tuples(_KEYS, _TEXTS), max_size=5).map(
    lambda pairs: "pgm://239.192.0.1?" + "&".join(f"{key}={text}" for key, text in pairs)
))  # fmt: skip
def test_any_text_is_a_plan_or_refused(text: str):
    try:
        plan = plan_url(text, Role.RECEIVER)
    except UsageError as error:
        assert error.remedy  # noqa: PT017
    else:
        assert plan.streams
