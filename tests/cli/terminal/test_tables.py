"""Tables and live pictures fit the terminal, and no number is cut."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import pytest
from rich.console import Console, RenderableType

from deploy.demo.view import LiveView
from deploy.terminal.account_tables import received_table, traffic_table
from deploy.terminal.tables import TableColumn, table

WIDTHS = (40, 60, 80, 100, 160)


def printed_lines(what: RenderableType, width: int, height: int = 24) -> list[str]:
    console = Console(width=width, height=height, file=io.StringIO(), highlight=False)
    with console.capture() as capture:
        console.print(what)
    return capture.get().splitlines()


COLUMNS = (
    TableColumn("node"),
    TableColumn("NAKed sqns in", 2),
    TableColumn("lost"),
    TableColumn("RDATA passed on", 1),
    TableColumn("up", 3),
)
ROWS = [
    ["subnet-1-aggregator", "1,234,567", "0", "7,654,321", "3 s"],
    ["source", "1", "22,222,222", "2", "100 s"],
]


@pytest.mark.parametrize("width", WIDTHS)
def test_a_table_leaves_whole_columns_out(width: int) -> None:
    lines = printed_lines(table("title", COLUMNS, ROWS, width), width)
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    assert "…" not in text
    words = {word for line in lines for word in line.split()}
    assert {"title", "node", "lost", "subnet-1-aggregator", "22,222,222"} <= words
    kept = [cell for cell in ROWS[0][1:] if set(cell.split()) <= words]
    fewest = {40: 1, 60: 3}
    assert len(kept) >= fewest.get(width, 4)


def test_the_highest_rank_goes_first_and_rank_0_never() -> None:
    def headings(width: int) -> list[str]:
        return [str(column.header) for column in table("", COLUMNS, ROWS, width).columns]

    assert headings(100) == ["node", "NAKed sqns in", "lost", "RDATA passed on", "up"]
    seen = [headings(width) for width in range(100, 1, -1)]
    order = [one for at, one in enumerate(seen) if at == 0 or one != seen[at - 1]]
    assert order[1:] == [
        ["node", "NAKed sqns in", "lost", "RDATA passed on"],
        ["node", "lost", "RDATA passed on"],
        ["node", "lost"],
    ]


def test_headings_have_one_line_where_there_is_room() -> None:
    assert "NAKed sqns in" in "\n".join(printed_lines(table("", COLUMNS, ROWS, 160), 160))
    assert "NAKed sqns in" not in "\n".join(printed_lines(table("", COLUMNS, ROWS, 62), 62))


BIG = 10_000_000  # the limit of messages in a demo


@pytest.mark.parametrize("width", WIDTHS[2:])
def test_the_tables_of_an_account_fit_with_large_numbers(width: int) -> None:
    numbers = ("delivered", "repaired", "late", "lost", "nak_sqns")
    receiver: dict[str, Any] = {"node": "receiver-10-10", "repaired_locally": 1, **dict.fromkeys(numbers, BIG)}
    keys = ("odata", "nak_sqns_in", "nak_sqns_out", "ncfs", "rdata", "rdata_forwarded")
    element = {"node": "subnet-10-aggregator", "rss_bytes": 4e9, "cpu_s": 1234.5, **dict.fromkeys(keys, BIG)}
    rows = [{**receiver, "sha256_ok": True}, {**receiver, "sha256_ok": False}, receiver]
    for one in (received_table(rows, width), traffic_table("elements", [element, element], width)):
        lines = printed_lines(one, width)
        assert max(map(len, lines)) <= width
        assert f"{BIG:,}" in lines[-1]
        assert "…" not in "\n".join(lines)


def snapshot(node: str, role: str, segment: str) -> dict[str, Any]:
    counters = dict.fromkeys(
        ("delivered_packets", "repaired_sqns", "repaired_locally", "nak_sqns", "odata_packets", "nak_sqns_in"), 98_765
    )
    counters |= {"delivered_octets": 70, "rdata_packets": 98_765, "rdata_forwarded": 98_765, "ncf_packets": 98_765}
    return {
        "node": node,
        "role": role,
        "counters": counters,
        "sessions": [{"missing_sqns": 1}],
        "segments": [{"segment": segment}],
    }


def picture(receivers: Sequence[int], elements: int) -> LiveView:
    """Return a picture with these numbers of receivers in each subnet and of elements."""
    rows = [snapshot(f"subnet-{number}-aggregator", "aggregator", "core") for number in range(1, elements + 1)]
    for subnet, count in enumerate(receivers, 1):
        rows += [snapshot(f"receiver-{subnet}-{n}", "receiver", f"subnet-{subnet}") for n in range(1, count + 1)]
    return LiveView({row["node"]: row for row in rows}, 100, "3 of 12 receivers have everything")


@pytest.mark.parametrize(("width", "height"), [(80, 24), (100, 30), (160, 50)])
@pytest.mark.parametrize(("receivers", "elements"), [((4, 4, 4), 7), ((1,), 3), ((33,) * 60, 101), ((), 0), ((2,), 0)])
def test_the_live_picture_fits(width: int, height: int, receivers: tuple[int, ...], elements: int) -> None:
    lines = printed_lines(picture(receivers, elements), width, height)
    assert lines[0] == "3 of 12 receivers have everything"
    assert len(lines) <= height
    assert max(map(len, lines)) <= width
    assert "…" not in "\n".join(lines)


def test_live_view_folds_subnets_without_room_for_receivers() -> None:
    wide = "\n".join(printed_lines(picture((4, 4, 4), 7), 160, 50))
    assert "receiver-2-3 " in wide
    small = printed_lines(picture((4, 4, 4), 7), 80, 24)
    (row,) = [line for line in small if line.startswith("subnet-2 (4) ")]
    assert f"{4 * 98_765:,}" in row.split()
    assert not any(line.startswith("receiver-") for line in small)
    crowd = printed_lines(picture((33,) * 60, 101), 80, 24)
    assert sum(" more " in f"{line} " for line in crowd) == 2


def test_nothing_to_show_yet_shows_no_empty_tables() -> None:
    assert printed_lines(picture((), 0), 80) == ["3 of 12 receivers have everything"]
