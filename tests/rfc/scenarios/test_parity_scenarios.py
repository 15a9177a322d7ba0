"""Parity in the 25 most important tests."""

from __future__ import annotations

import pytest

from pgm.fec import groups
from pgm.units import MILLISECOND
from pgm.wire.formats import PacketType
from pgm.wire.options import CurrTgsize, Fragment, ParityPrm
from pgm.wire.parity import request_sqn
from pgm.wire.train import Train
from tests.reference import DATA_PORT, TSI, data_packet
from tests.rfc.bench import SOURCE, UP, A, B, Bench
from tests.unit.core.makers import nak_packet
from tests.unit.fec.groups import packets

T = PacketType
MS = MILLISECOND
SIZE = 8


@pytest.mark.rfc("FEC-08", "FEC-22", "FEC-40", "FEC-42", "FEC-43", "FEC-44", "FEC-45", "FEC-46", "FEC-47")
def test_22_parity_counts() -> None:
    """A count of 1 is 0 on the wire.

    Elements keep counts per segment, forward larger ones, and count down.
    """
    assert request_sqn(16, 1) == 16
    assert request_sqn(16, 8) == 23
    bench = Bench().begin(3 * SIZE, options=(ParityPrm(SIZE, on_demand=True),))

    def asks() -> list[int]:
        found = [nak.sqn for _, _, nak in bench.sent(T.NAK)]
        bench.log.clear()
        return found

    def repair(*options: CurrTgsize) -> list[str]:
        bench.hear(Train.of(data_packet(16, b"x", kind=T.RDATA, options=options, parity=True)), UP, SOURCE)
        found = [send.segment.name for _, send, _ in bench.sent(T.RDATA)]
        bench.log.clear()
        return found

    bench.nak(A, request_sqn(16, 2), parity=True)
    assert asks() == [17]
    smaller = nak_packet(request_sqn(16, 1), kind=T.NCF, source_nla=SOURCE, group_nla=UP.group, parity=True)
    bench.hear(smaller, UP, SOURCE)  # confirms nothing
    bench.wait(150 * MS)
    assert asks()[:1] == [17]
    enough = nak_packet(request_sqn(16, 2), kind=T.NCF, source_nla=SOURCE, group_nla=UP.group, parity=True)
    bench.hear(enough, UP, SOURCE)
    bench.nak(B, request_sqn(16, 2), parity=True)
    assert asks() == []
    bench.nak(B, request_sqn(16, 4), parity=True)  # within NAK_ELIM_IVL, but larger
    assert asks() == [19]
    short = CurrTgsize(7)  # one of the requested packets never existed
    assert [repair(short) for _ in range(4)] == [["a", "b"], ["b"], ["b"], []]


@pytest.mark.rfc("FEC-09", "FEC-10", "FEC-11", "FEC-12")
@pytest.mark.parametrize("lost", [(0, 1, 2), (3, 4, 7), (1, 3, 6), (5,), tuple(range(8))])
def test_23_variable_lengths_and_a_fragment(lost: tuple[int, ...]) -> None:
    """Sizes are 0, 1, odd and the largest; one packet has OPT_FRAGMENT.

    Payload, length and option come back, and no other option.
    """
    payloads = [b"", b"a", b"bcd", bytes(range(256)) * 5, b"e" * 99, b"", b"\0" * 7, b"\xff" * 1280]
    fragments = [None] * SIZE
    fragments[3] = Fragment(first_sqn=7, offset=1234, apdu_length=5678)
    originals = packets(SIZE, payloads, fragments)
    parity = groups.encode(originals, SIZE, SIZE, range(5, 5 + len(lost)), SIZE)
    held = [run for run in originals if run.first - SIZE not in lost]
    found = groups.decode(held, parity, SIZE, SIZE, SIZE, groups.OriginalHeader(TSI, DATA_PORT, 0))
    assert found is not None
    assert [run.first - SIZE for run in found] == list(lost)
    for run in found:
        at = run.first - SIZE
        assert run.payloads.tobytes() == payloads[at]
        assert run.options() == ((fragments[at],) if fragments[at] else ())
