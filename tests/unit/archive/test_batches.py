"""Messages that share packets: one row each, with subject and position."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pgm.archive.recording.feeds import SessionFeed
from pgm.archive.recording.row_collector import RowCollector
from pgm.archive.store.writer import ArchiveWriter
from pgm.messages.batch_encoder import OpenBatch
from pgm.wire.formats import DATA_HEADER_OCTETS, PacketType
from pgm.wire.train import Run
from tests.unit.archive.makers import SESSION, log_to, small, table

Told = tuple[bytes, str | None, str | None]
_ROOM = 200


def _packets(messages: list[Told]) -> list[bytes]:
    """Return batches that hold as many messages as fit."""
    filling, packets = OpenBatch(_ROOM), []
    for payload, subject, to in messages:
        if not filling.add(payload, subject, to):
            packets.append(bytes(filling.take()))
            filling.add(payload, subject, to)
    return [*packets, bytes(filling.take())]


def _run(first: int, packet: bytes, kind: PacketType = PacketType.ODATA) -> Run:
    header = bytearray(DATA_HEADER_OCTETS)
    header[4] = kind.value
    octets = np.frombuffer(bytes(header) + packet, np.uint8)
    return Run(first, 1, octets, 0, len(octets), DATA_HEADER_OCTETS)


def _recorded(directory: Path, runs: list[Run]) -> list[dict[str, object]]:
    recording = RowCollector(ArchiveWriter(directory, small(), log_to([])), small(), log_to([]))
    for run in runs:
        recording.add_run(SessionFeed(SESSION, has_batches=True), run, 1)
    recording.close()
    found: list[dict[str, object]] = table(directory).to_pylist()
    return found


_MESSAGES = st.tuples(
    st.binary(max_size=40), st.none() | st.sampled_from(["/nasdaq/ibm", "/lse/vod"]), st.none() | st.just("desk-9")
)


@given(st.lists(_MESSAGES, min_size=1, max_size=40))
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_message_is_a_row(tmp_path_factory: object, messages: list[Told]) -> None:
    packets = _packets(messages)
    runs = [_run(5 + at, packet, PacketType.RDATA if at % 2 else PacketType.ODATA) for at, packet in enumerate(packets)]
    rows = _recorded(tmp_path_factory.mktemp("archive"), runs)  # type: ignore[attr-defined]
    assert [(row["value"], row["subject"]) for row in rows] == [(payload, subject) for payload, subject, _ in messages]
    sqns = [row["sqn"] for row in rows]
    assert list(dict.fromkeys(sqns)) == list(range(5, 5 + len(packets)))
    assert [row["count"] for row in rows] == [int(row["index"] == 0) for row in rows]
    for row, before in zip(rows[1:], rows[:-1], strict=True):
        assert row["index"] == (before["index"] + 1 if row["sqn"] == before["sqn"] else 0)  # type: ignore[operator]
        assert row["repaired"] == bool((row["sqn"] - 5) % 2)  # type: ignore[operator]


def test_a_packet_that_is_no_batch_is_a_loss(tmp_path: Path) -> None:
    (packet,) = _packets([(b"one", "/a/b", None), (b"two", None, None)])
    rows = _recorded(tmp_path, [_run(0, packet), _run(1, b"\xff no batch"), _run(2, packet)])
    assert [(row["sqn"], row["index"], row["count"], row["lost"]) for row in rows] == [
        (0, 0, 1, None),
        (0, 1, 0, None),
        (1, 0, 1, "malformed"),
        (2, 0, 1, None),
        (2, 1, 0, None),
    ]
    assert [row["value"] for row in table(tmp_path, subjects=("/a/*",)).to_pylist()] == [b"one", None, b"one"]


def test_a_row_has_the_time_that_its_packet_says(tmp_path: Path) -> None:
    packets = []
    for at_us in (1_764_000_000_000_001, None, 1_764_000_000_000_002):
        filling = OpenBatch(_ROOM, has_time=at_us is not None)
        filling.add(b"one", None, None)
        filling.add(b"two", None, None)
        packets.append(filling.take(at_us))
    rows = _recorded(tmp_path, [_run(at, packet) for at, packet in enumerate(packets)])
    told = [row["sent"] and int(row["sent"].timestamp() * 1_000_000 + 0.5) % 1000 for row in rows]  # type: ignore[attr-defined]
    assert told == [1, 1, None, None, 2, 2]
