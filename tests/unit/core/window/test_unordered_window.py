"""Streams without order: what comes is delivered in the call that brought it, by whichever way."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgm.core.effects import Deliver, Send
from pgm.core.receiver.data_path import DataPath
from pgm.core.receiver.setup import ReceiverSetup
from pgm.wire.formats import PacketType
from tests.reference import DATA_PORT
from tests.unit.core.makers import MS, SEGMENT, data_train, spm_packet
from tests.unit.core.reader import Reader
from tests.unit.core.receiver.test_receiver_model import Network, packets, payload


class Loose(Reader):
    """An application that is told of each sqn as it comes."""

    def __init__(self, **more):
        super().__init__(ReceiverSetup(SEGMENT, unordered_ports=frozenset((DATA_PORT,))), **more)
        self.told = []

    def _take(self, effects):
        effects, freed = list(effects), 0
        for one in effects:
            if isinstance(one, Send):
                self.sent.append((self.now, bytes(one.octets)))
            elif isinstance(one, Deliver):
                freed += one.run.octets
                rows = zip(range(one.run.first, one.run.end), one.run.payloads, strict=True)
                self.told += [(self.now, sqn, row.tobytes()) for sqn, row in rows]
            else:
                self.told.append((self.now, one))
        if self.takes and freed:
            effects += self._take(self.core.grant(freed))
        else:
            self.untaken += freed
        return effects


def test_a_repair_waits_for_no_other():
    reader = Loose()
    reader.hear(spm_packet(1, 0, 9))
    for sqns in ([10, 11], [13], [15]):
        reader.hear(data_train(sqns))
    told = reader.hear(data_train([14], kind=PacketType.RDATA))
    assert [one.run.first for one in told if isinstance(one, Deliver)] == [14]


things = st.one_of(
    st.tuples(st.just("data"), st.integers(1, 9), st.integers(0, 0xFF)),
    st.tuples(st.just("repair"), st.integers(1, 20), st.integers(1, 4)),
    st.tuples(st.just("time"), st.sampled_from([1, 5, 60, 1000]), st.just(0)),
    st.tuples(st.just("take"), st.sampled_from([40, 1 << 30]), st.just(0)),
)


@given(
    history=st.lists(things, min_size=10, max_size=60),
    first=st.sampled_from([0, 1000, (1 << 32) - 9]),
    takes=st.booleans(),
    small=st.booleans(),
    at_once=st.sampled_from([2, 5, 1008]),
)
def test_pieces_of_a_read_are_delivered_like_single_items(history, first, takes, small, at_once):
    limits = {"rxw_bytes": 1200, "inbox_bytes": 400} if small else {}
    limits["nak_max_outstanding"] = at_once
    found = []
    for is_whole in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            if not is_whole:
                patch.setattr(DataPath, "_is_plain", lambda *_: False)  # each piece is an item of its own
            reader = Loose(takes=takes, **limits)
            network = Network(reader, first, has_epoch=True, joins=True)
            reader.hear(network.spm())
            for what, one, other in history:
                happened(network, what, one, other)
            assert all(octets == payload(sqn) for _, sqn, octets in [told for told in reader.told if len(told) > 2])
            found.append((reader.told, reader.sent, reader.untaken, attrs.asdict(reader.core.counters)))
    assert found[0] == found[1]


def happened(network, what, one, other):
    reader = network.reader
    if what == "data":
        network.send(one)
        network.leave(-1, other, again=False)
    elif what == "repair" and (sqns := list(range(max(network.first, network.end - one), network.end))[:other]):
        reader.hear(packets(sqns, network.trail, PacketType.RDATA))
    elif what == "time":
        reader.wait(one * MS)
    elif what == "take":
        reader.grant(min(one, reader.untaken))
