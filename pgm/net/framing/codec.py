"""Choice of encoders and decoders between messages and packets, by a stream's framing."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import attrs

from pgm.core.receiver.receiver import ReceiverCore
from pgm.core.source.source import SourceCore
from pgm.errors import UsageError
from pgm.messages.subjects import SubjectFilter, Subscription
from pgm.messages.subscriptions import Subscriptions
from pgm.net.framing.batches import BatchReceiver, BatchSender
from pgm.net.framing.items import BatchItem
from pgm.net.framing.zeromq import ZeromqReceiver, ZeromqSender, not_framed
from pgm.topology.node_plan import NodePlan, StreamPlan


class MessagePacker(Protocol):
    """Packer of a source's messages into packets that they share."""

    @property
    def has_rest(self) -> bool:
        """Return whether a message waits that is in no packet yet."""

    def flush(self, now_ns: int) -> None:
        """Send the open packet without waiting for further messages."""

    def send_rest_if_idle(self, now_ns: int) -> None:
        """Send the open packet if it is due and no packet waits ahead."""

    def send_rest(self, now_ns: int) -> None:
        """Send the open packet."""


def packing_of(core: SourceCore, plan: NodePlan, stream: StreamPlan) -> BatchSender | ZeromqSender | None:
    """Return the packer of a stream's messages; None for plain framing. Raises `UsageError` if no packet fits."""
    if stream.framing == "zeromq":
        return ZeromqSender(core, plan.parameters_of(stream).max_apdu)
    if stream.framing == "batch":
        core.feeder = batching = BatchSender(core, plan.parameters_of(stream))
        return batching
    return None


def not_batched(what: str) -> UsageError:
    """Return the error for a feature that only streams with batches have."""
    return UsageError(f"only streams with batches have {what}", remedy='say framing = "batch" of the stream')


@attrs.define(eq=False)
class StreamDecoders:
    """Decoders of a receiver's streams, at most one for each framing; none for plain streams."""

    framed: ZeromqReceiver | None = None
    batched: BatchReceiver | None = None

    @classmethod
    def of(
        cls,
        core: ReceiverCore,
        plan: NodePlan,
        streams: Sequence[StreamPlan],
        subscribe: Iterable[bytes] | None,
        subjects: Iterable[str] | None,
    ) -> StreamDecoders:
        """Make the decoders for these streams of a node. Raises `UsageError` for subscriptions that no stream has."""
        framed_ports = [one.data_port for one in streams if one.framing == "zeromq"]
        batch_ports = [one.data_port for one in streams if one.framing == "batch"]
        if subscribe is not None and not framed_ports:
            raise not_framed("subscriptions by prefix")
        if subjects is not None and not batch_ports:
            raise not_batched("subjects")
        found = cls()
        if framed_ports:
            prefixes = Subscriptions() if subscribe is None else Subscriptions(subscribe)
            found.framed = ZeromqReceiver(framed_ports, plan.parameters.max_apdu, prefixes, core.counters)
        if batch_ports:
            found.batched = BatchReceiver(batch_ports, plan.name, SubjectFilter(subjects), core.counters)
        return found

    @property
    def is_plain(self) -> bool:
        """Return whether items reach the application unchanged."""
        return self.framed is None and self.batched is None

    def take(self, item: BatchItem) -> Iterable[BatchItem]:
        """Return the items of messages that an item of packets yields."""
        items: Iterable[BatchItem] = (item,) if self.framed is None else self.framed.take(item)
        if self.batched is None:
            return items
        return itertools.chain.from_iterable(map(self.batched.take, items))

    def subscribe(self, pattern: str | bytes, tag: Any) -> Subscription | None:
        """Add a subscription: a pattern of subjects, or, with ZeroMQ's framing, a prefix in octets."""
        if isinstance(pattern, bytes):
            self._require_framed().subscriptions.add(pattern)
            return None
        return self._require_batched().subjects.add(pattern, tag)

    def unsubscribe(self, which: str | bytes | Subscription) -> None:
        """Remove a subscription. Raises `UsageError` if it does not exist."""
        if isinstance(which, bytes):
            self._require_framed().subscriptions.remove(which)
        else:
            self._require_batched().subjects.remove(which)

    def matching(self, subject: str) -> tuple[Subscription, ...]:
        """Return the subscriptions that a subject matches."""
        return self._require_batched().subjects.matching(subject)

    def wanted(self, item: BatchItem) -> BatchItem | None:
        """Return the item without messages that no subscription matches any more; None if none is left."""
        found: BatchItem | None = item
        if self.framed is not None:
            found = self.framed.wanted(item)
        if self.batched is not None and found is not None:
            found = self.batched.wanted(found)
        return found

    def _require_framed(self) -> ZeromqReceiver:
        if self.framed is None:
            raise not_framed("subscriptions by prefix")
        return self.framed

    def _require_batched(self) -> BatchReceiver:
        if self.batched is None:
            raise not_batched("subjects")
        return self.batched
