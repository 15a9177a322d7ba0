"""Table of Iceberg: the catalog is a file of SQLite in the folder, or one that pyiceberg is configured for.

Each snapshot has the progress in its summary, under `pgm.sessions`. So a commit has rows and progress, or neither. The
newest snapshot with progress counts: other programs may rewrite the table's files.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import attrs

from pgm.archive.errors import TableError
from pgm.archive.tables.files import ENDING, TABLE_SCHEMA, TableFile
from pgm.archive.tables.parquet_store import sweep_files
from pgm.archive.tables.state import EACH, TableState
from pgm.archive.tables.store import TableContent, TableLock, check_copies

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

CATALOG = "catalog.db"
DEFAULT_NAME = "pgm.rows"
_SESSIONS = "pgm.sessions"
_COPIES = "pgm.copies"
_HOUR, _STREAM = "received_hour", "stream"  # fields of the partition
_KEPT_SNAPSHOTS = 50
_IO = "pgm.archive.tables.synced_io.SyncedFileIO"
_PROPERTIES = {
    "format-version": "2",
    "commit.retry.num-retries": "0",  # a second writer has read other progress: it must begin again
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "10",
}


@attrs.frozen
class IcebergName:
    """Place of a table: its folder, its name in the catalog, and a catalog of pyiceberg's configuration, if not our own."""

    root: Path
    name: str = DEFAULT_NAME
    catalog: str | None = None


class IcebergTable:
    """Writer of a table of Iceberg."""

    def __init__(self, at: IcebergName, copies: str) -> None:
        """Open the table, or create it. Raises `TableError`."""
        self._at = at
        self._lock = TableLock(at.root)
        try:
            self._table = _open_or_create(at, copies)
            check_copies(at.root, self._table.properties.get(_COPIES, EACH), copies)
            self._location = _path_of(self._table.location(), at)
        except TableError:
            self._lock.close()
            raise
        self.folder = self._location / "data"
        self.folder.mkdir(parents=True, exist_ok=True)

    def content(self) -> TableContent:
        """Return the present version. Raises `TableError`."""
        return _readable(lambda: self._table, self._at)

    def commit(self, state: TableState, added: Sequence[TableFile], removed: Sequence[TableFile] = ()) -> None:
        """Exchange files and progress in one snapshot. Raises `TableError`."""
        from pyiceberg.exceptions import CommitFailedException
        from pyiceberg.io.pyarrow import parquet_file_to_data_file

        try:
            with self._table.transaction() as transaction:
                update = transaction.update_snapshot({_SESSIONS: state.to_json()})
                with update.overwrite() if removed else update.merge_append() as producer:
                    for one in added:
                        found = parquet_file_to_data_file(self._table.io, transaction.table_metadata, _uri(one.path))
                        producer.append_data_file(found)
                    gone = {one.path for one in removed}
                    for held in _data_files(self._table) if gone else ():
                        if _path_of(held.file_path, self._at) in gone:
                            producer.delete_data_file(held)
        except CommitFailedException as error:
            raise TableError(
                f"another process has written {self._at.name} of {self._at.root}: {error}", remedy="run it again"
            ) from None
        except Exception as error:  # of the database, the files and the catalog alike
            raise TableError(
                f"{self._at.name} of {self._at.root} cannot be written: {error}",
                remedy="make room, or make the folder writable; then run it again: it goes on",
            ) from None
        self._expire()

    def _expire(self) -> None:
        """Forget old snapshots, since each has the whole progress."""
        newest_first = list(_ancestors(self._table))
        if len(newest_first) > 2 * _KEPT_SNAPSHOTS:
            self._forget(newest_first[_KEPT_SNAPSHOTS:])

    def _forget(self, snapshots: Sequence[Snapshot]) -> None:
        """Forget snapshots, but not the newest with progress: later ones may be of other programs."""
        counting = next((one for one in _ancestors(self._table) if _progress_of(one) is not None), None)
        numbers = [one.snapshot_id for one in snapshots if one is not counting]
        if numbers:
            self._table.maintenance.expire_snapshots().by_ids(numbers).commit()
            self._table.refresh()

    def sweep(self, keep_s: float) -> int:
        """Forget earlier snapshots older than `keep_s`, and remove files that no snapshot has; return their number."""
        before_ms = 1000 * (time.time() - keep_s)
        self._forget([one for one in list(_ancestors(self._table))[1:] if one.timestamp_ms <= before_ms])
        held = frozenset(self._held())
        return sweep_files(self.folder, held, keep_s, f"part-*{ENDING}") + sweep_files(
            self._location / "metadata", held, keep_s, "*.avro"
        )

    def _held(self) -> Iterator[Path]:
        """Yield the files of all snapshots. Snapshots share manifests, and each is read once."""
        read: set[str] = set()
        for snapshot in self._table.metadata.snapshots:
            yield _path_of(snapshot.manifest_list, self._at)
            for manifest in snapshot.manifests(self._table.io):
                if manifest.manifest_path in read:
                    continue
                read.add(manifest.manifest_path)
                yield _path_of(manifest.manifest_path, self._at)
                for entry in manifest.fetch_manifest_entry(self._table.io, discard_deleted=True):
                    yield _path_of(entry.data_file.file_path, self._at)

    def close(self) -> None:
        """Release the table for other writers."""
        _close(self._table.catalog)
        self._lock.close()


