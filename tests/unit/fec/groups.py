"""Transmission groups for tests, of packets as a source builds them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pgm.wire.data_packets import write_odata
from pgm.wire.formats import PacketType
from pgm.wire.options import Fragment, encode_options
from pgm.wire.train import Run
from tests.reference import DATA_PORT, TSI, data_packet


def packet(sqn: int, payload: bytes, fragment: Fragment | None = None) -> Run:
    """Return one packet in memory of its own."""
    octets = np.frombuffer(data_packet(sqn, payload, options=() if fragment is None else (fragment,)), np.uint8)
    return Run(sqn, 1, octets, 0, len(octets), len(octets) - len(payload))


def packets(first: int, payloads: Sequence[bytes], fragments: Sequence[Fragment | None] = ()) -> list[Run]:
    """Return a group, one run for each packet."""
    options = fragments or [None] * len(payloads)
    return [packet(first + at, payload, options[at]) for at, payload in enumerate(payloads)]


def run_of_rows(first: int, rows: np.ndarray) -> Run:
    """Return packets of one size as one run."""
    count, width = rows.shape
    octets = np.empty((count, 24 + width), np.uint8)
    octets[:, 24:] = rows
    write_odata(octets, tsi=TSI, data_port=DATA_PORT, first=first, trail=0)
    return Run(first, count, octets.reshape(-1), 0, 24 + width, 24)


def option_octets(fragment: Fragment) -> bytes:
    """Return OPT_FRAGMENT on the wire, after OPT_LENGTH."""
    return encode_options((fragment,), PacketType.ODATA)[0]
