"""Programs of docs/guide/tables.md run unchanged, but for the folders of the test."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import polars
import pyarrow as pa
import pytest

from tests.cli.command import invoked
from tests.cli.test_json import documented
from tests.net.support.pages import blocks, page
from tests.unit.archive.makers import append, small
from tests.unit.archive.tables.tables import SMALL, archive_of, archive_rows, parts

PAGE = page("guide/tables.md")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    archive_of(tmp_path / "archives" / "subnet-1", parts(0, 300))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_recipe_reads_an_archive_by_pyarrow_alone(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The archive grows: its newest segment has rows, and half a batch that is not synced."""
    from pgm.archive.store.writer import ArchiveWriter

    directory = folder / "archives" / "subnet-1"
    writer = ArchiveWriter(directory, SMALL, lambda *_: None)
    for one in parts(300, 100):
        append(writer, [one])
    writer.sync()
    append(writer, [parts(400, 100)[0]])
    newest = max(directory.glob("*.arrows"))
    os.truncate(newest, newest.stat().st_size - 100)
    program = blocks(PAGE, "python")[0]
    assert "pgm." not in program
    assert len([line for line in program.splitlines() if line.startswith("    ")]) <= 10
    names: dict[str, object] = {}
    exec(program, names)
    assert capsys.readouterr().out == "364 4\n"
    rows = names["rows"]
    assert isinstance(rows, pa.Table)
    assert rows.drop_columns("frame").cast(archive_rows(directory).schema).equals(archive_rows(directory))
    assert polars.from_arrow(rows).shape == (364, 16)
    assert len(rows.to_pandas()) == 364
    writer.close()


@pytest.mark.usefixtures("folder")
def test_programs_of_the_page_print_the_rows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")  # no warning that a package plans faster
    exports = [shlex.split(line)[1:] for line in blocks(PAGE, "sh")[0].splitlines()[1:]]
    for words, kind in zip(exports, ("parquet", "iceberg"), strict=True):
        told = invoked(*words, "--json").json
        documented("archive export", told)
        documented("archive export.sessions[]", told["sessions"][0])
        assert (told["to"], told["rows"], told["table_rows"]) == (kind, 273, 273)
    capsys.readouterr()
    shown_of_each = (["273"], ["270", "recorder-1"], ["270", "273"])
    for program, shown in zip(blocks(PAGE, "python")[1:4], shown_of_each, strict=True):
        exec(program, {})
        out = capsys.readouterr().out
        assert all(text in out for text in shown), out


@pytest.mark.usefixtures("folder")
def test_export_tells_of_wrong_options() -> None:
    invoked("archive", "export", "archives").complains(2, "--to parquet")
    invoked("archive", "export", "archives", "--to", "parquet", "t", "--table", "a.b").complains(2, "--table")
    invoked("archive", "export", "archives", "--to", "iceberg", "t", "--table", "a").complains(1, "names no table")
    invoked("archive", "export", "archives", "--to", "parquet", "t", "--set", "x=1").complains(2, "table_commit_bytes")
    for target in ("archives", "archives/subnet-1", "archives/subnet-1/t"):
        invoked("archive", "export", "archives", "--to", "parquet", target).complains(2, f"{target} holds the archive")
    invoked("archive", "ls", "archives", "t").complains(2, "the second folder")
    invoked("archive", "ls", "archives", "--compact").complains(2, "--compact")
    assert small().table_commit_bytes > SMALL.table_commit_bytes
