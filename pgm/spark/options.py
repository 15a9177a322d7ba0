"""Options of the data source "pgm". One table serves reading, checks and documentation."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from pgm.archive.signatures.authority import Authority
from pgm.archive.store.schema import COLUMN_NAMES
from pgm.errors import PgmError
from pgm.messages.typed.fields import ValueCodec
from pgm.messages.typed.plain_rows import time_of_text
from pgm.spark.decode.columns import DecodedSchema, ValueFields
from pgm.spark.errors import BadOption
from pgm.spark.filters import FilterBounds
from pgm.spark.node_tls import NodeTls, node_tls_of
from pgm.spark.option_table import READ, WRITE, OptionTable, SourceOption, count_of, flag_of, names_of, seconds_of

EARLIEST, LATEST = -2, -1  # in the JSON of offsets, as in Kafka
_WORDS = {"earliest": EARLIEST, "latest": LATEST}
_US = 1_000_000
_MS_US = 1000
_DURATION = re.compile(r"(\d{1,9})(ms|s|m|min|h|d|)")
_UNIT_S = {"ms": 0.001, "": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}  # as Spark reads times

VERIFIED = "verified"  # column of a check: whether the source has said the row

Offsets = int | dict[str, int]  # for all sessions, or by TSI or key of a session


def _text(text: str) -> str:
    if not text.strip():
        raise ValueError("the value is empty")
    return text.strip()


def _groups(text: str) -> tuple[tuple[str, ...], ...]:
    groups = tuple(tuple(_location(location.strip()) for location in group.split("|")) for group in text.split(","))
    flat = [location for group in groups for location in group]
    if len(set(flat)) < len(flat):
        raise ValueError("a range service is named twice")
    return groups


def _location(text: str) -> str:
    if not re.fullmatch(r"(grpc|grpc\+tcp|grpc\+tls)://[^/\s]+:\d+/?", text):
        raise ValueError(f"{text!r} is no address of a range service, such as grpc://127.0.0.1:3057")
    return text.rstrip("/")


def _duration_s(text: str) -> float:
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None:
        raise ValueError("the value is no time such as 500ms, 30s, 15m or 1h")
    return int(found[1]) * _UNIT_S[found[2]]


def _columns(text: str) -> tuple[str, ...]:
    names = names_of(text)
    for name in names:
        if name not in COLUMN_NAMES and name != VERIFIED:
            raise ValueError(f"rows have no column {name!r}; they have {', '.join((*COLUMN_NAMES, VERIFIED))}")
    if len(set(names)) < len(names):
        raise ValueError("a column is named twice")
    return names


def _offsets(text: str) -> Offsets:
    word = text.strip().lower()
    if word in _WORDS:
        return _WORDS[word]
    try:
        offsets = json.loads(text)
    except ValueError:
        offsets = None
    if not isinstance(offsets, dict) or not all(
        isinstance(sqn, int) and not isinstance(sqn, bool) and sqn >= EARLIEST for sqn in offsets.values()
    ):
        raise ValueError(
            'the value is neither earliest nor latest nor JSON such as {"10.0.0.1.0.1.7500": 1000}, -2 for earliest, -1 for latest'
        )
    return offsets


def _time_us(text: str) -> int:
    if text.strip().isdigit():
        return int(text) * _MS_US
    try:
        moment = time_of_text(text.strip())
    except ValueError:
        raise ValueError(
            "the value is neither milliseconds since 1970 nor a time such as 2026-01-31T12:00:00+00:00"
        ) from None
    return round(moment.timestamp() * _US)


def _copies(text: str) -> bool:
    if text.strip().lower() not in ("join", "each"):
        raise ValueError("the value is neither join nor each")
    return text.strip().lower() == "each"


def _codec(text: str) -> ValueCodec:
    try:
        return ValueCodec(text.strip().lower())
    except ValueError:
        raise ValueError(f"the value is none of {', '.join(codec.value for codec in ValueCodec)}") from None


def _is_table_of_sessions(text: str) -> bool:
    if text.strip().lower() not in ("rows", "sessions"):
        raise ValueError("the value is neither rows nor sessions")
    return text.strip().lower() == "sessions"


def _pem(text: str) -> bytes:
    try:
        return Path(text).read_bytes()
    except OSError as error:
        raise ValueError(f"{text}: {error.strerror}") from None


def _authority(text: str) -> Authority:
    from pgm.archive.signatures.topologies import topology_authority  # executors do not need the loader of topologies

    try:
        return topology_authority(Path(name) for name in names_of(text))
    except (PgmError, OSError) as error:
        raise ValueError(str(error)) from None


def _token(text: str) -> str:
    return _text(_pem(text).decode())


# fmt: off
_OPTIONS = (
    SourceOption("recorders", "groups", (READ, WRITE), _groups, "required", "Range services: `grpc://HOST:PORT`, or `grpc+tls://`. Services separated by commas hold different sessions, and each must answer. Services separated by `|` stand in for each other, and one is enough. `load(\"grpc://...\")` names them as well."),
    SourceOption("tlsRootCerts", "root_certificates", (READ, WRITE), _pem, "those of gRPC", "File of the certificates that sign those of the services, as PEM. The driver reads the file."),
    SourceOption("tokenFile", "token", (READ, WRITE), _token, "none", "File with the token of the services. The driver reads the file; executors get the token, not the file."),
    SourceOption("table", "of_sessions", (READ,), _is_table_of_sessions, "rows", "`rows` gives messages and losses. `sessions` gives one row for each session of each recording, from the index: its first sqn held, the sqn behind its last, its numbers of rows and octets, and the times of its first and last row. Streaming queries have no such table."),
    SourceOption("copies", "each_copy", (READ,), _copies, "join", "Treatment of one session recorded by several nodes. `join` takes the recordings as replicas: each row comes once, from any of them. `each` returns the rows of every node."),
    SourceOption("tsi", "tsis", (READ,), names_of, "all", "Only sessions of these TSIs."),
    SourceOption("stream", "streams", (READ,), names_of, "all", "Only sessions of these streams."),
    SourceOption("node", "nodes", (READ,), names_of, "all", "Only recordings of these nodes."),
    SourceOption("subjects", "subjects", (READ,), names_of, "all", "Only messages with these subjects, a final `*` matches any ending. The services filter; losses are always included."),
    SourceOption("columns", "columns", (READ,), _columns, "all", "Columns in the given order. Other columns are not sent."),
    SourceOption("payload", "payload", (READ,), flag_of, "true", "`false` leaves out the column `value`."),
    SourceOption("decode", "codec", (READ,), _codec, "none", "Codec of the values: `cbor`, `json` or `arrow`. The fields of the values become columns beside those of the rows, and `decode_error` says why a value has none."),
    SourceOption("decodeSchema", "value_ddl", (READ,), _text, "that of `.schema`", "With `decode`: name and type of each field, as in `symbol STRING, price DOUBLE`. `pgm archive schema` prints it."),
    SourceOption("decodePrefix", "value_prefix", (READ,), _text, "none", "With `decode`: beginning of the columns of the fields, for fields that have the name of another column."),
    SourceOption("startingOffsets", "starting", (READ,), _offsets, "earliest", "First offset of a batch or a new stream: `earliest`, `latest`, or JSON by TSI with sqns, -2 for earliest and -1 for latest. Sessions that the JSON does not name, and those that appear later, begin with the oldest sqn held."),
    SourceOption("startingTimestamp", "starting_us", (READ,), _time_us, "none", "Alternative: begin with the first row received at that time or later; milliseconds since 1970, or ISO 8601."),
    SourceOption("endingOffsets", "ending", (READ,), _offsets, "latest", "End of a batch, exclusive; values as above. Sessions that the JSON does not name end with the newest."),
    SourceOption("endingTimestamp", "ending_us", (READ,), _time_us, "none", "Alternative: the batch ends before the first row received at that time or later."),
    SourceOption("failOnDataLoss", "fail_on_loss", (READ,), flag_of, "true", "Whether missing or damaged rows end a query with an error. Otherwise the query continues after these rows, and the log has a warning."),
    SourceOption("maxOffsetsPerTrigger", "most_offsets", (READ,), count_of, "all", "Largest number of sqns, which are packets, in a micro-batch. The oldest rows of all sessions come first, by receive time ([watermarks](#watermarks))."),
    SourceOption("maxRowsPerTrigger", "most_rows", (READ,), count_of, "all", "Largest number of rows in a micro-batch, before `subjects` are selected. A packet with more rows comes alone. Both limits may be given."),
    SourceOption("minOffsetsPerTrigger", "least_offsets", (READ,), count_of, "none", "A micro-batch waits until that many new sqns are there, `maxTriggerDelay` at most. The first one of a run, and `availableNow`, do not wait."),
    SourceOption("maxTriggerDelay", "most_delay_s", (READ,), _duration_s, "15m", "Longest time between two micro-batches with `minOffsetsPerTrigger`: `500ms`, `30s`, `15m`, `1h`."),
    SourceOption("minPartitions", "least_partitions", (READ,), count_of, "one for each session", "Smallest number of partitions for all sessions together."),
    SourceOption("maxPartitionBytes", "partition_octets", (READ,), count_of, "67108864", "Size of a partition in octets on disk, approximately."),
    SourceOption("history", "history", (READ,), _text, "none", "Folder of a table that `pgm archive export` or `pgm.spark.lakehouse` keeps of these archives. Rows that no recorder holds any more come from there, so each row comes once. The driver and the executors read the folder."),
    SourceOption("localFiles", "local_files", (READ,), flag_of, "true", "Whether executors that see the directory of a range service read the rows from its files. The service gives the places. The executors check the rows; if a check fails, the service sends the rows."),
    SourceOption("signatures", "authority", (READ,), _authority, "none", "Topology files, separated by commas, whose public keys count. The column `verified` then says of each row of a signed stream whether its source has said it. The driver reads the files."),
    SourceOption("keys", "key_file", (READ, WRITE), _text, "none", "Private file of a node: a path on the executors. With `signatures` values of proved rows of sealed streams are decrypted, and all others are null. With `mutualTls` the file is needed on the driver, too."),
    SourceOption("mutualTls", "tree", (READ, WRITE), _text, "none", "Topology file of the range services, for mutual TLS with `keys`. The driver reads the file; executors get its public keys."),
    SourceOption("serviceNodes", "service_nodes", (READ, WRITE), names_of, "all", "Nodes or patterns that may be the range services, with `mutualTls`. By default any node with keys in the file."),
    SourceOption("proofSeconds", "proof_s", (READ,), seconds_of, "10", "Time for which the newest rows wait for their proofs, with `signatures`. Older rows come without."),
    SourceOption("retrySeconds", "retry_s", (READ, WRITE), seconds_of, "10", "Time in which calls are repeated to a service that does not answer or has too many readers, if no other service has the rows."),
    SourceOption("publishStream", "publish_stream", (WRITE,), _text, "the only one", "Stream of the source that publishes."),
    SourceOption("encode", "encoded", (WRITE,), _codec, "none", "Codec that makes the values of all columns but `subject` and `to`: `cbor` or `json`, a value for each row, or `arrow`, a value for successive rows with the same names."),
    SourceOption("writerId", "writer", (WRITE,), _text, "the query's id", "Name that identifies the batches of a query. The id of a streaming query stays with its checkpoint."),
)
# fmt: on

TABLE = OptionTable("pgm", "docs/guide/spark.md", _OPTIONS)


@attrs.frozen
class SourceOptions:
    """Options of a query, read and checked."""

    groups: tuple[tuple[str, ...], ...]
    root_certificates: bytes | None = None
    token: str | None = attrs.field(default=None, repr=False)
    of_sessions: bool = False
    each_copy: bool = False
    tsis: tuple[str, ...] | None = None
    streams: tuple[str, ...] | None = None
    nodes: tuple[str, ...] | None = None
    subjects: tuple[str, ...] | None = None
    columns: tuple[str, ...] = COLUMN_NAMES
    payload: bool = True
    values: ValueFields | None = None
    encoded: ValueCodec | None = None
    decoded: DecodedSchema | None = None  # by the schema of the query
    starting: Offsets = EARLIEST
    starting_us: int | None = None
    ending: Offsets = LATEST
    ending_us: int | None = None
    fail_on_loss: bool = True
    most_offsets: int | None = None
    most_rows: int | None = None
    least_offsets: int | None = None
    most_delay_s: float = 900.0
    least_partitions: int = 1
    partition_octets: int = 1 << 26
    history: str | None = None
    local_files: bool = True
    authority: Authority | None = None
    key_file: str | None = None
    node_tls: NodeTls | None = None
    proof_s: float = 10.0
    retry_s: float = 10.0
    publish_stream: str = ""
    writer: str = ""
    bounds: FilterBounds = FilterBounds()  # by the filters of the query

    @property
    def locations(self) -> tuple[str, ...]:
        """Addresses of all services."""
        return tuple(location for group in self.groups for location in group)


def read_options(given: Mapping[str, str], used: str) -> SourceOptions:
    """Read the options of a `READ` or a `WRITE`; keys in any case. Raises `BadOption`."""
    options = {key.lower(): value for key, value in given.items()}
    path = options.pop("path", None)
    if path is not None:
        options.setdefault("recorders", path)
    values = TABLE.read(options, used)
    if "groups" not in values:
        raise BadOption(
            "option recorders is missing",
            remedy='name the range service: .option("recorders", "grpc://127.0.0.1:3057")',
        )
    for first, second in (("starting", "starting_us"), ("ending", "ending_us")):
        if first in values and second in values:
            raise BadOption(f"{first}Offsets and {first}Timestamp are both given", remedy="give one of them")
    if values.get("ending") == EARLIEST or EARLIEST in _values(values.get("ending")):
        raise BadOption("endingOffsets cannot be earliest (-2)", remedy="a batch ends at latest (-1) or at an sqn")
    if values.get("least_offsets", 0) > values.get("most_offsets", 1 << 62):
        raise BadOption("minOffsetsPerTrigger is above maxOffsetsPerTrigger", remedy="give a lower minimum")
    if "key_file" in values and not {"authority", "tree"} & values.keys():
        raise BadOption(
            "option keys needs signatures, to decrypt proved rows, or mutualTls, to connect",
            remedy='name the topology file: .option("signatures", "tree.toml")',
        )
    if {"history", "authority"} <= values.keys():
        raise BadOption("option history excludes signatures: a table has no proofs", remedy="leave out one of them")
    _take_node_tls(values)
    _take_value_fields(values)
    if "authority" in values:
        values.setdefault("columns", (*COLUMN_NAMES, VERIFIED))
    return _with_columns(SourceOptions(**values))


def _take_node_tls(values: dict[str, Any]) -> None:
    """Put the keys for mutual TLS in place of the options that name them. Raises `BadOption`."""
    tree, services = values.pop("tree", None), values.pop("service_nodes", ())
    if tree is None:
        if services:
            raise BadOption("option serviceNodes needs mutualTls", remedy='.option("mutualTls", "tree.toml")')
        return
    if "key_file" not in values:
        raise BadOption(
            "option mutualTls needs keys, the private file of a node", remedy="pgm keys show FILE tells its path"
        )
    clear = [one for group in values["groups"] for one in group if not one.startswith("grpc+tls://")]
    if clear or {"root_certificates", "token"} & values.keys():
        raise BadOption(
            f"option mutualTls is for services with grpc+tls://, and {clear[0]} has not"
            if clear
            else "option mutualTls excludes tlsRootCerts and tokenFile",
            remedy="start the services with: pgm serve --mutual-tls, and leave out tlsRootCerts and tokenFile",
        )
    try:
        values["node_tls"] = node_tls_of(tree, services, values["key_file"])
    except ValueError as error:
        raise BadOption(f'option mutualTls = "{tree}": {error}', remedy="docs/guide/spark.md has all options") from None


def _take_value_fields(values: dict[str, Any]) -> None:
    """Put the description of the values in place of the options that give it. Raises `BadOption`."""
    codec, ddl, prefix = (values.pop(name, None) for name in ("codec", "value_ddl", "value_prefix"))
    if codec is not None:
        values["values"] = ValueFields(codec, ddl, prefix or "")
    elif ddl is not None or prefix is not None:
        raise BadOption("decodeSchema and decodePrefix need decode", remedy='.option("decode", "cbor")')


def _values(offsets: Offsets | None) -> list[int]:
    return list(offsets.values()) if isinstance(offsets, dict) else []


def _with_columns(options: SourceOptions) -> SourceOptions:
    if options.payload:
        return options
    columns = tuple(name for name in options.columns if name != "value")
    if not columns:
        raise BadOption("columns names only value, and payload is false", remedy="omit one of them")
    return attrs.evolve(options, columns=columns)
