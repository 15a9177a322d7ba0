"""Check of the rows of one session, in order, by the spans that its proofs name."""

from __future__ import annotations

import enum
from collections.abc import Iterator

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pgm.archive.signatures.row_packets import NEEDED, Flags, RowPackets, rows_with_packets
from pgm.archive.signatures.session_proofs import ProvenSpan
from pgm.archive.signatures.session_secrets import SessionSecrets
from pgm.trust.blocks import BLOCK_BITS

Verdicts = npt.NDArray[np.uint8]


class RowVerdict(enum.IntEnum):
    """Verdict about a row, the worst one last."""

    LOSS = 0  # nothing was said
    PROVED = 1  # the source has said it
    UNPROVED = 2  # the proof is missing, or another packet of its span, or the frame of the row
    REVOKED = 3  # proved by keys that are revoked
    FORGED = 4  # the source has said something else


@attrs.frozen(eq=False)
class JudgedRows:
    """Rows, and the verdict about each. `may_open`: whether the secrets of a sealed session are those of the proofs."""

    rows: pa.RecordBatch
    verdicts: Verdicts
    may_open: Flags = attrs.field()

    @may_open.default
    def _closed(self) -> Flags:
        return np.zeros(len(self.verdicts), np.bool_)

    def part(self, first: int, end: int) -> JudgedRows:
        """Return the rows `first` to `end - 1`."""
        rows = self.rows.slice(first, end - first)
        return JudgedRows(rows, self.verdicts[first:end], self.may_open[first:end])


class RowCheck:
    """Check that takes rows in order, and returns each row as soon as all proofs of its packets were compared.

    Rows that wait are those of the last span: 2^`BLOCK_BITS` packets, and the messages that reach into it.
    """

    def __init__(
        self,
        spans: Iterator[ProvenSpan],
        *,
        is_batched: bool | None,
        is_opened: bool = False,
        secrets: SessionSecrets | None = None,
    ) -> None:
        """Judge by `spans`, which ascend. `is_batched`: see `SignedStream`.

        With `is_opened` a recorder has decrypted the rows of a sealed session. They are encrypted again for the check, by
        `secrets`; without the secret of a packet its row is unproved.
        """
        self._spans = spans
        self._is_opened = is_opened
        self._secrets = secrets
        self._is_batched = is_batched
        self._next: ProvenSpan | None = next(spans, None)
        self._rows: pa.RecordBatch | None = None  # that wait
        self._judged: list[tuple[int, int, RowVerdict, bool]] = []  # verdicts about spans of sqns, for waiting rows

    def take(self, rows: pa.RecordBatch) -> JudgedRows:
        """Take the next rows, at least one, with the columns of `NEEDED`. Return the rows that are judged."""
        if self._rows is not None:
            rows = pa.concat_batches([self._rows, rows])
        return self._judge(rows, is_last=False)

    def end(self) -> JudgedRows | None:
        """Return the rows that still wait, when nothing more comes."""
        return None if self._rows is None else self._judge(self._rows, is_last=True)

    @property
    def first_sqn(self) -> int | None:
        """The first sqn of the next span; None if no proof follows."""
        return None if self._next is None else self._next.first

    @property
    def waits_until(self) -> int | None:
        """The sqn after the span for which rows wait; None if no more rows are needed."""
        return self._next.end if self._rows is not None and self._next is not None else None

    def _judge(self, rows: pa.RecordBatch, *, is_last: bool) -> JudgedRows:
        packets = rows_with_packets(rows.select(NEEDED), is_batched=self._is_batched)
        if self._is_opened:
            packets = _sealed(packets, self._secrets)
        lead = int(packets.limits[-1])
        decided = self._compare(packets, lead, is_last=is_last)
        verdicts, may_open = self._verdicts(packets)
        count = rows.num_rows if is_last else int(np.searchsorted(packets.limits, decided, "right"))
        self._rows = rows.slice(count) if count < rows.num_rows else None
        if self._rows is not None:
            begin = int(packets.begins[count])
            self._judged = [one for one in self._judged if one[1] > begin]
        else:
            self._judged = []
        is_loss = rows.column("value").is_null().to_numpy(zero_copy_only=False)
        verdicts[is_loss] = RowVerdict.LOSS
        return JudgedRows(rows, verdicts, may_open).part(0, count)

    def _compare(self, packets: RowPackets, lead: int, *, is_last: bool) -> int:
        """Compare all spans that end before `lead`. Return the sqn before which everything is decided."""
        while (span := self._next) is not None and span.first < lead:
            if span.end > lead and not is_last:
                return span.first
            may_open = self._may_open(span)
            self._judged += [(first, end, verdict, may_open) for first, end, verdict in _verdicts_of(span, packets)]
            self._next = next(self._spans, None)
        return lead

    def _may_open(self, span: ProvenSpan) -> bool:
        return self._secrets is not None and self._secrets.fits(span.last, span.generation)

    def _verdicts(self, packets: RowPackets) -> tuple[Verdicts, Flags]:
        """Return the worst verdict about the packets of each row, and whether it may be opened.

        A packet without a verdict is unproved.
        """
        each = np.full(len(packets.sqns), RowVerdict.UNPROVED, np.uint8)
        shut = np.ones(len(packets.sqns), np.int64)
        for begin, end, verdict, may_open in self._judged:
            low, high = np.searchsorted(packets.sqns, (begin, end))
            each[low:high] = verdict
            shut[low:high] = not may_open
        lows = np.searchsorted(packets.sqns, packets.begins)
        highs = np.searchsorted(packets.sqns, packets.limits)
        verdicts = np.full(len(lows), RowVerdict.UNPROVED, np.uint8)
        has_all = highs - lows == packets.limits - packets.begins
        has_all &= highs > lows
        if has_all.any():
            wide = has_all & (highs - lows > 1)
            narrow = has_all & ~wide
            verdicts[narrow] = each[lows[narrow]]
            for row in np.flatnonzero(wide).tolist():
                verdicts[row] = each[lows[row] : highs[row]].max()
        is_proved = (verdicts == RowVerdict.PROVED) | (verdicts == RowVerdict.REVOKED)
        verdicts[is_proved & ~packets.fits] = RowVerdict.FORGED
        shut_before = np.append(0, np.cumsum(shut))
        return verdicts, shut_before[highs] == shut_before[lows]


