"""Nodes that `pgm up --only` and `--except` select."""

import pytest

from deploy.node.up import select_nodes
from pgm.errors import UsageError

NODES = {name: name for name in ("source", "repairer", "desk-1", "desk-2", "hall-1")}


@pytest.mark.parametrize(
    ("only", "excepted", "left"),
    [
        ((), (), ["source", "repairer", "desk-1", "desk-2", "hall-1"]),
        (("desk-*", "source"), (), ["source", "desk-1", "desk-2"]),
        ((), ("source",), ["repairer", "desk-1", "desk-2", "hall-1"]),
        (("desk-*",), ("desk-[2-9]",), ["desk-1"]),
    ],
)
def test_up_patterns_select_nodes_in_the_order_of_the_file(only, excepted, left):
    assert list(select_nodes(NODES, only, excepted)) == left


def test_up_pattern_without_a_match_is_refused_with_a_suggestion():
    with pytest.raises(UsageError, match="--except 'sourc' matches no node") as caught:
        select_nodes(NODES, (), ("sourc",))
    assert caught.value.remedy == "did you mean 'source'?"
    with pytest.raises(UsageError, match="--only 'floor-") as caught:
        select_nodes(NODES, ("floor-*",), ())
    assert "known are" in caught.value.remedy


def test_up_patterns_that_leave_no_node_are_refused():
    with pytest.raises(UsageError, match="leave no node"):
        select_nodes(NODES, ("source",), ("s*",))
