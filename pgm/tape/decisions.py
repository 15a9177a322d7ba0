"""Decisions of a replayed core: for each input what arrived, and what the core did, for people and for scripts.

A decision has an action: the id of an event, or a verb such as `sends-nak`. Breakpoints name actions.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import attrs
import numpy as np

from pgm.core.effects import Deliver, Effect, Evidence, Save, Send, Snapshot, SnapshotWanted
from pgm.core.events import EVENTS, id_of, text_of
from pgm.core.loss_observer import MissingView
from pgm.tape.replay import Replay, ReplayStep
from pgm.units import MICROSECOND, NEVER, SECOND
from pgm.wire.control_packets import Nak, Packet
from pgm.wire.formats import Nla, PacketType, Tsi, tsi_text
from pgm.wire.sequence_numbers import spans_of
from pgm.wire.train import Data, DataWithGaps, Item, Train

# Actions beside the ids of events.
ACTIONS = {
    "sends-odata": "The node sends new data.",
    "sends-rdata": "The node sends a repair.",
    "sends-nak": "The node requests packets.",
    "sends-ncf": "The node confirms a request.",
    "sends-spm": "The node tells its path and window.",
    "sends-other": "The node sends another control packet.",
    "delivers": "The application gets packets.",
    "saves": "The cache file gets packets.",
    "misses": "The node has found that packets are missing.",
    "repaired": "Missing packets have arrived.",
    "confirmed": "An NCF answers the own request.",
    "suppressed": "Another node has requested missing packets first.",
    "timed-out": "No NCF, or no repair, has come in time.",
    "gives-up": "The node requests missing packets no more.",
    "skips": "Missing packets were never sent.",
    "parent": "Requests go to another parent from now on.",
    "refuses": "The core refuses a call of the application.",
    "snapshot": "The application gives or gets a state.",
}
_KINDS = {
    PacketType.ODATA: "odata", PacketType.RDATA: "rdata", PacketType.NAK: "nak", PacketType.NCF: "ncf",
    PacketType.SPM: "spm",
}  # fmt: skip
_MOST_SPANS = 8  # in a text


@attrs.frozen
class SqnSpan:
    """Sqns `first` to `end - 1` of a session, in the numbers of the wire for packets."""

    tsi: str
    first: int
    end: int

    def __str__(self) -> str:
        return str(self.first) if self.end - self.first == 1 else f"{self.first}-{self.end - 1}"


@attrs.frozen
class Decision:
    """One thing that the core did."""

    action: str
    more: str = ""  # behind the sqns
    spans: tuple[SqnSpan, ...] = ()
    whole: str = ""  # the text in place of sqns and `more`

    @property
    def text(self) -> str:
        """Return the decision in words."""
        return self.whole or f"{_text_of(self.spans)}{self.more}".lstrip()

    def row(self) -> dict[str, Any]:
        """Return the decision for scripts."""
        return {
            "action": self.action,
            "text": self.text,
            "sqns": [{"tsi": span.tsi, "first": span.first, "end": span.end} for span in self.spans],
        }


@attrs.frozen
class DecidedStep:
    """One input in words, and the decisions of the core about it. Times are in ns since the tape's first state."""

    number: int
    at_ns: int
    arrival: str
    decisions: tuple[Decision, ...]
    deadline_ns: int | None  # of the core's next timer; None without one
    name: str
    peer: Nla
    spans: tuple[SqnSpan, ...]  # sqns of the packets that arrived

    def has(self, actions: Sequence[str]) -> bool:
        """Return whether the core did one of some things."""
        return any(decision.action in actions for decision in self.decisions)

    def concerns(self, sqn: int) -> bool:
        """Return whether the core did something about a sqn of any session."""
        return any(span.first <= sqn < span.end for decision in self.decisions for span in decision.spans)

    def lines(self) -> Iterator[str]:
        """Yield the step for people."""
        yield f"{self.at_ns / SECOND:+.6f} s  {self.number}  {self.arrival}"
        for decision in self.decisions:
            yield f"    {decision.action}: {decision.text}"

    def row(self) -> dict[str, Any]:
        """Return the step for scripts."""
        return {
            "input": self.number,
            "at_us": self.at_ns // MICROSECOND,
            "name": self.name,
            "peer": self.peer,
            "arrival": self.arrival,
            "did": [decision.row() for decision in self.decisions],
            "next_timer_us": None if self.deadline_ns is None else self.deadline_ns // MICROSECOND,
        }


