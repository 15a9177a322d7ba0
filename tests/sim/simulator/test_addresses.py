"""Addresses that the simulator gives to nodes without one."""

import ipaddress
from typing import Any

import pytest

from pgm.sim.addresses import AddressBook
from pgm.sim.trees import TreeBuilder
from tests.sim.support.worlds import parameters


@pytest.mark.parametrize("segments", [1, 129])
def test_open_addresses_are_valid_and_distinct(segments: int) -> None:
    tree = TreeBuilder(parameters())
    for number in range(segments):
        tree.source(f"source-{number}", f"lan-{number}")
        tree.receiver(f"receiver-{number}", f"lan-{number}", f"source-{number}")
    book = AddressBook()
    found: list[Any] = [book.fill(plan).segments[0].address for plan in tree.plans.values()]
    assert len({ipaddress.ip_address(one) for one in found}) == 2 * segments
