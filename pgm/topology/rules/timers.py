"""Rules about timers and sizes. A finding shows the broken inequality with its values, and valid values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import attrs

from pgm.parameters import ROWS
from pgm.topology.locate import KeyPath
from pgm.topology.model import NodeTable
from pgm.topology.node_plan import Role
from pgm.topology.precedence import Settings, settings_of, streams_of, value_of
from pgm.topology.rules.rule import Rule, RuleFinding
from pgm.topology.tree import Tree
from pgm.units import SECOND, format_duration, format_octets, format_rate

_SHOWN = 3  # maximum node names in one finding


@attrs.frozen
class _Term:
    """Parameter of one node, as a term of an inequality."""

    node: NodeTable
    settings: Settings
    key: str
    factor: int = 1

    @property
    def value(self) -> int:
        return value_of(self.settings, self.key) * self.factor

    @property
    def text(self) -> str:
        name = f"{self.factor} x {self.key}" if self.factor > 1 else self.key
        return f"{name} = {format_duration(self.value)}"

    @property
    def path(self) -> KeyPath | None:
        """Return the key that sets the value, or None for a value of the profile or the default."""
        setting = self.settings.get(self.key)
        return None if setting is None or setting.path == ("profile",) else setting.path


@attrs.frozen
class _Bound:
    """Inequality small < large, or small <= large."""

    small: _Term
    large: _Term
    may_equal: bool = False

    @property
    def holds(self) -> bool:
        return self.small.value < self.large.value or (self.may_equal and self.small.value == self.large.value)


def _findings(bounds: Iterable[_Bound]) -> Iterator[RuleFinding]:
    """Yield the bounds that do not hold. One mistake at the top of the file is one finding for all nodes."""
    groups: dict[tuple[KeyPath | None, KeyPath | None, str, str], list[_Bound]] = {}
    for bound in bounds:
        if not bound.holds:
            key = (bound.small.path, bound.large.path, bound.small.text, bound.large.text)
            groups.setdefault(key, []).append(bound)
    for (small_path, large_path, _, _), group in groups.items():
        first = group[0]
        path = large_path or small_path or ("nodes", first.large.node.name)
        if small_path is not None and small_path[0] == "nodes" and (large_path is None or large_path[0] != "nodes"):
            path = small_path  # a node's own value is the likelier mistake
        yield RuleFinding(path, _message(group), _remedy(first))


def _message(group: list[_Bound]) -> str:
    small, large = group[0].small, group[0].large
    sign = "above" if group[0].may_equal else "not below"
    if small.node is large.node:
        return f"{small.text} is {sign} {large.text} ({_names(bound.large.node for bound in group)})"
    return (
        f"{small.text} ({_names(bound.small.node for bound in group)}) is {sign} "
        f"{large.text} ({_names(bound.large.node for bound in group)})"
    )


def _names(nodes: Iterable[NodeTable]) -> str:
    names = list(dict.fromkeys(node.name for node in nodes))
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _remedy(bound: _Bound) -> str:
    """Return valid values for either side, within the parameters' own bounds."""
    small, large = bound.small, bound.large
    apart = 1 if bound.may_equal else 2
    more, less = apart * small.value, large.value // (apart * small.factor)
    ways = []
    if more <= ROWS[large.key].high:
        ways.append(f'{large.key} = "{format_duration(more)}" or more')
    if less >= ROWS[small.key].low:
        ways.append(f'{small.key} = "{format_duration(less)}" or less')
    return f"set {', or '.join(ways)}"


def _pair(
    node: NodeTable, settings: Settings, small: str, large: str, *, factor: int = 1, may_equal: bool = False
) -> _Bound:
    return _Bound(_Term(node, settings, small, factor), _Term(node, settings, large), may_equal)


def _of_streams(tree: Tree, source: NodeTable) -> list[Settings]:
    return [settings_of(tree.topology, source, [stream]) for stream in streams_of(tree.topology, source)]


def _of_sources(tree: Tree) -> Iterator[tuple[NodeTable, Settings]]:
    sources = (node for node in tree.nodes if node.role is Role.SOURCE)
    return ((node, settings) for node in sources for settings in _of_streams(tree, node))


