"""Choice of encoders and decoders between messages and packets, by a stream's framing."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import attrs

from pgm.core.receiver.receiver import ReceiverCore
from pgm.core.source.source import SourceCore
from pgm.errors import UsageError
from pgm.messages.subjects import SubjectFilter, Subscription
from pgm.messages.subscriptions import Subscriptions
from pgm.net.framing.batches import BatchReceiver, BatchSender
from pgm.net.framing.items import BatchItem
from pgm.net.framing.zeromq import ZeromqReceiver, ZeromqSender, zeromq_required
from pgm.topology.node_plan import NodePlan, StreamPlan
from pgm.wire.formats import Tsi


def packer_of(core: SourceCore, plan: NodePlan, stream: StreamPlan) -> BatchSender | ZeromqSender | None:
    """Return the packer of a stream's messages; None for plain framing. Raises `UsageError` if no packet fits."""
    if stream.framing == "zeromq":
        return ZeromqSender(core, plan.parameters_of(stream).max_apdu)
    if stream.framing == "batch":
        packer = BatchSender(core, plan.parameters_of(stream))
        core.attach(packer)
        return packer
    return None


def batches_required(feature: str) -> UsageError:
    """Return the error for a feature that only streams with batches have."""
    return UsageError(f"only streams with batches have {feature}", remedy='write framing = "batch" at the stream')


@attrs.define(eq=False)
class StreamDecoders:
    """Decoders of a receiver's streams, at most one for each framing; none for plain streams."""

    zeromq: ZeromqReceiver | None = None
    batches: BatchReceiver | None = None

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
        framed_ports = [stream.data_port for stream in streams if stream.framing == "zeromq"]
        batch_ports = [stream.data_port for stream in streams if stream.framing == "batch"]
        if subscribe is not None and not framed_ports:
            raise zeromq_required("subscriptions by prefix")
        if subjects is not None and not batch_ports:
            raise batches_required("subjects")
        decoders = cls()
        if framed_ports:
            prefixes = Subscriptions() if subscribe is None else Subscriptions(subscribe)
            decoders.zeromq = ZeromqReceiver(framed_ports, plan.parameters.max_apdu, prefixes, core.counters)
        if batch_ports:
            decoders.batches = BatchReceiver(
                batch_ports, plan.name, SubjectFilter(subjects), core.counters, plan.parameters.max_subjects
            )
        return decoders

    @property
    def is_plain(self) -> bool:
        """Return whether items reach the application unchanged."""
        return self.zeromq is None and self.batches is None

    def take(self, item: BatchItem) -> Iterable[BatchItem]:
        """Return the items of messages that an item of packets yields."""
        items: Iterable[BatchItem] = (item,) if self.zeromq is None else self.zeromq.take(item)
        if self.batches is None:
            return items
        return itertools.chain.from_iterable(map(self.batches.take, items))

    def begun(self, tsi: Tsi) -> int | None:
        """Return the sqn in which an incomplete message of a session began; None without one."""
        return None if self.zeromq is None else self.zeromq.begun(tsi)

    def subscribe(self, pattern: str | bytes, tag: Any) -> Subscription | None:
        """Add a subscription: a pattern of subjects, or, with ZeroMQ's framing, a prefix in octets."""
        if isinstance(pattern, bytes):
            self._require_zeromq().subscriptions.add(pattern)
            return None
        return self._require_batches().subjects.add(pattern, tag)

    def unsubscribe(self, which: str | bytes | Subscription) -> None:
        """Remove a subscription. Raises `UsageError` if it does not exist."""
        if isinstance(which, bytes):
            self._require_zeromq().subscriptions.remove(which)
        else:
            self._require_batches().subjects.remove(which)

    def matching(self, subject: str) -> tuple[Subscription, ...]:
        """Return the subscriptions that a subject matches."""
        return self._require_batches().subjects.matching(subject)

    def wanted(self, item: BatchItem) -> BatchItem | None:
        """Return the item without messages that no subscription matches any more; None if none is left."""
        rest: BatchItem | None = item
        if self.zeromq is not None:
            rest = self.zeromq.wanted(item)
        if self.batches is not None and rest is not None:
            rest = self.batches.wanted(rest)
        return rest

    def _require_zeromq(self) -> ZeromqReceiver:
        if self.zeromq is None:
            raise zeromq_required("subscriptions by prefix")
        return self.zeromq

    def _require_batches(self) -> BatchReceiver:
        if self.batches is None:
            raise batches_required("subjects")
        return self.batches
