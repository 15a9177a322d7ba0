"""`pgm top` over running nodes: driven by textual's pilot, and as a process on a terminal."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import pty
import select
import shlex
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Iterator
from fcntl import ioctl
from pathlib import Path
from typing import NoReturn

import pytest
from rich.console import Console
from textual.pilot import Pilot
from textual.widgets import DataTable, Footer, Static

from deploy.monitor import top_screen as screen
from deploy.monitor.columns import COLUMNS, as_markdown, span
from deploy.monitor.listen_commands import command_lines
from deploy.monitor.top_screen import NodeScreen, TopApp, chosen_columns, in_order
from pgm import Message, blocking
from pgm.errors import ProcessError
from pgm.fleet.nodes import NodeRecord, NodeState, NodeWatch
from tests.cli.command import command, environment, invoked
from tests.net.support.lab import ROOT
from tests.net.support.places import Place, one_segment
from tests.net.support.processes import PATIENCE_S, Processes, processes

MESSAGES = 100


@pytest.fixture(scope="module")
def tree() -> Iterator[Processes]:
    """Run a source and a receiver that have passed on messages with losses."""
    place = Place.new()
    text = one_segment(place, loss='{ loss = "5%" }')
    with pytest.MonkeyPatch.context() as patch, processes(text, f"t{place.number}") as made:
        patch.setenv("PGM_RUNTIME_DIR", str(made.folder))
        patch.setattr(screen, "EVERY_S", 0.2)
        desk = made.start("desk-1")
        source = made.start("source", stdin=subprocess.PIPE)
        desk.line_with("ready:")
        say(made, MESSAGES)
        made.until("desk-1", lambda snapshot: snapshot["counters"].get("delivered_packets") == MESSAGES)
        source.line_with("ready:")
        yield made


def say(tree: Processes, messages: int) -> None:
    """Send this many lines through the source."""
    stdin = tree.running["source"].process.stdin
    assert stdin is not None
    stdin.write(b"a message\n" * messages)
    stdin.flush()


def rows(app: TopApp) -> list[list[str]]:
    """Return the table on the screen without its headings."""
    table = app.screen_stack[0].query_one(DataTable)
    return [[str(cell) for cell in table.get_row_at(at)] for at in range(table.row_count)]


def text_of(static: Static) -> str:
    """Return the text of a widget."""
    console = Console(width=200)
    with console.capture() as capture:
        console.print(static.content)
    return " ".join(capture.get().split())


def keys(pilot: Pilot[None]) -> set[str]:
    """Return the actions in the line of keys."""
    return {one.description for one in pilot.app.query_one(Footer).query("FooterKey")}  # type: ignore[attr-defined]


async def until(pilot: Pilot[None], holds: Callable[[], object]) -> None:
    """Let the screen run until a condition holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, rows(pilot.app)  # type: ignore[arg-type]
        await pilot.pause(0.02)


def test_top_shows_arriving_leaving_and_selected_nodes(tree: Processes) -> None:
    asyncio.run(_drive(tree))


async def _drive(tree: Processes) -> None:
    app = TopApp(NodeWatch())
    async with app.run_test(size=(160, 50)) as pilot:
        await until(pilot, lambda: len(rows(app)) == 2)
        heads = [str(one.label) for one in app.screen_stack[0].query_one(DataTable).ordered_columns]
        assert heads == [figure.heading for key, figure in COLUMNS.items() if key not in ("topology", "host")]
        await until(
            pilot, lambda: _shows(dict(zip(heads, rows(app)[1], strict=True)), tree.status("desk-1")["counters"])
        )
        assert "opened: session" in rows(app)[1][-1]
        await until(pilot, lambda: {"quit", "detail", "sort by", "reverse"} <= keys(pilot))
        tree.start("desk-2")
        await until(pilot, lambda: [row[0] for row in rows(app)] == ["source", "desk-1", "desk-2"])
        tree.running["desk-2"].kill()
        await until(pilot, lambda: rows(app)[2][2].startswith("gone"))
        await _look_into(pilot, tree)
        await _sort(pilot, heads)
        await pilot.resize_terminal(60, 24)
        await until(pilot, lambda: len(rows(app)[0]) < len(heads))
        await pilot.press("q")
    assert app.return_code == 0


