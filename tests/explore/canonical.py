"""Canonical form of a core: equal for cores that act alike from now on.

The form is a flat list of plain values in the order of a walk over the core's objects. Three things are left out or
made relative:

* Instants are relative to now. Virtual time begins at `EPOCH_NS`, and no other number of a core comes near it.
* Memory is what it holds: a run of packets is its octets. Chunks and free room are left out.
* Counters, parameters, setups and the source of random numbers are left out: no core decides by its counters, the
  others never change.
"""

from __future__ import annotations

import collections
import functools
import hashlib
import itertools
import marshal
import random
import types
from typing import Any

import numpy as np

from pgm.core.counters import Counters
from pgm.core.element.setup import ElementSetup
from pgm.core.pacing.nak_monitor import ExcessiveNakMonitor
from pgm.core.pacing.token_bucket import TokenBucket
from pgm.core.receiver.setup import ReceiverSetup
from pgm.core.recovery.response_timeout import ResponseTimeout
from pgm.core.segment import Segment
from pgm.core.session.lead_claims import LeadClaims
from pgm.core.session.session_counters import SessionCounts
from pgm.core.source.setup import SourceSetup
from pgm.core.structures.arena import Arena
from pgm.parameters import Parameters
from pgm.wire.packet_run import Run

EPOCH_NS = 1 << 58  # start of virtual time: nine years, beyond any count, and far from NEVER
_SPAN_NS = 1 << 50  # 13 days: the longest way of an instant from the start

# fmt: off
_CONSTANT = (
    Counters, SessionCounts, Parameters, SourceSetup, ReceiverSetup, ElementSetup, Segment, random.Random, Arena,
    LeadClaims, ExcessiveNakMonitor,
)
# fmt: on
# Fields that decide nothing within the bounds of a search: identities of chunks, stamps for measured response times (see
# `ResponseTimeout`), and stamps that only silence, expiry, signed streams, or packets out of order by time are compared with.
_LEFT_OUT = frozenset(
    {
        "_pins",
        "since_ns",
        "promised_ns",
        "asked_ns",
        "found_at_ns",
        "heard_at_ns",
        "asked_at_ns",
        "opened_at_ns",
        "begun_ns",
        "started_ns",
    }
)  # fmt: skip
_BUCKET_STEPS = 8  # the rates of a search never bind, so the level of a bucket is told coarsely
_OTHERS = frozenset({collections.deque, np.ndarray, itertools.count, functools.partial})  # without fields of their own
_NUMBERS = (float, str, bytes, bool, type(None))


@functools.cache
def _names_of(kind: type) -> tuple[str, ...]:
    """Return the names of the slots of a class and its bases."""
    slots = [base.__dict__.get("__slots__", ()) for base in reversed(kind.__mro__)]
    names = itertools.chain.from_iterable((one,) if isinstance(one, str) else one for one in slots)
    return tuple(name for name in names if name not in ("__weakref__", "__dict__"))


def _has_fields(value: Any, kind: type) -> bool:
    return bool(_names_of(kind) or getattr(value, "__dict__", None) or kind in _OTHERS or isinstance(value, np.generic))


class _Walk:
    """One walk over the objects of a core at an instant."""

    def __init__(self, now_ns: int) -> None:
        self._now_ns = now_ns
        self._seen: dict[int, int] = {}
        self.form: list[Any] = []

    def add(self, value: Any) -> None:
        """Add the form of a value."""
        kind = type(value)
        if kind is int:
            is_instant = -_SPAN_NS < value - EPOCH_NS < _SPAN_NS
            self.form.append(("at", value - self._now_ns) if is_instant else value)
        elif kind in _NUMBERS:
            self.form.append(value)
        elif kind is tuple:
            self.form.append(len(value))
            for one in value:
                self.add(one)
        elif isinstance(value, _CONSTANT):
            self.form.append(kind.__name__)
        elif kind is range:
            self.form += (value.start, value.stop, value.step)
        elif isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType)):
            self.form.append(value.__qualname__)
        elif isinstance(value, (set, frozenset)):
            self.form.append(tuple(sorted(map(repr, value))))
        else:
            self._add_object(value, kind)

    def _add_object(self, value: Any, kind: type) -> None:
        if kind.__module__ != "builtins" and not isinstance(value, dict) and not _has_fields(value, kind):
            self.form.append(kind.__name__)  # a constant without fields, or an empty one
            return
        place = self._seen.setdefault(id(value), len(self._seen))
        if place < len(self._seen) - 1:
            self.form.append(("seen", place))
            return
        self.form.append(kind.__name__)
        if kind is list or kind is collections.deque:
            self.form.append(len(value))
            for one in value:
                self.add(one)
        elif isinstance(value, dict):
            self.form.append(len(value))
            for key, one in value.items():
                self.add(key)
                self.add(one)
        elif kind is np.ndarray:
            self._add_array(value)
        elif kind is Run:
            octets = value.rows.tobytes()
            self.form += (value.first, value.count, octets, value.stride, value.payload_at)
        elif kind is TokenBucket:
            owed_ns = max(0, value.full_at_ns - self._now_ns)
            self.form += (value.rate, value.burst_ns, owed_ns * _BUCKET_STEPS // value.burst_ns)
        elif kind is ResponseTimeout and value.least_ns == value.ceiling_ns:
            self.form += (value.floor_ns, value.ceiling_ns, value.is_parent_dead)  # no measure changes the wait
        elif kind is memoryview or kind is bytearray or isinstance(value, (itertools.count, np.generic)):
            self.form.append(bytes(value) if kind in (memoryview, bytearray) else repr(value))
        elif isinstance(value, types.MethodType):
            self.form.append(value.__func__.__qualname__)
            self.add(value.__self__)
        elif isinstance(value, functools.partial):
            for one in (value.func, value.args, value.keywords):
                self.add(one)
        elif kind.__module__ == "builtins":
            raise TypeError(f"the form of a {kind.__name__} is not known")  # else two states would count as one
        else:
            for name in _names_of(kind):
                if name not in _LEFT_OUT:
                    self.form.append(name)
                    self.add(getattr(value, name, None))
            for name, one in getattr(value, "__dict__", {}).items():
                if name not in _LEFT_OUT:
                    self.form.append(name)
                    self.add(one)

    def _add_array(self, value: np.ndarray[Any, Any]) -> None:
        if value.dtype.itemsize == 8 and value.dtype.kind in "iu":
            self.form += value.shape
            for one in value.reshape(-1).tolist():
                self.add(one)
        else:
            self.form += (value.shape, value.dtype.str, value.tobytes())


def canonical(value: Any, now_ns: int) -> list[Any]:
    """Return the canonical form of a value at an instant."""
    walk = _Walk(now_ns)
    walk.add(value)
    return walk.form


def digest_of(value: Any, now_ns: int) -> int:
    """Return 61 bits that identify the canonical form of a value at an instant."""
    return number_of(canonical(value, now_ns))


def number_of(value: Any) -> int:
    """Return 61 bits that identify a plain value, the same in every process."""
    octets = marshal.dumps(value, 2)  # version 2 has no references, which differ between runs
    return int.from_bytes(hashlib.blake2b(octets, digest_size=8).digest(), "big") >> 3
