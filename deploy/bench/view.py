"""Tables of a benchmark's rows and of the ratios to other contenders."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs
from rich.table import Table

from deploy.bench.ratios import Ratios
from deploy.bench.settings import Row
from deploy.terminal.tables import TableColumn, table


@attrs.frozen
class Field:
    """Column with the function that writes its cells."""

    heading: str
    write: Callable[[Row], str]
    rank: int = 0


def number(key: str, form: str = ",.0f") -> Callable[[Row], str]:
    """Return a writer for the figure `key`. The cell of a row without this figure is empty."""

    def write(row: Row) -> str:
        value = row.get(key)
        return "" if value is None else format(value, form)

    return write


def of_roles(key: str, form: str, scale: float = 1.0) -> Callable[[Row], str]:
    """Return a writer for the figures of each role, separated by slashes."""

    def write(row: Row) -> str:
        return " / ".join(format(value * scale, form) for value in row.get(key, {}).values())

    return write


def _cpu_of_element(row: Row) -> str:
    """Return the relative CPU time of an element, and its limit."""
    limits = row.get("cpu_limit", {})
    return ", ".join(f"{row[key]:.2f} {_CPU_OF[key]}, {most:g} allowed" for key, most in limits.items())


_CPU_OF = {"cpu_of_ends": "of both ends", "cpu_of_receiver": "of the receiver"}
_GROUPED = {"size": "octets", "part": "with", "mtu": "MTU"}  # headings for the keys that group the rows
_BY_SIZE = Field("octets", number("size"))
_CPU = Field("us of CPU a packet", of_roles("cpu_us_per_packet", ".2f"), 2)
_MB = Field("MB/s", number("mb_per_s", ",.1f"))
_MEMORY = Field("MB of memory", of_roles("peak_bytes", ".0f", 1e-6), 3)
_LOSSLESS = (
    Field("messages/s", number("messages_per_s")),
    _MB,
    Field("packets/s", number("packets_per_s"), 4),
    Field("cores", of_roles("cpu_share", ".2f"), 1),
    _CPU,
    _MEMORY,
)
FIELDS: dict[str, tuple[Field, ...]] = {
    "throughput": (_BY_SIZE, *_LOSSLESS),
    "messages": (Field("MTU", number("mtu")), *_LOSSLESS),
    "latency": (
        Field("mean us", number("mean_us", ",.1f")),
        Field("p50", number("p50_us", ",.1f")),
        Field("p99", number("p99_us", ",.1f")),
        Field("p99.9", number("p999_us", ",.1f")),
        Field("min", number("min_us", ",.1f"), 1),
        Field("max", number("max_us", ",.1f"), 2),
        Field("lost", number("lost"), 3),
    ),
    "repair": (
        Field("with", lambda row: str(row["part"])),
        _MB,
        Field("of lossless", number("goodput", ".0%")),
        Field("held", number("held", ".0%")),
        Field("lost at held", number("held_lost")),
        Field("lost", number("lost")),
        Field("repaired", number("repaired")),
        Field("p50 ms", number("repair_p50_ms", ".2f"), 1),
        Field("p50 bound", number("repair_wanted_ms", ".1f"), 1),
        Field("p99 ms", number("repair_p99_ms", ".2f"), 2),
        Field("ms", number("ms", ",.3f")),
        Field("octets each", number("octets_each", ".2f"), 3),
    ),
    "relay": (
        Field("path", lambda row: str(row["layout"])),
        _MB,
        Field("of direct", number("of_direct", ".0%")),
        Field("bound", number("wanted", ".0%")),
        Field("CPU allows, x 0.8", number("cpu_allows", ".0%")),
        Field("us of CPU a packet", of_roles("cpu_us_per_packet", ".2f"), 2),
        Field("element CPU", _cpu_of_element, 1),
        _MEMORY,
    ),
    "pacing": (
        Field("rate", lambda row: str(row["rate"])),
        Field("Mbit/s", number("mbit_per_s", ",.2f")),
        Field("off", number("off", "+.2%")),
        Field("longest burst, ms", number("burst_ms", ",.2f")),
        Field("allowed", number("allowed_ms", ",.2f")),
        Field("of a core, sender", number("sender_share", ".1%")),
        Field("lost", number("lost"), 1),
    ),
    "idle": (Field("of a core", number("cpu_share", ".2%")), Field("MB of memory", number("peak_mb", ".0f"))),
    "record": (
        _MB,
        Field("of plain", number("of_plain", ".0%")),
        Field("repair p50 ms", number("repair_p50_ms", ".2f")),
        Field("p99", number("repair_p99_ms", ".2f")),
        Field("disk MB/s", number("disk_mb_per_s", ",.1f")),
        Field("lost", number("lost")),
        Field("recorded as lost", number("recorder_lost")),
        Field("s of CPU", number("cpu_s", ",.2f"), 1),
    ),
    "signed": (
        Field("of", lambda row: str(row["part"])),
        _MB,
        Field("of clear", number("of_clear", ".0%")),
        Field("ms of CPU a MB", of_roles("cpu_ms_per_mb", ".2f")),
        Field("of clear", of_roles("cpu_of_clear", ".2f"), 1),
        Field("processors", number("processors", ".1f"), 2),
        Field("mean us", number("mean_us", ",.1f"), 2),
        Field("p99", number("p99_us", ",.1f"), 3),
        Field("lost", number("lost"), 4),
    ),
    "files": (
        _BY_SIZE,
        Field("receivers", number("receivers"), 2),
        Field("s", number("seconds", ",.2f")),
        _MB,
        Field("s of CPU, sender", number("sender_cpu_s", ",.2f"), 1),
        Field("a receiver", number("receiver_cpu_s", ",.2f"), 1),
        Field("rate", lambda row: str(row.get("rate", "")), 3),
        Field("failed", number("failed"), 4),
    ),
    "scale": (
        Field("kind", lambda row: str(row["part"])),
        Field("receivers", number("receivers")),
        Field("us of CPU a packet", number("cpu_us_per_packet_each", ".2f")),
        Field("NAKed sqns at the source", number("source_nak_sqns")),
        Field("s", number("wall_s", ",.1f")),
        Field("us a delivery", number("us_per_delivery", ",.1f"), 1),
        Field("lost", number("lost"), 2),
    ),
}


def rows_table(benchmark: str, rows: Sequence[Row], width: int) -> Table:
    """Return the rows as a table of at most `width` characters."""
    measured = [row for row in rows if "why_not" not in row]
    fields = FIELDS[benchmark]
    columns = [TableColumn("contender"), *(TableColumn(field.heading, field.rank) for field in fields)]
    cells = [[str(row["title"]), *(field.write(row) for field in fields)] for row in measured]
    return table(benchmark, columns, cells, width)


def ratios_table(benchmark: str, rows: Sequence[Row], ratios: Ratios, key: str, width: int) -> Table:
    """Return the ratios as a table: rows for pgm's contenders, columns for the others."""
    titles = {row["contender"]: str(row["title"]) for row in rows}
    pairs = {
        group: {tuple(pair.split("/")): value for pair, value in group_pairs.items()}
        for group, group_pairs in ratios.items()
    }
    others = list(dict.fromkeys(pair[1] for group_pairs in pairs.values() for pair in group_pairs))
    cells = []
    for group, group_pairs in pairs.items():
        for ours in dict.fromkeys(pair[0] for pair in group_pairs):
            values = (group_pairs.get((ours, other)) for other in others)
            heading = f"{int(group):,}" if group.isdigit() else group
            cells.append([titles[ours], heading, *("" if value is None else format(value, ",.2f") for value in values)])
    columns = [
        TableColumn("pgm"),
        TableColumn(_GROUPED.get(key, key)),
        *(TableColumn(titles[other]) for other in others),
    ]
    return table(f"{benchmark}: pgm divided by others", columns, cells, width)


def remarks(rows: Sequence[Row]) -> list[str]:
    """Return remarks: the limit of each contender, and the reason if one did not run."""
    lines = []
    for row in rows:
        subject = f"{row['title']}, {row['size']:,} octets" if "size" in row else str(row["title"])
        subject += "".join(f", {row[key]}" for key in ("part", "layout", "rate") if key in row)
        if row.get("benchmark") == "messages":  # the MTU is the only difference between these rows
            subject += f", MTU {row['mtu']:,}"
        if "why_not" in row:
            first, *more = row["why_not"].splitlines()
            last = f": {more[-1].strip()}" if more else ""  # the last line of a process's output says why it ended
            lines.append(f"{subject}: did not run: {first}{last}")
        elif row.get("limited_by"):
            lines.append(f"{subject}: {row['limited_by']}")
    return lines
