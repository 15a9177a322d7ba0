"""Table of Parquet files. One small file, `_pgm.json`, lists the files and the progress.

A commit has three steps. The new files are on the disk in the folder `_new`, where no reader of `data` sees them. The list
replaces the former list: from then on the commit counts. Removed files go, and the new files move to `data`. An interrupted
third step is finished by the next writer, so the folder then has every row once. At no time has `data` a row twice.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import attrs

from pgm.archive.errors import TableError
from pgm.archive.tables.files import ENDING, TableFile, unwritable
from pgm.archive.tables.state import TableState
from pgm.archive.tables.store import TableContent, TableLock, check_copies
from pgm.own_files import replace_synced

LIST = "_pgm.json"
DATA = "data"
_NEW = (
    "_new"  # folder of files that do not count yet: pyarrow and pandas would read them in `data`, whatever their names
)
_FORMAT = 1


class ParquetTable:
    """Writer of a table of Parquet files."""

    def __init__(self, root: Path, copies: str) -> None:
        """Open the table, or create it. Raises `TableError`."""
        self._root = root
        self.folder = root / _NEW
        self._lock = TableLock(root)
        try:
            if not (root / LIST).exists():
                self._write(TableContent(TableState(copies), ()), ())
            self._content, removed = _read(root)
            check_copies(root, self._content.state.copies, copies)
            self.folder.mkdir(exist_ok=True)
            (root / DATA).mkdir(exist_ok=True)
            self._finish(self._content.files, removed)
            self.sweep(0)  # what killed writers have left: there is no other writer now
        except OSError as error:
            self._lock.close()
            raise unwritable(root, error) from None
        except TableError:
            self._lock.close()
            raise

    def content(self) -> TableContent:
        """Return the present version."""
        return self._content

    def commit(self, state: TableState, added: Sequence[TableFile], removed: Sequence[TableFile] = ()) -> None:
        """Exchange files and progress at once. Raises `TableError`."""
        gone = {one.path for one in removed}
        named = [attrs.evolve(one, path=self._root / DATA / one.path.relative_to(self.folder)) for one in added]
        files = (*(one for one in self._content.files if one.path not in gone), *named)
        content = TableContent(state, files)
        try:
            self._write(content, gone)
            self._content = content
            self._finish(named, gone)
        except OSError as error:
            raise unwritable(self._root, error) from None

    def _write(self, content: TableContent, removed: Iterable[Path]) -> None:
        value = {
            "format": _FORMAT,
            "copies": content.state.copies,
            "sessions": json.loads(content.state.to_json()),
            "files": [one.as_json(self._root) for one in content.files],
            "removed": sorted(str(path.relative_to(self._root)) for path in removed),
        }
        replace_synced(self._root / LIST, json.dumps(value, separators=(",", ":")).encode())

    def _finish(self, added: Iterable[TableFile], removed: Iterable[Path]) -> None:
        """Delete removed files, and move committed ones to their place. The step may be repeated."""
        for path in removed:
            path.unlink(missing_ok=True)
        for one in added:
            new = _new_place(self._root, one.path)
            if new.exists():  # otherwise it has moved already
                one.path.parent.mkdir(parents=True, exist_ok=True)
                new.replace(one.path)

    def sweep(self, keep_s: float) -> int:
        """Remove files of writers that were killed, older than `keep_s`; return their number."""
        return sweep_files(self.folder, (), keep_s, f"part-*{ENDING}")

    def close(self) -> None:
        """Release the table for other writers."""
        self._lock.close()


def sweep_files(folder: Path, kept: Iterable[Path], keep_s: float, pattern: str) -> int:
    """Remove the files of a pattern that are not kept, older than `keep_s`; return their number."""
    named, before, count = frozenset(kept), time.time() - keep_s, 0
    for path in folder.rglob(pattern):
        with contextlib.suppress(FileNotFoundError):
            if path not in named and path.stat().st_mtime <= before:
                path.unlink()
                count += 1
    return count


def read_parquet_table(root: Path) -> TableContent:
    """Return the present version of a table. Raises `TableError`.

    Files of a commit whose last step is not done yet, or was interrupted, are named where they are.
    """
    content = _read(root)[0]
    waiting = {path: path for path in (root / _NEW).rglob(f"part-*{ENDING}")}
    files = (attrs.evolve(one, path=waiting.get(_new_place(root, one.path), one.path)) for one in content.files)
    return attrs.evolve(content, files=tuple(files))


def _new_place(root: Path, path: Path) -> Path:
    """Return where a committed file was before its commit."""
    return root / _NEW / path.relative_to(root / DATA)


def _read(root: Path) -> tuple[TableContent, tuple[Path, ...]]:
    """Return the present version, and the files that its commit has removed."""
    path = root / LIST
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        if value["format"] > _FORMAT:
            raise TableError(
                f"{path} has format {value['format']}, and this program knows {_FORMAT}", remedy="use a newer pgm"
            )
        state = TableState.from_json(value["copies"], json.dumps(value["sessions"]))
        files = tuple(TableFile.from_json(one, root) for one in value["files"])
        return TableContent(state, files), tuple(root / name for name in value["removed"])
    except OSError as error:
        raise TableError(f"{path}: {error.strerror}", remedy="name the folder of a table") from None
    except (ValueError, KeyError, TypeError) as error:
        raise TableError(f"{path} cannot be read: {error!r}", remedy="restore the file from a copy") from None
