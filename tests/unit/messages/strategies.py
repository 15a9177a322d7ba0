"""Messages and packet sizes that reach every branch: empty parts, both forms of length, cuts anywhere."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from pgm.messages.decoder import DecodedMessages, Decoder, UnusedPackets
from pgm.messages.zmtp import Parts

part = st.binary(max_size=12) | st.sampled_from([0, 1, 252, 253, 254, 255, 256, 700, 3000]).map(
    lambda size: bytes(at % 251 for at in range(size))
)
message = st.lists(part, min_size=1, max_size=4).map(tuple)
messages = st.lists(message, max_size=12)
segment = st.integers(3, 40) | st.sampled_from([84, 255, 1428, 65_000])


def rows_of(packets: Sequence[bytes]) -> np.ndarray:
    """Return packets of one size as a receiver gets them."""
    return np.frombuffer(b"".join(packets), np.uint8).reshape(len(packets), -1)


def decode(
    decoder: Decoder, first: int, packets: Sequence[bytes], cuts: Sequence[int]
) -> list[DecodedMessages | UnusedPackets]:
    """Feed packets in runs of equal size, also cut at these places."""
    found, at = [], 0
    while at < len(packets):
        until = at + 1
        while until < len(packets) and len(packets[until]) == len(packets[at]) and until not in cuts:
            until += 1
        found += decoder.add(first + at, rows_of(packets[at:until]))
        at = until
    return found


def messages_of(found: Sequence[DecodedMessages | UnusedPackets]) -> list[Parts]:
    return [parts for one in found if isinstance(one, DecodedMessages) for parts in one.messages]


def sqns_of(found: Sequence[DecodedMessages | UnusedPackets]) -> list[int]:
    return [sqn for one in found if isinstance(one, DecodedMessages) for sqn in one.sqns]


def skipped_of(found: Sequence[DecodedMessages | UnusedPackets]) -> list[int]:
    return [sqn for one in found if isinstance(one, UnusedPackets) for sqn in range(one.first, one.first + one.count)]
