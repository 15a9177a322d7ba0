"""Archives of signed sessions: packets and proofs as a recorder gets them, and changes by an attacker."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pgm.archive.recording.feeds import SessionFeed
from pgm.archive.recording.row_collector import RowCollector
from pgm.archive.session import KEY_RECORDS, PROOFS, SIGNED, RecordedSession, companion_tsi
from pgm.archive.signatures.authority import Authority, SignedStream
from pgm.archive.signatures.checked_range import HeldRows, checked_range
from pgm.archive.signatures.row_check import RowCheck, RowVerdict
from pgm.archive.signatures.row_packets import NEEDED
from pgm.archive.signatures.session_proofs import SessionProofs, octets_of, position_of
from pgm.archive.store.reader import ArchiveReader
from pgm.archive.store.schema import STORED_SCHEMA, plain
from pgm.archive.store.segment import SegmentFile
from pgm.archive.store.selection import end_of
from pgm.archive.store.writer import ArchiveWriter
from pgm.core.effects import LossCause, Lost
from pgm.core.window.reassembly import fragment_options
from pgm.messages.batch_encoder import OpenBatch
from pgm.trust.blocks import SignedSession
from pgm.trust.private_keys import PrivateKeys
from pgm.trust.signer import BlockSigner
from pgm.trust.stream_secrets import StreamSealer
from pgm.wire.formats import DATA_HEADER_OCTETS, KEY_RECORDS_BIT
from pgm.wire.train import Run
from tests.unit.archive.makers import TSI, TSI_TEXT, log_to, payload, run_of, small
from tests.unit.trust.keys import private_keys

EPOCH_NS = 1_790_000_000_123_456_789  # in the validity of the keys of tests
KEYS = private_keys(1)
MESSAGES = RecordedSession(TSI_TEXT, EPOCH_NS // 1000, "quotes", "exchange", "recorder-1", "core", SIGNED)
PROOFS_OF = attrs.evolve(MESSAGES, tsi=companion_tsi(TSI_TEXT), kind=PROOFS)
KEY_RECORDS_OF = attrs.evolve(MESSAGES, tsi=companion_tsi(TSI_TEXT, KEY_RECORDS_BIT), kind=KEY_RECORDS)
SESSION = SignedSession(TSI, EPOCH_NS)
FRAGMENT = 100  # octets of a fragment

Message = tuple[bytes, str | None]
Change = Callable[[list[dict[str, Any]]], None]


def authority(keys: PrivateKeys = KEYS, *, is_batched: bool = False, revoked: Iterable[str] = ()) -> Authority:
    """Return the keys of the only source."""
    stream = SignedStream({"exchange": (keys.public,)}, {TSI[:6]: "exchange"}, is_batched)
    return Authority({"quotes": (stream,)}, dict.fromkeys(revoked, "stolen"), "tree.toml")


def large_run(first: int, size: int) -> list[Run]:
    """Return the fragments of one message: the last one is shorter."""
    octets = payload(first, size)
    runs: list[Run] = []
    for at in range(0, size, FRAGMENT):
        options = bytearray(fragment_options(first, size))
        options[12:16] = at.to_bytes(4, "big")
        packet = bytes(DATA_HEADER_OCTETS) + options + octets[at : at + FRAGMENT]
        row = np.frombuffer(packet, np.uint8)
        runs.append(Run(first + len(runs), 1, row, 0, len(packet), DATA_HEADER_OCTETS + len(options)))
    return runs


def batch_run(first: int, messages: Sequence[Message]) -> Run:
    """Return a packet with messages."""
    filling = OpenBatch(1000)
    for octets, subject in messages:
        assert filling.add(octets, subject, None)
    row = np.frombuffer(bytes(DATA_HEADER_OCTETS) + bytes(filling.take()), np.uint8)
    return Run(first, 1, row, 0, len(row), DATA_HEADER_OCTETS)


def mixed(first: int = 5, count: int = 200) -> list[Run]:
    """Return plain packets with a message of many packets, and one of one fragment, among them."""
    runs = [run_of(first, 20), *large_run(first + 20, 40 * FRAGMENT - 7), *large_run(first + 60, 30)]
    return [*runs, run_of(first + 61, count - 61, 24)]


def sealer_for(*readers: PrivateKeys) -> StreamSealer:
    """Return the secrets of a source, for some readers."""
    return StreamSealer(SESSION, KEYS, [one.public for one in readers], 1000, random.Random(1).randbytes)


def sealed(runs: Iterable[Run], sealer: StreamSealer) -> list[Run]:
    """Return packets with encrypted payloads."""
    found = []
    for run in runs:
        rows = run.rows.copy()
        sealer.seal(run.first, run.payloads, rows[:, run.payload_at :])
        found.append(Run(run.first, run.count, rows.reshape(-1), 0, run.stride, run.payload_at))
    return found


def proofs_of(
    runs: Sequence[Run], keys: PrivateKeys = KEYS, every: int = 1, sealer: StreamSealer | None = None
) -> list[bytes]:
    """Return the proofs of runs: one after so many of them."""
    told = {} if sealer is None else {"generation_at": sealer.generation_at}
    signer = BlockSigner(keys, SESSION, 1, bits=5, most_spans=4, **told)
    proofs: list[bytes] = []
    for at, run in enumerate(runs):
        proofs += signer.take([run])
        if at % every == 0:
            proofs += signer.handle_deadline(9 * at)
    return [*proofs, *signer.handle_deadline(9 * len(runs))]


def record(
    directory: Path,
    runs: Sequence[Run | Lost],
    proofs: Sequence[bytes],
    *,
    has_batches: bool = False,
    octets: int = 2000,
    at_us: int = 1,
    session: RecordedSession = MESSAGES,
    records: Sequence[bytes] = (),
) -> None:
    """Record packets and proofs, in batches of some octets."""
    collector = RowCollector(
        ArchiveWriter(directory, small(), log_to([])), small(record_batch_bytes=octets), log_to([])
    )
    for companion, packets in (PROOFS_OF, proofs), (KEY_RECORDS_OF, records):
        for at, packet in enumerate(packets):
            row = np.frombuffer(bytes(DATA_HEADER_OCTETS) + packet, np.uint8)
            collector.add_run(SessionFeed(companion), Run(at, 1, row, 0, len(row), DATA_HEADER_OCTETS), at_us)
    feed = SessionFeed(session, has_batches=has_batches)
    for run in runs:
        if isinstance(run, Lost):
            collector.add_lost(feed, run, at_us)
        else:
            collector.add_run(feed, run, at_us)
    collector.close()


def lost(first: int, count: int) -> Lost:
    """Return a loss."""
    return Lost(b"", first, count, LossCause.RETRIES)


def batches(directory: Path, tsi: str = TSI_TEXT) -> list[pa.RecordBatch]:
    """Return all stored batches of a session."""
    reader = ArchiveReader(directory)
    found = []
    for entry in reader.session(tsi, None).entries:
        with SegmentFile(directory, entry.segment) as file:
            found.append(file.batch_of(entry))
    return found


def altered(directory: Path, change: Change, tsi: str = TSI_TEXT) -> list[pa.RecordBatch]:
    """Return the rows of a session after an attacker's change of them."""
    rows = [row for batch in batches(directory, tsi) for row in batch.to_pylist()]
    change(rows)
    fields = {name: plain(pa.nulls(0, STORED_SCHEMA.field(name).type)).type for name in STORED_SCHEMA.names}
    return [pa.RecordBatch.from_pylist(rows[at : at + 20], pa.schema(fields)) for at in range(0, len(rows), 20)]


