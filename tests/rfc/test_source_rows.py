"""Window edges in the repairs of sources."""

from __future__ import annotations

import pytest

from pgm.units import SECOND
from pgm.wire.formats import PacketType
from tests.unit.core.makers import GROUP, OWN, nak_packet, sent_items
from tests.unit.core.source.sources import START, all_effects, receive, run, with_data


@pytest.mark.rfc("SRC-07")
def test_source_repair_carries_the_current_trail():
    """The trail is neither that of the first sending nor that of the NAK."""
    core = with_data(txw_adv_mode="application")
    receive(core, nak_packet(15, source_nla=OWN, group_nla=GROUP), START + 2 * SECOND)
    core.advance_trail(10)
    [data] = [item for item in sent_items(all_effects(run(core, START + 3 * SECOND))) if item.type is PacketType.RDATA]
    assert (data.wire_sqn, data.wire_trail) == (15, 10)
