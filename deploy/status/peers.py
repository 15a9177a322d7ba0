"""Names of nodes by their addresses, for tables and events that tell of peers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import attrs

from pgm.fleet.nodes import NodeRecord
from pgm.telemetry.snapshot import Snapshot
from pgm.topology.node_plan import NodePlan

_MOST_SHARING = 3  # nodes of one address that are named: receivers of a host may share one
# Words with the form of an address; the table decides. A port may follow an IPv4 address.
_ADDRESS = re.compile(
    r"(?<![\w.:])(?:\d{1,3}(?:\.\d{1,3}){3}|[0-9a-fA-F]{0,4}(?::[0-9a-fA-F]{0,4}){2,7})(?!\w|:\w*:|\.\d)"
)


@attrs.frozen
class PeerNames:
    """Names of the nodes of one tree by address."""

    names: Mapping[str, str] = attrs.field(factory=dict)

    @classmethod
    def of(cls, places: Iterable[tuple[str | None, str]]) -> PeerNames:
        """Return the names of pairs of address and node. An address of too many nodes has no name."""
        nodes: dict[str, dict[str, None]] = {}
        for address, node in places:
            if address is not None:
                nodes.setdefault(address, {})[node] = None
        return cls({address: " or ".join(own) for address, own in nodes.items() if len(own) <= _MOST_SHARING})

    @classmethod
    def of_nodes(cls, nodes: Iterable[NodeRecord], topology: str) -> PeerNames:
        """Return the names in a view, as the nodes tell their addresses and as the file plans them."""
        own = [node for node in nodes if node.topology == topology]
        return cls.of((place.address, node.name) for node in own for place in (*node.places, *node.planned_places))

    @classmethod
    def of_status(cls, rows: Iterable[Snapshot], plans: Iterable[NodePlan]) -> PeerNames:
        """Return the names of nodes that answer, and of planned ones."""
        told = [(segment["address"], row["node"]) for row in rows for segment in row["segments"]]
        return cls.of([*told, *((one.address, plan.name) for plan in plans for one in plan.segments)])

    def spell(self, address: str) -> str:
        """Return the name of an address with the address, or the address alone."""
        return f"{self.names[address]} ({address})" if address in self.names else address

    def in_text(self, text: str) -> str:
        """Return a text with the names of its addresses, except where the name stands beside the address already."""
        return _ADDRESS.sub(lambda match: self._named(match, text), text)

    def _named(self, match: re.Match[str], text: str) -> str:
        name = self.names.get(match[0])
        is_named = name is None or text[: match.start()].endswith((f"{name} (", f"{name}, "))
        return match[0] if is_named else self.spell(match[0])


NO_NAMES = PeerNames()
