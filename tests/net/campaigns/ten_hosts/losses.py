"""Losses of each kind, and the verdicts of `pgm explain` about them."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Sequence
from typing import Any

import attrs

from tests.net.campaigns.ten_hosts.network import Hosts, address
from tests.net.campaigns.ten_hosts.planting import (
    INTO_FAR,
    NAK,
    NCF,
    ODATA,
    RDATA,
    Planter,
    Rule,
    between,
    into,
    out_of,
    overflow,
    until_all_had,
)

_AHEAD = 120  # packets until the first planted loss: the rules are there by then
_APART = 25  # packets between two planted losses
_DROPS = 60  # packets that a stopped node's kernel drops
_REFUSED = 12  # packets that a kernel refuses
_READ_S = 0.3  # until the recorders have read how far their sessions have come
_TRIES = 4  # of a question to the fleet on a busy machine

# name, where, conditions, node that explains, expected kind, node and segment
LINKS = (
    ("out of source", "switch", out_of("source", "core"), "desk-1", "segment", "", "core"),
    ("into relay-a", "switch", into("relay-a", "core"), "desk-1", "link", "relay-a", "core"),
    ("into relay-b", "switch", into("relay-b", "core"), "desk-3", "link", "relay-b", "core"),
    ("into hall-1", "switch", into("hall-1", "core"), "hall-1", "link", "hall-1", "core"),
    ("out of relay-a", "switch", out_of("relay-a", "floor-a"), "desk-2", "segment", "", "floor-a"),
    ("into keeper-a", "switch", into("keeper-a", "floor-a"), "keeper-a", "link", "keeper-a", "floor-a"),
    ("into desk-1", "switch", into("desk-1", "floor-a"), "desk-1", "link", "desk-1", "floor-a"),
    ("into desk-2", "switch", into("desk-2", "floor-a"), "desk-2", "link", "desk-2", "floor-a"),
    ("out of relay-b", "switch", out_of("relay-b", "floor-b"), "desk-4", "segment", "", "floor-b"),
    ("into keeper-b", "switch", into("keeper-b", "floor-b"), "keeper-b", "link", "keeper-b", "floor-b"),
    ("into desk-3", "switch", into("desk-3", "floor-b"), "desk-3", "link", "desk-3", "floor-b"),
    ("into desk-4", "switch", into("desk-4", "floor-b"), "desk-4", "link", "desk-4", "floor-b"),
    ("through router-2", "leg", INTO_FAR, "far-1", "link", "far-1", "leg"),
    ("relay-b, one hop above", "switch", into("relay-b", "core"), "far-1", "link", "relay-b", "core"),
)
SOCKETS = (
    ("desk-1", "desk-1", "floor-a"),
    ("relay-a", "desk-2", "core"),
    ("keeper-a", "keeper-a", "floor-a"),
    ("hall-1", "hall-1", "core"),
    ("relay-b", "far-1", "core"),
    ("keeper-b", "keeper-b", "floor-b"),
    ("desk-3", "desk-3", "floor-b"),
    ("far-1", "far-1", "leg"),
)
# name, further losses, expected kind of the repair; all of a loss on the link into desk-1, whose parent is keeper-a
REPAIRS = (
    ("NAK of desk-1", NAK, between("desk-1", "keeper-a", "floor-a"), "nak-lost"),
    ("NCF to desk-1", NCF, between("keeper-a", "desk-1", "floor-a"), "ncf-lost"),
    ("RDATA to desk-1", RDATA, between("keeper-a", "desk-1", "floor-a"), "rdata-lost"),
)


@attrs.frozen
class Planted:
    """One planted loss: a packet, the node that explains it, and the verdict that is right."""

    kind: str
    name: str
    sqn: int
    at: str
    loss: tuple[str, str, str]  # kind, node and segment; an empty node stands for a whole segment
    repair: tuple[str, str, str] | None = None  # kind, other node, cause; None: any
    cause: str = ""  # why the node lost the packet in the end; empty: any


@attrs.frozen
class Verdict:
    """Answer of `pgm explain` to one planted loss."""

    planted: Planted
    answer: dict[str, Any]
    tries: int

    @property
    def loss(self) -> tuple[str, str, str]:
        """Return kind, node and segment of the answer."""
        told = self.answer.get("loss", {})
        node = "" if told.get("kind") == "segment" else told.get("node", "")
        return told.get("kind", ""), node, told.get("segment", "")

    @property
    def repair(self) -> tuple[str, str, str]:
        """Return kind, other node and cause of the answer's repair."""
        told = self.answer.get("repair", {})
        return told.get("kind", ""), told.get("other", ""), told.get("cause", "")

    @property
    def is_right(self) -> bool:
        """Whether the answer names the place, without doubt."""
        is_sure = self.answer.get("loss", {}).get("is_certain") is True
        causes = [row["cause"] for row in self.answer.get("nodes", ()) if row["node"] == self.planted.at]
        is_sure = is_sure and self.planted.cause in ("", *causes)
        return is_sure and self.loss == self.planted.loss and self.planted.repair in (None, self.repair)

    @property
    def row(self) -> tuple[str, str, str, str]:
        """Return kind, planted place, verdict, and whether it is right."""
        wanted = self.planted.loss if self.planted.repair is None else (*self.planted.loss, *self.planted.repair)
        told = self.loss if self.planted.repair is None else (*self.loss, *self.repair)
        mark = "right" if self.is_right else "WRONG"
        name = f"{self.planted.name}, {self.planted.sqn} at {self.planted.at}: {_words(wanted)}"
        return self.planted.kind, name, _words(told), mark