class DecisionLog:
    """Log of a replay, whose core reports its decisions about losses to it."""

    def __init__(self, replay: Replay) -> None:
        self._replay = replay
        self._noted: list[Decision] = []
        replay.core.counters.watch = self

    def steps(self) -> Iterator[DecidedStep]:
        """Yield each step of the replay."""
        for step in self._replay.steps():
            noted, self._noted = self._noted, []
            decisions = [*noted, *(decision for effect in step.effects for decision in _decisions_of(effect))]
            if step.refused:
                decisions.append(Decision("refuses", whole=step.refused))
            items = _items_of(step)
            yield DecidedStep(
                step.number,
                step.record.now_ns - self._replay.begun_ns,
                _arrival_of(step, items),
                tuple(_merged(decisions)),
                None if step.deadline_ns == NEVER else step.deadline_ns - self._replay.begun_ns,
                step.name,
                step.peer,
                tuple(span for item in items for span in _spans_of(item)),
            )

    # Reports of the core about losses (`pgm.core.loss_observer`)

    def _note(self, action: str, tsi: Tsi, first: int, end: int, more: str = "") -> None:
        span = SqnSpan(tsi_text(tsi), first, end)
        self._noted.append(Decision(action, more, (span,)))

    def missing(self, tsi: Tsi, first: int, end: int, now_ns: int) -> None:
        """Note a gap."""
        self._note("misses", tsi, first, end)

    def arrived(self, tsi: Tsi, found: Sequence[MissingView], now_ns: int) -> None:
        """Note missing packets that have arrived."""
        for missing in found:
            waited_us = (now_ns - missing.found_at_ns) // MICROSECOND
            tries = missing.ncf_retries + missing.data_retries
            self._note(
                "repaired", tsi, missing.first, missing.end,
                f" after {waited_us / 1000:.3f} ms in {missing.state_name}, retries {tries}",
            )  # fmt: skip

    def filled(self, kind: PacketType, peer: Nla) -> None:
        """Do nothing: the input shows the packets and their sender."""

    def skipped(self, tsi: Tsi, first: int, end: int) -> None:
        """Note sqns that were never sent."""
        self._note("skips", tsi, first, end)

    def gave_up(self, tsi: Tsi, found: MissingView, now_ns: int) -> None:
        """Note packets that are requested no more."""
        tries = found.ncf_retries + found.data_retries
        self._note("gives-up", tsi, found.first, found.end, f" in {found.state_name} after {tries} retries")

    def confirmed(self, tsi: Tsi, found: MissingView, now_ns: int) -> None:
        """Note an NCF for the own request."""
        self._note("confirmed", tsi, found.first, found.end)

    def suppressed(self, tsi: Tsi, found: MissingView, now_ns: int) -> None:
        """Note a request of another node."""
        self._note("suppressed", tsi, found.first, found.end)

    def timed_out(self, tsi: Tsi, found: MissingView, now_ns: int) -> None:
        """Note a wait that has ended without an answer."""
        tries = found.ncf_retries + found.data_retries
        self._note("timed-out", tsi, found.first, found.end, f" in {found.state_name}, retry {tries}")

    def mended(self, tsi: Tsi, first: int, end: int) -> None:
        """Note packets that an aggregator had missed."""
        self._note("repaired", tsi, first, end)

    def line_came(self, tsi: Tsi, segment: str, end: int, lost: int, behind_ns: int, now_ns: int) -> None:
        """Do nothing: a line comes with each packet."""

    def parent_changed(self, old: Nla | None, new: Nla | None) -> None:
        """Note another parent."""
        self._noted.append(Decision("parent", whole=f"{old or 'none'} to {new or 'none'}"))


def _merged(decisions: Sequence[Decision]) -> Iterator[Decision]:
    """Yield decisions, with consecutive ones that say the same as one."""
    for (_, _, whole), group in itertools.groupby(decisions, lambda one: (one.action, one.more, one.whole)):
        first, *others = group
        if others and not whole:
            yield attrs.evolve(first, spans=_joined([span for one in (first, *others) for span in one.spans]))
        else:
            yield from (first, *others)


