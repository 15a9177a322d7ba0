"""Settings of a running node that operators can change, with their current values, for `pgm ctl`.

The list is short on purpose. Windows, caches and sockets get their sizes from the topology file, and timers are checked
there against those of other nodes. A request for such a parameter is answered with that reason; `pgm apply` changes it.
"""

from __future__ import annotations

import contextlib
import functools
import ipaddress
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from pgm.core.effects import Notice
from pgm.core.element.element import ElementCore
from pgm.core.source.source import SourceCore
from pgm.deprecated import PARAMETERS
from pgm.errors import UnitError, UsageError
from pgm.impairments import Impairment, Injector
from pgm.net.control.rate_setting import START, checked_rate
from pgm.net.driver.node_driver import NodeDriver
from pgm.net.link.link import Link
from pgm.parameters import ROWS, Row, Unit
from pgm.topology.model import NodeTable, SegmentTable, StreamTable, Topology, keys_of
from pgm.topology.node_plan import NodePlan
from pgm.topology.problems import suggestion
from pgm.topology.structure import IMPAIRMENT_KEYS
from pgm.units import format_fraction, format_rate

_OFF = "off"
_LOSSES = ("loss", "burst_loss", "burst_length")
_QUOTE_LENGTH = 60  # characters of a quotation in an error
_IN_THE_FILE = "write it in a copy of the topology file, and bring the tree to the copy: pgm apply NEW.toml"
_FILE_KEYS = {key for table in (Topology, StreamTable, SegmentTable, NodeTable) for key in keys_of(table)}
_EXAMPLES = {  # of requests that contain the missing key
    "do": '{"do": "get"}',
    "child": '{"do": "release", "child": "10.0.2.7"}',
    "stream": '{"do": "get", "stream": "quotes"}',
    "segment": '{"do": "set", "settings": {"loss": "1%"}, "segment": "floor-2"}',
    "names": '{"do": "get", "names": ["rate"]}',
    "settings": '{"do": "set", "settings": {"rate": "20Mbit/s"}}',
}

# setting -> the nodes that have it, and its meaning
SETTINGS: Mapping[str, tuple[str, str]] = {
    "rate": ("a source", "Greatest rate of sending, repairs included; at most the rate of the file, for which all windows were made."),
    "loss": ("a node on a segment with injected losses", "Share of packets lost on purpose, independently of each other; `off` ends all injected losses there."),
    "burst_loss": ("a node on a segment with injected losses", "Share of packets lost on purpose in bursts."),
    "burst_length": ("a node on a segment with injected losses", "Mean length of a burst of losses, in packets."),
}  # fmt: skip


@attrs.frozen
class _Change:
    """New value of one setting, checked and not yet applied."""

    name: str
    segment: str | None
    old: str
    new: str
    make: Callable[[], None]


