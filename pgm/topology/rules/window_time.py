"""Rule that a window outlasts the repairs from it: a sum of the timers of one recovery in which packets are lost again.

The terms follow a packet that is lost at the end of a burst, and at each step `_IN_A_ROW` further packets in a row. Bérard,
Bouyer and Petit ("Analysing the PGM protocol with UPPAAL", 2004) show that PGM delivers all data only for some values of its
parameters; Boyer and Sighireanu ("Synthesis and verification of constraints in the PGM protocol", FME 2003) find that the
constraint between them is not linear. Here it is not, because each repeat doubles the wait before the next one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator

import attrs

from pgm.parameters import ROWS
from pgm.topology.locate import KeyPath
from pgm.topology.model import NodeTable, StreamTable
from pgm.topology.node_plan import Role
from pgm.topology.precedence import Settings, settings_of, streams_of, value_of
from pgm.topology.rules.rule import Rule, RuleFinding
from pgm.topology.tree import Tree
from pgm.units import MILLISECOND, SECOND, format_duration

_IN_A_ROW = 3  # with losses of 1 % each way, four losses in a row are one in 10^7 repairs
_SHOWN = 3  # maximum node names in one finding
_WAITING_FLOWS = ("acked", "yield")  # whose windows wait for receivers


@attrs.frozen
class WaitTerm:
    """Part of the longest repair, in ns, with the keys that make it."""

    name: str
    keys: tuple[str, ...]
    ns: int

    @property
    def text(self) -> str:
        """Return the term for people."""
        return f"{format_duration(self.ns)} {self.name} ({', '.join(self.keys)})"


@attrs.frozen
class _Server:
    """First server of a node's NAKs, and the aggregators on the way."""

    node: NodeTable
    between: tuple[NodeTable, ...]


@attrs.frozen
class _Window:
    """Time for which a server keeps the packets of a stream, and the key that limits it."""

    server: NodeTable
    stream: str  # empty for the cache of a repairer
    ns: int
    key: str
    path: KeyPath

    @property
    def text(self) -> str:
        kept = f"the window of the stream {self.stream!r} at" if self.stream else "the cache of"
        return f"{kept} {self.server.name!r} keeps packets for {format_duration(self.ns)} ({self.key})"


def repair_terms(tree: Tree, node: NodeTable, server: _Server, source: Settings) -> list[WaitTerm]:
    """Return the terms of the longest repair of a packet for a node, from its sending on."""
    own = tree.settings[node.name]

    def of(key: str) -> int:
        return value_of(own, key)

    beats = _repeated(value_of(source, "ihb_min"), value_of(source, "ihb_max"), _IN_A_ROW + 1)
    naks, repairs = (min(_IN_A_ROW, of(key)) for key in ("nak_ncf_retries", "nak_data_retries"))
    back_off = of("nak_bo_ivl")
    terms = [
        WaitTerm(f"until a heartbeat after {_IN_A_ROW} lost ones", ("ihb_min", "ihb_max"), beats),
        WaitTerm("until the first NAK", ("reorder_ivl", "nak_bo_ivl"), of("reorder_ivl") + back_off),
    ]
    if node.role is Role.REPAIRER and tree.siblings_of(node):
        terms.append(WaitTerm("for two NAKs to other repairers", ("nak_rpt_ivl",), 2 * of("nak_rpt_ivl")))
    for key, times, name in (("nak_rpt_ivl", naks, "lost NAKs"), ("nak_rdata_ivl", repairs, "lost repairs")):
        waits = _repeated(of(key), max(of(key), of("nak_max_ivl")), times) + times * back_off
        terms.append(WaitTerm(f"for {times} {name}", (key, "nak_max_ivl", "nak_bo_ivl"), waits))
    for element in server.between:
        at = tree.settings[element.name]
        step = SECOND // max(1, value_of(at, "ne_nak_rpt_rte"))
        lasts = min(_repeated(step, max(step, value_of(at, "nak_max_ivl")), _IN_A_ROW), value_of(at, "ne_nak_rpt_ivl"))
        terms.append(
            WaitTerm(f"for {_IN_A_ROW} lost NAKs of {element.name}", ("ne_nak_rpt_rte", "ne_nak_rpt_ivl"), lasts)
        )
    hold = value_of(tree.settings[server.node.name], "rdata_hold_ivl")
    travel = (len(server.between) + 1) * tree.topology.rtt
    terms.append(WaitTerm("for the repair to leave and arrive", ("rdata_hold_ivl", "rtt"), hold + travel))
    return terms


def _repeated(first: int, most: int, times: int) -> int:
    """Return the sum of waits, each of which is twice as long as the one before it, up to `most`."""
    return sum(min(most, first << number) for number in range(times))


def _server_of(tree: Tree, node: NodeTable) -> _Server | None:
    """Return the first server of a node's NAKs, by the first of its parents; None if a name is unknown."""
    between: list[NodeTable] = []
    names = node.parents
    while parents := tree.named(names[:1]):
        [parent] = parents
        if parent.role is not Role.AGGREGATOR:
            return None if parent.role is Role.RECEIVER else _Server(parent, tuple(between))
        if parent in between:
            return None
        between.append(parent)
        # An aggregator passes the NAK of one of its own repairers upstream only.
        names = parent.parents if node.name in parent.repairers else (*parent.repairers, *parent.parents)
    return None