def rewritten(directory: Path, other: Path, change: Change) -> None:
    """Write a copy of an archive with an attacker's change of its messages."""
    writer = ArchiveWriter(other, small(), log_to([]))
    for session, rows in (MESSAGES, altered(directory, change)), (PROOFS_OF, batches(directory, PROOFS_OF.tsi)):
        for batch in rows:
            stored = [
                column if column.type == kind.type else pc.run_end_encode(column)
                for column, kind in zip(batch.columns, STORED_SCHEMA, strict=True)
            ]
            first = batch.column("sqn")[0].as_py()
            as_stored = pa.RecordBatch.from_arrays(stored, schema=STORED_SCHEMA)
            writer.append(session, as_stored, first, end_of(batch), (1, 1))
    writer.close()


def tree_text(keys: PrivateKeys = KEYS, framing: str = "plain", *, is_sealed: bool = False) -> str:
    """Return a topology file whose source sends the stream of these archives."""
    return f"""
version = 1
name = "floor"

[streams.quotes]
data_port = 7500
signed = true
sealed = {str(is_sealed).lower()}
framing = "{framing}"

[segments.core]
group = "239.1.1.1"
interface = "10.0.0.0/24"

[nodes.exchange]
role = "source"
segment = "core"
streams = ["quotes"]

[keys]
exchange = ["{keys.public.line}"]
"""


def checked(
    rows: Iterable[pa.RecordBatch], proofs: Iterable[pa.RecordBatch], by: Authority | None = None
) -> tuple[list[RowVerdict], SessionProofs]:
    """Return the verdict about each row of a whole session, and its proofs."""
    by = by or authority()
    found = SessionProofs(TSI, EPOCH_NS // 1000, by.keys_for(TSI, "quotes", "exchange"), by.revoked)
    check = RowCheck(found.spans(octets_of(proofs)), is_batched=by.is_batched("quotes"))
    verdicts = [RowVerdict(one) for batch in rows for one in check.take(batch.select(NEEDED)).verdicts]
    rest = check.end()
    return verdicts + ([] if rest is None else [RowVerdict(one) for one in rest.verdicts]), found


def checked_part(directory: Path, first: int, end: int, by: Authority | None = None) -> list[tuple[int, RowVerdict]]:
    """Return sqn and verdict of the rows of a range, read as a client of a range service reads them."""
    by = by or authority()
    rows, proofs = (_held(directory, tsi) for tsi in (TSI_TEXT, companion_tsi(TSI_TEXT)))
    found = SessionProofs(TSI, EPOCH_NS // 1000, by.keys_for(TSI, "quotes", "exchange"), by.revoked)
    at = position_of(first, proofs.read, proofs.oldest, proofs.next_sqn)
    spans = found.spans(octets_of(proofs.read(at, proofs.next_sqn)))
    check = RowCheck((span for span in spans if span.end > first), is_batched=by.is_batched("quotes"))
    return [
        (sqn.as_py(), RowVerdict(verdict))
        for judged in checked_range(rows, check, first, end)
        for sqn, verdict in zip(judged.rows.column("sqn"), judged.verdicts, strict=True)
    ]


def _held(directory: Path, tsi: str) -> HeldRows:
    from pgm.archive.requests import RangeRequest

    reader = ArchiveReader(directory)
    session = reader.session(tsi, None)
    return HeldRows(
        lambda first, end: reader.read(RangeRequest(tsi, first=first, end=end, columns=NEEDED)).batches(),
        session.oldest,
        session.next_sqn,
    )
