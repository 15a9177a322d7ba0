"""The action `verify` of `pgm archive`: checksums and gaps of all sessions, and the signatures of signed streams."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from deploy.terminal.exit_codes import EXIT_FAILED
from deploy.terminal.output import print_json, warn
from pgm.net.keys.key_files import need_cryptography
from pgm.own_files import forbid_core_dumps, read_own_file
from pgm.wire.formats import KEY_RECORDS_BIT, PROOFS_BIT

if TYPE_CHECKING:
    import pyarrow as pa

    from pgm.archive.service.collection import Archives
    from pgm.archive.session import RecordedSession
    from pgm.archive.signatures.authority import Authority
    from pgm.archive.signatures.row_check import JudgedRows, RowCheck
    from pgm.archive.store.index import SessionEntries
    from pgm.archive.store.reader import ArchiveReader
    from pgm.archive.store.segment import BatchEntry
    from pgm.trust.private_keys import PrivateKeys

_SHOW_S = 0.5
_WAIT_US = 60_000_000  # the proofs of newer rows of an open session may still be on their way to the disk


@attrs.define(eq=False)
class _Verification:
    """Totals of one pass over the archives, with a progress line."""

    problems: list[str]
    batches: int = 0
    rows: int = 0
    octets: int = 0
    lost: Counter[str] = attrs.field(factory=Counter)  # packets by cause
    _shown_s: float = 0.0

    def read(self, reader: ArchiveReader, session: SessionEntries) -> Iterator[pa.RecordBatch]:
        """Yield the sound batches of a session, and note what is damaged or missing."""
        from pgm.archive.errors import CorruptSegment
        from pgm.archive.session import COMPANIONS
        from pgm.archive.store.segment import SegmentFile

        at = session.oldest
        for entry in list(session.entries):
            if entry.first != at:
                self.problems.append(
                    f"session {session.session.tsi} has no rows for the sqns {at} to {entry.first - 1}"
                )
            at = entry.end
            try:
                with SegmentFile(reader.directory, entry.segment) as file:
                    batch = file.batch_of(entry)
            except CorruptSegment as error:
                self.problems.append(error.message)
            except FileNotFoundError as error:
                reader.refresh(is_forced=True)
                # Otherwise the recorder has dropped the segment meanwhile, as its oldest one.
                if session.oldest <= entry.first:
                    self.problems.append(f"{error.filename} is gone, with the sqns {entry.first} to {entry.end - 1}")
            else:
                self._count(entry)
                if session.session.kind not in COMPANIONS:
                    self._count_losses(batch)
                yield batch

    def _count(self, entry: BatchEntry) -> None:
        self.batches, self.rows, self.octets = self.batches + 1, self.rows + entry.rows, self.octets + entry.octets
        if sys.stderr.isatty() and time.monotonic() - self._shown_s > _SHOW_S:
            self._shown_s = time.monotonic()
            print(f"\rverified {self.octets / 1e6:,.1f} MB  ", end="", file=sys.stderr, flush=True)

    def _count_losses(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows == 0 or batch.column("lost").null_count == batch.num_rows:
            return
        for cause, count in zip(batch.column("lost").to_pylist(), batch.column("count").to_pylist(), strict=True):
            if cause is not None:
                self.lost[cause] += count

    def end(self) -> dict[str, Any]:
        """End the progress line. Return the totals with stable keys."""
        if self._shown_s:
            print(file=sys.stderr)
        counts = {"batches": self.batches, "rows": self.rows, "octets": self.octets, "lost": dict(self.lost)}
        return {"ok": not self.problems, **counts, "problems": self.problems}


def verify(
    archives: Archives, *, signatures: bool, topologies: tuple[Path, ...], key_file: Path | None, as_json: bool
) -> int:
    """Read every batch with its checksum, and judge the rows of signed streams if asked. Return the exit code.

    `key_file`: private file of a reader of sealed streams, for sessions that the recorder has decrypted.
    """
    run = _Verification([error.message for error in archives.damage])
    by = _authority(archives, topologies) if signatures else None
    keys = None if key_file is None else _reader_keys(key_file)
    sessions = []
    for reader, session in archives.sessions():
        if by is not None and _is_signed(by, session):
            sessions.append(_judged(run, by, (reader, session), keys))
        else:
            for _ in run.read(reader, session):
                pass
    result = run.end()
    if by is not None:
        if not sessions:
            run.problems.append(f"{archives.directory} has no session of a signed stream: no row was checked")
        failed = sum(one["unproved"] + one["revoked"] + one["forged"] for one in sessions)
        result |= {"ok": not run.problems and not failed, "signatures": {"keys": by.origin, "sessions": sessions}}
    if as_json:
        print_json(result)
    else:
        _print(result)
    return 0 if result["ok"] else EXIT_FAILED


def _authority(archives: Archives, topologies: tuple[Path, ...]) -> Authority:
    """Return the keys that count. Raises `ArchiveError`, `TopologyError`, `UsageError`."""
    need_cryptography()
    from pgm.archive.errors import ArchiveError
    from pgm.archive.signatures.authority import archive_authority

    if topologies:
        from pgm.archive.signatures.topologies import topology_authority

        return topology_authority(topologies)
    authority = archive_authority(reader.directory for reader in archives.readers)
    if not authority.streams:
        raise ArchiveError(
            f"{archives.directory} has no copy of public keys: no signed stream was recorded, or the file `keys` is gone",
            remedy="name the topology file of the recording: --topology tree.toml",
        )
    warn(f"the keys are those of {authority.origin}, which a forger of the archive could change: use --topology")
    return authority


def _reader_keys(path: Path) -> PrivateKeys:
    """Return the keys of a private file. Raises `KeyRefused`, `UsageError`."""
    need_cryptography()
    from pgm.trust.private_keys import MOST_OCTETS, parse_private_file

    forbid_core_dumps()  # before the octets are in memory
    return parse_private_file(read_own_file(path, MOST_OCTETS), str(path)).keys


def _is_signed(by: Authority, session: SessionEntries) -> bool:
    from pgm.archive.session import COMPANIONS, OPENED, SIGNED

    kind = session.session.kind
    return kind in (OPENED, SIGNED) or (kind not in COMPANIONS and by.is_signed(session.session.stream))


def _judged(
    run: _Verification, by: Authority, held: tuple[ArchiveReader, SessionEntries], keys: PrivateKeys | None
) -> dict[str, Any]:
    """Return the counts of one session, with stable keys."""
    from pgm.archive.session import OPENED
    from pgm.archive.signatures.row_check import RowCheck
    from pgm.archive.signatures.session_proofs import SessionProofs, octets_of, tsi_octets
    from pgm.archive.signatures.session_secrets import SessionSecrets

    reader, session = held
    named = session.session
    tsi = tsi_octets(named.tsi)
    proofs = SessionProofs(tsi, named.epoch_us, by.keys_for(tsi, named.stream, named.source), by.revoked)
    rows_of_proofs = _companion(reader, named, PROOFS_BIT)
    is_opened = named.kind == OPENED
    secrets = None
    if is_opened and keys is not None:
        secrets = SessionSecrets(tsi, named.epoch_us, proofs.keys, keys)
        secrets.take(octets_of(_companion(reader, named, KEY_RECORDS_BIT)))
    elif is_opened:
        warn(f"session {named.tsi} was decrypted by {named.node}: to prove its rows, name a reader's file with --keys")
    is_batched = by.is_batched(named.stream, is_opened=is_opened)
    check = RowCheck(
        proofs.spans(octets_of(rows_of_proofs)), is_batched=is_batched, is_opened=is_opened, secrets=secrets
    )
    counts = _counts(run, check, reader, session)
    if not session.closed and time.time_ns() // 1000 - session.received_us < _WAIT_US:
        counts["waiting"] = counts.pop("last", 0)
        counts["unproved"] -= counts["waiting"]
    counts.pop("last", None)
    names = {"tsi": named.tsi, "epoch_us": named.epoch_us, "stream": named.stream, "source": named.source}
    return {
        **names,
        "node": named.node,
        "proved": counts["proved"],
        "unproved": counts["unproved"],
        "forged": counts["forged"],
        "revoked": counts["revoked"],
        "waiting": counts["waiting"],
        "losses": counts["loss"],
        "missing_proofs": proofs.missing,
        "keys": dict(proofs.used),
        "rejected_proofs": dict(proofs.rejects),
    }


def _companion(reader: ArchiveReader, named: RecordedSession, bit: int) -> Iterator[pa.RecordBatch]:
    """Yield the sound batches of a companion session. The pass over that session itself counts and reports."""
    from pgm.archive.session import companion_tsi

    other = _Verification([])
    for session in reader.sessions(companion_tsi(named.tsi, bit)):
        if session.session.epoch_us == named.epoch_us:
            yield from other.read(reader, session)


def _counts(run: _Verification, check: RowCheck, reader: ArchiveReader, session: SessionEntries) -> Counter[str]:
    """Return rows by verdict. `last` counts the unproved rows after the last proved one."""
    from pgm.archive.signatures.row_check import RowVerdict
    from pgm.archive.signatures.row_packets import NEEDED

    counts: Counter[str] = Counter()

    def add(judged: JudgedRows) -> None:
        for verdict in judged.verdicts.tolist():
            name = RowVerdict(verdict).name.lower()
            counts[name] += 1
            counts["last"] = counts["last"] + 1 if verdict == RowVerdict.UNPROVED else 0

    for batch in run.read(reader, session):
        if batch.num_rows:
            add(check.take(batch.select(NEEDED)))
    rest = check.end()
    if rest is not None:
        add(rest)
    return counts


def _print(result: dict[str, Any]) -> None:
    signatures = result.get("signatures")
    if signatures is not None:
        from deploy.terminal.tables import TableColumn, console, table

        terminal = console()
        heads = ("session", "stream", "source", "node", "proved", "unproved", "forged", "revoked", "waiting", "lost")
        columns = [TableColumn(head, rank) for head, rank in zip(heads, (0, 1, 1, 2, 0, 0, 0, 0, 3, 4), strict=True)]
        terminal.print(table("Rows", columns, [_cells(one) for one in signatures["sessions"]], terminal.width))
        for one in signatures["sessions"]:
            for reason, count in one["rejected_proofs"].items():
                warn(f"session {one['tsi']} of {one['node']}: {count} proofs do not count: {reason}")
            if one["missing_proofs"]:
                warn(f"session {one['tsi']} of {one['node']}: {one['missing_proofs']} proofs are missing")
    for problem in result["problems"]:
        warn(problem)
    sums = f"{result['batches']:,} batches, {result['rows']:,} rows, {result['octets'] / 1e6:,.1f} MB"
    causes = ", ".join(f"{cause}: {count:,}" for cause, count in sorted(result["lost"].items()))
    lost = f"; lost packets: {sum(result['lost'].values()):,} ({causes})" if causes else ""
    print(f"{sums}: {_judgement(result)}{lost}")


def _cells(one: dict[str, Any]) -> list[str]:
    names = [one["tsi"], one["stream"] or "-", one["source"] or "-", one["node"]]
    counts = ("proved", "unproved", "forged", "revoked", "waiting", "losses")
    return names + [f"{one[name]:,}" for name in counts]


def _judgement(result: dict[str, Any]) -> str:
    signatures = result.get("signatures")
    if result["problems"] or signatures is None:
        return "damaged" if result["problems"] else "sound"
    if result["ok"]:
        return "sound, and every row of a signed stream is proved"
    sums = {name: sum(one[name] for one in signatures["sessions"]) for name in ("unproved", "forged", "revoked")}
    return "sound, and not proved: " + ", ".join(f"{count:,} rows {name}" for name, count in sums.items() if count)
