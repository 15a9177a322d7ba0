"""Effects of a core, performed on links: shared by all drivers."""

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
    """The driver's view of whoever uses the core."""

    def take(self, effect: Effect) -> None:
        """Deliveries, losses, openings, closings, notices."""

    def after(self) -> Effects:
        """Called when effects were performed: react, perhaps by a call to the core."""


def deliver_to_core(core: Core, observer: Observer | None, link: Link, arrival: SocketRead, now_ns: int) -> Effects:
    """Hand to a core what was read, and keep its memory if the core does; returns what is to be done."""
    train = arrival.train
    if observer is not None:
        observer.received(train, arrival.channel, arrival.peer, now_ns)
    effects = core.receive(train, arrival.channel, arrival.peer, now_ns)
    if train.keeping.is_kept:
        link.keep(train)
    return effects


class EffectPerformer:
    """What drivers have in common: they do effects at once, in order."""

    core: Core
    links: Sequence[Link]
    _hand_over: Callable[[Deliver | Happening], None]

    def _do(self, effects: Iterable[Effect]) -> None:
        left = iter(effects)
        try:
            for effect in left:
                if not isinstance(effect, Send):
                    self._hand_over(effect)
                elif effect.is_data:
                    self._send_data_now(effect)
                else:
                    self._send_control(effect)
        except BaseException:  # of a notice's handler, or a signal's: what comes behind is nowhere else
            self._do(tuple(left))
            raise

    def _send_control(self, send: Send) -> None:
        try:
            self.links[send.segment.index].send(send)
        except WouldBlock as blocked:
            self.core.counters.sends_dropped += self.links[send.segment.index].packets_left(send, blocked.at)

    def _send_data_now(self, send: Send) -> None:
        self._send_control(send)  # where data that must wait has a task to wait in, none comes here