def _largest(tree: Tree, key: str) -> dict[str, _Term]:
    """Return a parameter of every node by name. A source has the largest value of its streams."""
    terms = {}
    for node in tree.nodes:
        candidates = (_of_streams(tree, node) if node.role is Role.SOURCE else []) or [tree.settings[node.name]]
        terms[node.name] = _Term(node, max(candidates, key=lambda settings: value_of(settings, key)), key)
    return terms


def _of_roles(tree: Tree, *roles: Role) -> Iterator[tuple[NodeTable, Settings]]:
    return ((node, tree.settings[node.name]) for node in tree.nodes if node.role in roles)


def _increment(tree: Tree) -> Iterator[RuleFinding]:
    return _findings(_pair(node, own, "txw_adv_secs", "txw_secs", may_equal=True) for node, own in _of_sources(tree))


def _yielding(tree: Tree) -> Iterator[RuleFinding]:
    for node, own in _of_sources(tree):
        least, most = value_of(own, "txw_min_rte"), value_of(own, "txw_max_rte")
        if least <= most:
            continue
        message = (
            f"txw_min_rte = {format_rate(least)} is above txw_max_rte = {format_rate(most)} ({node.name}): "
            "the source never slows down"
        )
        yield RuleFinding(own["txw_min_rte"].path, message, f'set txw_min_rte = "{format_rate(most // 2)}" or less')


def _heartbeat(tree: Tree) -> Iterator[RuleFinding]:
    return _findings(_pair(node, own, "ihb_min", "ihb_max", may_equal=True) for node, own in _of_sources(tree))


def _silence(tree: Tree) -> Iterator[RuleFinding]:
    beats = _largest(tree, "ihb_max")

    def bounds() -> Iterator[_Bound]:
        for node, own in _of_roles(tree, Role.RECEIVER, Role.AGGREGATOR, Role.REPAIRER):
            for beat in _slowest(tree, node, beats):
                yield _Bound(attrs.evolve(beat, factor=2), _Term(node, own, "stall_ivl"), may_equal=True)
            yield _pair(node, own, "stall_ivl", "peer_expiry")
            yield _pair(node, own, "peer_expiry", "session_expiry")

    return _findings(bounds())


def _slowest(tree: Tree, node: NodeTable, terms: Mapping[str, _Term]) -> list[_Term]:
    """Return the largest term of the sources above a node, or [] without a source."""
    above = [terms[source.name] for source in tree.sources_above(node)]
    return [max(above, key=lambda term: term.value)] if above else []


def _takeover(tree: Tree) -> Iterator[RuleFinding]:
    spm_timers = [_largest(tree, key) for key in ("ambient_spm_ivl", "ihb_max")]

    def bounds() -> Iterator[_Bound]:
        for name, standbys in tree.standbys.items():
            for relay in tree.named([name, *(standby.name for standby in standbys)]):
                takeover = _Term(relay, tree.settings[relay.name], "relay_takeover_ivl")
                for terms in spm_timers:
                    yield from (_Bound(term, takeover) for term in _slowest(tree, relay, terms))

    return _findings(bounds())


def _served(key: str) -> Callable[[Tree], Iterator[RuleFinding]]:
    def find(tree: Tree) -> Iterator[RuleFinding]:
        terms = _largest(tree, key)
        return _findings(
            _Bound(terms[server.name], _Term(node, own, "nak_rdata_ivl")) for node, own, server in _served_nodes(tree)
        )

    return find


def _served_nodes(tree: Tree) -> Iterator[tuple[NodeTable, Settings, NodeTable]]:
    """Yield each node that sends NAKs, with its settings and each server that may answer them."""
    for node, own in _of_roles(tree, Role.RECEIVER, Role.REPAIRER):
        for server in tree.servers_of(node):
            yield node, own, server


def _repeats(tree: Tree) -> Iterator[RuleFinding]:
    ignored = _largest(tree, "rdata_ignore_ivl")

    def first_repeat(node: NodeTable, own: Settings) -> _Term:
        waits = (_Term(node, own, key) for key in ("nak_rdata_min_ivl", "nak_rdata_ivl"))
        return min(waits, key=lambda term: term.value)

    return _findings(
        _Bound(attrs.evolve(ignored[server.name], factor=2), first_repeat(node, own), may_equal=True)
        for node, own, server in _served_nodes(tree)
    )


