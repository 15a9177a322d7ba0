"""What the tests of the cores are made of: real trains, real packets, integer times."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import attrs
import numpy as np

from pgm.core.counters import Counters
from pgm.core.effects import Effect, Send
from pgm.core.interface import Core
from pgm.core.segment import Channel, Segment
from pgm.core.session_context import SessionContext
from pgm.parameters import Parameters
from pgm.units import MILLISECOND
from pgm.wire.control_packets import Nak, Packet, Spm, Spmr, encode
from pgm.wire.formats import DATA_HEADER_OCTETS, Nla, PacketType, Tsi
from pgm.wire.options import NO_OPTIONS, NakList, Option, Options
from pgm.wire.sequence_numbers import wrap
from pgm.wire.train import Data, Run, Train
from tests.reference import DATA_PORT, TSI, data_packet

SOURCE, OWN, PARENT, REPAIRER, PEER = "10.0.0.1", "10.0.0.9", "10.0.0.2", "10.0.0.3", "10.0.0.8"
GROUP = "239.0.0.1"
SEGMENT = Segment(0, "floor", OWN, GROUP, upstream=True, downstream=True)
BY_GROUP, BY_UNICAST = Channel(SEGMENT, True), Channel(SEGMENT, False)
MS = MILLISECOND


def parameters(**changes: Any) -> Parameters:
    """The defaults with changes."""
    return Parameters(**changes)


def session_context(
    settings: Parameters | None = None,
    *,
    counters: Counters | None = None,
    rng: random.Random | None = None,
) -> SessionContext:
    """Return a context with the TSI of the tests, and by default new counters and a fixed seed."""
    return SessionContext(
        TSI,
        DATA_PORT,
        parameters() if settings is None else settings,
        Counters() if counters is None else counters,
        random.Random(1) if rng is None else rng,
    )


def payload_of(sqn: int, size: int = 12) -> bytes:
    """What the packet with this sqn carries in every test."""
    return ((sqn + 7) % (1 << 64)).to_bytes(8, "big").ljust(size, b"\xa5")[:size]


def data_train(
    sqns: Iterable[int],
    *,
    size: int = 12,
    trail: int = 0,
    kind: PacketType = PacketType.ODATA,
    tsi: Tsi = TSI,
    options: Sequence[Option] = NO_OPTIONS,
    data_port: int = DATA_PORT,
) -> Train:
    """Data packets as one read."""
    packets = [
        data_packet(sqn, payload_of(sqn, size), trail=trail, kind=kind, tsi=tsi, options=options, data_port=data_port)
        for sqn in sqns
    ]
    return Train.of(b"".join(packets), len(packets[0]))


def run_of(first: int, count: int, size: int = 12) -> Run:
    """A run of its own memory."""
    items, _ = data_train(range(first, first + count), size=size).parse_untrusted()
    assert isinstance(items[0], Data)
    return items[0].run(first)


def chunk_of_runs(first: int, counts: Sequence[int], size: int = 12) -> list[Run]:
    """Runs that follow each other in sqns and in the memory of one chunk."""
    whole = run_of(first, sum(counts), size)
    runs, at = [], first
    for count in counts:
        runs.append(whole.part(at, at + count))
        at += count
    return runs


def sqns_of(run: Run) -> list[int]:
    """The sqns of a run, after a look at what it carries."""
    size = run.stride - run.payload_at
    assert [row.tobytes() for row in run.payloads] == [payload_of(sqn, size) for sqn in range(run.first, run.end)]
    return list(range(run.first, run.end))


def spm_packet(
    spm_sqn: int,
    trail: int,
    lead: int,
    *options: Option,
    path_nla: Nla = SOURCE,
    tsi: Tsi = TSI,
    data_port: int = DATA_PORT,
) -> Spm:
    """An SPM with 64-bit edges wrapped."""
    return Spm(
        tsi=tsi,
        data_port=data_port,
        spm_sqn=wrap(spm_sqn),
        trail=wrap(trail),
        lead=wrap(lead),
        path_nla=path_nla,
        options=options,
    )


def nak_packet(
    *sqns: int,
    kind: PacketType = PacketType.NAK,
    source_nla: Nla = SOURCE,
    group_nla: Nla = GROUP,
    tsi: Tsi = TSI,
    data_port: int = DATA_PORT,
    parity: bool = False,
) -> Nak:
    """A NAK, NNAK or NCF for some sqns."""
    options: Options = (NakList(sqns=tuple(wrap(sqn) for sqn in sqns[1:])),) if len(sqns) > 1 else ()
    return Nak(
        tsi=tsi,
        data_port=data_port,
        kind=kind,
        sqn=wrap(sqns[0]),
        source_nla=source_nla,
        group_nla=group_nla,
        options=options,
        parity=parity,
    )


def ncf_packet(*sqns: int, **changes: Any) -> Nak:
    """An NCF for some sqns."""
    return nak_packet(*sqns, kind=PacketType.NCF, **changes)


def spmr_packet(tsi: Tsi = TSI, data_port: int = DATA_PORT) -> Spmr:
    """An SPMR."""
    return Spmr(tsi=tsi, data_port=data_port)


def train_of(*packets: Packet) -> Train:
    """Control packets of equal length as one read."""
    encoded = [encode(packet) for packet in packets]
    return Train.of(b"".join(encoded), len(encoded[0]))


def sends(effects: Iterable[Effect]) -> list[Send]:
    """What goes out."""
    return [effect for effect in effects if isinstance(effect, Send)]


def sent_items(effects: Iterable[Effect]) -> list[Data | Packet]:
    """What goes out, read back from its octets."""
    items: list[Data | Packet] = []
    for send in sends(effects):
        octets = send.octets if isinstance(send.octets, np.ndarray) else np.frombuffer(send.octets, np.uint8)
        found, rejects = Train(octets, 0, len(octets), send.stride).parse_untrusted()
        assert rejects == []
        items += found
    return items


def sent_control(effects: Iterable[Effect], kind: PacketType) -> list[Any]:
    """Control packets of one type that go out."""
    return [item for item in sent_items(effects) if isinstance(item, Packet) and item.type is kind]


def sent_sqns(effects: Iterable[Effect], kind: PacketType) -> list[int]:
    """Wire sqns of the data packets of one type that go out."""
    return [
        wrap(item.wire_sqn + index)
        for item in sent_items(effects)
        if isinstance(item, Data) and item.type is kind
        for index in range(item.count)
    ]


def stream_of(effects: Iterable[Effect]) -> list[Effect]:
    """What the application is told."""
    return [effect for effect in effects if not isinstance(effect, Send)]


def deadlines(core: Core, now: int, until: int, *, most: int = 100_000) -> Iterator[int]:
    """When to serve a core's deadlines up to an instant: each is to be served before the next is asked for."""
    for _ in range(most):
        if core.deadline_ns > until:
            return
        now = max(now, core.deadline_ns)
        yield now
    raise AssertionError("deadlines without end")


def evolve(packet: Any, **changes: Any) -> Any:
    """`attrs.evolve`, by a shorter name."""
    return attrs.evolve(packet, **changes)


def header_octets(size: int) -> int:
    """Octets of a data packet without options."""
    return DATA_HEADER_OCTETS + size
