"""Options of the data source "pgm_fleet"."""

from __future__ import annotations

import re
from collections.abc import Mapping

import attrs

from pgm.spark.errors import BadOption
from pgm.spark.option_table import READ, OptionTable, SourceOption, count_of, flag_of, names_of, seconds_of
from pgm.telemetry.schema import KINDS

_URL = re.compile(r"https?://(\[[0-9a-fA-F:.]+\]|[^/\s:]+):\d+/?")


def _agents(text: str) -> tuple[str, ...]:
    names = names_of(text)
    for name in names:
        for url in name.split("|"):
            if not _URL.fullmatch(url.strip()):
                raise ValueError(f"{url.strip()!r} is no address of an agent, such as http://10.0.2.7:9765")
    return names


def _kinds(text: str) -> tuple[str, ...]:
    names = names_of(text)
    unknown = next((name for name in names if name not in KINDS), None)
    if unknown is not None:
        raise ValueError(f"there is no kind {unknown!r}")
    return names


def _timeout_s(text: str) -> float:
    seconds = seconds_of(text)
    if not seconds:
        raise ValueError("an agent needs time to answer")
    return seconds


def _is_latest(text: str) -> bool:
    if text.strip().lower() not in ("earliest", "latest"):
        raise ValueError("the value is neither earliest nor latest")
    return text.strip().lower() == "latest"


# fmt: off
TABLE = OptionTable("pgm_fleet", "docs/guide/fleet-tables.md", (
    SourceOption("path", "path", (READ,), names_of, "none", "Folders of telemetry, separated by commas. `load(DIR)` sets it. Executors must see them."),
    SourceOption("agents", "agents", (READ,), _agents, "none", "URLs of agents, separated by commas; addresses of one host by `|`."),
    SourceOption("tokenFile", "token_file", (READ,), str.strip, "none", "File with the agents' token: a path on the driver and on the executors."),
    SourceOption("caFile", "ca_file", (READ,), str.strip, "the system's", "Certificate of the authority of the agents' certificates: a path on the driver and on the executors."),
    SourceOption("kinds", "kinds", (READ,), _kinds, "all", "Kinds of events, separated by commas. Others are not sent to Spark."),
    SourceOption("packed", "is_packed", (READ,), flag_of, "false", "`true` gives one row for each partition and minute, with its events as an Arrow stream in one value: columns `minute`, `at` (time of the latest), `read_until`, `rows`, `events`."),
    SourceOption("maxRowsPerTrigger", "most_rows", (READ,), count_of, "2,000,000", "Rows of a micro-batch. It is cut by time, so that all nodes advance together."),
    SourceOption("timeoutSeconds", "timeout_s", (READ,), _timeout_s, "5", "Time after which an agent that does not answer is away."),
    SourceOption("startingOffsets", "is_latest", (READ,), _is_latest, "earliest", "Start of a query without a checkpoint: earliest or latest."),
))
# fmt: on


@attrs.frozen
class FleetOptions:
    """Values of the options. At least one folder or agent is named."""

    path: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    token_file: str = ""
    ca_file: str = ""
    kinds: tuple[str, ...] = ()
    is_packed: bool = False
    most_rows: int = 2_000_000
    timeout_s: float = 5.0
    is_latest: bool = False


def read_options(given: Mapping[str, str]) -> FleetOptions:
    """Return the options of a query. Raises `BadOption`."""
    options = FleetOptions(**TABLE.read(given, READ))
    if not options.path and not options.agents:
        raise BadOption("no folder and no agent is named", remedy="load a folder of telemetry, or name agents")
    return options
