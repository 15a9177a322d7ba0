"""Forms of snapshots and of answers to `pgm ctl` that an agent tells: keys and types that commands read, with bounds.

An agent may be broken or hostile, and a view reads values as they come. Keys that no view reads may have any value of a small
depth, because later versions add keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

_MOST = 1 << 64  # of a number: counters have 64 bits, and greater floats do not fit the history
_LATEST_S = 1e11  # of a time since 1970: the year 5138; the C library refuses far later ones
_DEEPEST = 16  # of a value that no view reads; JSON of any depth cannot be written again
_MOST_TEXT = 1 << 16  # characters

# Returns the place of the first flaw behind the value, and what is wanted there; empty for none.
_Form: TypeAlias = Callable[[Any], str]


def _whole(value: Any) -> str:
    return "" if type(value) is int and -_MOST < value < _MOST else ": no whole number"


def _number(value: Any) -> str:
    return "" if type(value) in (int, float) and -_MOST < value < _MOST else ": no number"  # nor NaN


def _time(value: Any) -> str:
    return "" if type(value) in (int, float) and 0 <= value < _LATEST_S else ": no time"


def _text(value: Any) -> str:
    return "" if isinstance(value, str) and len(value) <= _MOST_TEXT else ": no text"


def _switch(value: Any) -> str:
    return "" if isinstance(value, bool) else ": neither true nor false"


def _anything(value: Any) -> str:
    return "" if _is_shallow(value, _DEEPEST) else ": nested too deeply"


def _is_shallow(value: Any, depth: int) -> bool:
    if isinstance(value, dict):
        return depth > 0 and all(_is_shallow(member, depth - 1) for member in value.values())
    if isinstance(value, list):
        return depth > 0 and all(_is_shallow(member, depth - 1) for member in value)
    return True


def _or_null(form: _Form) -> _Form:
    return lambda value: "" if value is None else form(value)


def _list_of(form: _Form) -> _Form:
    def check(value: Any) -> str:
        if not isinstance(value, list):
            return ": no list"
        return next((f"[{at}]{flaw}" for at, member in enumerate(value) if (flaw := form(member))), "")

    return check


def _table_of(form: _Form) -> _Form:
    def check(value: Any) -> str:
        if not isinstance(value, dict):
            return ": no table"
        return next((f".{key[:80]}{flaw}" for key, member in value.items() if (flaw := form(member))), "")

    return check


def _table(needed: Mapping[str, _Form], known: Mapping[str, _Form] | None = None) -> _Form:
    """Return the form of a table with `needed` keys, and with `known` ones that may be missing."""
    forms = {**(known or {}), **needed}

    def check(value: Any) -> str:
        if not isinstance(value, dict):
            return ": no table"
        missing = needed.keys() - value.keys()
        if missing:
            return f".{min(missing)}: missing"
        return next(
            (f".{key[:80]}{flaw}" for key, member in value.items() if (flaw := forms.get(key, _anything)(member))), ""
        )

    return check


_COUNTS = _table_of(_whole)
_EVENT = _table({"id": _text, "text": _text, "at_s": _time})
_RATE = _table({"per_s": _number, "peak_per_s": _number, "peak_at": _or_null(_time)})
_ACKED = _table(
    {
        "stable": _whole,
        "members": _whole,
        "held_up_by": _text,
        "acks": _COUNTS,
        "lags": _list_of(
            _table({"address": _text, "lag": _whole, "members": _whole, "is_branch": _switch, "held_up_by": _text})
        ),
    },
    {"lag": _whole, "untaken": _whole},
)
_SESSION = _table(
    {
        "stream": _text,
        "source": _text,
        "tsi": _text,
        "data_port": _whole,
        "state": _text,
        "trail": _whole,
        "lead": _whole,
        "missing_sqns": _whole,
        "pending_sqns": _whole,
        "held_octets": _whole,
        "parent": _text,
        "silent_ns": _whole,
        "children": _COUNTS,
        "counts": _COUNTS,
        "acked": _or_null(_ACKED),
        "askers": _list_of(
            _table(
                {
                    "address": _text,
                    "nak_packets": _whole,
                    "nak_sqns": _whole,
                    "braked": _whole,
                    "has_excess_naks": _switch,
                }
            )
        ),
        "lines": _list_of(
            _table(
                {
                    "segment": _text,
                    "packets": _whole,
                    "first_packets": _whole,
                    "lost_packets": _whole,
                    "behind_ns": _whole,
                    "is_down": _switch,
                }
            )
        ),
    },
    {"framing": _text, "protection": _table({}, {"text": _text}), "verified_ns": _whole, "file": _text},
)
_SEGMENT = _table(
    {"segment": _text, "group": _text, "interface": _text, "address": _text, "rcvbuf": _whole, "sndbuf": _whole},
    {"side": _text},
)


def _counters(value: Any) -> str:
    """Return the flaw of the counters: `rejects` is a table, and all others are numbers."""
    if not isinstance(value, dict):
        return ": no table"
    forms = {"rejects": _COUNTS}
    return next((f".{key[:80]}{flaw}" for key, own in value.items() if (flaw := forms.get(key, _number)(own))), "")


_SNAPSHOT = _table(
    {
        "topology": _text,
        "node": _text,
        "role": _text,
        "pid": _whole,
        "uptime_s": _number,
        "rss_bytes": _whole,
        "cpu_s": _number,
        "counters": _counters,
        "rates": _table_of(_table({"1s": _RATE, "1min": _RATE, "5min": _RATE})),
        "sessions": _list_of(_SESSION),
        "segments": _list_of(_SEGMENT),
    },
    {
        "last_event": _or_null(_EVENT),
        "events": _list_of(_EVENT),
        "subjects": _table_of(_COUNTS),
        "file": _text,
        "file_part": _text,
    },
)


_SETTING = _table(
    {"name": _text, "segment": _or_null(_text), "value": _text, "start": _text, "fixed": _text, "note": _text}
)
_CHANGE = _table({"name": _text, "segment": _or_null(_text), "old": _text, "new": _text})
_CONTROL = _table(
    {"topology": _text, "node": _text, "role": _text},
    {"released": _text, "changed": _list_of(_CHANGE), "settings": _list_of(_SETTING)},
)


def flaw_of_control_untrusted(answer: Any) -> str:
    """Return the place of the first flaw of a node's answer to `pgm ctl`, and what is wanted there; empty for none."""
    flaw = _CONTROL(answer)
    return flaw or ("" if answer.keys() & {"released", "changed", "settings"} else ".settings: missing")


def flaw_of_untrusted(snapshot: Any) -> str:
    """Return the place of the first flaw of a snapshot, and what is wanted there; empty for a snapshot in good form."""
    return _SNAPSHOT(snapshot)
