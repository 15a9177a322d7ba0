"""The tree as text and as dicts."""

from __future__ import annotations

import json

import pytest

from pgm.errors import TopologyError
from pgm.topology.check import check_file
from pgm.topology.describe import plan_json, plan_lines, report_json, topology_json, topology_lines
from pgm.topology.plan import plan_node
from tests.unit.topology.trees import FILE, changed, line_of, topology


def test_tree_hangs_segments_below_their_relays():
    lines = topology_lines(topology(('interface = "10.0.1.0/24"', 'interface = "10.0.1.0/24"\nloss = { loss = "2%" }')))
    depth = {
        word: next(line.index(word) for line in lines if word in line)
        for word in ("segment core", "exchange:", "relay:", "segment floor", "desk-*:")
    }
    assert depth["segment core"] < depth["exchange:"] == depth["relay:"] < depth["segment floor"] < depth["desk-*:"]
    text = "\n".join(lines)
    assert text.startswith(
        "good: profile lan, rtt 1ms, repair budget 10s\nstream quotes: data port 7500, 400Mbit/s, window 10s"
    )
    assert "segment floor: 239.192.0.2:3056 on 10.0.1.0/24, loses 2%" in text
    assert text.count("segment floor:") == 1  # the standby does not repeat it
    assert "standby: aggregator, 10.0.0.13 on core, 10.0.1.3 on floor, quotes, standby of relay" in text
    assert "desk-*: receiver, quotes, 4 of them, 10.0.1.10-10.0.1.19" in text
    assert "asks below floor-repairer (10.0.1.2)" in text
    assert "asks above core-repairer (10.0.0.11), then exchange (10.0.0.10)" in text
    assert f"cache_bytes 4GiB: node core-repairer cache, line {line_of(changed(), 'cache') + 1}" in text


def test_tree_as_dicts_is_json_with_stable_keys():
    found = json.loads(json.dumps(topology_json(topology())))
    assert list(found) == ["topology", "file", "profile", "rtt", "repair_budget", "streams", "segments", "nodes"]
    assert found["streams"] == [
        {"stream": "quotes", "data_port": 7500, "rate": "400Mbit/s", "window": "10s", "order": "ordered", "flow": "rate", "signed": False, "verify": "before", "sealed": False, "authenticated": False, "sources": ["exchange"], "permitted": ["exchange"]}
    ]  # fmt: skip
    floor = found["segments"][1]
    assert (floor["segment"], floor["streams"]) == ("floor", ["quotes"])
    assert floor["nodes"] == ["relay", "standby", "floor-repairer", "desk-*"]
    nodes = {node["node"]: node for node in found["nodes"]}
    assert (nodes["desk-*"]["count"], nodes["desk-*"]["addresses"]) == (4, "10.0.1.10-10.0.1.19")
    assert nodes["standby"]["standby_of"] == "relay"
    assert nodes["relay"]["parents"] == ["core-repairer", "exchange"]
    assert nodes["relay"]["repairer_addresses"] == [["10.0.1.2"]]


def test_one_node_tells_only_what_its_role_reads():
    plan = plan_node(topology(('name = "good"', 'name = "good"\nparameters = { txw_adv_secs = "2s" }')), "desk-1")
    assert "txw_adv_secs" in dict(plan.reasons)
    found = plan_json(plan)
    assert "txw_adv_secs" not in found["parameters"]
    assert found["parameters"]["nak_ncf_retries"] == {"value": "181", "reason": "profile lan, rtt 1ms"}
    assert plan_lines(plan)[:2] == [
        "desk-1: receiver, 10.0.1.10 on floor, quotes",
        "  asks 10.0.1.1, then 10.0.1.3, then 10.0.1.2",
    ]


def test_report_as_dicts(tmp_path):
    path = tmp_path / FILE
    path.write_text(changed(('parents = ["exchange"]', 'parents = ["exchnge"]'), ('bytes = "4GiB"', 'bytes = "1GiB"')))
    found = json.loads(json.dumps(report_json(check_file(path))))
    assert list(found) == ["ok", "errors", "warnings"]
    assert found["ok"] is False
    assert found["errors"][0] == {
        "file": str(path),
        "line": line_of(path.read_text(), "exchnge"),
        "rule": "unknown-name",
        "message": "'core-repairer' names the node 'exchnge', which does not exist",
        "remedy": "did you mean 'exchange'?",
    }
    assert [one["rule"] for one in found["warnings"]] == ["cache"]


@pytest.mark.parametrize(
    ("written", "told"), [('"10s"', "window 10s"), ("900", "window 900 packets"), ('"1MiB"', "window 1MiB")]
)
def test_window_is_told_in_its_own_measure(written: str, told: str):
    assert told in topology_lines(topology(('"10s"', written)))[1]


def test_broken_tree_is_not_described():
    with pytest.raises(TopologyError):
        topology_lines(topology(("239.192.0.2", "10.1.1.1")))


def test_describe_names_the_transport_of_a_segment():
    leg = topology(
        ('group = "239.192.0.2"\ninterface = "10.0.1.0/24"', 'unicast = true\ntransport = "ip"'),
        ('"239.192.0.1"', '"239.192.0.1"\ntransport = "ip"'),
    )
    text = "\n".join(topology_lines(leg))
    assert "segment core: 239.192.0.1 over IP protocol 113 on 10.0.0.0/24" in text
    assert "segment floor: unicast over IP protocol 113\n" in text
    floor = topology_json(leg)["segments"][1]
    assert (floor["group"], floor["interface"], floor["transport"], floor["unicast"]) == (None, None, "ip", True)
    seat = plan_json(plan_node(leg, "floor-repairer"))["segments"][0]
    assert (seat["transport"], len(seat["peers"])) == ("ip", 6)
    six = topology(('group = "239.192.0.2"\ninterface = "10.0.1.0/24"', "unicast = true"))
    assert "segment floor: unicast, port 3056\n" in "\n".join(topology_lines(six))
