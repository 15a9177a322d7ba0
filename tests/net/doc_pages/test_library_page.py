"""The examples of docs/guide/library.md, unchanged but for this test's own addresses."""

from __future__ import annotations

import re
from pathlib import Path

import attrs
import pytest

import pgm
from tests.net.support.lab import ROOT
from tests.net.support.pages import PATIENCE_S, blocks, page, placed, started
from tests.net.support.places import Place

PAGE = page("guide/library.md")
_CLIENT = """
import time
from fastapi.testclient import TestClient
from service import app

with TestClient(app) as client:
    sqns = [client.post("/messages", content=f"message {number}").json()["sqn"] for number in range(3)]
    while (latest := client.get("/messages/latest").json()["message"]) != "message 2":
        time.sleep(0.01)
    print(sqns, latest)
"""


def _write_tree(place: Place, folder: Path) -> None:
    [tree] = blocks(PAGE, "toml")
    (folder / "tree.toml").write_text(placed(tree, place, "127.0.80", "239.192.80.1", 3080))


def test_the_examples_do_what_the_page_says(place: Place, tmp_path: Path) -> None:
    _write_tree(place, tmp_path)
    *receivers, source, asyncio, _, _, _, _, many = blocks(PAGE, "python")
    receivers.append(asyncio)

    running = [started(tmp_path, "-c", code) for code in receivers]
    try:
        for one in running:
            assert one.stdout is not None
            assert one.stdout.readline() == "listening\n"
        running.append(started(tmp_path, "-c", source))
        trio, threads, busy, asyncio, sent = [one.communicate(timeout=PATIENCE_S)[0] for one in running]
        running.append(started(tmp_path, "-c", many))
        assert running[-1].communicate(timeout=PATIENCE_S)[0] == "[b'from another', b'from one source']\n"
    finally:
        for one in running:
            one.kill()
            one.wait()
    assert trio.splitlines() == [
        "a stream of exchange begins",
        "the stream ended: fin",
        "5000 messages, 0 packets lost, repaired some: True",
    ]
    assert trio.splitlines()[-1] in PAGE
    assert threads.splitlines()[-1] == "5000 messages"
    assert busy == "5000 messages, 70000 octets\n"
    assert asyncio == "5000 messages\n"
    assert sent == ""


def test_the_web_service_of_the_page_sends_and_receives(place: Place, tmp_path: Path) -> None:
    pytest.importorskip("fastapi")
    pytest.importorskip("httpx")
    _write_tree(place, tmp_path)
    [service] = [code for code in blocks(PAGE, "python") if "FastAPI" in code]
    (tmp_path / "service.py").write_text(service)
    asked = started(tmp_path, "-c", _CLIENT)
    assert asked.communicate(timeout=PATIENCE_S)[0] == "[0, 1, 2] message 2\n"
    assert asked.returncode == 0


def test_the_notebook_of_the_page_sends_and_receives(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    _write_tree(place, tmp_path)
    cells = [nbformat.v4.new_code_cell(code) for code in blocks(PAGE, "python")[-4:-1]]
    notebook = nbformat.v4.new_notebook(cells=cells)
    nbclient.NotebookClient(
        notebook, timeout=PATIENCE_S, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    assert [cell.outputs for cell in notebook.cells[::2]] == [[], []]
    [printed] = notebook.cells[1].outputs
    assert printed.text == "[b'one', b'two', b'three']\n"


def test_the_table_of_items_has_all_their_fields() -> None:
    for kind in (pgm.Opened, pgm.Message, pgm.Lost, pgm.Closed, pgm.Batch):
        [row] = re.findall(rf"^\| `{kind.__name__}`.*?\| (.*?) \|", PAGE, re.MULTILINE)
        shown = {name.strip("`") for name in row.split(", ")}
        fields = {one.name for one in attrs.fields(kind)}
        assert shown == {name.lstrip("_") for name in fields}, kind
