"""Interface of waits, and properties of sources and receivers, for all surfaces."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, Protocol, TypeVar

from pgm.core.acked.acked_window import AckedWindow
from pgm.core.counters import Counters
from pgm.core.interface import Core
from pgm.core.receiver.receiver import ReceiverCore
from pgm.core.source.source import SourceCore
from pgm.core.status import SessionStatus
from pgm.errors import UsageError
from pgm.net.driver.effects import EffectPerformer
from pgm.net.framing.batches import BatchSender
from pgm.net.framing.zeromq import ZeromqSender
from pgm.net.link.link import Link
from pgm.parameters import Parameters
from pgm.wire.formats import Tsi


class Waits(Protocol):
    """Waits of one surface, which differ between surfaces. A coroutine that never suspends is a wait as well."""

    def pause(self, *, yields: bool) -> Awaitable[None]:
        """Begin a wait, or end one. With `yields` other tasks have a turn."""

    def wait(self, until_ns: int) -> Awaitable[None]:
        """Wait for something new from the driver until `until_ns`, or for a shorter time."""

    async def catch_up(self) -> None:
        """Let the sockets have a turn."""


R = TypeVar("R")
C = TypeVar("C", bound=Core)
D = TypeVar("D", bound=EffectPerformer)


class _View(Generic[C, D]):
    """Properties of both ends: a core, its driver and its links."""

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
        return self._read(lambda: self._core.status(self._driver.now_ns()))

    def _read(self, function: Callable[[], R]) -> R:
        """Return the result of a read that no other thread may disturb."""
        return function()

    @property
    def driver(self) -> D:
        """Return the driver."""
        return self._driver

    @property
    def links(self) -> tuple[Link, ...]:
        """Return the links."""
        return tuple(self._driver.links)


class SourceView(_View[SourceCore, D]):
    """Properties of a stream that is sent."""

    def __init__(self, core: SourceCore, driver: D, packer: BatchSender | ZeromqSender | None) -> None:
        super().__init__(core, driver)
        self._packer = packer

    @property
    def internals(self) -> tuple[SourceCore, D, BatchSender | ZeromqSender | None]:
        """Return the core, the driver and the packer of messages."""
        return self._core, self._driver, self._packer

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
        """Return the octets of the largest message accepted: the parameter's value, half of the window at most."""
        packer = self._packer
        return packer.largest if isinstance(packer, BatchSender) else self._core.window.largest_payload

    @property
    def parameters(self) -> Parameters:
        """Return the timers and limits."""
        return self._core.parameters

    @property
    def rate(self) -> int:
        """Return the greatest rate of sending, octets a second: topology or `set_rate`, less while slowed down."""
        return self._core.rate

    @property
    def is_plain(self) -> bool:
        """Return whether a message is one or more packets without framing."""
        return self._packer is None

    @property
    def has_batches(self) -> bool:
        """Return whether messages share packets, and can have a subject and a destination node."""
        return isinstance(self._packer, BatchSender)

    def is_stable(self, sqn: int) -> bool:
        """Return whether every member has everything up to `sqn`. Raises `UsageError` without acknowledgements."""
        return self._read(lambda: self._require_acks().stable >= sqn)

    @property
    def is_acked(self) -> bool:
        """Return whether receivers acknowledge."""
        return isinstance(self._core.flow, AckedWindow)

    @property
    def members(self) -> int:
        """Return the number of receivers that acknowledge now. Raises `UsageError` without acknowledgements."""
        return self._read(lambda: self._require_acks().members)

    def _require_acks(self) -> AckedWindow:
        flow = self._core.flow
        if not isinstance(flow, AckedWindow):
            raise UsageError(
                "this stream is not acknowledged, so its source cannot tell which data receivers have",
                remedy='write flow = "acked" at the stream',
            )
        return flow


class ReceiverView(_View[ReceiverCore, D]):
    """Properties of streams that are received."""

    @property
    def internals(self) -> tuple[ReceiverCore, D]:
        """Return the core and the driver."""
        return self._core, self._driver

    @property
    def parameters(self) -> Parameters:
        """Return the timers and limits."""
        return self._core.parameters

    @property
    def known_sources(self) -> int:
        """Return the number of sources whose path is known; from now on none of their data is missed."""
        return self._read(lambda: sum(session.state.spm is not None for session in self._core.sessions))
