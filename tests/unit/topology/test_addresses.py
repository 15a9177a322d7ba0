"""Addresses, ranges and interfaces in all their spellings."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgm.errors import UnitError
from pgm.topology.addresses import (
    AddressPool,
    is_loopback,
    may_overlap,
    network_of,
    parse_address,
    parse_interface,
    parse_pool,
    short,
    version_of,
)


@pytest.mark.parametrize(("written", "usual"), [("10.0.0.1", "10.0.0.1"), (" ::1 ", "::1"), ("FF15:0::1", "ff15::1")])
def test_addresses_take_their_usual_spelling(written: str, usual: str):
    assert parse_address(written) == usual


@pytest.mark.parametrize("written", ["10.0.0", "10.0.0.01", "host", "fe80::1%eth0", "", 7, None, ["10.0.0.1"]])
def test_addresses_other_text_is_refused(written: object):
    with pytest.raises(UnitError) as caught:
        parse_address(written)
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("written", "usual"),
    [
        ("eth0", "eth0"),
        ("10.0.0.7/24", "10.0.0.0/24"),
        ("fd00::/64", "fd00::/64"),
        ("10.0.0.7", "10.0.0.7"),
        ("lo", "lo"),
    ],
)
def test_interfaces_by_name_address_and_network(written: str, usual: str):
    assert parse_interface(written) == usual


@pytest.mark.parametrize("written", ["", "10.0.0.0/40", "10.0.300.1", "a name", "a-name-that-is-too-long", 3])
def test_interfaces_other_text_is_refused(written: object):
    with pytest.raises(UnitError):
        parse_interface(written)


def test_addresses_interface_by_name_address_or_network():
    assert [version_of(one) for one in ("eth0", "10.0.0.0/24", "::1", "10.0.0.1")] == [None, 4, 6, 4]
    assert network_of("10.0.0.0/24") == ipaddress.ip_network("10.0.0.0/24")
    assert network_of("eth0") is None
    assert network_of("10.0.0.1") is None


@pytest.mark.parametrize(
    ("interface", "loops"),
    [("lo", True), ("127.0.3.0/24", True), ("127.0.0.1", True), ("::1", True), ("eth0", False), ("10.0.0.0/8", False), ("fd00::/8", False)],
)  # fmt: skip
def test_loopback_by_every_spelling(interface: str, loops: bool):
    assert is_loopback(interface) is loops


@pytest.mark.parametrize(
    ("one", "other", "overlaps"),
    [
        ("eth0", "eth0", True),
        ("eth0", "eth1", False),
        ("eth0", "10.0.0.0/24", False),  # an unknown interface is not on the network
        ("lo", "127.0.2.0/24", True),
        ("10.0.0.0/16", "10.0.7.1", True),
        ("10.0.0.0/24", "10.0.1.0/24", False),
        ("10.0.0.0/24", "fd00::/64", False),
        ("fe80::/64", "fe80::/64", False),  # every interface has a link-local address
        ("fe80::1", "fe80::1", True),
    ],
)
def test_overlap_of_interfaces(one: str, other: str, overlaps: bool):
    assert may_overlap(one, other) is overlaps
    assert may_overlap(other, one) is overlaps


def test_pool_of_ranges_and_addresses():
    pool = parse_pool(["127.0.0.9", "127.0.2.254-127.0.3.1"])
    assert pool.size == 5
    assert [pool.address(index) for index in range(5)] == [
        "127.0.0.9",
        "127.0.2.254",
        "127.0.2.255",
        "127.0.3.0",
        "127.0.3.1",
    ]
    assert pool.spelling == "127.0.0.9, 127.0.2.254-127.0.3.1"
    with pytest.raises(IndexError):
        pool.address(5)


@pytest.mark.parametrize("written", [[], 5, "10.0.0.1-", "10.0.0.9-10.0.0.1", "10.0.0.1-::1", [["10.0.0.1"]]])
def test_pools_other_text_is_refused(written: object):
    with pytest.raises(UnitError) as caught:
        parse_pool(written)
    assert caught.value.remedy


@given(st.ip_addresses(v=4), st.integers(0, 300))
def test_pool_counts_what_it_gives(first: ipaddress.IPv4Address, more: int):
    last = ipaddress.IPv4Address(min(int(first) + more, (1 << 32) - 1))
    pool = parse_pool(f"{first}-{last}")
    assert isinstance(pool, AddressPool)
    assert len({pool.address(index) for index in range(pool.size)}) == pool.size
    assert pool.address(pool.size - 1) == str(last)
    assert parse_pool(pool.spelling.split(", ")) == pool


def test_long_values_are_cut():
    assert short("a" * 100).endswith("...")
    assert len(short("a" * 100)) == 60
