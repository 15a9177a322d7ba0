"""Exports into tables: every row once, whatever interrupts them."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from pyiceberg.catalog import load_catalog

from pgm.archive.errors import RowsMissing, TableError
from pgm.archive.store.schema import SCHEMA
from pgm.archive.store.segment import numbers_in, path_of
from pgm.archive.tables import files
from pgm.archive.tables.compaction import compact
from pgm.archive.tables.iceberg_store import IcebergName, read_iceberg_table
from pgm.archive.tables.opening import KINDS
from pgm.archive.tables.parquet_store import read_parquet_table
from pgm.archive.tables.reading import read_table
from pgm.archive.tables.state import TableState, extents_of, lacked_rows
from tests.unit.archive.makers import small
from tests.unit.archive.tables.export_kills import run
from tests.unit.archive.tables.tables import (
    archive_of,
    archive_rows,
    exported,
    opened,
    parts,
    table_rows,
)

kinds = pytest.mark.parametrize("kind", KINDS)


class Killed(BaseException):
    """End of a process at some call."""


@kinds
def test_export_has_every_row_once_and_goes_on(tmp_path: Path, kind: str) -> None:
    directory, root = archive_of(tmp_path / "a", parts()), tmp_path / "table"
    first = exported(kind, directory, root)
    assert (first.rows, first.packets, first.commits > 2) == (910, 1000, True)
    assert table_rows(kind, root).equals(archive_rows(directory))
    assert exported(kind, directory, root).rows == 0
    archive_of(directory, parts(1000, 300))
    assert exported(kind, directory, root).rows == 273
    assert table_rows(kind, root).equals(archive_rows(directory))
    [extent] = read_table(root).state.sessions.values()
    assert (extent.oldest, extent.next_sqn, extent.rows) == (0, 1300, 1183)


@kinds
def test_files_of_a_commit_are_on_the_disk(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: set[int] = set()
    monkeypatch.setattr(os, "fsync", lambda file: synced.add(os.fstat(file).st_ino))
    root = tmp_path / "table"
    exported(kind, archive_of(tmp_path / "a", parts(0, 200)), root)
    held = [path for path in root.rglob("*") if path.is_file() and path.name not in ("_pgm.lock", "catalog.db")]
    assert [path for path in held if path.stat().st_ino not in synced] == []
    assert held


def test_copy_of_an_archive_adds_no_row(tmp_path: Path) -> None:
    archive_of(tmp_path / "all" / "a", parts(0, 200))
    shutil.copytree(tmp_path / "all" / "a", tmp_path / "all" / "b")
    archive_of(tmp_path / "all" / "b", parts(200, 100))
    exported("parquet", tmp_path / "all", tmp_path / "table")
    assert table_rows("parquet", tmp_path / "table").equals(archive_rows(tmp_path / "all" / "b"))


@kinds
def test_compaction_leaves_one_file_for_each_hour(tmp_path: Path, kind: str) -> None:
    directory, root = archive_of(tmp_path / "a", parts()), tmp_path / "table"
    exported(kind, directory, root)
    store = opened(kind, root)
    before = store.content()
    merged = compact(store, small(table_keep_ivl=0))
    after = store.content()
    store.close()
    assert (merged.made, merged.merged) == (2, len(before.files))
    assert [(one.hour, one.stream) for one in sorted(after.files, key=lambda one: one.hour)] == [
        (0, "quotes"),
        (1, "quotes"),
    ]
    assert after.state == before.state
    assert len(list(root.rglob("*.parquet"))) == 2
    assert table_rows(kind, root).equals(archive_rows(directory))
    assert exported(kind, directory, root).rows == 0


def _interrupted(monkeypatch: pytest.MonkeyPatch, names: list[tuple[Any, str]], at: int) -> Callable[[], bool]:
    """Kill the code at the call number `at` of the named functions; return whether that came."""
    calls = itertools.count()
    is_killed = False

    def counted(function: Any) -> Any:
        def call(*given: Any, **named: Any) -> Any:
            nonlocal is_killed
            if next(calls) == at:
                is_killed = True
                raise Killed
            return function(*given, **named)

        return call

    for owner, name in names:
        monkeypatch.setattr(owner, name, counted(getattr(owner, name)))
    return lambda: is_killed


@kinds
def test_export_interrupted_anywhere_repeats_and_skips_nothing(tmp_path: Path, kind: str) -> None:
    """Each turn is killed at a later call that changes files, and the next turn goes on with the same table."""
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.io.pyarrow import PyArrowFile

    calls: list[tuple[Any, str]] = [(files, "sync_folder"), (os, "fsync"), (Path, "replace"), (Path, "unlink")]
    if kind == "iceberg":
        calls = [(files, "sync_folder"), (PyArrowFile, "create"), (SqlCatalog, "commit_table")]
    directory, root = tmp_path / "a", tmp_path / "table"
    step, turns = (2, 20) if kind == "parquet" else (4, 8)
    for turn in range(turns):
        archive_of(directory, parts(100 * turn, 100))
        store = opened(kind, root)
        with pytest.MonkeyPatch.context() as patch:
            was_killed = _interrupted(patch, calls, (step * turn) % 37)
            try:
                exported_by = _exporter(store, directory)
                exported_by()
                compact(store, small(table_keep_ivl=0), least=4)
            except Killed:
                assert was_killed()
            finally:
                store.close()
            if kind == "parquet":
                _check_each_row_once(root)
    exported(kind, directory, root)
    assert table_rows(kind, root).equals(archive_rows(directory))
    assert not [*root.rglob("*.tmp"), *root.glob("_new/**/*.parquet")]


def _check_each_row_once(root: Path) -> None:
    """Check that readers of a killed writer's folder find no row twice, and that those of its list find every row."""
    in_folder = table_rows("parquet", root)["sqn"].to_pylist()
    assert len(set(in_folder)) == len(in_folder)
    listed = read_parquet_table(root)
    rows = ds.dataset([str(one.path) for one in listed.files], SCHEMA, format="parquet").count_rows()
    assert rows == sum(one.rows for one in listed.files) == sum(one.rows for one in listed.state.sessions.values())


