"""Common base of sources and receivers, independent of the driver."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar, overload

import numpy as np

from pgm.core.acked.acked_window import AckedWindow
from pgm.core.counters import Counters
from pgm.core.effects import NOTHING, Effect, Effects, Notice
from pgm.core.interface import Core
from pgm.core.receiver.receiver import ReceiverCore
from pgm.core.source.source import SourceCore
from pgm.core.status import SessionStatus
from pgm.core.window.transmit_window import Payload
from pgm.errors import UsageError
from pgm.messages.arguments import Names, Payloads, columns_of_arguments, is_arrow
from pgm.messages.subjects import Subscription
from pgm.net.framing.batches import BatchSender
from pgm.net.framing.codec import StreamDecoders, batches_required
from pgm.net.framing.items import BatchItem, Unpacker
from pgm.net.framing.zeromq import ZeromqSender, messages_of, zeromq_required
from pgm.net.link.link import Link
from pgm.parameters import Parameters
from pgm.wire.formats import Tsi


class HasLinks(Protocol):
    """Part of a driver that an endpoint needs."""

    links: Sequence[Link]


C = TypeVar("C", bound=Core)
D = TypeVar("D", bound=HasLinks)


class SourceOutbox:
    """Application side of a source's core. It passes notices on, and sends open packets once there is room."""

    def __init__(self, on_notice: Callable[[Notice], None]) -> None:
        self._on_notice = on_notice
        self.packer: BatchSender | ZeromqSender | None = None

    def take(self, effect: Effect) -> None:
        """Pass a notice on; ignore other effects."""
        if isinstance(effect, Notice):
            self._on_notice(effect)

    def after(self) -> Effects:
        """Send the open packet if no packet waits ahead: the core has sent data, or a timer has run out."""
        if self.packer is not None:
            self.packer.send_rest_if_idle(time.monotonic_ns())
        return NOTHING


class _Endpoint(Generic[C, D]):
    """Base of both endpoints: a core, its driver and its links."""

    def __init__(self, core: C, driver: D) -> None:
        self._core = core
        self._driver = driver

    @property
    def counters(self) -> Counters:
        """Return the counters of the core."""
        return self._core.counters

    @property
    def sessions(self) -> list[SessionStatus]:
        """Return the current state of each session, as `pgm status --json` shows it."""
        return self._core.status(time.monotonic_ns())

    @property
    def driver(self) -> D:
        """Return the driver."""
        return self._driver

    @property
    def links(self) -> tuple[Link, ...]:
        """Return the links."""
        return tuple(self._driver.links)