def read_iceberg_table(at: IcebergName) -> TableContent:
    """Return the present version of a table. Raises `TableError`."""
    catalog = _catalog(at)
    try:
        return _readable(lambda: catalog.load_table(at.name), at)
    finally:
        _close(catalog)


def _readable(load: Callable[[], Table], at: IcebergName) -> TableContent:
    """Return the present version of a table. Raises `TableError` for any failure of the catalog or a file."""
    from pyiceberg.exceptions import NoSuchTableError

    try:
        return _content(load(), at)
    except TableError:
        raise
    except NoSuchTableError:
        raise TableError(f"{at.root} has no table {at.name}", remedy="name it, or export into it first") from None
    except Exception as error:
        raise TableError(
            f"{at.name} of {at.root} cannot be read: {error}", remedy="restore the file, or export into another folder"
        ) from None


def _catalog(at: IcebergName) -> Catalog:
    try:
        from pyiceberg.catalog import load_catalog
    except ImportError:
        raise TableError(
            "tables of Iceberg need pyiceberg", remedy="pip install 'pgm-repair-network[lakehouse]'"
        ) from None
    if at.catalog is not None:
        try:
            return load_catalog(at.catalog)
        except Exception as error:
            raise TableError(f"catalog {at.catalog} cannot be opened: {error}", remedy="see .pyiceberg.yaml") from None
    path = at.root.resolve() / CATALOG
    places = {"uri": f"sqlite:///{path}", "warehouse": _uri(at.root.resolve())}
    return load_catalog("pgm", type="sql", **places, **{"py-io-impl": _IO})


def _close(catalog: Catalog) -> None:
    getattr(catalog, "close", lambda: None)()


def _open_or_create(at: IcebergName, copies: str) -> Table:
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.transforms import HourTransform, IdentityTransform

    catalog = _catalog(at)
    namespace, _, name = at.name.rpartition(".")
    if not namespace or not name:
        raise TableError(f"{at.name!r} names no table of Iceberg", remedy=f"write it as in {DEFAULT_NAME}")
    received, stream = (TABLE_SCHEMA.get_field_index(one) + 1 for one in ("received", "stream"))
    try:
        if catalog.table_exists(at.name):
            return catalog.load_table(at.name)
        catalog.create_namespace_if_not_exists(namespace)
        return catalog.create_table(
            at.name,
            _iceberg_schema(),
            location=_uri(at.root.resolve() / namespace / name),
            partition_spec=PartitionSpec(
                PartitionField(source_id=received, field_id=1000, transform=HourTransform(), name=_HOUR),
                PartitionField(source_id=stream, field_id=1001, transform=IdentityTransform(), name=_STREAM),
            ),
            properties=_PROPERTIES | {_COPIES: copies},
        )
    except Exception as error:  # of the database, the files and the catalog alike
        raise TableError(
            f"table {at.name} of {at.root} cannot be opened: {error}", remedy="name another folder"
        ) from None


def _iceberg_schema() -> Any:
    from pyiceberg.io.pyarrow import pyarrow_to_schema

    return pyarrow_to_schema(TABLE_SCHEMA)


def _ancestors(table: Table) -> Iterator[Snapshot]:
    """Yield the snapshots that lead to the present one, newest first."""
    snapshot = table.current_snapshot()
    while snapshot is not None:
        yield snapshot
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.snapshot_by_id(parent)


def _progress_of(snapshot: Snapshot) -> str | None:
    return None if snapshot.summary is None else snapshot.summary.additional_properties.get(_SESSIONS)


def _content(table: Table, at: IcebergName) -> TableContent:
    copies = table.properties.get(_COPIES, EACH)
    if table.current_snapshot() is None:
        return TableContent(TableState(copies), ())
    for snapshot in _ancestors(table):
        text = _progress_of(snapshot)
        if text is not None:
            files = tuple(_table_file(one, table, at) for one in _data_files(table))
            return TableContent(TableState.from_json(copies, text), files)
    raise TableError(
        f"no snapshot of {at.name} of {at.root} has the progress of an export: another program has made the table",
        remedy="name another table, or another folder",
    )


def _data_files(table: Table) -> list[DataFile]:
    return [task.file for task in table.scan().plan_files()]


def _table_file(held: DataFile, table: Table, at: IcebergName) -> TableFile:
    sqn = table.schema().find_field("sqn").field_id
    low, high = (int.from_bytes(bounds[sqn], "little") for bounds in (held.lower_bounds, held.upper_bounds))
    hour, stream = held.partition[0], held.partition[1]
    path = _path_of(held.file_path, at)
    return TableFile(path, stream, hour, held.record_count, held.file_size_in_bytes, (low, high))


def _path_of(uri: str, at: IcebergName) -> Path:
    parts = urlsplit(uri)
    if parts.scheme not in ("", "file"):
        raise TableError(
            f"table {at.name} is at {uri}, which is no path of a file system",
            remedy="choose a catalog whose tables lie in folders that all hosts see",
        )
    return Path(uri[len("file://") :] if parts.scheme else uri)


def _uri(path: Path) -> str:
    """Return a path as pyiceberg reads it: without quotation, so that `=` of a folder's name stays."""
    return f"file://{path}"