def _exporter(store: Any, directory: Path) -> Callable[[], object]:
    from pgm.archive.service.collection import Archives
    from pgm.archive.tables.export import Export

    return lambda: Export(store, small(table_commit_bytes=4096)).run(Archives(directory))


def test_rows_dropped_before_their_export_are_an_error_or_a_loss(tmp_path: Path) -> None:
    directory, root = archive_of(tmp_path / "a", parts(0, 200)), tmp_path / "table"
    exported("parquet", directory, root)
    archive_of(directory, parts(200, 100))
    archive_of(directory, parts(300, 100))
    for number in numbers_in(directory)[:2]:
        path_of(directory, number).unlink()
    with pytest.raises(RowsMissing, match=r"from sqn 200 on.*held from sqn 300 on") as caught:
        exported("parquet", directory, root)
    assert "--missing loss" in caught.value.remedy
    assert exported("parquet", directory, root, may_miss=True).missing == 100
    rows = table_rows("parquet", root)
    lost = [row for row in rows.to_pylist() if row["lost"] == "archive"]
    assert [(row["sqn"], row["count"], row["node"]) for row in lost] == [(200, 100, "recorder-1")]
    assert sum(rows["count"].to_pylist()) == 400


def test_damaged_batch_is_named_and_may_become_a_loss(tmp_path: Path) -> None:
    directory, root = archive_of(tmp_path / "a", parts(0, 300)), tmp_path / "table"
    [number] = numbers_in(directory)
    path = path_of(directory, number)
    octets = bytearray(path.read_bytes())
    octets[octets.index((150).to_bytes(8, "big") * 2)] ^= 1
    path.write_bytes(octets)
    with pytest.raises(RowsMissing, match=f"{path} is damaged at octet"):
        exported("parquet", directory, root)
    assert exported("parquet", directory, root, may_miss=True).missing == 90
    assert sum(table_rows("parquet", root)["count"].to_pylist()) == 300