class NodeSettings:
    """Settings of one endpoint of a node, as its control socket answers for them."""

    def __init__(self, plan: NodePlan, driver: NodeDriver) -> None:
        self._plan = plan
        self._driver = driver

    @property
    def stream(self) -> str | None:
        """Return the name of the stream that is sent; None without a source."""
        core = self._driver.core
        if not isinstance(core, SourceCore):
            return None
        return next(one.name for one in self._plan.streams if one.data_port == core.setup.data_port)

    def answer(self, request: Mapping[str, Any], requester: str) -> dict[str, Any]:
        """Answer a request: `get`, `set` or `release`. Raises `UsageError` or `UnitError`, and changes nothing then."""
        verbs = {"get": self._get, "set": self._set, "release": self._release}
        verb = _text(request.get("do"), "do")
        if verb not in verbs:
            raise UsageError(f"{verb!r} is not a request that a node knows", remedy=suggestion(verb, verbs))
        result = verbs[verb](request, requester)
        return {"topology": self._plan.topology, "node": self._plan.name, "role": self._plan.role.value, **result}

    # Reading

    def _get(self, request: Mapping[str, Any], _requester: str) -> dict[str, Any]:
        names = _texts(request.get("names", []), "names")
        self._require_stream(request)
        rows = self._rows()
        if not names:
            return {"settings": rows}
        return {"settings": [row for name in names for row in self._rows_of(name, rows)]}

    def _rows(self) -> list[dict[str, Any]]:
        rows = []
        core = self._driver.core
        if isinstance(core, SourceCore):
            slowed = (
                "" if core.rate == core.rate_set else f"{format_rate(core.rate)} now: too many repairs are requested"
            )
            start = format_rate(core.parameters.txw_max_rte)
            rows.append(_row("rate", format_rate(core.rate_set), start, note=slowed))
        for link, injector in self._injected():
            now, before = _spelling(injector.impairment), _spelling(link.plan.impairment)
            rows += [_row(name, now[name], before[name], segment=link.plan.name) for name in _LOSSES]
        return rows

    def _rows_of(self, name: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        matches = [row for row in rows if row["name"] == name]
        if matches:
            return matches
        name = PARAMETERS.get(name, name)
        if name not in ROWS:
            raise self._unknown(name)
        row = ROWS[name]
        value = row.spell(getattr(self._parameters, name))
        return [_row(name, value, value, fixed=why_fixed(row))]

    # Changing

    def _set(self, request: Mapping[str, Any], requester: str) -> dict[str, Any]:
        wanted = request.get("settings")
        if not isinstance(wanted, dict) or not wanted:
            raise UsageError("nothing to set", remedy="name a setting and its value, as in: set rate=20Mbit/s")
        segment = request.get("segment")
        values = {str(name): _text(value, str(name)) for name, value in wanted.items()}
        self._require_stream(request)
        for name in values:
            if name not in SETTINGS:
                raise self._unknown(name) if name not in ROWS else _fixed(ROWS[name])
        changes = [self._rate(values["rate"])] if "rate" in values else []
        losses = {name: values[name] for name in _LOSSES if name in values}
        if losses:
            changes += self._losses(losses, None if segment is None else _text(segment, "segment"))
        elif segment is not None:
            raise UsageError("only injected losses are set by segment", remedy="leave out the segment")
        for change in changes:
            change.make()
        descriptions = [_description(change) for change in changes if change.old != change.new]
        self._notify([f"{text}, by {requester}" for text in descriptions])
        self._driver.core.counters.settings_changed += len(descriptions)
        return {
            "changed": [
                {"name": change.name, "segment": change.segment, "old": change.old, "new": change.new}
                for change in changes
            ],
            "settings": self._rows(),
        }

    def _rate(self, text: str) -> _Change:
        core = self._driver.core
        if not isinstance(core, SourceCore):
            raise UsageError(
                f"{self._plan.name} is {_with_article(self._plan.role.value)}, and a rate is a source's",
                remedy="name the node that sends",
            )
        with _naming("rate", text):
            rate = checked_rate(core, text)

        def make() -> None:
            core.set_rate(rate, self._driver.now_ns())

        return _Change("rate", None, format_rate(core.rate_set), format_rate(rate), make)

    def _losses(self, values: Mapping[str, str], segment: str | None) -> list[_Change]:
        injected = self._injected()
        names = [link.plan.name for link, _ in injected]
        known = [segment_plan.name for segment_plan in self._plan.segments]
        if segment is not None and segment not in known:
            raise UsageError(f"{self._plan.name} is not on a segment {segment!r}", remedy=suggestion(segment, known))
        if not names or segment not in (None, *names):
            raise UsageError(
                f"no losses are injected on {segment or ' or '.join(known)}, so they cannot be set",
                remedy='write loss = { loss = "1%" } at the segment or the node, and restart the node; a node without that key never injects losses',
            )
        changes = []
        for link, injector in injected:
            if segment in (None, link.plan.name):
                changes += self._losses_of(link, injector, values)
        return changes

    @staticmethod
    def _losses_of(link: Link, injector: Injector, values: Mapping[str, str]) -> list[_Change]:
        start, now = link.plan.impairment, injector.impairment
        is_off = values.get("loss") == _OFF
        wanted = attrs.evolve(now, loss=0.0, burst_loss=0.0) if is_off else now
        shares: dict[str, Any] = {
            name: getattr(start, name) if text == START else _parse(name, text)
            for name, text in values.items()
            if name != "loss" or not is_off
        }
        wanted = attrs.evolve(wanted, **shares)
        old, new = _spelling(now), _spelling(wanted)
        names = dict.fromkeys([*values, *(("burst_loss",) if is_off else ())])
        make = functools.partial(injector.change, wanted)
        return [_Change(name, link.plan.name, old[name], new[name], make) for name in names]

    def _release(self, request: Mapping[str, Any], requester: str) -> dict[str, Any]:
        child = _text(request.get("child"), "child")
        core = self._driver.core
        if not isinstance(core, (SourceCore, ElementCore)):
            raise UsageError(f"{self._plan.name} is a receiver, and has no children", remedy="name the node it asks")
        _require_address(child)
        sessions = core.release(child, self._driver.now_ns())
        if not sessions:
            restricted = sorted(
                {
                    asker.address
                    for row in core.status(self._driver.now_ns())
                    for asker in row.askers
                    if asker.has_excess_naks
                }
            )
            raise UsageError(
                f"{child[:_QUOTE_LENGTH]} has its normal budget at {self._plan.name}",
                remedy=f"nodes with a reduced budget: {', '.join(restricted)}"
                if restricted
                else "no node has a reduced budget",
            )
        core.counters.settings_changed += 1
        self._notify([f"{child} is released, by {requester}"])
        return {"released": child, "sessions": sessions}

    # Both

    def _injected(self) -> list[tuple[Link, Injector]]:
        return [(link, link.injector) for link in self._driver.links if link.injector is not None]

    @property
    def _parameters(self) -> Any:
        core = self._driver.core
        return core.parameters if isinstance(core, SourceCore) else self._plan.parameters

    def _require_stream(self, request: Mapping[str, Any]) -> None:
        """Check the stream of a request. An endpoint sends one stream; other streams belong to others."""
        stream, core = request.get("stream"), self._driver.core
        if stream is None:
            return
        name = _text(stream, "stream")
        streams = self._plan.streams
        if isinstance(core, SourceCore):
            streams = tuple(plan for plan in streams if plan.data_port == core.setup.data_port)
        if name not in [plan.name for plan in streams]:
            raise UsageError(
                f"this process of {self._plan.name} has no stream {name!r}",
                remedy=suggestion(name, [plan.name for plan in streams]),
            )

    def _unknown(self, name: str) -> UsageError:
        if name in _FILE_KEYS:
            return UsageError(
                f"{name} is a key of the topology file, which a node reads at its start", remedy=_IN_THE_FILE
            )
        return UsageError(
            f"there is no setting {name[:_QUOTE_LENGTH]!r}", remedy=suggestion(name[:_QUOTE_LENGTH], [*SETTINGS, *ROWS])
        )

    def _notify(self, texts: Sequence[str]) -> None:
        """Log changes on the node's own output. The core may have something to do now, too."""
        self._driver.perform([Notice("setting-changed", text) for text in texts])


def answers_of(plan: NodePlan, driver: NodeDriver) -> Callable[[Mapping[str, Any], str], dict[str, Any]]:
    """Return the function that answers requests for a node, which may have several sources."""

    def answer(request: Mapping[str, Any], requester: str) -> dict[str, Any]:
        endpoints = [NodeSettings(one.plan or plan, one) for one in driver.endpoints]
        sources = [one for one in endpoints if one.stream is not None]
        named = [one for one in sources if one.stream == request.get("stream")]
        if named or len(sources) < 2 or request.get("stream") is not None:
            return (named or sources or endpoints)[0].answer(request, requester)
        if request.get("do") == "get":
            return _merged([one.answer(request, requester) for one in sources], sources)
        raise UsageError(
            f"{plan.name} sends several streams", remedy=f"name one of {', '.join(str(one.stream) for one in sources)}"
        )

    return answer


def _merged(answers: list[dict[str, Any]], sources: list[NodeSettings]) -> dict[str, Any]:
    """Return the answers of several sources as one, with the stream at each rate."""
    rows: list[dict[str, Any]] = []
    for answer, source in zip(answers, sources, strict=True):
        for row in answer["settings"]:
            note = f"stream {source.stream}" + (row["note"] and f"; {row['note']}")
            one = {**row, "note": note} if row["name"] == "rate" else row
            if one not in rows:
                rows.append(one)
    return {**answers[0], "settings": rows}


def why_fixed(row: Row) -> str:
    """Return why a parameter cannot be changed while a node runs."""
    if row.key == "txw_max_rte":
        return "windows, caches and budgets were made for it at the start; the setting `rate` is the current limit"
    if row.key.startswith("so_"):
        return "sockets are opened with it"
    if row.unit in (Unit.OCTETS, Unit.COUNT) or row.key in ("txw_secs", "cache_secs", "record_secs"):
        return "windows, caches and tables get their size from the topology file"
    if row.unit is Unit.DURATION:
        return "timers of several nodes fit each other, and are checked together in the topology file"
    return "it is read once, at the start"


def _fixed(row: Row) -> UsageError:
    return UsageError(
        f"{row.key} is no setting: {why_fixed(row)}",
        remedy=_IN_THE_FILE,
    )


def _row(
    name: str, value: str, start: str, *, segment: str | None = None, fixed: str = "", note: str = ""
) -> dict[str, Any]:
    return {"name": name, "segment": segment, "value": value, "start": start, "fixed": fixed, "note": note}


def _spelling(impairment: Impairment) -> dict[str, str]:
    return {
        "loss": format_fraction(impairment.loss),
        "burst_loss": format_fraction(impairment.burst_loss),
        "burst_length": f"{impairment.burst_length:g}",
    }


@contextlib.contextmanager
def _naming(name: str, text: str) -> Iterator[None]:
    """Add the setting's name to errors about its value."""
    try:
        yield
    except UnitError as error:
        raise UnitError(f"{name} = {text[:_QUOTE_LENGTH]}: {error.message}", remedy=error.remedy) from None


def _parse(name: str, text: str) -> float:
    value: object = text
    with _naming(name, text):
        if name == "burst_length":
            try:
                value = float(text)
            except ValueError:
                raise UnitError("this is no number", remedy="write one, such as 8") from None
        return float(IMPAIRMENT_KEYS[name][0](value))


def _require_address(child: str) -> None:
    try:
        ipaddress.ip_address(child)
    except ValueError:
        raise UsageError(
            f"{child[:_QUOTE_LENGTH]!r} is no address",
            remedy="write it as `pgm status --detail` does, as in: release 10.0.2.7",
        ) from None


def _description(change: _Change) -> str:
    where = "" if change.segment is None else f" on {change.segment}"
    return f"{change.name}{where} = {change.new}, was {change.old}"


def _text(value: object, key: str) -> str:
    if not isinstance(value, str) or not value:
        raise UsageError(f"{key} is missing or no text", remedy=f"as in {_EXAMPLES.get(key, _EXAMPLES['settings'])}")
    return value


def _texts(value: object, key: str) -> list[str]:
    if not isinstance(value, list):
        raise UsageError(f"{key} is no list", remedy=f"as in {_EXAMPLES['names']}")
    return [_text(text, key) for text in value]


def _with_article(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"