def _verdicts_of(span: ProvenSpan, packets: RowPackets) -> Iterator[tuple[int, int, RowVerdict]]:
    """Yield verdicts about ranges of sqns of a span; none about packets that nothing proves."""
    count = span.end - span.first
    first, end = np.searchsorted(packets.sqns, (span.first, span.end)).tolist()
    if count > 1 << BLOCK_BITS:
        return
    proved = RowVerdict.REVOKED if span.is_revoked else RowVerdict.PROVED
    is_complete = end - first == count
    if is_complete and _digest(span, packets, first, end) == span.digest:
        yield span.first, span.end, proved
    elif span.details:
        for at, sqn in enumerate(packets.sqns[first:end].tolist(), first):
            if sqn in span.details:
                fits = _digest(span, packets, at, at + 1) == span.details[sqn]
                yield sqn, sqn + 1, RowVerdict.PROVED if fits else RowVerdict.FORGED
            elif is_complete:
                yield sqn, sqn + 1, RowVerdict.FORGED
    elif is_complete:
        yield span.first, span.end, RowVerdict.FORGED


def _digest(span: ProvenSpan, packets: RowPackets, first: int, end: int) -> bytes:
    """Return the digest of some packets of a span as the source would have made it."""
    payloads = packets.payloads[packets.ends[first] : packets.ends[end]]
    return span.session.digest_of_records(int(packets.sqns[first]), packets.records[first:end], payloads.data)


def _sealed(packets: RowPackets, secrets: SessionSecrets | None) -> RowPackets:
    """Return packets encrypted again, without those whose secret is missing."""
    if secrets is None:
        payloads, found = packets.payloads, np.zeros(len(packets.sqns), np.bool_)
    else:
        payloads, found = secrets.applied(packets)
    lengths = np.diff(packets.ends)
    ends = np.append(0, np.cumsum(lengths[found]))
    return attrs.evolve(
        packets,
        sqns=packets.sqns[found],
        records=packets.records[found],
        ends=ends,
        payloads=payloads[np.repeat(found, lengths)],
    )