_SourceSettings = Callable[[NodeTable, StreamTable], Settings]


def _settings_of_sources(tree: Tree) -> _SourceSettings:
    """Return a function that gives the settings of a source for one of its streams. Each is made once for all nodes."""
    known: dict[tuple[str, str], Settings] = {}

    def settings(source: NodeTable, stream: StreamTable) -> Settings:
        key = source.name, stream.name
        if key not in known:
            known[key] = settings_of(tree.topology, source, [stream])
        return known[key]

    return settings


def _windows(
    tree: Tree, node: NodeTable, server: NodeTable, settings: _SourceSettings
) -> Iterator[tuple[_Window, Settings]]:
    """Yield the windows of a server for a node's streams, each with the settings of a source of the stream."""
    wanted = {stream.name for stream in streams_of(tree.topology, node)}
    for source in tree.sources_above(node) if server.role is Role.REPAIRER else [server]:
        for stream in streams_of(tree.topology, source):
            if stream.name not in wanted:
                continue
            own = settings(source, stream)
            if server.role is Role.REPAIRER:
                yield _cache_of(server, tree.settings[server.name]), own
            elif stream.flow not in _WAITING_FLOWS and (window := _window_of(source, stream, own)) is not None:
                yield window, own


def _of_key(node: NodeTable, stream: str, key: str, own: Settings, ns: int | None = None) -> _Window:
    setting = own.get(key)
    path = ("nodes", node.name) if setting is None or setting.path == ("profile",) else setting.path
    return _Window(node, stream, value_of(own, key) if ns is None else ns, key, path)


def _cache_of(repairer: NodeTable, own: Settings) -> _Window:
    """Return the time for which a repairer keeps packets, at the rate of all its streams."""
    octets_ns = value_of(own, "cache_bytes") * SECOND // max(1, value_of(own, "txw_max_rte"))
    lasts = _of_key(repairer, "", "cache_secs", own)
    return lasts if lasts.ns <= octets_ns else _of_key(repairer, "", "cache_bytes", own, octets_ns)


def _window_of(source: NodeTable, stream: StreamTable, own: Settings) -> _Window | None:
    """Return the shortest time for which a source at its full rate keeps packets of full size. The application may decide."""
    mode, rate = own.get("txw_adv_mode"), max(1, value_of(own, "txw_max_rte"))
    if mode is not None and mode.value == "application":
        return None
    found = [_of_key(source, stream.name, "txw_secs", own)]
    if octets := value_of(own, "txw_bytes"):
        kept = _of_key(source, stream.name, "txw_bytes", own, octets * SECOND // rate)
        found = [kept] if mode is not None and mode.value == "data" else [*found, kept]
    if packets := value_of(own, "txw_sqns"):
        ns = packets * value_of(own, "max_tpdu") * SECOND // rate
        found.append(_of_key(source, stream.name, "txw_sqns", own, ns))
    return min(found, key=lambda window: window.ns)


def _outlasts(tree: Tree) -> Iterator[RuleFinding]:
    groups: defaultdict[tuple[str, str, tuple[WaitTerm, ...]], dict[str, _Window]] = defaultdict(dict)
    settings = _settings_of_sources(tree)
    for node in tree.nodes:
        server = _server_of(tree, node) if node.role in (Role.RECEIVER, Role.REPAIRER) else None
        if server is None:
            continue
        for window, source in _windows(tree, node, server.node, settings):
            terms = tuple(repair_terms(tree, node, server, source))
            if window.ns < sum(term.ns for term in terms):
                groups[window.server.name, window.stream, terms][node.name] = window
    for (_, _, terms), found in groups.items():
        nodes, window = list(found), next(iter(found.values()))
        more = f" and {len(nodes) - _SHOWN} more" if len(nodes) > _SHOWN else ""
        total = sum(term.ns for term in terms)
        message = (
            f"{window.text}, and a repair for {', '.join(nodes[:_SHOWN])}{more} may take {format_duration(total)}: "
            f"{' + '.join(term.text for term in terms)}"
        )
        yield RuleFinding(window.path, message, _remedy(window, total, terms), (("streams",), ("segments",)))


def _remedy(window: _Window, total: int, terms: tuple[WaitTerm, ...]) -> str:
    """Return the least window, and the keys of the largest term."""
    ways = []
    step = SECOND if total >= 10 * SECOND else 100 * MILLISECOND
    least = -(-total // step) * step
    if window.key.endswith("_secs") and least <= ROWS[window.key].high:
        key = "window" if window.path[-1] == "window" else window.key
        ways.append(f'set {key} = "{format_duration(least)}" or more')
    elif window.ns:
        ways.append(f"set {window.key} to {-(-total // window.ns)} times as much")
    largest = max(terms, key=lambda term: term.ns)
    ways.append(f"shorten {' or '.join(largest.keys)}, which make {format_duration(largest.ns)} of it")
    if not window.stream:
        return ", or ".join(ways)
    return ", or ".join([*ways, "put a repairer nearer to these nodes"])


# fmt: off
RULES = (
    Rule("outlasts", f"The transmit window, and the cache of a repairer, keep packets for longer than a repair takes in which {_IN_A_ROW} packets in a row are lost at each step: heartbeats, NAKs, NAKs of each aggregator on the way, and repairs. Streams of flow `acked` or `yield` are left out, because their windows wait for receivers.", _outlasts, is_warning=True),
)
# fmt: on
