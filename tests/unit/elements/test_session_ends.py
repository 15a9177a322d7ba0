"""Ends of sessions at aggregators and repairers: only the source's own packets show that it lives."""

from __future__ import annotations

import random

import pytest

from aggregator.core import AggregatorCore
from pgm.core.element.setup import ElementSetup
from pgm.core.segment import Channel, Segment
from pgm.units import SECOND
from repairer.core import RepairerCore
from tests.unit.core.makers import GROUP, SOURCE, data_train, ncf_packet, parameters, spm_packet, train_of

UP = Segment(0, "up", "10.0.0.2", GROUP, upstream=True, downstream=False)
DOWN = Segment(1, "down", "10.0.1.1", GROUP, upstream=False, downstream=True)
SETTINGS = parameters(session_expiry=20 * SECOND)


@pytest.mark.parametrize("make", [AggregatorCore, RepairerCore])
def test_session_with_ncfs_alone_expires(make: type[AggregatorCore | RepairerCore]) -> None:
    """A cache above confirms NAKs without a source. Two elements would keep each other's session open for ever."""
    element = make(ElementSetup(UP, (DOWN,), parents=(SOURCE,)), SETTINGS, random.Random(1))
    above = Channel(UP, True)
    element.receive(train_of(spm_packet(1, 0, 12)), above, SOURCE, SECOND)
    element.receive(data_train([10, 12]), above, SOURCE, SECOND)
    for now in range(2 * SECOND, 21 * SECOND, SECOND):
        while element.deadline_ns <= now:
            element.handle_deadline(now)
        assert len(list(element.sessions)) == 1
        element.receive(train_of(ncf_packet(11)), above, SOURCE, now)
    while element.deadline_ns <= 21 * SECOND:
        element.handle_deadline(21 * SECOND)
    assert (len(list(element.sessions)), element.counters.sessions_expired) == (0, 1)
