"""Options of the data source "pgm_fleet"."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from pgm.spark.errors import BadOption
from pgm.telemetry.schema import KINDS

_MOST_ROWS = 2_000_000
_TIMEOUT_S = 5.0
_OF_SPARK = frozenset({"checkpointlocation", "queryname"})
_URL = re.compile(r"https?://(\[[0-9a-fA-F:.]+\]|[^/\s:]+):\d+/?")


def _names(text: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in text.split(",") if part.strip())
    if not names:
        raise ValueError("the value is empty")
    return names


def _agents(text: str) -> tuple[str, ...]:
    for name in _names(text):
        for url in name.split("|"):
            if not _URL.fullmatch(url.strip()):
                raise ValueError(f"{url.strip()!r} is no address of an agent, such as http://10.0.2.7:9765")
    return _names(text)


def _kinds(text: str) -> tuple[str, ...]:
    names = _names(text)
    unknown = next((name for name in names if name not in KINDS), None)
    if unknown is not None:
        raise ValueError(f"there is no kind {unknown!r}")
    return names


def _bool(text: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise ValueError("the value is neither true nor false")
    return text.strip().lower() == "true"


def _count(text: str) -> int:
    if not text.strip().isdigit() or int(text) == 0:
        raise ValueError("the value is no whole number above 0")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds <= 1e6:
        raise ValueError("the value is no number of seconds, such as 5")
    return seconds


def _start(text: str) -> bool:
    if text.strip().lower() not in ("earliest", "latest"):
        raise ValueError("the value is neither earliest nor latest")
    return text.strip().lower() == "latest"


def _option(parse: Callable[[str], Any], default: Any, doc: str, shown: str) -> Any:
    return attrs.field(default=default, metadata={"parse": parse, "doc": doc, "shown": shown})


@attrs.frozen
class FleetOptions:
    """Values of the options. At least one folder or agent is named."""

    path: tuple[str, ...] = _option(_names, (), "Folders of telemetry, separated by commas. `load(DIR)` sets it. Executors must see them.", "none")  # fmt: skip
    agents: tuple[str, ...] = _option(_agents, (), "URLs of agents, separated by commas; addresses of one host by `|`.", "none")  # fmt: skip
    token_file: str = _option(str.strip, "", "File with the agents' token: a path on the driver and on the executors.", "none")  # fmt: skip
    ca_file: str = _option(str.strip, "", "Certificate of the authority of the agents' certificates: a path on the driver and on the executors.", "the system's")  # fmt: skip
    most_rows: int = _option(_count, _MOST_ROWS, "Rows of a micro-batch. It is cut by time, so that all nodes advance together.", "2,000,000")  # fmt: skip
    kinds: tuple[str, ...] = _option(_kinds, (), "Kinds of events, separated by commas. Others are not sent to Spark.", "all")  # fmt: skip
    is_packed: bool = _option(_bool, False, "`true` gives one row for each partition and minute, with its events as an Arrow stream in one value: columns `minute`, `at` (time of the latest), `read_until`, `rows`, `events`.", "false")  # fmt: skip
    timeout_s: float = _option(_seconds, _TIMEOUT_S, "Time after which an agent that does not answer is away.", "5")
    is_latest: bool = _option(_start, False, "Start of a query without a checkpoint: earliest or latest.", "earliest")


# option of Spark -> field
OPTIONS = {
    "path": "path",
    "agents": "agents",
    "tokenFile": "token_file",
    "caFile": "ca_file",
    "kinds": "kinds",
    "packed": "is_packed",
    "maxRowsPerTrigger": "most_rows",
    "timeoutSeconds": "timeout_s",
    "startingOffsets": "is_latest",
}


def read_options(given: Mapping[str, str]) -> FleetOptions:
    """Return the options of a query. Raises `BadOption`."""
    names = {name.lower(): name for name in OPTIONS}
    fields = attrs.fields_dict(FleetOptions)
    values: dict[str, Any] = {}
    for key, text in given.items():
        if key.lower() in _OF_SPARK:
            continue
        name = names.get(key.lower())
        if name is None:
            close = difflib.get_close_matches(key.lower(), names, 1)
            hint = f"use {names[close[0]]}" if close else f"the options are {', '.join(OPTIONS)}"
            raise BadOption(f"there is no option {key}", remedy=hint)
        try:
            values[OPTIONS[name]] = fields[OPTIONS[name]].metadata["parse"](text)
        except ValueError as error:
            raise BadOption(f"option {name}: {error}", remedy="see docs/guide/fleet-tables.md") from None
    options = FleetOptions(**values)
    if not options.path and not options.agents:
        raise BadOption("no folder and no agent is named", remedy="load a folder of telemetry, or name agents")
    return options


def as_markdown() -> str:
    """Return the table of docs/guide/fleet-tables.md."""
    fields = attrs.fields_dict(FleetOptions)
    rows = (
        f"| `{name}` | {fields[field].metadata['shown']} | {fields[field].metadata['doc']} |"
        for name, field in OPTIONS.items()
    )
    return "\n".join(["| option | default | meaning |", "|---|---|---|", *rows]) + "\n"
