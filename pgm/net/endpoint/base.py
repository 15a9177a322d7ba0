"""What the sources and receivers that applications open have in common, whichever driver runs them."""

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
from pgm.net.framing.codec import StreamDecoders, not_batched
from pgm.net.framing.items import BatchItem, Unpacker
from pgm.net.framing.zeromq import ZeromqSender, messages_of, not_framed
from pgm.net.link.link import Link
from pgm.parameters import Parameters
from pgm.wire.formats import Tsi


class HasLinks(Protocol):
    """What a handle needs of its driver."""

    links: Sequence[Link]


C = TypeVar("C", bound=Core)
D = TypeVar("D", bound=HasLinks)


class SourceOutbox:
    """A source's core delivers nothing; it may notice something, and have made room for what shares a packet."""

    def __init__(self, on_notice: Callable[[Notice], None]) -> None:
        self._on_notice = on_notice
        self.packing: BatchSender | ZeromqSender | None = None

    def take(self, effect: Effect) -> None:
        """Pass a notice on."""
        if isinstance(effect, Notice):
            self._on_notice(effect)

    def after(self) -> Effects:
        """Something was sent, or a timer has run out."""
        if self.packing is not None:
            self.packing.send_rest_if_idle(time.monotonic_ns())
        return NOTHING


class _Handle(Generic[C, D]):
    """What both have: a core, what runs it, and its links."""

    def __init__(self, core: C, driver: D) -> None:
        self._core = core
        self._driver = driver

    @property
    def counters(self) -> Counters:
        """What it has counted so far."""
        return self._core.counters

    @property
    def sessions(self) -> list[SessionStatus]:
        """Where each of its sessions stands now, as `pgm status --json` shows it."""
        return self._core.status(time.monotonic_ns())

    @property
    def driver(self) -> D:
        """What runs it."""
        return self._driver

    @property
    def links(self) -> tuple[Link, ...]:
        """The links it uses."""
        return tuple(self._driver.links)


class SourceHandle(_Handle[SourceCore, D]):
    """One stream that is sent: what can be asked of it, and how messages get into its window."""

    def __init__(self, core: SourceCore, driver: D, packing: BatchSender | ZeromqSender | None) -> None:
        super().__init__(core, driver)
        self._packing = packing
        self._framed = packing if isinstance(packing, ZeromqSender) else None
        self._batched = packing if isinstance(packing, BatchSender) else None

    @property
    def tsi(self) -> Tsi:
        """The session's TSI."""
        return self._core.setup.tsi

    @property
    def next_sqn(self) -> int:
        """The sqn of the next message, as long as no other one waits to share its packet."""
        return self._core.window.next_sqn

    @property
    def max_tpdu(self) -> int:
        """Octets of the largest packet; a message that fits one needs no fragments."""
        return self._core.max_tpdu

    @property
    def max_apdu(self) -> int:
        """Octets of the largest message that this source takes: what the parameter says, and half of its window at most."""
        return self._core.window.largest_payload if self._batched is None else self._batched.largest

    @property
    def parameters(self) -> Parameters:
        """Its timers and limits."""
        return self._core.parameters

    @property
    def rate(self) -> int:
        """Octets a second at which it sends at most: as the topology or `set_rate` said, or less while it slows down by itself."""
        return self._core.rate

    @property
    def is_plain(self) -> bool:
        """Whether a message is a packet, or several, and nothing around it."""
        return self._packing is None

    @property
    def has_batches(self) -> bool:
        """Whether its messages share packets, and can have subjects and a node that they are for."""
        return self._batched is not None

    def is_stable(self, sqn: int) -> bool:
        """Whether every member of an acknowledged stream has everything up to `sqn`. Raises `UsageError` for others."""
        return self._require_acks().stable >= sqn

    @property
    def is_acked(self) -> bool:
        """Whether receivers acknowledge."""
        return self._core.acked is not None

    @property
    def members(self) -> int:
        """Receivers that acknowledge now. Raises `UsageError` for a stream that is not acknowledged."""
        return self._require_acks().members

    def _require_acks(self) -> AckedWindow:
        if self._core.acked is None:
            raise UsageError(
                "this stream is not acknowledged, so nobody knows who has what",
                remedy='write flow = "acked" at the stream',
            )
        return self._core.acked

    def _accept(self, payload: Payload, subject: str | None = None, to: str | None = None, *, flush: bool) -> int:
        """Take one message in; returns the sqn of its first packet."""
        batched = self._batched
        if batched is not None:
            return batched.add(payload, subject, to, flush=flush, now_ns=time.monotonic_ns())
        if subject is not None or to is not None:
            raise not_batched("subjects and nodes that messages are for")
        sqn = self._core.window.end
        if self._framed is None:
            self._core.submit((payload,))
        else:
            self._framed.submit(((payload,),))
        return sqn

    def _accept_parts(self, parts: Sequence[Payload]) -> int:
        """Take one message of several parts in; returns the sqn of its first packet."""
        framed = self._require_framing()
        sqn = self._core.window.end
        framed.submit((parts,))
        return sqn

    def _accept_batch(self, payloads: Payloads, subject: Names = None, to: Names = None, *, flush: bool) -> int:
        """Take many messages in; returns the first sqn."""
        if self._batched is not None:
            return self._batched.add_batch(payloads, subject, to, flush=flush, now_ns=time.monotonic_ns())
        if subject is not None or to is not None:
            raise not_batched("subjects and nodes that messages are for")
        if not isinstance(payloads, np.ndarray) and is_arrow(payloads):
            columns = columns_of_arguments(payloads, None, None)
            payloads = columns.payloads()
        sqn = self._core.window.end
        if self._framed is not None:
            self._framed.submit(messages_of(payloads))
        elif isinstance(payloads, np.ndarray):
            self._core.submit_rows(payloads)
        else:
            self._core.submit(payloads)
        return sqn

    def _require_framing(self) -> ZeromqSender:
        if self._framed is None:
            raise not_framed("messages of several parts")
        return self._framed