def _shows(row: dict[str, str], counters: dict[str, int]) -> bool:
    """Assert that a row has the name and the numbers of the first receiver."""
    wanted = {"node": "desk-1", "role": "receiver", "lost": "0"}
    numbers = {"NAKs sent": f"{counters['nak_sqns']:,}", "repairs": f"{counters['repaired_sqns']:,}"}
    return row.items() >= (wanted | numbers).items()


async def _look_into(pilot: Pilot[None], tree: Processes) -> None:
    """Assert that Enter shows the node at the cursor with changing numbers, and that Esc returns."""
    await pilot.press("down", "enter")
    await until(pilot, lambda: isinstance(pilot.app.screen, NodeScreen))
    detail = pilot.app.screen.query_one("#detail", Static)
    assert "receiver desk-1: up" in text_of(detail)
    so_far = tree.status("desk-1")["counters"]["delivered_packets"]
    say(tree, 50)
    await until(pilot, lambda: f"s of source delivered packets {so_far + 50}" in text_of(detail))
    assert "pgm recv --lines 'pgm://" in text_of(detail)
    await pilot.press("escape")
    await until(pilot, lambda: not isinstance(pilot.app.screen, NodeScreen))


async def _sort(pilot: Pilot[None], heads: list[str]) -> None:
    app = pilot.app
    assert isinstance(app, TopApp)
    names = lambda: [row[0] for row in rows(app)]  # noqa: E731
    await pilot.press("right")
    await until(pilot, lambda: names() == ["desk-1", "desk-2", "source"])
    await pilot.press("r")
    await until(pilot, lambda: names() == ["source", "desk-2", "desk-1"])
    await pilot.press(*["right"] * heads.index("in/s"))
    await until(pilot, lambda: names() == ["desk-1", "desk-2", "source"])
    await pilot.press("t")
    await until(pilot, lambda: names() == ["source", "desk-1", "desk-2"])


