"""What clients ask the range service, and what it says that it holds: JSON, as docs/guide/archive.md describes it.

No Arrow here, so that a reader of offsets need not load it.
"""

from __future__ import annotations

import json
from typing import Any

import attrs

from pgm.archive.errors import BadRequest

ACTION_HOLDINGS = "holdings"
ACTION_SQN_AT = "sqn_at"
ACTION_FILES = "files"
ACTION_PUBLISH = "publish_batch"
ACTION_DISCARD = "discard_batch"
ACTION_PUBLISHED = "published"


@attrs.frozen
class SessionExtent:
    """What an archive holds of one session: the sqns `oldest` to `next_sqn - 1`, every one of them in a row."""

    tsi: str
    epoch_us: int | None  # start of the session, microseconds since 1970; None: unknown
    stream: str | None
    source: str | None
    node: str
    segment: str | None
    oldest: int
    next_sqn: int
    rows: int
    octets: int  # of the files' batches
    first_received_us: int
    last_received_us: int
    closed: bool  # the stream has ended; nothing follows

    def as_json(self) -> dict[str, Any]:
        """Stable keys."""
        return attrs.asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> SessionExtent:
        """Read what `as_json` wrote; keys of a newer version are passed over."""
        return cls(**{field.name: value[field.name] for field in attrs.fields(cls)})


@attrs.frozen
class RangeRequest:
    """Rows of one session with `first <= sqn < end`: the ticket of a `do_get`, or the descriptor of a flight.

    `columns` in the order wanted, all by default. `subjects`: only messages with one of these, `*` at the end of one
    stands for anything; losses come all the same. `tail`: go on with what comes, until `end` or until the client leaves.
    `encoded`: columns that hardly change come run-end encoded, as files keep them, unless subjects are chosen.
    """

    tsi: str
    epoch_us: int | None = None  # needed only where the archive holds several sessions of this TSI
    first: int | None = None  # the oldest held
    end: int | None = None  # the next sqn to come, now
    columns: tuple[str, ...] | None = None
    subjects: tuple[str, ...] | None = None
    node: str | None = None  # needed only where the archives of several nodes are served
    tail: bool = False
    encoded: bool = False
    parts: int = 1  # of a descriptor: how many tickets to make of it, at most

    def to_bytes(self) -> bytes:
        """The ticket or command: JSON with sorted keys, without what is as it is by default."""
        given = attrs.asdict(self, filter=lambda field, value: value != field.default)
        return json.dumps(given, sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, octets: bytes) -> RangeRequest:
        """Read a ticket or command. Raises `BadRequest`."""
        value = read_json(octets)
        if "tsi" not in value:
            raise BadRequest("a range needs a tsi", remedy=_REMEDY)
        for name, wanted in value.items():
            _check(name, wanted)
        for name in ("columns", "subjects"):
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
    "node": "text",
    "tail": "true or false",
    "encoded": "true or false",
    "parts": "a whole number",
}


def _check(name: str, value: object) -> None:
    kind = _KINDS.get(name)
    if kind is None:
        raise BadRequest(f"a range has no key {name!r}", remedy=f"it knows {', '.join(_KINDS)}")
    if value is None and name not in ("tsi", "tail", "encoded", "parts"):
        return
    is_good = {
        "text": isinstance(value, str),
        "a whole number": isinstance(value, int) and not isinstance(value, bool) and value >= 0,
        "true or false": isinstance(value, bool),
        "a list of texts": isinstance(value, list) and all(isinstance(one, str) for one in value),
    }[kind]
    if not is_good:
        raise BadRequest(f"{name} = {value!r:.100} is not {kind}", remedy=_REMEDY)


def read_json(octets: bytes) -> dict[str, Any]:
    """A JSON object; an empty one of nothing. Raises `BadRequest`."""
    try:
        value = json.loads(octets) if octets else {}
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"{octets[:100]!r} is no JSON: {error}", remedy=_REMEDY) from None
    if not isinstance(value, dict):
        raise BadRequest(f"{octets[:100]!r} is no JSON object", remedy=_REMEDY)
    return value
