"""A segment is the same whoever describes it."""

from __future__ import annotations

import attrs

from tests.unit.core.makers import SEGMENT


def test_segments_with_different_subnet_texts_are_equal():
    """Elements look up the segment that a packet came by among those of their plan."""
    heard = attrs.evolve(SEGMENT, subnet="10.0.0.0/24")
    assert heard == attrs.evolve(SEGMENT, subnet=None)
    assert (heard,).index(attrs.evolve(SEGMENT, subnet="10.0.0.0/16")) == 0
    assert hash(heard) == hash(SEGMENT)
