"""Effects of a core, performed on links; shared by all drivers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from pgm.core.effects import Deliver, Effect, Effects, Send
from pgm.core.events import Happening
from pgm.core.interface import Core
from pgm.net.link.link import Link, WouldBlock
from pgm.net.link.reader import SocketRead
from pgm.telemetry.observer import Observer


class Application(Protocol):
    """Interface between a driver and the user of its core."""

    def take(self, effect: Effect) -> None:
        """Take a delivery, loss, opening, closing or notice."""

    def after(self) -> Effects:
        """React after effects were performed, perhaps by a call to the core. Return its effects."""


def deliver_to_core(core: Core, observer: Observer | None, link: Link, arrival: SocketRead, now_ns: int) -> Effects:
    """Pass a read to a core, and keep its memory if the core needs it. Return the core's effects."""
    train = arrival.train
    if observer is not None:
        observer.received(train, arrival.channel, arrival.peer, now_ns)
    effects = core.receive(train, arrival.channel, arrival.peer, now_ns)
    if train.keeping.is_kept:
        link.keep(train)
    return effects


class EffectPerformer:
    """Base of drivers: performs effects at once, in order."""

    core: Core
    links: Sequence[Link]
    _hand_over: Callable[[Deliver | Happening], None]

    def _do(self, effects: Iterable[Effect]) -> None:
        remaining = iter(effects)
        try:
            for effect in remaining:
                if not isinstance(effect, Send):
                    self._hand_over(effect)
                elif effect.is_data:
                    self._send_data_now(effect)
                else:
                    self._send_control(effect)
        except BaseException:  # from a notice's handler, or a signal's: the remaining effects exist only here
            self._do(tuple(remaining))
            raise

    def _send_control(self, send: Send) -> None:
        try:
            self.links[send.segment.index].send(send)
        except WouldBlock as blocked:
            self.core.counters.sends_dropped += self.links[send.segment.index].packets_left(send, blocked.at)

    def _send_data_now(self, send: Send) -> None:
        self._send_control(send)  # drivers in which data waits in a task never come here with data that must wait
