"""Reliable multicast with local repair, after RFC 3208: the public names.

`open_source` and `open_receiver` are for trio; `pgm.blocking` has the same for ordinary threads.
"""

from pgm.core.effects import CloseCause, Closed, LossCause, Lost, Notice, Opened
from pgm.core.events import EventKind
from pgm.core.events import kind_of as event_of
from pgm.errors import PgmError, TopologyError, TransportError, UsageError
from pgm.messages.subjects import Subscription
from pgm.net.items import Batch, Message, MultipartBatch
from pgm.net.objects import Object
from pgm.net.open import open_receiver, open_source
from pgm.net.packed import PackedBatch
from pgm.net.policies import LossError
from pgm.net.receiver import Receiver
from pgm.net.source import Source
from pgm.topology.model import Topology

__all__ = [
    "Batch",
    "CloseCause",
    "Closed",
    "EventKind",
    "LossCause",
    "LossError",
    "Lost",
    "Message",
    "MultipartBatch",
    "Notice",
    "Object",
    "Opened",
    "PackedBatch",
    "PgmError",
    "Receiver",
    "Source",
    "Subscription",
    "Topology",
    "TopologyError",
    "TransportError",
    "UsageError",
    "event_of",
    "open_receiver",
    "open_source",
]
