"""Receiver of signed streams: packets wait for the proofs of their source (`pgm.core.session.proofs`)."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence

import attrs

from pgm.core.acked.ack_bound import AT_ONCE
from pgm.core.effects import Effect, Effects, Notice, Send
from pgm.core.receiver.receiver import ReceiverCore
from pgm.core.receiver.setup import ReceiverSetup
from pgm.core.recovery.parents import Parents
from pgm.core.segment import Channel
from pgm.core.session.proofs import NewProofCheck, ProofCheck, ProvedSpan, proof_port, proof_tsi
from pgm.core.session.start_positions import BY_PARAMETERS
from pgm.core.session.state import NO_EPOCH, SessionEpoch, SessionState
from pgm.core.structures.ranges import Span
from pgm.core.window.proved_window import Arrival, Trial
from pgm.parameters import Parameters
from pgm.wire.control_packets import Packet
from pgm.wire.formats import Nla, Tsi
from pgm.wire.train import Data, DataWithGaps, Run, Train

_MOST_SPANS = 1 << 16  # that wait for their packets; the oldest ones are forgotten first


class StreamJudge:
    """Judge of the packets of one session of a signed stream, by the spans that its proofs have named."""

    def __init__(self, state: SessionState, new_check: NewProofCheck, *, may_begin_later: bool) -> None:
        self.may_begin_later = may_begin_later
        self.has_news = False  # a proof has come since the last delivery
        self._state = state
        self._new_check = new_check
        self._epoch: SessionEpoch = NO_EPOCH
        self._check: ProofCheck | None = None
        self._spans: deque[ProvedSpan] = deque()

    def take_untrusted(self, octets: bytes) -> bool:
        """Take a proof. Return whether it is one of this session."""
        check = self._current_check()
        spans = None if check is None else check.spans_of_untrusted(octets)
        if spans is None:
            return False
        least = self._spans[-1].end if self._spans else 0
        self._spans.extend(span for span in spans if span.first >= least)
        while len(self._spans) > _MOST_SPANS:
            self._spans.popleft()
        self.has_news = True
        return True

    def start_for(self, sqn: int) -> int:
        """Return where reception begins, such that the packets from a sqn on can be proved."""
        check, shift = self._current_check(), self._state.epoch.shift
        if self.may_begin_later or check is None:
            return sqn
        return max(check.block_start(sqn + shift) - shift, min(sqn, self._state.oldest))

    def span_at(self, sqn: int) -> Span | None:
        """Return the first span that ends after a sqn."""
        shift, spans = self._state.epoch.shift, self._spans
        while spans and spans[0].end <= sqn + shift:
            spans.popleft()
        return (spans[0].first - shift, spans[0].end - shift) if spans else None

    def fits(self, runs: Sequence[Run]) -> bool:
        """Return whether packets have the digest of the first span."""
        check, shift = self._current_check(), self._state.epoch.shift
        if check is None:
            return False
        own = [Run(run.first + shift, run.count, run.buffer, run.offset, run.stride, run.payload_at) for run in runs]
        return check.digest(own) == self._spans[0].digest

    def _current_check(self) -> ProofCheck | None:
        """Return the check for the epoch that signed SPMs have told."""
        epoch = self._state.epoch
        if epoch.started_ns != self._epoch.started_ns:
            self._epoch = epoch
            self._spans.clear()
            self._check = self._new_check(self._state.tsi, epoch.started_ns)
        return self._check


@attrs.frozen(eq=False)
class ProofJudge:
    """Judge of the packets of a session of proofs: each is right if it is a proof."""

    stream: StreamJudge
    may_begin_later = False

    def start_for(self, sqn: int) -> int:
        """Return a sqn: each packet is proved by itself."""
        return sqn

    def span_at(self, sqn: int) -> Span | None:
        """Return the span of one packet."""
        return sqn, sqn + 1

    def fits(self, runs: Sequence[Run]) -> bool:
        """Return whether a packet is a proof, and hand its spans on."""
        return self.stream.take_untrusted(runs[0].alone())


class ProvedReceiver(ReceiverCore):
    """A `ReceiverCore` that delivers only packets of signed streams that are proved."""

    def __init__(self, setup: ReceiverSetup, parameters: Parameters, rng: random.Random) -> None:
        self._arrival = Arrival()
        self._judges: dict[Tsi, StreamJudge] = {}  # by TSI of the stream
        is_now = parameters.join_from == "now" and setup.starts is BY_PARAMETERS
        self._is_exact = parameters.join_from == "sqn" or setup.starts is not BY_PARAMETERS
        super().__init__(attrs.evolve(setup, new_trial=self._trial_of_stream), parameters, rng)
        own = attrs.evolve(
            setup,
            data_ports=frozenset(map(proof_port, setup.signers.proofs)),
            ack_bound=AT_ONCE,
            starts=BY_PARAMETERS,
            new_trial=self._trial_of_proofs,
        )
        of_proofs = attrs.evolve(
            parameters,
            join_from="now" if is_now else "oldest",
            inbox_bytes=1 << 62,  # proofs are taken at once
            excess_nak_policy="go-on",
        )
        self._proofs = ReceiverCore(own, of_proofs, rng, self._counters)

    def _trial_of_stream(self, state: SessionState, parents: Parents) -> Trial | None:
        new_check = self.setup.signers.proofs.get(state.data_port)
        if new_check is None:
            return None
        judge = StreamJudge(state, new_check, may_begin_later=not self._is_exact)
        self._judges[bytes(state.tsi)] = judge
        return Trial(judge, self._arrival, parents)

    def _trial_of_proofs(self, state: SessionState, parents: Parents) -> Trial | None:
        return Trial(ProofJudge(self._judges[proof_tsi(state.tsi)]), self._arrival, parents)

    @property
    def deadline_ns(self) -> int:
        """When `handle_deadline` has something to do."""
        return min(super().deadline_ns, self._proofs.deadline_ns)

    def receive(self, train: Train, channel: Channel, peer: Nla, now_ns: int) -> Effects:
        """Take the packets of one read."""
        self._arrival.peer, self._arrival.now_ns = peer, now_ns
        items, rejects = train.parse_scattered_untrusted()
        ports = self._proofs.setup.data_ports
        if all(item.data_port not in ports for item in items):
            return super().receive(train, channel, peer, now_ns)
        self.single.reset()
        effects: list[Effect] = []
        rest = [item for item in items if item.data_port not in ports]
        if rest or rejects:
            effects += super().receive(train.part(rest, rejects), channel, peer, now_ns)
        proofs = [item for item in items if item.data_port in ports]
        known = [item for item in proofs if self._is_known(item)]
        self._counters.foreign_packets += sum(map(_packets_of, proofs)) - sum(map(_packets_of, known))
        if known:
            effects += self._judged(self._proofs.receive(train.part(known, []), channel, peer, now_ns))
        return effects

    def _is_known(self, item: Data | DataWithGaps | Packet) -> bool:
        """Return whether a packet of proofs is for a session that there is."""
        session = self._sessions.get(proof_tsi(item.tsi))
        return session is not None and session.state.data_port == proof_port(item.data_port)

    def handle_deadline(self, now_ns: int) -> Effects:
        """Run what is due, of the streams and of their proofs."""
        self._arrival.peer, self._arrival.now_ns = "", now_ns
        effects = super().handle_deadline(now_ns)
        if len(self._judges) > len(self._sessions):
            self._forget_old()
        return [*effects, *self._judged(self._proofs.handle_deadline(now_ns))]

    def _forget_old(self) -> None:
        for tsi in [tsi for tsi in self._judges if self._sessions.get(tsi) is None]:
            del self._judges[tsi]
        self._proofs.sessions.forget(lambda session: proof_tsi(session.state.tsi) not in self._judges)

    def _judged(self, effects: Effects) -> list[Effect]:
        """Return effects of the sessions of proofs for the driver, and what proofs let the application have."""
        out: list[Effect] = [effect for effect in effects if isinstance(effect, (Send, Notice))]
        for tsi, judge in self._judges.items():
            if judge.has_news:
                judge.has_news = False
                session = self._sessions.get(tsi)
                if session is not None:
                    out += session.delivery.resume()
        return out


def _packets_of(item: Data | DataWithGaps | Packet) -> int:
    return item.count if isinstance(item, (Data, DataWithGaps)) else item.packets
