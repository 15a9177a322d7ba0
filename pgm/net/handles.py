"""What the sources and receivers that applications open have in common, whichever driver runs them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from pgm.core.counters import Counters
from pgm.core.effects import NOTHING, Effect, Effects, Notice
from pgm.core.interface import Core
from pgm.core.receiver import ReceiverCore
from pgm.core.source import SourceCore
from pgm.core.transmit_window import Payload
from pgm.net.framing import FramedReceiving, FramedSending, messages_of, not_framed
from pgm.net.items import AnyBatch, BatchItem, Unpacker
from pgm.net.link import Link
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
        self.framed: FramedSending | None = None

    def take(self, effect: Effect) -> None:
        """Pass a notice on."""
        if isinstance(effect, Notice):
            self._on_notice(effect)

    def after(self) -> Effects:
        """Something was sent, or a timer has run out."""
        if self.framed is not None:
            self.framed.send_rest_if_idle()
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
    def driver(self) -> D:
        """What runs it."""
        return self._driver

    @property
    def links(self) -> tuple[Link, ...]:
        """The links it uses."""
        return tuple(self._driver.links)


class SourceHandle(_Handle[SourceCore, D]):
    """One stream that is sent: what can be asked of it, and how messages get into its window."""

    def __init__(self, core: SourceCore, driver: D, framed: FramedSending | None) -> None:
        super().__init__(core, driver)
        self._framed = framed

    @property
    def tsi(self) -> Tsi:
        """The session's TSI."""
        return self._core.setup.tsi

    @property
    def max_tpdu(self) -> int:
        """Octets of the largest packet; a message that fits one needs no fragments."""
        return self._core.max_tpdu

    @property
    def max_apdu(self) -> int:
        """Octets of the largest message that this source takes: what the parameter says, and half of its window at most."""
        return self._core.window.largest_payload

    def _accept(self, payload: Payload) -> int:
        """Take one message in; returns the sqn of its first packet."""
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

    def _accept_batch(self, payloads: Sequence[Payload] | npt.NDArray[np.uint8]) -> int:
        """Take many messages in; returns the first sqn."""
        sqn = self._core.window.end
        if self._framed is not None:
            self._framed.submit(messages_of(payloads))
        elif isinstance(payloads, np.ndarray):
            self._core.submit_rows(payloads)
        else:
            self._core.submit(payloads)
        return sqn

    def _require_framing(self) -> FramedSending:
        if self._framed is None:
            raise not_framed("messages of several parts")
        return self._framed


class ReceiverHandle(_Handle[ReceiverCore, D]):
    """Streams that are received: what can be asked of them, and what was read and not yet handed out."""

    def __init__(self, core: ReceiverCore, driver: D, framed: FramedReceiving | None) -> None:
        super().__init__(core, driver)
        self._framed = framed
        self._ready: deque[BatchItem] = deque()  # what one look into the inbox gave
        self._unpacker = Unpacker()

    @property
    def known_sources(self) -> int:
        """Sources whose path is known: from now on nothing of theirs is missed."""
        return sum(session.path.spm is not None for session in self._core.sessions)

    def subscribe(self, prefix: bytes) -> None:
        """From now on take messages whose first part begins with this, too; for streams with ZeroMQ's framing.

        Raises `UsageError` where no stream is framed.
        """
        self._require_framing().subscriptions.add(prefix)

    def unsubscribe(self, prefix: bytes) -> None:
        """Take them no more, from the next message on. Twice subscribed must be twice unsubscribed.

        Raises `UsageError` for what is not subscribed, and where no stream is framed.
        """
        framed = self._require_framing()
        framed.subscriptions.remove(prefix)
        self.put_back(self._unpacker.take_rest())
        kept = [framed.wanted(item) for item in self._ready]
        self._ready = deque(item for item in kept if item is not None)

    def put_back(self, batch: AnyBatch | None) -> None:
        """Take back a batch that was handed out, if there is one: it comes next."""
        if batch is not None:
            self._ready.appendleft(batch)

    def _require_framing(self) -> FramedReceiving:
        if self._framed is None:
            raise not_framed("subscriptions")
        return self._framed
