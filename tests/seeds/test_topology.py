"""Features that the topology file alone decides."""

from __future__ import annotations

from pathlib import Path

from pgm.topology.check import load_checked
from pgm.topology.plan import plan_node

TREE = """
version = 1
name = "two-groups"
streams.quotes.data_port = 7500
streams.orders.data_port = 7501
segments.one = { group = "239.192.1.1", interface = "10.0.0.0/16" }
segments.two = { group = "239.192.1.2", interface = "10.0.0.0/16" }
nodes.quotes-source = { role = "source", segment = "one", address = "10.0.0.1", streams = ["quotes"] }
nodes.orders-source = { role = "source", segment = "one", address = "10.0.0.2", streams = ["orders"] }
nodes.desk = { role = "receiver", segment = "one", streams = ["orders"], parents = ["orders-source"] }
"""


def groups(text: str, path: Path) -> list[str]:
    path.write_text(text)
    topology = load_checked(path)
    return [plan_node(topology, node).segments[0].group for node in ("quotes-source", "orders-source", "desk")]


def test_a_stream_moves_to_a_group_of_its_own_by_the_file_alone(tmp_path: Path) -> None:
    assert groups(TREE, tmp_path / "tree.toml") == ["239.192.1.1"] * 3
    lines = [
        line.replace('"one"', '"two"') if line.startswith(("nodes.orders", "nodes.desk")) else line
        for line in TREE.splitlines()
    ]
    assert groups("\n".join(lines), tmp_path / "tree.toml") == ["239.192.1.1", "239.192.1.2", "239.192.1.2"]
