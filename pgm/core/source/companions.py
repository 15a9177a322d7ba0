"""Source with companions: further sessions of the same source, such as proofs, key records and states.

Each companion is complete by itself: it has a core of its own, which may have companions again. States are thus proved and
sealed as their stream is.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import attrs

from pgm.core.counters import Counters
from pgm.core.effects import Effect, Effects, Send, with_tail
from pgm.core.segment import Channel
from pgm.core.session.key_records import PayloadSealer
from pgm.core.source.setup import SourceSetup
from pgm.core.source.source import SourceCore
from pgm.core.source_names import NamedTsi, node_of
from pgm.core.status import SessionEdges, SessionStatus
from pgm.core.window.transmit_window import Payload
from pgm.parameters import Parameters
from pgm.units import NEVER
from pgm.wire.formats import TYPE_AT, Nla, PacketType, Tsi
from pgm.wire.train import DataWithGaps, Item

_RDATA = int(PacketType.RDATA)  # a comparison of numpy's integers with a member of an enumeration takes 5 us

Received = Sequence[Item | DataWithGaps]


class Companion(Protocol):
    """Further session of a source."""

    is_repair: bool  # its data count as repairs of the stream

    @property
    def core(self) -> SourceCore:
        """The source of the session."""

    def takes(self, item: Item | DataWithGaps) -> bool:
        """Return whether a packet is for this companion."""

    def take(self, items: Received, channel: Channel, peer: Nla, now_ns: int) -> Effects:
        """Take packets that are for this companion."""

    @property
    def deadline_ns(self) -> int:
        """When `handle_deadline` has something to do. Data of the stream bring it no nearer."""

    @property
    def data_deadline_ns(self) -> int:
        """When `handle_deadline` has something to do because of data of the stream."""

    def handle_deadline(self, now_ns: int) -> Effects:
        """Return what is due, at most one train of data, which is the last effect."""

    def spms(self, now_ns: int) -> Effects:
        """Return the SPMs that go with one of the stream, so that all sessions of a joiner begin at one time."""

    def sent(self, first: int, end: int, now_ns: int) -> Effects:
        """Note data packets that the stream has sent. Return what leaves with them."""

    def put_state(self, payload: Payload, now_ns: int) -> Effects:
        """Send a state of the application, if the companion sends states."""

    def stream_ends(self) -> None:
        """Close the session once it has told all: the stream has sent its last data."""

    def abort(self, now_ns: int, *, error: int, no_naks: bool) -> Effects:
        """Abort the session."""

    def set_rate(self, rate: int, now_ns: int) -> None:
        """Take the rate of the stream in octets a second."""

    def status(self, now_ns: int) -> list[SessionStatus]:
        """Return the rows of the session."""


C = TypeVar("C")
NewCompanion = Callable[[SourceCore, int], Companion]  # of a stream, and the time in ns


class CompanionSource(SourceCore):
    """A `SourceCore` with companions. Some take turns with the stream; all count against its rate."""

    def __init__(
        self,
        setup: SourceSetup,
        parameters: Parameters,
        now_ns: int,
        companions: Sequence[NewCompanion],
        rng: random.Random | None = None,
        counters: Counters | None = None,
    ) -> None:
        super().__init__(setup, parameters, now_ns, rng, counters)
        self._companions: tuple[Companion, ...] = ()
        self._companions_ns = 0  # when companions have something to do; 0: compute it again
        self._companions = tuple(new(self, now_ns) for new in companions)
        self._is_turn_of_repairs = False  # of the stream: the last repairs were those of a companion
        for one in self._companions:
            if not one.is_repair:  # requests for all sessions together get no more than the share of one
                one.core.share_repairs(self._sending.pacer.repairs)

    def companions_of(self, kind: type[C]) -> list[C]:
        """Return the companions of a class."""
        return [one for one in self._companions if isinstance(one, kind)]

    @property
    def tsis(self) -> tuple[Tsi, ...]:
        """TSIs of the stream and of its companions."""
        return *super().tsis, *(tsi for one in self._companions for tsi in one.core.tsis)

    def set_rate(self, rate: int, now_ns: int) -> None:
        """Set the rate of all sessions."""
        super().set_rate(rate, now_ns)
        for one in self._companions:
            one.set_rate(rate, now_ns)

    def abort(self, now_ns: int, *, error: int = 0, no_naks: bool = False) -> Effects:
        """Abort all sessions."""
        effects = [*super().abort(now_ns, error=error, no_naks=no_naks)]
        for one in self._companions:
            effects += one.abort(now_ns, error=error, no_naks=no_naks)
        return effects

    def is_finished(self, now_ns: int) -> bool:
        """Return whether a closed source may exit: no NAKs come for any of its sessions."""
        return super().is_finished(now_ns) and all(one.core.is_finished(now_ns) for one in self._companions)

    def put_state(self, payload: Payload, now_ns: int) -> Effects:
        """Send a state that covers all accepted messages, if the source offers states."""
        return [effect for one in self._companions for effect in one.put_state(payload, now_ns)]

    def all_spms(self, now_ns: int) -> Effects:
        """Return an SPM of the stream, and those of its companions."""
        return [self.spm(now_ns), *(spm for one in self._companions for spm in one.spms(now_ns))]

    def take(self, items: Received, channel: Channel, peer: Nla, now_ns: int) -> Effects:
        """Take requests for companions; everything else is for the stream."""
        effects: list[Effect] = []
        for one in self._companions:
            own = [item for item in items if one.takes(item)]
            if own:
                items = [item for item in items if not one.takes(item)]
                self.invalidate_deadline()
                effects += one.take(own, channel, peer, now_ns)
        return [*effects, *super().take(items, channel, peer, now_ns)] if items else effects

    def invalidate_deadline(self) -> None:
        """Drop the cached deadlines, because something other than data happened."""
        super().invalidate_deadline()
        self._companions_ns = 0

    @property
    def deadline_ns(self) -> int:
        """When `handle_deadline` has something to do."""
        at = min(super().deadline_ns, self._companions_ns or self._compute_companions())
        for one in self._companions:
            at = min(at, one.data_deadline_ns)
        return at

    def _compute_companions(self) -> int:
        self._companions_ns = min((one.deadline_ns for one in self._companions), default=NEVER)
        return self._companions_ns

    def handle_deadline(self, now_ns: int) -> Effects:
        """Send what is due of the companions, then of the stream: one train of data in a call, and its proof."""
        effects = self._serve_companions(now_ns)
        if _last_data(effects) is not None:
            return effects
        lead, spm_sqn = self.window.lead, self._spms.spm_sqn
        effects += super().handle_deadline(now_ns)
        if effects and _is_repair(effects[-1]):
            self._is_turn_of_repairs = False
        if self._spms.spm_sqn != spm_sqn:
            effects[:0] = [spm for one in self._companions for spm in one.spms(now_ns)]
            self._companions_ns = 0
        if self.window.lead > lead:
            for one in self._companions:
                more = one.sent(lead + 1, self.window.lead + 1, now_ns)
                if more or one.core.window.has_unsent:
                    self._companions_ns = 0
                    self._charge(one, more, now_ns)
                    effects = _together(effects, more)
        if self.end.has_begun:
            self._companions_ns = 0
            for one in self._companions:
                one.stream_ends()
        return effects

    def _serve_companions(self, now_ns: int) -> list[Effect]:
        """Return what is due of the companions, one train of data at most."""
        effects: list[Effect] = []
        is_due = (self._companions_ns or self._compute_companions()) <= now_ns
        for one in self._companions:
            if one.data_deadline_ns > now_ns and not (is_due and one.deadline_ns <= now_ns):
                continue
            self._companions_ns = 0
            if self._is_turn_of_repairs and not one.core.window.has_unsent and self._may_repair(now_ns):
                continue  # repairs of all sessions have one bucket, and take turns
            effects += one.handle_deadline(now_ns)
            if self._charge(one, effects, now_ns):
                break
        return effects

    def _charge(self, one: Companion, effects: Effects, now_ns: int) -> bool:
        """Charge data of a companion to the rate of the stream. Return whether there are any."""
        train = _last_data(effects)
        if train is None:
            return False
        octets = len(train.octets)
        if one.is_repair:
            self._sending.pacer.repair_sent(octets, now_ns, octets // train.stride)
            self.invalidate_deadline()
        else:
            self._sending.pacer.data_sent(octets, now_ns, octets // train.stride)
            self._is_turn_of_repairs = self._is_turn_of_repairs or _is_repair(train)
        return True

    def status(self, now_ns: int) -> list[SessionStatus]:
        """Return the rows of all sessions."""
        return [*super().status(now_ns), *(row for one in self._companions for row in one.status(now_ns))]

    def edges(self) -> list[SessionEdges]:
        """Return how far each session has come."""
        return [*super().edges(), *(edges for one in self._companions for edges in one.core.edges())]


def _is_repair(effect: Effect) -> bool:
    return isinstance(effect, Send) and effect.is_data and int(effect.octets[TYPE_AT]) == _RDATA


def _together(effects: list[Effect], of_companion: Effects) -> list[Effect]:
    """Return the effects of a stream, and those of a companion. A proof leaves with the train that it proves."""
    train, proof = _last_data(effects), _last_data(of_companion)
    if train is None or proof is None:
        return [*effects, *of_companion]
    return [*effects[:-1], *of_companion[:-1], *with_tail(train, proof)]


def _last_data(effects: Effects) -> Send | None:
    """Return the last effect if it sends data."""
    last = effects[-1] if effects else None
    return last if isinstance(last, Send) and last.is_data else None


def companion_setup(
    stream: SourceSetup, tsi: Tsi, data_port: int, join_back_ivl: int, sealer: PayloadSealer | None = None
) -> SourceSetup:
    """Return the setup of a companion of a stream."""
    return attrs.evolve(
        stream,
        tsi=NamedTsi.of(tsi, node_of(stream.tsi)),
        data_port=data_port,
        first_sqn=0,
        flow="rate",
        join_back_ivl=join_back_ivl,
        sealer=sealer,
    )
