"""Options on packets that they do not belong on: what an element writes anew leaves them out, what it passes on as it came keeps them."""

from __future__ import annotations

import random

import attrs
import pytest

from aggregator.core import AggregatorCore
from pgm.core.element.element import ElementCore
from pgm.core.element.setup import ElementSetup
from pgm.core.segment import Channel, Segment
from pgm.wire.control_packets import Nak
from pgm.wire.formats import Layout, PacketType
from pgm.wire.options import Acker, Cr, Crqst, Join, NakList, Option, ParityPrm, Syn, UnknownOption
from repairer.core import RepairerCore
from tests.unit.core.makers import (
    GROUP,
    MS,
    PEER,
    SOURCE,
    nak_packet,
    parameters,
    sends,
    sent_control,
    spm_packet,
    train_of,
)

UP = Segment(0, "up", "10.0.0.2", GROUP, upstream=True, downstream=False)
DOWN = Segment(1, "down", "10.0.1.1", "239.0.0.2", upstream=False, downstream=True)
SETUP = ElementSetup(UP, (DOWN,), parents=(SOURCE,))
OFFER = ParityPrm(8, on_demand=True)
EVERYBODY = Crqst(wants_ne_wl=True, wants_ne_wp=True, wants_rx_wp=True)


def misplaced(option: Option) -> UnknownOption:
    """An option that may be written on any packet, and is read as what it is."""
    return UnknownOption(number=option.TYPE, value=Layout(type(option)).encode(option))


def element(role: str) -> ElementCore:  # type: ignore[type-arg]
    if role == "aggregator":
        return AggregatorCore(SETUP, parameters())
    return RepairerCore(SETUP, parameters(), random.Random(1))


@pytest.mark.parametrize("role", ["aggregator", "repairer"])
@pytest.mark.parametrize("option", [Syn(), NakList((3,))])
def test_an_spm_whose_edges_are_not_believed(role: str, option: Option) -> None:
    core, above = element(role), Channel(UP, is_group=True)
    core.receive(train_of(spm_packet(1, 0, 10)), above, SOURCE, MS)
    effects = core.receive(train_of(spm_packet(2, 12, 10, misplaced(option), OFFER)), above, SOURCE, 2 * MS)
    [spm] = sent_control(effects, PacketType.SPM)
    assert (spm.spm_sqn, spm.lead, spm.options) == (2, 10, (OFFER,))


@pytest.mark.parametrize("role", ["aggregator", "repairer"])
def test_an_spm_that_is_believed(role: str) -> None:
    effects = element(role).receive(train_of(spm_packet(1, 0, 10, misplaced(Syn()))), Channel(UP, True), SOURCE, MS)
    [spm] = sent_control(effects, PacketType.SPM)
    assert spm.options == (Syn(),)


def test_a_nak_whose_report_is_renewed() -> None:
    core = element("aggregator")
    core.receive(train_of(spm_packet(1, 0, 100, EVERYBODY, Acker(PEER))), Channel(UP, True), SOURCE, MS)
    report = Cr(100, 1, 1, 1, PEER, has_ne_wl=True, has_ne_wp=True, has_rx_wp=True)
    nak = attrs.evolve(nak_packet(50, source_nla=DOWN.address), options=(report, misplaced(Join(3))))
    effects = core.receive(train_of(nak), Channel(DOWN, False), PEER, 2 * MS)
    [above] = [one for one in sent_control(effects, PacketType.NAK) if isinstance(one, Nak)]
    assert [type(one) for one in above.options] == [Cr]
    assert {send.to for send in sends(effects)} == {None, SOURCE}