@kinds
def test_table_has_one_writer(tmp_path: Path, kind: str) -> None:
    store = opened(kind, tmp_path / "table")
    with pytest.raises(TableError, match="another process writes the table"):
        opened(kind, tmp_path / "table")
    store.close()
    with pytest.raises(TableError, match="copies = each, not of copies = join"):
        opened(kind, tmp_path / "table", "join")
    [other] = set(KINDS) - {kind}
    with pytest.raises(TableError, match=f"has a table of {kind}, not of {other}"):
        opened(other, tmp_path / "table")
    opened(kind, tmp_path / "table").close()


def test_iceberg_with_other_writers_and_a_rollback_keeps_rows(tmp_path: Path) -> None:
    directory, root = archive_of(tmp_path / "a", parts(0, 200)), tmp_path / "table"
    exported("iceberg", directory, root)
    catalog = load_catalog("pgm", type="sql", uri=f"sqlite:///{root}/catalog.db", warehouse=f"file://{root}")
    table = catalog.load_table("pgm.rows")
    first = table.metadata.current_snapshot_id
    assert first is not None
    with table.transaction() as transaction, transaction.update_snapshot().fast_append():
        pass  # a snapshot of another program, which says nothing of progress
    store = opened("iceberg", root)
    store.sweep(0)
    store.close()
    archive_of(directory, parts(200, 100))
    assert exported("iceberg", directory, root).packets == 100
    table.refresh()
    table.manage_snapshots().rollback_to_snapshot(first).commit()
    catalog.close()
    assert exported("iceberg", directory, root).packets == 100
    assert table_rows("iceberg", root).equals(archive_rows(directory))


def test_folders_without_table_are_named(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="has no table of pgm"):
        read_table(tmp_path)
    (tmp_path / "_pgm.json").write_text("{")
    with pytest.raises(TableError, match=r"_pgm.json cannot be read"):
        read_parquet_table(tmp_path)
    with pytest.raises(TableError, match=r"has no table pgm\.none"):
        read_iceberg_table(IcebergName(tmp_path, "pgm.none"))


def test_stream_names_become_folders(tmp_path: Path) -> None:
    rows = archive_rows(archive_of(tmp_path / "a", parts(0, 100)))
    for name, folder in (("a/b=c", "stream_name=a%2Fb%3Dc"), (None, "stream_name=__HIVE_DEFAULT_PARTITION__")):
        named = rows.set_column(1, "stream", pa.array([name] * rows.num_rows, pa.string()))
        [written] = files.write_files(named, tmp_path / "table")
        assert (written.path.parent.name, written.stream) == (folder, name)


@pytest.mark.parametrize(("next_sqn", "first", "rows"), [(0, 0, 182), (85, 85, 97), (95, 95, 92), (200, None, 0)])
def test_offered_rows_are_cut_to_what_the_table_lacks(
    tmp_path: Path, next_sqn: int, first: int | None, rows: int
) -> None:
    offered = archive_rows(archive_of(tmp_path / "a", parts(0, 200)))
    [extent] = extents_of(offered)
    other = attrs.evolve(extent, tsi="9.9.9.9.9.9.7500", next_sqn=1000)
    found = lacked_rows(offered, TableState("each").with_rows([attrs.evolve(extent, next_sqn=next_sqn), other]))
    assert found.num_rows == rows
    assert sum(found["count"].to_pylist()) == 200 - next_sqn
    assert found["sqn"].to_pylist()[:1] == ([] if first is None else [first])


def test_killed_process_repeats_and_skips_nothing(tmp_path: Path) -> None:
    assert run("parquet", tmp_path, 1, after_lines=3) == 1
