"""Reliable multicast with local repair, after RFC 3208: the public names.

`open_source`, `open_receiver` and `open_node` are for trio and asyncio; `pgm.blocking` has the same names for ordinary
threads. The module of a name is loaded at the first use of the name. A program that imports a part of the package, such
as an executor of Spark, loads that part alone.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pgm.core.effects import (
        CloseCause,
        Closed,
        Conflict,
        Forged,
        LossCause,
        Lost,
        Notice,
        Opened,
        Snapshot,
    )
    from pgm.core.events import EventKind
    from pgm.core.events import kind_of as event_of
    from pgm.errors import PgmError, TopologyError, TransportError, UsageError
    from pgm.messages.subjects import Subscription
    from pgm.net.durable.position import Position
    from pgm.net.endpoint.node import Node, open_node
    from pgm.net.endpoint.open import open_receiver, open_source
    from pgm.net.endpoint.policies import LossError, SnapshotError
    from pgm.net.endpoint.receiver import Receiver
    from pgm.net.endpoint.source import Source
    from pgm.net.framing.items import Batch, BatchItem, Item, Message, MultipartBatch
    from pgm.net.framing.objects import Object, ObjectItem
    from pgm.net.framing.packed_batch import PackedBatch
    from pgm.topology.model import Topology

__all__ = [
    "Batch",
    "BatchItem",
    "CloseCause",
    "Closed",
    "Conflict",
    "EventKind",
    "Forged",
    "Item",
    "LossCause",
    "LossError",
    "Lost",
    "Message",
    "MultipartBatch",
    "Node",
    "Notice",
    "Object",
    "ObjectItem",
    "Opened",
    "PackedBatch",
    "PgmError",
    "Position",
    "Receiver",
    "Snapshot",
    "SnapshotError",
    "Source",
    "Subscription",
    "Topology",
    "TopologyError",
    "TransportError",
    "UsageError",
    "event_of",
    "open_node",
    "open_receiver",
    "open_source",
]

_HOMES = {
    "Batch": "pgm.net.framing.items",
    "BatchItem": "pgm.net.framing.items",
    "CloseCause": "pgm.core.effects",
    "Closed": "pgm.core.effects",
    "Conflict": "pgm.core.effects",
    "Forged": "pgm.core.effects",
    "EventKind": "pgm.core.events",
    "Item": "pgm.net.framing.items",
    "LossCause": "pgm.core.effects",
    "LossError": "pgm.net.endpoint.policies",
    "Lost": "pgm.core.effects",
    "Message": "pgm.net.framing.items",
    "MultipartBatch": "pgm.net.framing.items",
    "Node": "pgm.net.endpoint.node",
    "Notice": "pgm.core.effects",
    "Object": "pgm.net.framing.objects",
    "ObjectItem": "pgm.net.framing.objects",
    "Opened": "pgm.core.effects",
    "PackedBatch": "pgm.net.framing.packed_batch",
    "PgmError": "pgm.errors",
    "Position": "pgm.net.durable.position",
    "Receiver": "pgm.net.endpoint.receiver",
    "Snapshot": "pgm.core.effects",
    "SnapshotError": "pgm.net.endpoint.policies",
    "Source": "pgm.net.endpoint.source",
    "Subscription": "pgm.messages.subjects",
    "Topology": "pgm.topology.model",
    "TopologyError": "pgm.errors",
    "TransportError": "pgm.errors",
    "UsageError": "pgm.errors",
    "event_of": "pgm.core.events:kind_of",
    "open_node": "pgm.net.endpoint.node",
    "open_receiver": "pgm.net.endpoint.open",
    "open_source": "pgm.net.endpoint.open",
}


if not TYPE_CHECKING:  # a checker would take any name for one of the package

    def __getattr__(name: str) -> object:
        home, _, there = _HOMES.get(name, "").partition(":")
        if not home:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(home), there or name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
