"""Durable receiver whose application writes each message into SQLite.

`python -m tests.net.campaigns.durable_desk FILE NODE DATABASE WAY` runs until the stream has ended, or until it is killed.
By "positions" the application stores its position in the transaction of the rows, and nothing keeps a row from coming twice
but the position. By "file" the receiver keeps the position, rows may come again, and the application ignores those.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterable
from pathlib import Path

import pgm
import pgm.blocking
from pgm import CloseCause, Closed, Lost

WAYS = ("positions", "file")
TABLES = """
create table if not exists rows (number integer);
create table if not exists once (number integer primary key);
create table if not exists positions (tsi primary key, text);
create table if not exists lost (first integer, count integer, cause text);
create table if not exists lives (first integer);
create table if not exists ended (cause text);
"""


def numbers_of(payloads: Iterable[bytes]) -> list[tuple[int]]:
    """Return the numbers of messages."""
    return [(int(payload[:12]),) for payload in payloads]


def receive(file: str, node: str, path: Path, way: str) -> None:
    """Receive until the end of the stream."""
    database = sqlite3.connect(path)
    database.execute("pragma journal_mode = wal")
    database.execute("pragma synchronous = off")  # a process is killed here, never the machine
    database.executescript(TABLES)
    memory = {"durable": f"{path}.position"}
    if way == "positions":
        memory = {"start": [text for (text,) in database.execute("select text from positions")]}
    insert = "insert into rows values (?)" if way == "positions" else "insert or ignore into once values (?)"
    with pgm.blocking.open_receiver(file, node=node, **memory) as receiver:  # type: ignore[call-overload]
        print("ready:", file=sys.stderr, flush=True)
        for item in receiver.batches():
            with database:
                if isinstance(item, Lost):
                    database.execute("insert into lost values (?, ?, ?)", (item.first, item.count, item.cause.value))
                elif isinstance(item, pgm.Opened):
                    database.execute("insert into lives values (?)", (item.first,))
                    print(f"opened at {item.first}", file=sys.stderr, flush=True)
                elif not isinstance(item, Closed):
                    database.executemany(insert, numbers_of(item))
                if way == "positions" and receiver.position is not None:
                    row = bytes(item.tsi), str(receiver.position)
                    database.execute("insert or replace into positions values (?, ?)", row)
                if isinstance(item, Closed) and item.cause is not CloseCause.SILENT:
                    database.execute("insert into ended values (?)", (item.cause.value,))
            if isinstance(item, Closed) and item.cause is not CloseCause.SILENT:
                return


if __name__ == "__main__":
    receive(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4])
