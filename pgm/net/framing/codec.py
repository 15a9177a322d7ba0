"""What stands between messages and packets, by the framing of a stream: nothing, batches, or ZeroMQ's frames."""

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
    """Messages of a source on their way into packets that they share."""

    @property
    def has_rest(self) -> bool:
        """Whether something was taken and is in no packet yet."""

    def flush(self, now_ns: int) -> None:
        """What waits shall wait for no others."""

    def send_rest_if_idle(self, now_ns: int) -> None:
        """Let go what has no reason to wait, unless others wait before it."""

    def send_rest(self, now_ns: int) -> None:
        """Let go what waits."""


def packing_of(core: SourceCore, plan: NodePlan, stream: StreamPlan) -> BatchSender | ZeromqSender | None:
    """What packs the messages of a stream, if anything does. Raises `UsageError` where a packet has no room."""
    if stream.framing == "zeromq":
        return ZeromqSender(core, plan.parameters_of(stream).max_apdu)
    if stream.framing == "batch":
        core.feeder = batching = BatchSender(core, plan.parameters_of(stream))
        return batching
    return None


def not_batched(what: str) -> UsageError:
    """The error of whoever wants what only streams with batches have."""
    return UsageError(f"only streams with batches have {what}", remedy='say framing = "batch" of the stream')


@attrs.define(eq=False)
class StreamDecoders:
    """What a receiver's streams are unwrapped by: nothing, or one thing for each framing that they have."""

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
        """For these streams of a node. Raises `UsageError` for subscriptions that none of them has."""
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
        """Whether items are handed on as they are."""
        return self.framed is None and self.batched is None

    def take(self, item: BatchItem) -> Iterable[BatchItem]:
        """What an item of the streams of packets is in the streams of messages."""
        items: Iterable[BatchItem] = (item,) if self.framed is None else self.framed.take(item)
        if self.batched is None:
            return items
        return itertools.chain.from_iterable(map(self.batched.take, items))

    def subscribe(self, pattern: str | bytes, tag: Any) -> Subscription | None:
        """Take more messages: of a pattern of subjects, or, with ZeroMQ's framing, of a prefix."""
        if isinstance(pattern, bytes):
            self._require_framed().subscriptions.add(pattern)
            return None
        return self._require_batched().subjects.add(pattern, tag)

    def unsubscribe(self, which: str | bytes | Subscription) -> None:
        """Take fewer. Raises `UsageError` for what is not subscribed."""
        if isinstance(which, bytes):
            self._require_framed().subscriptions.remove(which)
        else:
            self._require_batched().subjects.remove(which)

    def matching(self, subject: str) -> tuple[Subscription, ...]:
        """The subscriptions that a subject matches."""
        return self._require_batched().subjects.matching(subject)

    def wanted(self, item: BatchItem) -> BatchItem | None:
        """The item without the messages that nobody subscribes to any more; None if nothing is left of it."""
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