def _elimination(tree: Tree) -> Iterator[RuleFinding]:
    elements = _of_roles(tree, Role.AGGREGATOR, Role.REPAIRER)
    return _findings(
        _pair(node, own, "nak_elim_ivl", "ne_nak_rdata_ivl", factor=2, may_equal=True) for node, own in elements
    )


def _back_off(tree: Tree) -> Iterator[RuleFinding]:
    """Check the bounds of the back-off. Nodes read these bounds only if they tune the back-off."""

    def bounds() -> Iterator[_Bound]:
        for node, own in _of_roles(tree, Role.SOURCE, Role.AGGREGATOR, Role.REPAIRER):
            tuning = own.get("nak_bo_tuning")
            if tuning is not None and tuning.value != "off":
                yield _pair(node, own, "nak_bo_ivl_min", "nak_bo_ivl_default", may_equal=True)
                yield _pair(node, own, "nak_bo_ivl_default", "nak_bo_ivl_max", may_equal=True)

    return _findings(bounds())


def _polls(tree: Tree) -> Iterator[RuleFinding]:
    parents = _of_roles(tree, Role.SOURCE, Role.AGGREGATOR, Role.REPAIRER)
    return _findings(
        _pair(node, own, "poll_bo_ivl", key, factor=2, may_equal=True)
        for node, own in parents
        for key in ("poll_ivl", "poll_dlr_ivl")
        if value_of(own, key)
    )


def _cache(tree: Tree) -> Iterator[RuleFinding]:
    for node, own in _of_roles(tree, Role.REPAIRER):
        octets, lasts, rate = (value_of(own, key) for key in ("cache_bytes", "cache_secs", "txw_max_rte"))
        needed = rate * lasts // SECOND
        setting = own.get("cache_bytes") or own.get("cache_secs")
        if setting is None or octets >= needed:
            continue  # a node without cache settings accepts the size of the default
        message = (
            f"the cache of {node.name!r} holds {format_octets(octets)}: less than "
            f"{format_rate(rate)} x {format_duration(lasts)} = {_rounded(needed)}"
        )
        remedy = f'set bytes = "{_rounded(needed)}", or seconds = {max(1, octets // max(1, rate))}'
        yield RuleFinding(setting.path, message, remedy, (("streams",),))


def _rounded(octets: int) -> str:
    return format_octets(-(-octets // (1 << 20)) << 20)


# fmt: off
RULES = (
    Rule("increment", "`txw_adv_secs` <= `txw_secs` at a source.", _increment),
    Rule("yielding", "`txw_min_rte` <= `txw_max_rte` at a source.", _yielding),
    Rule("heartbeat", "`ihb_min` <= `ihb_max` at a source.", _heartbeat),
    Rule("silence", "2 x `ihb_max` of every source above <= `stall_ivl` < `peer_expiry` < `session_expiry`.", _silence),
    Rule("takeover", "`ambient_spm_ivl` and `ihb_max` of every source above < `relay_takeover_ivl` of both relays of a pair.", _takeover),
    Rule("ignore", "`rdata_ignore_ivl` of each server < `nak_rdata_ivl` of the nodes that send it NAKs, also through aggregators.", _served("rdata_ignore_ivl")),
    Rule("repeat", "2 x `rdata_ignore_ivl` of each server <= `nak_rdata_min_ivl` and `nak_rdata_ivl` of the nodes that send it NAKs, also through aggregators. Otherwise the server may ignore the first repeat of a NAK, and the repair comes one wait later.", _repeats, is_warning=True),
    Rule("hold", "`rdata_hold_ivl` of each server < `nak_rdata_ivl` of the nodes that send it NAKs, also through aggregators.", _served("rdata_hold_ivl")),
    Rule("elimination", "2 x `nak_elim_ivl` <= `ne_nak_rdata_ivl` at an element (RFC 7.4: a small fraction).", _elimination),
    Rule("back-off", "`nak_bo_ivl_min` <= `nak_bo_ivl_default` <= `nak_bo_ivl_max` if `nak_bo_tuning` is on.", _back_off),
    Rule("polls", "2 x `poll_bo_ivl` <= `poll_ivl` and `poll_dlr_ivl`, unless those are 0.", _polls),
    Rule("cache", "`cache.bytes` of a repairer holds `cache.seconds` at the rate of its streams.", _cache, is_warning=True),
)
# fmt: on
