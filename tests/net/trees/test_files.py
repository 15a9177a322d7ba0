"""Real input over real losses: a file through a relay to receivers on other hosts, without a missing octet."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pgm.wire.formats import DATA_HEADER_OCTETS
from tests.net.support.files import STRIDE, Case, Net, Outcome, Way, make_file, network, transfer
from tests.net.support.lab import needs_namespaces
from tests.net.support.places import Place, one_segment
from tests.net.support.processes import Process, processes

OCTETS = 4_000_000
PAYLOAD = STRIDE - DATA_HEADER_OCTETS
LIGHT, HEAVY = 0.01, 0.2
PROMPT = {"ihb_min": '"10ms"', "fin_quiet_ivl": '"700ms"'}  # six SPMs say FIN, and the source is gone


@pytest.fixture(scope="module")
def net() -> Iterator[Net]:
    with network() as made:
        yield made


def whole(net: Net, case: Case) -> Outcome:
    """Return the outcome of a transfer that must succeed."""
    outcome = transfer(net, case)
    print(f"{case.relay}, {case.way.value}, {case.loss:.0%}: {outcome.seconds:.1f} s")
    for hop in outcome.hops:
        print(
            f"{hop.name}: {hop.lost} of {hop.seen} lost ({hop.share:.2%}), trains of {hop.train:.1f}, "
            f"{len(hop.runs)} runs of lost packets, {hop.mean_run:.2f} long"
        )
    assert outcome.is_whole, outcome.log
    return outcome


@pytest.mark.network
@needs_namespaces
@pytest.mark.parametrize("way", Way)
def test_a_file_arrives_whole_where_little_is_lost(net: Net, way: Way) -> None:
    outcome = whole(net, Case(way, LIGHT, octets=OCTETS, parameters=PROMPT))
    if way is not Way.TRAINS:  # a hundred trains may all get through
        assert sum(hop.lost for hop in outcome.hops) > 0


@pytest.mark.network
@needs_namespaces
@pytest.mark.parametrize(("relay", "way"), [*(("repairer", way) for way in Way), ("aggregator", Way.SINGLE)])
def test_a_file_arrives_whole_where_much_is_lost(net: Net, relay: str, way: Way) -> None:
    outcome = whole(net, Case(way, HEAVY, relay=relay, octets=OCTETS, parameters=PROMPT))
    for hop in outcome.hops:
        assert HEAVY / 4 < hop.share < HEAVY * 2, hop
        if way is Way.TRAINS:
            assert hop.typical_run > 10, "the rule drops whole trains"
        else:
            assert hop.mean_run < 2, "packets are dropped one by one"
    assert (outcome.hops[0].train > 2) is (way is not Way.SINGLE), "trains arrive as trains"
    repairs = sum(outcome.counters[node].get("rdata_packets", 0) for node in ("source", "relay"))
    assert repairs > HEAVY / 2 * OCTETS / PAYLOAD


def test_a_file_is_sent_in_full_packets(place: Place) -> None:
    with processes(one_segment(place), f"t{place.number}") as tree:
        file = tree.folder / "file"
        make_file(file, 3 * (1 << 20) + 1)  # several reads of standard input, none of whole packets
        with file.open("rb") as standard_input:
            sender = Process("source", ["send", str(tree.file), "--node", "source", "--json"], stdin=standard_input)
        tree.all.append(sender)
        account = sender.account()
    assert account["octets"] == 3 * (1 << 20) + 1
    assert account["messages"] == account["counters"]["odata_packets"] == -(-account["octets"] // PAYLOAD)