class ReceiverHandle(_Handle[ReceiverCore, D]):
    """Streams that are received: what can be asked of them, and what was read and not yet handed out."""

    def __init__(self, core: ReceiverCore, driver: D, unwrapping: StreamDecoders) -> None:
        super().__init__(core, driver)
        self._unwrapping = unwrapping
        self._ready: deque[BatchItem] = deque()  # what one look into the inbox gave
        self._unpacker = Unpacker()

    @property
    def parameters(self) -> Parameters:
        """Its timers and limits."""
        return self._core.parameters

    @property
    def known_sources(self) -> int:
        """Sources whose path is known: from now on nothing of theirs is missed."""
        return sum(session.state.spm is not None for session in self._core.sessions)

    @overload
    def subscribe(self, pattern: str, tag: Any = None) -> Subscription: ...

    @overload
    def subscribe(self, pattern: bytes) -> None: ...

    def subscribe(self, pattern: str | bytes, tag: Any = None) -> Subscription | None:
        """From now on take messages whose subject matches this, too: `/nasdaq/*`, `/nasdaq/...`; for streams with batches.

        With ZeroMQ's framing it is octets with which the first part begins. Returns what `unsubscribe` takes; `tag` is the
        caller's. Raises `UsageError` for what is no pattern, and where no stream has subjects.
        """
        return self._unwrapping.subscribe(pattern, tag)

    def unsubscribe(self, which: str | bytes | Subscription) -> None:
        """Take them no more, from the next message on. Twice subscribed must be twice unsubscribed.

        Raises `UsageError` for what is not subscribed, and where no stream has subjects.
        """
        self._unwrapping.unsubscribe(which)
        self.put_back(self._unpacker.take_rest())
        kept = [self._unwrapping.wanted(item) for item in self._ready]
        self._ready = deque(item for item in kept if item is not None)

    def matching(self, subject: str) -> tuple[Subscription, ...]:
        """The subscriptions that a message's subject matches."""
        return self._unwrapping.matching(subject)

    def put_back(self, item: BatchItem | None) -> None:
        """Take back what was handed out, if it was anything: it comes next."""
        if item is not None:
            self._ready.appendleft(item)