class SourceEndpoint(_Endpoint[SourceCore, D]):
    """Stream that is sent: its properties, and the way of messages into its window."""

    def __init__(self, core: SourceCore, driver: D, packer: BatchSender | ZeromqSender | None) -> None:
        super().__init__(core, driver)
        self._packer = packer
        self._zeromq = packer if isinstance(packer, ZeromqSender) else None
        self._batches = packer if isinstance(packer, BatchSender) else None

    @property
    def tsi(self) -> Tsi:
        """Return the session's TSI."""
        return self._core.setup.tsi

    @property
    def next_sqn(self) -> int:
        """Return the sqn of the next message, provided that no other message waits to share its packet."""
        return self._core.window.next_sqn

    @property
    def max_tpdu(self) -> int:
        """Return the octets of the largest packet; a message that fits one needs no fragments."""
        return self._core.max_tpdu

    @property
    def max_apdu(self) -> int:
        """Return the octets of the largest message that this source accepts.

        That is the parameter's value, and at most half of the window.
        """
        return self._core.window.largest_payload if self._batches is None else self._batches.largest

    @property
    def parameters(self) -> Parameters:
        """Return the timers and limits."""
        return self._core.parameters

    @property
    def rate(self) -> int:
        """Return the greatest rate of sending, in octets a second.

        That is the rate of the topology or of `set_rate`, or less while the source slows down by itself.
        """
        return self._core.rate

    @property
    def is_plain(self) -> bool:
        """Return whether a message is one or more packets without framing."""
        return self._packer is None

    @property
    def has_batches(self) -> bool:
        """Return whether messages share packets, and can have a subject and a destination node."""
        return self._batches is not None

    def is_stable(self, sqn: int) -> bool:
        """Return whether every member of an acknowledged stream has everything up to `sqn`.

        Raises `UsageError` for other streams.
        """
        return self._require_acks().stable >= sqn

    @property
    def is_acked(self) -> bool:
        """Return whether receivers acknowledge."""
        return isinstance(self._core.flow, AckedWindow)

    @property
    def members(self) -> int:
        """Return the number of receivers that acknowledge now. Raises `UsageError` without acknowledgements."""
        return self._require_acks().members

    def _require_acks(self) -> AckedWindow:
        flow = self._core.flow
        if not isinstance(flow, AckedWindow):
            raise UsageError(
                "this stream is not acknowledged, so its source cannot tell which data receivers have",
                remedy='write flow = "acked" at the stream',
            )
        return flow

    def _accept(self, payload: Payload, subject: str | None = None, to: str | None = None, *, flush: bool) -> int:
        """Accept one message. Return the sqn of its first packet."""
        batches = self._batches
        if batches is not None:
            return batches.add(payload, subject, to, flush=flush, now_ns=time.monotonic_ns())
        if subject is not None or to is not None:
            raise batches_required("subjects and destination nodes")
        sqn = self._core.window.end
        if self._zeromq is None:
            self._core.submit((payload,))
        else:
            self._zeromq.submit(((payload,),))
        return sqn

    def _accept_parts(self, parts: Sequence[Payload]) -> int:
        """Accept one message of several parts. Return the sqn of its first packet."""
        zeromq = self._require_framing()
        sqn = self._core.window.end
        zeromq.submit((parts,))
        return sqn

    def _accept_batch(self, payloads: Payloads, subject: Names = None, to: Names = None, *, flush: bool) -> int:
        """Accept many messages. Return the first sqn."""
        if self._batches is not None:
            return self._batches.add_batch(payloads, subject, to, flush=flush, now_ns=time.monotonic_ns())
        if subject is not None or to is not None:
            raise batches_required("subjects and destination nodes")
        if not isinstance(payloads, np.ndarray) and is_arrow(payloads):
            columns = columns_of_arguments(payloads, None, None)
            payloads = columns.payloads()
        sqn = self._core.window.end
        if self._zeromq is not None:
            self._zeromq.submit(messages_of(payloads))
        elif isinstance(payloads, np.ndarray):
            self._core.submit_rows(payloads)
        else:
            self._core.submit(payloads)
        return sqn

    def _require_framing(self) -> ZeromqSender:
        if self._zeromq is None:
            raise zeromq_required("messages of several parts")
        return self._zeromq


class ReceiverEndpoint(_Endpoint[ReceiverCore, D]):
    """Streams that are received: their properties, and data that was read and not yet handed out."""

    def __init__(self, core: ReceiverCore, driver: D, decoders: StreamDecoders) -> None:
        super().__init__(core, driver)
        self._decoders = decoders
        self._ready: deque[BatchItem] = deque()  # items of one queue entry
        self._unpacker = Unpacker()

    @property
    def parameters(self) -> Parameters:
        """Return the timers and limits."""
        return self._core.parameters

    @property
    def known_sources(self) -> int:
        """Return the number of sources whose path is known; from now on none of their data is missed."""
        return sum(session.state.spm is not None for session in self._core.sessions)

    @overload
    def subscribe(self, pattern: str, tag: Any = None) -> Subscription: ...

    @overload
    def subscribe(self, pattern: bytes) -> None: ...

    def subscribe(self, pattern: str | bytes, tag: Any = None) -> Subscription | None:
        """Add a subscription: take messages whose subject matches, too.

        A pattern of subjects, such as `/nasdaq/*` or `/nasdaq/...`, is for streams with batches. With ZeroMQ's framing
        the pattern is the octets with which the first part begins. Returns the argument for `unsubscribe`; `tag` is the
        caller's. Raises `UsageError` for an invalid pattern, and if no stream has subjects.
        """
        return self._decoders.subscribe(pattern, tag)

    def unsubscribe(self, which: str | bytes | Subscription) -> None:
        """Remove a subscription, from the next message on. A pattern subscribed twice must be removed twice.

        Raises `UsageError` if the subscription does not exist, and if no stream has subjects.
        """
        self._decoders.unsubscribe(which)
        self.put_back(self._unpacker.take_rest())
        kept = [self._decoders.wanted(item) for item in self._ready]
        self._ready = deque(item for item in kept if item is not None)

    def matching(self, subject: str) -> tuple[Subscription, ...]:
        """Return the subscriptions that a message's subject matches."""
        return self._decoders.matching(subject)

    def put_back(self, item: BatchItem | None) -> None:
        """Put an item back at the front of the queue; None is ignored."""
        if item is not None:
            self._ready.appendleft(item)
