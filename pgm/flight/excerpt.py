"""Excerpts of rings for other hosts: the records about some packets, or the worst ones, in place of 16 MiB."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np
import numpy.typing as npt

from pgm.flight.contents import RingContents
from pgm.flight.record import FlightKind
from pgm.units import SECOND
from pgm.wire.formats import tsi_text
from pgm.wire.sequence_numbers import MASK

_AROUND_NS = 60 * SECOND  # of a packet, in which drops of sockets and the like may explain it
_MOST_EXCHANGES = 512  # newest requests and confirmations, for the offsets of clocks
_MOST_OTHERS = 4096  # records of no session around the packets, and of other losses before them
MOST_PACKETS = 1000
_EXCHANGES = (FlightKind.NAK_OUT, FlightKind.NAK_IN, FlightKind.NCF_OUT, FlightKind.NCF_IN)
_PROGRESS = (FlightKind.SENT, FlightKind.REACHED)
_ENDS = (FlightKind.LOST, FlightKind.GAVE_UP)
_ARRIVALS = (FlightKind.REPAIRED, FlightKind.LATE)

_RECOVERY = (FlightKind.GAP, FlightKind.SKIPPED, FlightKind.MENDED, *_ENDS, *_ARRIVALS)

Mask = npt.NDArray[np.bool_]
Packet = tuple[str, int]  # stream by name, data port or TSI; sqn


def about_packets(contents: RingContents, packets: Sequence[Packet]) -> RingContents:
    """Return the records that may explain some packets."""
    records = contents.records
    chosen: Mask = np.zeros(len(records), np.bool_)
    of_session: Mask = np.zeros(len(records), np.bool_)
    for stream, sqn in packets[:MOST_PACKETS]:
        own = np.isin(records["tsi"], _places(contents, stream))
        of_session |= own
        chosen |= own & ((np.uint32(sqn & MASK) - records["first"]).astype(np.uint32) < records["count"])
    times = records["time_ns"][chosen]
    if len(times):
        near = (records["time_ns"] >= times.min() - _AROUND_NS) & (records["time_ns"] <= times.max() + _AROUND_NS)
        chosen |= _newest(near & (records["tsi"] >= len(contents.sessions)), _MOST_OTHERS)
        # how much was missing at the same time
        before = near & of_session & (records["time_ns"] <= times.max())
        chosen |= _newest(before & np.isin(records["kind"], _RECOVERY), _MOST_OTHERS)
    kinds = records["kind"]
    progress = np.flatnonzero(of_session & np.isin(kinds, _PROGRESS))
    chosen[progress[-1:]] = True
    chosen |= of_session & np.isin(kinds, (FlightKind.OPENED, FlightKind.CLOSED))
    chosen |= _newest(np.isin(kinds, _EXCHANGES), _MOST_EXCHANGES)
    chosen |= kinds == FlightKind.BEGAN
    chosen[:1] = chosen[-1:] = True  # the time that the ring spans
    return attrs.evolve(contents, records=records[chosen])


def worst_of(contents: RingContents, most: int, stream: str | None = None) -> RingContents:
    """Return the newest losses and the slowest repairs of a node, `most` of each."""
    records = contents.records
    own: Mask = (
        np.ones(len(records), np.bool_) if stream is None else np.isin(records["tsi"], _places(contents, stream))
    )
    chosen = _newest(own & np.isin(records["kind"], _ENDS), 2 * most)
    arrivals = np.flatnonzero(own & np.isin(records["kind"], _ARRIVALS))
    chosen[arrivals[np.argsort(records["value"][arrivals])[-most:]]] = True
    return attrs.evolve(contents, records=records[chosen])


def _places(contents: RingContents, stream: str) -> list[int]:
    ports = {row["data_port"] for row in contents.facts["streams"] if stream in (row["name"], str(row["data_port"]))}
    return [place for place, (tsi, port) in enumerate(contents.sessions) if port in ports or tsi_text(tsi) == stream]


def _newest(mask: Mask, most: int) -> Mask:
    kept: Mask = np.zeros(len(mask), np.bool_)
    kept[np.flatnonzero(mask)[-most:]] = True
    return kept