def _words(parts: Sequence[str]) -> str:
    return " ".join(part or "-" for part in parts)


def ask(ten: Hosts, planted: Planted) -> Verdict:
    """Ask the fleet about a loss, again if a host was too busy to answer."""
    answer: dict[str, Any] = {}
    time.sleep(_READ_S)
    for tries in range(1, _TRIES + 1):  # noqa: B007
        words = ["explain", "s", str(planted.sqn), str(ten.file), "--fleet", "--json", "--at", planted.at]
        done = ten.operate(*words)
        answer = json.loads(done.out) if done.code == 0 else {"error": done.log or done.out}
        if done.code == 0 and "answer" not in done.log:
            break
    return Verdict(planted, answer, tries)


def plant_links(ten: Hosts, planter: Planter, count: int, rng: random.Random) -> list[Planted]:
    """Lose one packet on each of so many links, and wait for the repairs."""
    first = ten.lead() + _AHEAD
    chosen = [LINKS[at % len(LINKS)] for at in range(count)]
    rng.shuffle(chosen)
    rules, found = [], []
    for at, (name, where, way, node, *loss) in enumerate(chosen):
        sqn = first + at * _APART + rng.randrange(_APART // 2)
        rules.append(Rule(where, way, ODATA, sqn))
        kind, lost_at, segment = loss
        found.append(Planted("link", name, sqn, node, (kind, lost_at, segment)))
    planter.plant(rules)
    _wait(ten, planter, found, at_least=count)
    return found


def plant_refusals(ten: Hosts, planter: Planter) -> list[Planted]:
    """Let the kernels of a source and of a relay refuse some packets."""
    found, rules = [], []
    sqn = ten.lead() + _AHEAD
    for at, (host, segment, node) in enumerate((("source", "core", "hall-1"), ("relay-a", "floor-a", "desk-1"))):
        first = sqn + at * 2 * _APART
        own = f"ip saddr {address(host, segment)}"
        rules.append(Rule(host, own, ODATA, first, count=_REFUSED))  # a rule sees the first packet of a train alone
        middle = first + _REFUSED // 2
        found.append(Planted("send", f"kernel of {host}", middle, node, ("send-failed", host, segment)))
    planter.plant(rules)
    _wait(ten, planter, found, at_least=2)
    return found


def plant_repairs(ten: Hosts, planter: Planter) -> list[Planted]:
    """Lose a packet to desk-1, and then one packet of its repair."""
    found, rules = [], []
    first = ten.lead() + _AHEAD
    for at, (name, kind, way, repair) in enumerate(REPAIRS):
        sqn = first + at * 2 * _APART
        rules.append(Rule("switch", into("desk-1", "floor-a"), ODATA, sqn))
        rules.append(Rule("switch", way, kind, sqn, is_once=True))
        loss = ("link", "desk-1", "floor-a")
        found.append(Planted("repair", name, sqn, "desk-1", loss, (repair, "keeper-a", "")))
    planter.plant(rules)
    _wait(ten, planter, found, at_least=2 * len(found))
    return found


def plant_overflows(ten: Hosts) -> list[Planted]:
    """Stop one node after the other, until its socket is full."""
    found = []
    for node, at, segment in SOCKETS:
        sqns = overflow(ten, node, _DROPS)
        found.append(Planted("socket", f"socket of {node}", sqns[len(sqns) // 2], at, ("socket-buffer", node, segment)))
        until_all_had(ten, ten.lead())
    return found


def _wait(ten: Hosts, planter: Planter, planted: Sequence[Planted], at_least: int) -> None:
    until_all_had(ten, max(one.sqn for one in planted) + 2)
    assert planter.dropped() >= at_least, "rules came too late"
    planter.clear()
