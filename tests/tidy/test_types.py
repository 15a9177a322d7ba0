"""Type checkers see the public names of an installed package, and refuse misspelt ones."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

# Each line with the mark holds exactly one mistake; all other lines hold none.
MARK = "# wrong"
PROGRAM = """
from typing import assert_never, assert_type

import pgm
import pgm.blocking


def taken(item: pgm.Item) -> bytes:
    match item:
        case pgm.Message(payload=payload):
            return payload
        case pgm.Lost(count=count):
            return b"%d" % count
        case pgm.Opened() | pgm.Closed() | pgm.Conflict() | pgm.Forged():
            return item.tsi
        case pgm.Snapshot(payload=payload):
            return bytes(payload)
    assert_never(item)


async def trio_surface() -> None:
    pgm.open_receiver("tree.toml", node="desk", rxw_bytes="1GiB", nak_rpt_ivl=1_000_000, gro=False, join_from="oldest")
    pgm.open_receiver("tree.toml", start="last:30s", slow="drop-oldest", on_loss="raise", answer="if-free")
    pgm.open_receiver("tree.toml", durable="desk-7", archive=["10.0.2.5:3057"], durable_sync_ivl="1s")
    pgm.open_receiver("tree.toml", start=[pgm.Position(b"tsi", 0, 1), "text"])
    pgm.open_receiver("tree.toml", start="snapshot", snapshot_wait_ivl="3s")
    pgm.open_receiver("tree.toml", durable=7)  # wrong
    pgm.open_receiver("tree.toml", rxw_byts="1GiB")  # wrong
    pgm.open_receiver("tree.toml", rxw_bytes=1.5)  # wrong
    pgm.open_receiver("tree.toml", txw_secs="1s")  # wrong
    pgm.open_receiver("tree.toml", slow="dropoldest")  # wrong
    pgm.open_receiver("tree.toml", on_loss="ignore")  # wrong
    pgm.open_receiver("tree.toml", start=2.5)  # wrong
    pgm.open_receiver("tree.toml", answer="maybe")  # wrong
    pgm.open_receiver("tree.toml", join_from="newest")  # wrong
    pgm.open_source("tree.toml", txw_secs="1s", fec_group=16)
    pgm.open_source("tree.toml", snapshot=lambda: b"state", snapshot_bytes="1MiB")
    pgm.open_source("tree.toml", snapshot=lambda: "state")  # wrong
    pgm.open_source("tree.toml", txw_sec="1s")  # wrong
    pgm.open_source("tree.toml", on_loss="report")  # wrong
    async with pgm.open_receiver("tree.toml") as receiver:
        assert_type(receiver, pgm.Receiver)
        async for item in receiver:
            assert_type(item, pgm.Item)
            taken(item)
        async for batch in receiver.batches():
            assert_type(batch, pgm.BatchItem)
        async for value in receiver.objects():
            assert_type(value, pgm.ObjectItem)
    async with pgm.open_source("tree.toml") as source:
        assert_type(source, pgm.Source)
        await source.send(b"text")
        await source.send("text")  # wrong


async def nodes() -> None:
    async with pgm.open_node("tree.toml", node="exchange", rxw_bytes="1GiB", txw_secs="1s") as node:
        async with node.source("prices", txw_secs="1s") as source, node.receiver(slow="close") as receiver:
            assert_type(source, pgm.Source)
            assert_type(receiver, pgm.Receiver)
        node.source("prices", txw_sec="1s")  # wrong
        node.receiver("prices", slow="dropoldest")  # wrong
    pgm.open_node("tree.toml", rxw_byts=1)  # wrong
    pgm.blocking.open_node("tree.toml", rxw_byts=1)  # wrong
    with pgm.blocking.open_node("tree.toml", node="exchange") as own, own.source("prices") as blocking:
        assert_type(blocking, pgm.blocking.Source)


def blocking_surface() -> None:
    with pgm.blocking.open_receiver("tree.toml", node="desk", subjects=["/a"], slow="close") as receiver:
        assert_type(receiver, pgm.blocking.Receiver)
        for item in receiver:
            assert_type(item, pgm.Item)
    with pgm.blocking.open_receiver("tree.toml", busy_poll=True, cpu=1) as polling:
        polling.poll()
    with pgm.blocking.open_source("tree.toml", txw_secs="1s") as source:
        source.send(b"text")
        source.poll()  # wrong
    pgm.blocking.open_receiver("tree.toml", rxw_byts=1)  # wrong
    pgm.blocking.open_receiver("tree.toml", slow="dropoldest")  # wrong
    pgm.blocking.open_source("tree.toml", busy_poll=True, txw_sec="1s")  # wrong


def names(receiver: pgm.Receiver) -> None:
    print(pgm.Recevier)  # wrong
    print(receiver.recieve)  # wrong
"""


def _mypy(path: Path) -> set[int]:
    command = ["-m", "mypy", "--strict", "--no-pretty", "--output=json", f"--cache-dir={path.parent}", path.name]
    told = subprocess.run([sys.executable, *command], capture_output=True, text=True, cwd=path.parent)
    rows = [json.loads(line) for line in told.stdout.splitlines()]
    return {row["line"] for row in rows if row["severity"] == "error" and row["file"] == path.name}


def _pyright(path: Path) -> set[int]:
    pytest.importorskip("pyright")
    command = ["-m", "pyright", "--outputjson", f"--pythonpath={sys.executable}", str(path)]
    told = subprocess.run([sys.executable, *command], capture_output=True, text=True, cwd=path.parent)
    rows = json.loads(told.stdout)["generalDiagnostics"]
    return {row["range"]["start"]["line"] + 1 for row in rows if row["severity"] == "error"}


@pytest.mark.parametrize("checker", [_mypy, _pyright])
def test_a_checker_refuses_the_wrong_lines_alone(checker: Callable[[Path], set[int]], tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    wrong = {number for number, line in enumerate(PROGRAM.splitlines(), 1) if MARK in line}
    assert checker(program) == wrong