@pytest.mark.usefixtures("tree")
def test_top_at_the_limit_of_files_reports_it_and_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit of open files belongs to `pgm top`, so no node is reported gone or forgotten."""
    asyncio.run(_run_out_of_files(monkeypatch))


async def _run_out_of_files(monkeypatch: pytest.MonkeyPatch) -> None:
    app = TopApp(NodeWatch())
    async with app.run_test(size=(160, 50)) as pilot:
        await until(pilot, lambda: len(rows(app)) >= 2)
        seen = [row[0] for row in rows(app)]
        head = app.query_one("#head", Static)
        for missing in ("sockets", "files"):
            with monkeypatch.context() as patch:
                if missing == "sockets":
                    patch.setattr("pgm.fleet.nodes.ask_status", _no_answer)
                else:
                    patch.setattr("pathlib.Path.glob", _no_files)
                await until(pilot, lambda: "cannot be asked now: Too many open files; raise" in text_of(head))
                await pilot.press("right", "left", "t")
                assert [row[0] for row in rows(app)] == seen
            await until(pilot, lambda: "up, " in text_of(head))
        assert not any(row[2].startswith("gone") for row in rows(app) if row[0] != "desk-2")
        await pilot.press("q")
    assert app.return_code == 0


def _no_files(*_: object) -> NoReturn:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def _no_answer(path: Path) -> NoReturn:
    try:
        _no_files()
    except OSError as error:
        raise ProcessError(f"no answer from {path}") from error


@pytest.mark.usefixtures("tree")
def test_top_json_at_the_limit_of_files_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pgm.fleet.nodes.ask_status", _no_answer)
    found = invoked("top", "--json")
    assert found.code == 1
    error = found.json["error"]
    assert "Too many open files" in error["message"]
    assert "ulimit -n" in error["remedy"]


def test_top_on_a_terminal_and_its_command_lines(tree: Processes) -> None:
    _is_drawn_and_ends(tree)
    invoked("top").complains(2, "needs a terminal", "pgm status FILE --watch")
    lines = [json.loads(line) for line in invoked("top", tree.name, "--json").out.splitlines()]
    assert [row["node"] for row in lines] == ["source", "desk-1"]
    with blocking.open_receiver(tree.file, node="desk-3", answer="yes"):
        tree.until("desk-3", lambda snapshot: (snapshot["last_event"] or {}).get("id") == "opened")
        assert [one.name for one in NodeWatch().look().nodes if one.is_up] == ["source", "desk-1", "desk-3"]
    for name in ("source", "desk-1"):
        _listens_and_asks_for_nothing(tree, command_lines(tree.status(name)))


def _listens_and_asks_for_nothing(tree: Processes, lines: list[str]) -> None:
    """Run the displayed command in this process."""
    [line] = lines
    words = shlex.split(line)
    assert words[:3] == ["pgm", "recv", "--lines"]
    with blocking.open_receiver(words[3]) as receiver:
        say(tree, 50)
        assert next(item for item in receiver if isinstance(item, Message)).payload == b"a message"
        assert receiver.counters.nak_packets == 0


def _is_drawn_and_ends(tree: Processes) -> None:
    main, other = pty.openpty()
    ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    env = environment(TERM="xterm-256color")
    process = subprocess.Popen(command("top", tree.file), stdin=other, stdout=other, stderr=other, cwd=ROOT, env=env)
    os.close(other)
    told = b""
    try:
        while b"desk-1" not in told or b"pause" not in told:
            assert select.select([main], [], [], PATIENCE_S)[0], told
            told += os.read(main, 65_536)
        os.write(main, b"q")
        while select.select([main], [], [], PATIENCE_S)[0]:
            try:
                told += os.read(main, 65_536)
            except OSError:  # the process has ended
                break
        assert process.wait(PATIENCE_S) == 0
    finally:
        process.kill()
        process.wait()
        os.close(main)


def node(name: str, state: NodeState = NodeState.UP, **counters: int) -> NodeRecord:
    """Return the status of a receiver with some counts."""
    snapshot = {"counters": counters, "rates": {}, "sessions": [], "segments": [], "uptime_s": 5.0}
    return NodeRecord("tree", name, "receiver", state, 0.0, None if state is NodeState.ABSENT else snapshot)


def test_top_sorting_puts_missing_numbers_last() -> None:
    nodes = [
        node("a", lost_sqns=1),
        node("b", NodeState.ABSENT),
        node("c", lost_sqns=3),
        node("d", NodeState.GONE, lost_sqns=2),
    ]
    falling = [one.name for one in in_order(nodes, "lost", falling=True)]
    rising = [one.name for one in in_order(nodes, "lost", falling=False)]
    assert (falling, rising) == (["c", "d", "a", "b"], ["a", "d", "c", "b"])


@pytest.mark.parametrize("width", [30, 60, 80, 120, 160, 300])
def test_columns_fit(width: int) -> None:
    columns = chosen_columns([node("desk-1", lost_sqns=1_000_000)], width)
    assert {"node", "in", "out", "lost"} <= set(columns)
    assert sum(columns.values()) + 2 * len(columns) <= max(width, 46)
    assert ("event" in columns) == (width >= 160)


def test_top_equal_node_names_show_the_topology() -> None:
    other = NodeRecord("other tree", "desk-1")
    assert list(chosen_columns([node("desk-1"), other], 40))[:2] == ["topology", "node"]


def test_top_spans_and_the_table_of_the_page() -> None:
    assert [span(one) for one in (0, 59.4, 60, 7300, 200_000)] == ["0 s", "59 s", "1 min", "2 h", "2 d"]
    assert as_markdown() in (ROOT / "docs/guide/monitoring.md").read_text()
