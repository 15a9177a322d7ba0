"""The action `export` of `pgm archive`: tables of Parquet files or Iceberg, which the export brings up to date."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from deploy.archive.overrides import parameters_of
from deploy.terminal.output import print_json
from pgm.errors import UsageError
from pgm.parameters import ROWS, Parameters

if TYPE_CHECKING:
    from pgm.archive.service.collection import Archives
    from pgm.archive.tables.compaction import MergeTotals
    from pgm.archive.tables.export import ExportTotals
    from pgm.archive.tables.store import TableStore

KINDS = ("iceberg", "parquet")
PARAMETERS = tuple(name for name in ROWS if name.startswith("table_"))


class _Progress:
    """Line on a terminal, and a line for each commit elsewhere, on standard error."""

    def __init__(self, wanted: int) -> None:
        """`wanted`: packets that the table lacks."""
        self._wanted = wanted
        self._begun_s = time.monotonic()
        self._is_shown = False

    def on_export(self, totals: ExportTotals) -> None:
        """Tell of a commit."""
        rate = totals.rows / max(1e-3, time.monotonic() - self._begun_s)
        self._show(f"exported {totals.packets:,} of {self._wanted:,} packets, {totals.rows:,} rows, {rate:,.0f} rows/s")

    def on_merge(self, totals: MergeTotals) -> None:
        """Tell of a merge."""
        self._show(f"{totals.merged} files merged into {totals.made}")

    def _show(self, text: str) -> None:
        if sys.stderr.isatty():
            self._is_shown = True
            print(f"\r{text}\033[K", end="", file=sys.stderr, flush=True)
        else:
            print(text, file=sys.stderr, flush=True)

    def end(self) -> None:
        """End the line."""
        if self._is_shown:
            print(file=sys.stderr)


def export(archives: Archives, target: Path | None, as_json: bool, options: dict[str, Any]) -> int:
    """Bring a table up to date with archives. Return the exit code. Raises `ArchiveError`, `UsageError`."""
    if target is None or options["to"] is None:
        raise UsageError(
            "export needs the kind of the table and its folder",
            remedy="as in: pgm archive export archive --to parquet table",
        )
    parameters = parameters_of(options["overrides"] or (), PARAMETERS, "an export")
    _require_no_archive(target, archives)
    store = _store(target, options)
    try:
        result = _run(archives, store, parameters, options)
    finally:
        store.close()
    result = {"to": options["to"], "path": str(target), **result}
    if as_json:
        print_json(result)
    else:
        _print(result)
    return 0


def _require_no_archive(target: Path, archives: Archives) -> None:
    """Check that the folder of a table lies in no archive. Raises `UsageError`."""
    folder = target.resolve()
    held = {reader.directory.resolve() for reader in archives.readers}
    if folder == archives.directory.resolve() or held & {folder, *folder.parents}:
        raise UsageError(f"{target} holds the archive itself", remedy="name another folder for the table")


def _store(target: Path, options: dict[str, Any]) -> TableStore:
    from pgm.archive.tables.opening import PARQUET, open_table
    from pgm.archive.tables.state import EACH

    if options["to"] == PARQUET:
        for name in ("table", "catalog"):
            if options[name] is not None:
                raise UsageError(f"--{name} is for --to iceberg", remedy=f"leave out --{name}")
    return open_table(options["to"], target, EACH, name=options["table"], catalog=options["catalog"])


def _run(archives: Archives, store: TableStore, parameters: Parameters, options: dict[str, Any]) -> dict[str, Any]:
    from pgm.archive.tables.compaction import MergeTotals, compact
    from pgm.archive.tables.export import Export, lacking

    before = store.content().state
    progress = _Progress(sum(count for _, count in lacking(archives, before)))
    try:
        totals = Export(store, parameters, may_miss=options["missing"] == "loss", on_commit=progress.on_export).run(
            archives
        )
        merged = compact(store, parameters, on_commit=progress.on_merge) if options["compact"] else MergeTotals()
    finally:
        progress.end()
    content = store.content()
    sessions = [
        {"session": key, "stream": one.stream, "oldest": one.oldest, "next_sqn": one.next_sqn, "rows": one.rows}
        for key, one in content.state.sessions.items()
    ]
    held = {"table_rows": sum(one.rows for one in content.files), "table_files": len(content.files)}
    return {**attrs.asdict(totals), **attrs.asdict(merged), **held, "sessions": sessions}


def _print(result: dict[str, Any]) -> None:
    merged = f"; {result['merged']} files merged into {result['made']}" if result["merged"] else ""
    missing = f"; {result['missing']:,} packets were missing, and are losses of the table" if result["missing"] else ""
    print(
        f"{_number(result['rows'], 'row')} exported in {_number(result['commits'], 'commit')}{merged}; {result['path']} has "
        f"{_number(result['table_rows'], 'row')} of {_number(len(result['sessions']), 'session')} in {_number(result['table_files'], 'file')}{missing}"
    )


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
