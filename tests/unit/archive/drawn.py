"""Random sessions for property tests: the stored rows of each recorder, and the expected rows of readers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from hypothesis import strategies as st

from pgm.archive.recording.rows import RowBuilder, rows_of_batch
from pgm.messages.batch_decoder import BatchDecoder, DecodedBatch
from pgm.messages.batch_encoder import OpenBatch
from pgm.messages.subjects import SubjectFilter
from tests.spark.support.archives import session, writing
from tests.unit.archive.makers import SESSION, loss

Message = tuple[int, int, bytes]  # sqn, index and value
Told = tuple[list[Message], list[int]]  # messages, and the sqns of the losses
_ODATA = np.zeros(1, np.bool_)


@attrs.frozen
class Part:
    """Packets `first` to `first + packets - 1` of a session.

    Each packet has `each` messages; 0 is a loss. With `is_large`, all packets together carry one batch of `each`
    messages. With `ends_batch`, the stored batch ends here. `lost_by` names the recorders that have a loss in place of
    the messages.
    """

    first: int
    packets: int
    each: int
    is_large: bool = False
    ends_batch: bool = True
    lost_by: frozenset[str] = frozenset()

    @property
    def sqns(self) -> range:
        """Return all sqns."""
        return range(self.first, self.first + self.packets)

    @property
    def messages(self) -> list[Message]:
        """Return all messages in order."""
        sqns = self.sqns[:1] if self.is_large else self.sqns
        return [(sqn, at, b"%d/%d" % (sqn, at)) for sqn in sqns for at in range(self.each)]

    def is_lost_by(self, node: str) -> bool:
        """Return whether a recorder has none of the part."""
        return not self.each or node in self.lost_by

    def rows(self) -> Iterator[RowBuilder]:
        """Yield the rows of the messages. Message i of a packet has the subject `/s/i`."""
        packets: dict[int, OpenBatch] = defaultdict(lambda: OpenBatch(1 << 16))
        for sqn, at, value in self.messages:
            packets[sqn].add(value, f"/s/{at}", None)
        for sqn, filling in packets.items():
            octets = np.frombuffer(filling.take(), np.uint8).reshape(1, -1)
            for found in BatchDecoder(None, SubjectFilter(None)).add(sqn, octets):
                assert isinstance(found, DecodedBatch)
                yield rows_of_batch(found, 0, sqn, _ODATA, self.packets if self.is_large else 1)


@st.composite
def sessions(draw: st.DrawFn, nodes: Sequence[str] = (SESSION.node,), most: int = 8) -> list[Part]:
    """Draw a session of at most `most` parts. Each of `nodes` may lack some parts."""
    at, parts = draw(st.integers(0, 9)), []
    lacking = st.frozensets(st.sampled_from(nodes))
    for _ in range(draw(st.integers(1, most))):
        one = Part(at, draw(st.integers(1, 5)), draw(st.integers(0, 4)), draw(st.booleans()), draw(st.booleans()))
        parts.append(attrs.evolve(one, lost_by=draw(lacking)))
        at += one.packets
    return parts


def cuts(parts: Sequence[Part]) -> st.SearchStrategy[list[int]]:
    """Return strategies for the cuts of a session, from its first sqn to its end.

    The cuts are random, or before every sqn.
    """
    every = range(parts[0].first, parts[-1].sqns.stop + 1)
    some = st.sets(st.sampled_from(every)).map(lambda found: sorted({every[0], *found, every[-1]}))
    return st.just(list(every)) | some


def stored_by(node: str, parts: Sequence[Part]) -> list[list[RowBuilder]]:
    """Return the stored batches of a recorder.

    Adjacent losses are one row. The first packet of a lost large message is a row of its own.
    """
    batches: list[list[RowBuilder]] = [[]]
    for part in parts:
        rows = batches[-1]
        if not part.is_lost_by(node):
            rows += part.rows()
        elif part.is_large and part.packets > 1:
            rows += [loss(part.first, 1, "fragment"), loss(part.first + 1, part.packets - 1)]
        elif rows and rows[-1].lost == "retries":
            before = rows.pop()
            rows.append(loss(before.first, part.sqns.stop - before.first))
        else:
            rows.append(loss(part.first, part.packets))
        if part.ends_batch:
            batches.append([])
    return [batch for batch in batches if batch]


def record(directory: Path, each: Mapping[str, Sequence[Part]], node: str = SESSION.node) -> None:
    """Write the archive of a recorder from its sessions by TSI."""
    with writing(directory) as add:
        for tsi, parts in each.items():
            for rows in stored_by(node, parts):
                add(rows, session(node, tsi=tsi))


def wanted(parts: Sequence[Part], nodes: Sequence[str] = (SESSION.node,), subject: str | None = None) -> Told:
    """Return the expected result of reading these recorders, for one subject or all."""
    lost = [all(part.is_lost_by(node) for node in nodes) for part in parts]
    had = [one for part, is_lost in zip(parts, lost, strict=True) if not is_lost for one in part.messages]
    chosen = [one for one in had if subject in (None, f"/s/{one[1]}")]
    return chosen, [sqn for part, is_lost in zip(parts, lost, strict=True) if is_lost for sqn in part.sqns]


def given_by(rows: Iterable[dict[str, Any]]) -> Told:
    """Return the messages and losses of rows in their order."""
    had: list[Message] = []
    lost: list[int] = []
    for row in rows:
        if row["lost"] is None:
            had.append((row["sqn"], row["index"], bytes(row["value"])))
        else:
            lost += range(row["sqn"], row["sqn"] + row["count"])
    return had, lost
