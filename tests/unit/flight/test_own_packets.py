"""Sqns of sent packets as the recorder reads them, against the codec."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pgm.core.effects import Send, data
from pgm.core.segment import Segment
from pgm.flight.own_packets import own_repairs, own_requests
from pgm.wire.control_packets import Nak, encode
from pgm.wire.data_packets import as_rdata, write_odata
from pgm.wire.formats import PacketType
from pgm.wire.options import NakList
from pgm.wire.sequence_numbers import MASK
from pgm.wire.train import Data, Train

SEGMENT = Segment(0, "core", "10.0.0.1", "239.0.0.1", True, False)
SQNS = st.integers(0, MASK)
TSI = bytes(range(8))


@given(
    kind=st.sampled_from([PacketType.NAK, PacketType.NCF, PacketType.NNAK]),
    sqns=st.lists(SQNS, min_size=1, max_size=63),
    address=st.sampled_from(["10.0.0.9", "fd00::9"]),
    copies=st.integers(1, 3),
    parity=st.booleans(),
)
def test_requests_are_read_as_the_codec_reads_them(
    kind: PacketType, sqns: list[int], address: str, copies: int, parity: bool
) -> None:
    options = (NakList(sqns=tuple(sqns[1:])),) if sqns[1:] else ()
    nak = Nak(
        tsi=TSI,
        data_port=7500,
        options=options,
        parity=parity,
        kind=kind,
        sqn=sqns[0],
        source_nla=address,
        group_nla=address,
    )
    packet = encode(nak)
    found = list(own_requests(Send(SEGMENT, packet * copies, len(packet))))
    wanted = [] if parity or kind is PacketType.NNAK else [(kind, TSI, tuple(sqns))] * copies
    assert [(one, tsi, tuple(each)) for one, tsi, each in found] == wanted


@given(first=SQNS, count=st.integers(1, 8), kept=st.lists(st.booleans(), min_size=8, max_size=8))
def test_repairs_are_read_as_the_codec_reads_them(first: int, count: int, kept: list[bool]) -> None:
    rows = np.zeros((count, 40), np.uint8)
    write_odata(rows, tsi=TSI, data_port=7500, first=first, trail=first)
    rows = as_rdata(rows, first)[[at for at in range(count) if kept[at]] or [0]]
    send = data(SEGMENT, rows)
    tsi, spans = own_repairs(send)
    items = [item for item in Train.of(send.octets, send.stride).parse_runs_untrusted()[0] if isinstance(item, Data)]
    assert tsi == items[0].tsi == TSI
    assert sorted(sqn for low, end in spans for sqn in range(low, end)) == sorted(
        item.wire_sqn + at & MASK for item in items for at in range(item.count)
    )