def _joined(spans: Sequence[SqnSpan]) -> tuple[SqnSpan, ...]:
    joined: list[SqnSpan] = []
    for span in spans:
        if joined and joined[-1].tsi == span.tsi and joined[-1].end == span.first:
            joined[-1] = attrs.evolve(joined[-1], end=span.end)
        else:
            joined.append(span)
    return tuple(joined)


def is_action(name: str) -> bool:
    """Return whether a breakpoint may have a name."""
    return name in ACTIONS or name in EVENTS


# Inputs


def _items_of(step: ReplayStep) -> list[Item]:
    return [] if step.train is None else step.train.parse_untrusted()[0]


def _arrival_of(step: ReplayStep, items: Sequence[Item]) -> str:
    if step.train is None or step.channel is None:
        if step.name == "handle_deadline":
            return "timer"
        return f"{step.name}({', '.join(_argument(argument) for argument in step.arguments)})"
    how = "multicast" if step.channel.is_group else "unicast"
    rejects = step.train.parse_untrusted()[1]
    contents = [_item_text(item) for item in items] + [f"rejected: {reason}" for reason in rejects]
    return f"{'; '.join(contents) or 'nothing'} from {step.peer} by {how} on {step.channel.segment.name}"


def _argument(value: Any) -> str:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return f"{len(value)} octets"
    if isinstance(value, (list, tuple)) and value and isinstance(value[0], (bytes, bytearray)):
        return f"{len(value)} messages of {sum(map(len, value))} octets"
    if isinstance(value, np.ndarray):
        return f"{value.shape[0]} messages of {value.nbytes} octets"
    return str(value) if isinstance(value, (int, str, bool)) else type(value).__name__


def _item_text(item: Item | DataWithGaps) -> str:
    kind = item.data.type.name if isinstance(item, DataWithGaps) else item.type.name
    parity = " parity" if isinstance(item, Data) and item.parity else ""
    return f"{kind}{parity} {_text_of(_spans_of(item))}".rstrip()


def _spans_of(item: Item | DataWithGaps) -> list[SqnSpan]:
    tsi = tsi_text(item.tsi)
    if isinstance(item, Data):
        return [SqnSpan(tsi, item.wire_sqn, item.wire_sqn + item.count)]
    if isinstance(item, DataWithGaps):
        return [span for piece in item.pieces() for span in _spans_of(piece)]
    if isinstance(item, Nak):
        return [SqnSpan(tsi, first, end) for first, end in spans_of(item.sqns)]
    return []


def _text_of(spans: Sequence[SqnSpan]) -> str:
    more = f" and {len(spans) - _MOST_SPANS} more" if len(spans) > _MOST_SPANS else ""
    return ", ".join(map(str, spans[:_MOST_SPANS])) + more


# Effects


def _decisions_of(effect: Effect) -> list[Decision]:
    if isinstance(effect, Send):
        return _sends_of(effect)
    if isinstance(effect, Deliver):
        span = SqnSpan(tsi_text(effect.tsi), effect.run.first, effect.run.end)
        return [Decision("delivers", spans=(span,))]
    if isinstance(effect, Evidence):
        return []
    if isinstance(effect, Save):
        return [Decision("saves", whole=f"{effect.run.count} packets")]
    if isinstance(effect, (Snapshot, SnapshotWanted)):
        return [Decision("snapshot", whole=type(effect).__name__)]
    spans: tuple[SqnSpan, ...] = ()
    first, count = getattr(effect, "first", None), getattr(effect, "count", None)
    if first is not None and count is not None:
        spans = (SqnSpan(tsi_text(effect.tsi), first, first + count),)  # type: ignore[union-attr]
    return [Decision(id_of(effect), spans=spans, whole=text_of(effect))]


def _sends_of(send: Send) -> list[Decision]:
    where = send.to or f"all of {send.segment.name}"
    octets = send.octets if isinstance(send.octets, (bytes, np.ndarray)) else bytes(send.octets)
    items = Train.of(octets, send.stride).parse_untrusted()[0]
    return [_send_of(item, where) for item in items]


def _send_of(item: Data | Packet, where: str) -> Decision:
    kind = _KINDS.get(item.type, "other")
    spans = _spans_of(item)
    name = item.type.name if kind == "other" else ""
    return Decision(f"sends-{kind}", f"{name} to {where}", tuple(spans))
