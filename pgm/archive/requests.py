"""Requests to the range service and descriptions of its holdings, as JSON.

docs/guide/archive.md describes the format. Nothing here needs Arrow, so a reader of offsets need not load it.
"""

from __future__ import annotations

import json
from typing import Any

import attrs

from pgm.archive.errors import BadRequest
from pgm.archive.session import MESSAGES

ACTION_HOLDINGS = "holdings"
ACTION_SQN_AT = "sqn_at"
ACTION_BLOCKS = "blocks"
ACTION_FILES = "files"
ACTION_READS = "reads"
ACTION_PUBLISH = "publish_batch"
ACTION_DISCARD = "discard_batch"
ACTION_PUBLISHED = "published"


def session_key(tsi: str, epoch_us: int | None, node: str, *, each_copy: bool) -> str:
    """Return the name of a session in offsets. The node is part of it if each copy counts, or without an epoch."""
    if epoch_us is None:
        return f"{tsi}/{node}"
    return f"{tsi}@{epoch_us}/{node}" if each_copy else f"{tsi}@{epoch_us}"


@attrs.frozen
class SessionExtent:
    """Extent of one session in an archive. The archive holds every sqn from `oldest` to `next_sqn - 1`."""

    tsi: str
    epoch_us: int | None  # start of the session, microseconds since 1970; None: unknown
    stream: str | None
    source: str | None
    node: str
    segment: str | None
    oldest: int
    next_sqn: int
    rows: int
    octets: int  # of the batches in the files
    first_received_us: int
    last_received_us: int
    closed: bool  # the stream has ended; nothing follows
    kind: str = MESSAGES  # or another kind of `pgm.archive.session`

    def key(self, *, each_copy: bool) -> str:
        """Return the name of the session in offsets."""
        return session_key(self.tsi, self.epoch_us, self.node, each_copy=each_copy)

    def as_json(self) -> dict[str, Any]:
        """Return the extent with stable keys."""
        return attrs.asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> SessionExtent:
        """Decode the result of `as_json`, or that of another version."""
        return cls(**{field.name: value[field.name] for field in attrs.fields(cls) if field.name in value})


@attrs.frozen
class RangeRequest:
    """Request for the rows of one session with `first <= sqn < end`.

    The request is the ticket of a `do_get`, or the descriptor of a flight. `columns` come in the order given; the
    default is all.

    `subjects` selects messages with one of these subjects; a final `*` matches any ending. Losses are always included.

    `streams` leaves out batches that were recorded under another name of the stream.

    `received_from_us` and `received_until_us` leave out batches in which no row was received at or after the one time,
    and before the other, in microseconds since 1970. The batches that remain come whole.

    `tail` continues with new rows, until `end` or until the client leaves. `encoded` keeps columns of few values
    run-end encoded, as in the files. With `subjects` that flag has no effect. `paced` shares `archive_rte` with all other
    requests that are paced.
    """

    tsi: str
    epoch_us: int | None = None  # needed only if the archive holds several sessions of this TSI
    first: int | None = None  # None: the oldest held
    end: int | None = None  # None: the next sqn at the time of the request
    columns: tuple[str, ...] | None = None
    subjects: tuple[str, ...] | None = None
    streams: tuple[str, ...] | None = None
    node: str | None = None  # needed only if the archives of several nodes are served
    tail: bool = False
    encoded: bool = False
    paced: bool = False
    received_from_us: int | None = None
    received_until_us: int | None = None
    parts: int = 1  # of a descriptor: the largest number of tickets to return

    def to_bytes(self) -> bytes:
        """Return the ticket or command: JSON with sorted keys, without default values."""
        values = attrs.asdict(self, filter=lambda field, value: value != field.default)
        return json.dumps(values, sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, octets: bytes) -> RangeRequest:
        """Decode a ticket or command. Raises `BadRequest`."""
        return cls.from_json(read_json(octets))

    @classmethod
    def from_json(cls, asked: object) -> RangeRequest:
        """Check the object of a ticket. Raises `BadRequest`."""
        if not isinstance(asked, dict) or "tsi" not in asked:
            raise BadRequest("a range needs a tsi", remedy=_REMEDY)
        value = dict(asked)
        for name, given in value.items():
            _check(name, given)
        for name in ("columns", "subjects", "streams"):
            if value.get(name) is not None:
                value[name] = tuple(value[name])
        return cls(**value)


_REMEDY = "docs/guide/archive.md has the keys of tickets"
_KINDS = {
    "tsi": "text",
    "epoch_us": "a whole number",
    "first": "a whole number",
    "end": "a whole number",
    "columns": "a list of texts",
    "subjects": "a list of texts",
    "streams": "a list of texts",
    "node": "text",
    "tail": "true or false",
    "encoded": "true or false",
    "paced": "true or false",
    "received_from_us": "a whole number",
    "received_until_us": "a whole number",
    "parts": "a whole number",
}


def _check(name: str, value: object) -> None:
    kind = _KINDS.get(name)
    if kind is None:
        raise BadRequest(f"a range has no key {name!r}", remedy=f"its keys are {', '.join(_KINDS)}")
    if value is None and name not in ("tsi", "tail", "encoded", "paced", "parts"):
        return
    is_good = {
        "text": isinstance(value, str),
        "a whole number": isinstance(value, int) and not isinstance(value, bool) and value >= 0,
        "true or false": isinstance(value, bool),
        "a list of texts": isinstance(value, list) and all(isinstance(element, str) for element in value),
    }[kind]
    if not is_good:
        raise BadRequest(f"{name} = {value!r:.100} is not {kind}", remedy=_REMEDY)


def read_json(octets: bytes) -> dict[str, Any]:
    """Decode a JSON object; no octets give an empty object. Raises `BadRequest`."""
    try:
        value = json.loads(octets) if octets else {}
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"{octets[:100]!r} is no JSON: {error}", remedy=_REMEDY) from None
    if not isinstance(value, dict):
        raise BadRequest(f"{octets[:100]!r} is no JSON object", remedy=_REMEDY)
    return value
