"""Proofs and key records of the streams of a receiver: packets wait for the proofs of their source (`pgm.core.session.proofs`).

Packets of sealed streams wait for their secrets, too, and are decrypted when they are delivered
(`pgm.core.session.key_records`).
"""

from __future__ import annotations

import operator
import random
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Sequence

import attrs

from pgm.core.acked.ack_bound import AT_ONCE
from pgm.core.counters import Counters
from pgm.core.effects import CloseCause, Closed, Deliver, Effect, Effects, Evidence, Lost, Notice, Send, control
from pgm.core.in_place import Neighbours
from pgm.core.pacing.token_bucket import TokenBucket
from pgm.core.receiver.companions import Received, packets_of
from pgm.core.receiver.receiver import ReceiverCore
from pgm.core.receiver.setup import NewTrial
from pgm.core.recovery.parents import Parents
from pgm.core.segment import Channel
from pgm.core.session.detail_requests import DetailRequests
from pgm.core.session.key_records import key_port, key_tsi
from pgm.core.session.proofs import (
    DETAIL_GROUP,
    NewProofCheck,
    ProofCheck,
    ProvedSpan,
    detail_group,
    proof_port,
    proof_tsi,
)
from pgm.core.session.start_positions import BY_PARAMETERS
from pgm.core.session.state import NO_EPOCH, SessionEpoch, SessionState
from pgm.core.structures.ranges import Span
from pgm.core.window.proved_window import Arrival, Trial
from pgm.units import NEVER, SECOND
from pgm.wire.control_packets import Packet, Spmr, encode
from pgm.wire.formats import Nla, Tsi, tsi_text
from pgm.wire.options import StateOffer
from pgm.wire.sequence_numbers import wrap
from pgm.wire.train import Data, DataWithGaps, Run

_MOST_SPANS = 1 << 16  # that wait for their packets; the oldest ones are forgotten first
_MOST_DETAILS = 1 << 14  # packets with a digest of their own; the oldest ones are forgotten first
_MOST_GROUPS = 32  # whose details are requested together
_END = operator.attrgetter("end")


class StreamJudge:
    """Judge of the packets of one session of a signed stream, by the spans that its proofs have named."""

    def __init__(
        self,
        state: SessionState,
        new_check: NewProofCheck,
        arrival: Arrival,
        counters: Counters,
        requests: DetailRequests,
        false_proofs: TokenBucket,
        *,
        may_begin_later: bool,
    ) -> None:
        self.may_begin_later = may_begin_later
        self.news = 0  # proofs and key records that came, and groups of details that will not come
        self._told_news = 0
        self.waits_since_ns = NEVER  # when the next packets began to wait for their secret
        self.unopened = 0  # key records for this receiver that did not open
        self._sealed_end = 0  # no secret comes for packets before it
        self._false_proofs = false_proofs
        self.requests = requests  # by the first sqn of a group, in the source's numbers
        self._details: dict[int, bytes] = {}  # digests of packets by sqn, in the source's numbers
        self._head = 0  # the first sqn that is not judged, in the source's numbers
        self._state = state
        self._new_check = new_check
        self._arrival = arrival
        self._counters = counters
        self._epoch: SessionEpoch = NO_EPOCH
        self._check: ProofCheck | None = None
        self._spans: deque[ProvedSpan] = deque()  # ascending

    def take_untrusted(self, octets: bytes) -> bool:
        """Take a proof. Return whether the proof belongs to the session of the judge."""
        check = self._current_check()
        if check is None or not self._may_check():
            return False
        wrong_before = check.wrong_signatures
        proof = check.proof_of_untrusted(octets)
        if proof is None:
            self._charge(check.wrong_signatures - wrong_before)
            return False
        if proof.has_details:
            self._take_details(proof.spans)
        else:
            least = self._spans[-1].end if self._spans else 0
            self._spans.extend(span for span in proof.spans if span.first >= least)
            while len(self._spans) > _MOST_SPANS:
                self._spans.popleft()
        self.news += 1
        return True

    def _may_check(self) -> bool:
        """Return whether forgeries have left budget for the check of a signature; count the packet if not."""
        if self._false_proofs.ready_at(1) <= self._arrival.now_ns:
            return True
        self._counters.unchecked_proofs += 1
        return False

    def _charge(self, wrong_signatures: int) -> None:
        if wrong_signatures:
            self._false_proofs.charge(wrong_signatures, self._arrival.now_ns)

    def _take_details(self, spans: Sequence[ProvedSpan]) -> None:
        details = self._details
        details.update((span.first, span.digest) for span in spans if span.first >= self._head)
        while len(details) > _MOST_DETAILS:
            del details[next(iter(details))]

    def start_for(self, sqn: int) -> int:
        """Return where reception begins, such that the packets from a sqn on can be proved."""
        return sqn if self.may_begin_later else max(self.block_start(sqn), min(sqn, self._state.oldest))

    def block_start(self, sqn: int) -> int:
        """Return the first sqn of the block of a packet."""
        check, shift = self._current_check(), self._state.epoch.shift
        return sqn if check is None else check.block_start(sqn + shift) - shift

    def take_news(self) -> bool:
        """Return whether there were news since the last call."""
        told, self._told_news = self._told_news, self.news
        return told != self.news

    def span_at(self, sqn: int) -> Span | None:
        """Return the first span that ends after a sqn."""
        shift = self._state.epoch.shift
        span = self._named(sqn + shift)
        return None if span is None else (span.first - shift, span.end - shift)

    def _named(self, sqn: int) -> ProvedSpan | None:
        """Return the first span that ends after a sqn in the source's numbers."""
        spans = self._spans
        if not spans or spans[0].end > sqn:
            return spans[0] if spans else None
        index = bisect_right(spans, sqn, key=_END)
        return spans[index] if index < len(spans) else None

    def forget_before(self, sqn: int) -> None:
        """Forget spans and details before a sqn."""
        spans, head = self._spans, sqn + self._state.epoch.shift
        self._head = head
        while spans and spans[0].end <= head:
            spans.popleft()
            if self._details:
                self._details = {at: digest for at, digest in self._details.items() if at >= head}

    def fits(self, runs: Sequence[Run]) -> bool:
        """Return whether the packets of a span have its digest."""
        check, shift = self._current_check(), self._state.epoch.shift
        span = self._named(runs[0].first + shift)
        if check is None or span is None:
            return False
        return check.digest([_moved(run, shift) for run in runs]) == span.digest

    def take_record_untrusted(self, octets: bytes) -> bool:
        """Take key records. Return whether they are those of the source."""
        check = self._current_check()
        if check is None or not self._may_check():
            return False
        unopened, wrong_before = check.unopened, check.wrong_signatures
        is_valid = check.take_record_untrusted(octets)
        self._charge(check.wrong_signatures - wrong_before)
        self.unopened += check.unopened - unopened
        self._counters.unopened_key_records += check.unopened - unopened
        self._counters.forged_key_records += not is_valid
        self.news += 1
        return is_valid

    def may_open(self, first: int, end: int) -> bool:
        """Return whether packets are in the clear, or their secrets are there."""
        check, shift = self._current_check(), self._state.epoch.shift
        if check is not None and check.may_open(first + shift, end + shift):
            self.waits_since_ns = NEVER
            return True
        self.waits_since_ns = min(self.waits_since_ns, self._arrival.now_ns)
        return False

    def is_shut(self, sqn: int) -> bool:
        """Return whether no secret comes for a packet."""
        return sqn < self._sealed_end

    def skip_to_secret(self, sqn: int) -> bool:
        """Stop waiting for the secret of a packet if a later secret is there. Return whether one is."""
        check, shift = self._current_check(), self._state.epoch.shift
        end = None if check is None else check.openable_from(sqn + shift)
        if end is None:
            return False
        self._sealed_end = end - shift
        self.news += 1
        return True

    def opened(self, run: Run) -> Iterator[Run]:
        """Yield packets with payloads in the clear."""
        check, shift = self._current_check(), self._state.epoch.shift
        assert check is not None
        for opened in check.opened(_moved(run, shift)):
            yield _moved(opened, -shift)

    def detailed_until(self, first: int, end: int) -> int:
        """Return the first sqn without details among some, or `end`."""
        shift, details = self._state.epoch.shift, self._details
        if not details:
            return first
        return next((sqn for sqn in range(first, end) if sqn + shift not in details), end)

    def wrong_of(self, runs: Sequence[Run]) -> list[int]:
        """Return the sqns of packets that differ from their details."""
        check, shift, details = self._current_check(), self._state.epoch.shift, self._details
        assert check is not None
        packets = [
            one.part(sqn, sqn + 1) for one in (_moved(run, shift) for run in runs) for sqn in range(one.first, one.end)
        ]
        return [one.first - shift for one in packets if check.digest([one]) != details[one.first]]

    def want(self, first: int, end: int, now_ns: int, *, is_urgent: bool) -> None:
        """Request the details of some packets, at once or after the time of a repair."""
        shift = self._state.epoch.shift
        groups = range(detail_group(first + shift), end + shift, DETAIL_GROUP)
        for group in groups[:_MOST_GROUPS]:
            self.requests.want(group, now_ns, is_urgent=is_urgent)

    def is_vain(self, sqn: int) -> bool:
        """Return whether the requests for details of a packet got no answer."""
        return self.requests.is_vain(detail_group(sqn + self._state.epoch.shift))

    def answered(self, first: int, end: int) -> None:
        """End the requests for details of some packets."""
        shift = self._state.epoch.shift
        for group in range(detail_group(first + shift), end + shift, DETAIL_GROUP):
            self.requests.answered(group)

    def handle_deadline(self, now_ns: int) -> list[int]:
        """Return sqns, in the source's numbers, of which the details are requested now."""
        self.requests.drop_before(detail_group(self._head))
        due, has_failed = self.requests.handle_deadline(now_ns)
        self.news += has_failed
        return [group for group in due if any(sqn not in self._details for sqn in range(group, group + DETAIL_GROUP))]

    def _current_check(self) -> ProofCheck | None:
        """Return the check for the epoch that signed SPMs have told."""
        epoch = self._state.epoch
        if epoch.started_ns != self._epoch.started_ns:
            self._epoch = epoch
            self._spans.clear()
            self._details.clear()
            self._check = self._new_check(self._state.tsi, epoch.started_ns)
        return self._check


def _moved(run: Run, shift: int) -> Run:
    return Run(run.first + shift, run.count, run.buffer, run.offset, run.stride, run.payload_at)


@attrs.frozen(eq=False)
class PacketJudge:
    """Judge of a session of proofs or key records: each packet is right by itself."""

    take_untrusted: Callable[[bytes], bool]  # of the judge of the stream
    may_begin_later = False
    news = 0

    def start_for(self, sqn: int) -> int:
        """Return a sqn: no packet needs another."""
        return sqn

    def block_start(self, sqn: int) -> int:
        """Return a sqn: no packet needs another."""
        return sqn

    def span_at(self, sqn: int) -> Span | None:
        """Return the span of one packet."""
        return sqn, sqn + 1

    def forget_before(self, sqn: int) -> None:
        """Do nothing: no packet is remembered."""

    def fits(self, runs: Sequence[Run]) -> bool:
        """Return whether a packet is a message of the source, and hand the message on."""
        return self.take_untrusted(runs[0].alone())

    def may_open(self, _first: int, _end: int) -> bool:
        """Return True: the packets are in the clear."""
        return True

    def is_shut(self, _sqn: int) -> bool:
        """Return False: no packet needs a secret."""
        return False

    def opened(self, run: Run) -> Iterator[Run]:
        """Yield the packets as they are."""
        yield run

    def detailed_until(self, first: int, end: int) -> int:
        """Return `first`: no packet has details."""
        return first

    def wrong_of(self, runs: Sequence[Run]) -> list[int]:
        """Return no sqns: no packet has details."""
        return []

    def want(self, first: int, end: int, now_ns: int, *, is_urgent: bool) -> None:
        """Do nothing: no packet has details."""

    def is_vain(self, sqn: int) -> bool:
        """Return True: no packet has details."""
        return True

    def answered(self, first: int, end: int) -> None:
        """Do nothing: no packet has details."""


@attrs.frozen(eq=False)
class _Second:
    """Receiver of further sessions of the sources: of their proofs, or of their key records."""

    core: ReceiverCore
    tsi_of: Callable[[Tsi], Tsi]  # TSI of the stream from that of the session, and the other way round
    port_of: Callable[[int], int]

    def forget_all_but(self, streams: Container[Tsi]) -> None:
        """Forget the sessions that belong to other streams than these."""
        self.core.sessions.forget(lambda session: self.tsi_of(session.state.tsi) not in streams)


class ProofSessions:
    """Companions of signed and sealed streams: their proofs and key records."""

    def __init__(self, stream: ReceiverCore, rng: random.Random) -> None:
        setup, parameters, signers = stream.setup, stream.parameters, stream.setup.signers
        self._stream = stream
        self._rng = rng
        self._parameters = parameters
        self._counters = stream.counters
        self._arrival = Arrival()
        self._judges: dict[Tsi, StreamJudge] = {}  # by TSI of the stream
        self._is_exact = parameters.join_from == "sqn" or setup.starts is not BY_PARAMETERS
        is_now = parameters.join_from in ("now", "snapshot") and setup.starts is BY_PARAMETERS
        own = attrs.evolve(setup, ack_bound=AT_ONCE, starts=BY_PARAMETERS)
        of_all = attrs.evolve(
            parameters,
            inbox_bytes=1 << 62,  # messages are taken at once
            excess_nak_policy="go-on",
        )

        def second(
            ports: Iterable[int],
            port_of: Callable[[int], int],
            tsi_of: Callable[[Tsi], Tsi],
            new_trial: NewTrial,
            join_from: str,
        ) -> _Second:
            own_setup = attrs.evolve(own, data_ports=frozenset(map(port_of, ports)), new_trial=new_trial)
            core = ReceiverCore(own_setup, attrs.evolve(of_all, join_from=join_from), rng, self._counters)
            return _Second(core, tsi_of, port_of)

        self._proofs = second(
            signers.proofs, proof_port, proof_tsi, self._trial_of_proofs, "now" if is_now else "oldest"
        )
        # The source tells from where on its records are needed.
        records = second(signers.sealed, key_port, key_tsi, self._trial_of_records, "now")
        self._seconds = (self._proofs, records) if signers.sealed else (self._proofs,)
        self._by_port = {port: one for one in self._seconds for port in one.core.setup.data_ports}
        self.ports = frozenset(self._by_port)

    def change(self, neighbours: Neighbours, now_ns: int) -> None:
        """Ask other parents for proofs and key records."""
        for one in self._seconds:
            one.core.change(neighbours, one.core.parameters, now_ns)

    def trials(self, state: SessionState, parents: Parents) -> Iterator[Trial]:
        """Yield the trial of a session of a signed stream."""
        port, signers = state.data_port, self._stream.setup.signers
        new_check = signers.proofs.get(port)
        if new_check is None:
            return
        requests = DetailRequests(self._parameters, self._rng)
        budget = TokenBucket(self._parameters.false_proof_rte, SECOND)
        judge = StreamJudge(
            state, new_check, self._arrival, self._counters, requests, budget, may_begin_later=not self._is_exact
        )
        self._judges[bytes(state.tsi)] = judge
        yield Trial(
            judge,
            self._arrival,
            parents,
            is_whole=signers.keeps_proofs,
            is_late=port in self._stream.setup.late_ports,
            is_ordered=port not in self._stream.setup.unordered_ports,
        )

    def _trial_of_proofs(self, state: SessionState, parents: Parents) -> Trial | None:
        return Trial(PacketJudge(self._judges[proof_tsi(state.tsi)].take_untrusted), self._arrival, parents)

    def _trial_of_records(self, state: SessionState, parents: Parents) -> Trial | None:
        return Trial(PacketJudge(self._judges[key_tsi(state.tsi)].take_record_untrusted), self._arrival, parents)

    def state_of(self, tsi: Tsi) -> SessionState | None:
        """Return the state of a session of proofs or key records."""
        return next((found for one in self._seconds if (found := one.core.state_of(tsi))), None)

    @property
    def deadline_ns(self) -> int:
        """When `handle_deadline` has something to do."""
        waits_since_ns = min((judge.waits_since_ns for judge in self._judges.values()), default=NEVER)
        of_details = min((judge.requests.deadline_ns for judge in self._judges.values()), default=NEVER)
        at = min(of_details, *(one.core.deadline_ns for one in self._seconds), NEVER)
        return at if waits_since_ns == NEVER else min(at, waits_since_ns + self._parameters.secret_wait)

    def note(self, peer: Nla, now_ns: int) -> None:
        """Note who gives the packets that the judges compare next."""
        self._arrival.peer, self._arrival.now_ns = peer, now_ns

    def take(self, items: Received, channel: Channel, peer: Nla, now_ns: int) -> Effects:
        """Take proofs and key records."""
        effects: list[Effect] = []
        for second in self._seconds:
            own = [item for item in items if self._by_port[item.data_port] is second]
            known = [item for item in own if self._is_known(item, second)]
            self._counters.foreign_packets += sum(map(packets_of, own)) - sum(map(packets_of, known))
            if known:
                effects += self._judged(second.core.take(known, channel, peer, now_ns))
        return effects

    def _is_known(self, item: Data | DataWithGaps | Packet, second: _Second) -> bool:
        """Return whether a packet of proofs or key records is for a session that there is."""
        session = self._stream.sessions.get(second.tsi_of(item.tsi))
        return session is not None and session.state.data_port == second.port_of(item.data_port)

    def checked(self, effects: Effects) -> Effects:
        """Return effects of the streams as they are."""
        return effects

    def handle_deadline(self, now_ns: int) -> Effects:
        """Run what is due, of proofs, key records and requests for details."""
        effects: list[Effect] = []
        if len(self._judges) > len(self._stream.sessions):
            self.forget_ended()
        for tsi, judge in self._judges.items():
            if judge.requests.deadline_ns <= now_ns:
                effects += self._request(tsi, judge.handle_deadline(now_ns))
        for second in self._seconds:
            effects += self._judged(second.core.handle_deadline(now_ns))
        for tsi, judge in self._judges.items():
            if judge.waits_since_ns != NEVER and now_ns >= judge.waits_since_ns + self._parameters.secret_wait:
                effects += self._give_up(tsi, judge)
        return effects

    def _give_up(self, tsi: Tsi, judge: StreamJudge) -> list[Effect]:
        """Report packets lost whose secret has not come. Close a session without any later secret."""
        session = self._stream.sessions.get(tsi)
        effects: list[Effect] = []
        if session is not None and session.delivery.is_receiving:
            delivery = session.delivery
            is_later = judge.skip_to_secret(session.window.next_sqn)
            effects += delivery.resume() if is_later else delivery.end(CloseCause.NO_SECRET)
        judge.waits_since_ns = NEVER  # also if the end has asked for the secret once more
        return effects

    def _request(self, tsi: Tsi, sqns: Sequence[int]) -> list[Effect]:
        """Return requests for the details of groups of packets, to the next hop towards the source."""
        session = self._proofs.core.sessions.get(proof_tsi(tsi))
        if session is None or session.state.spm is None:
            return []
        state = session.state
        segment, path = session.lines.route(state.path_nla, self._stream.setup.segment)
        options = [StateOffer(sqn=wrap(sqn), details=True) for sqn in sqns]
        self._counters.detail_requests += len(options)
        packets = [encode(Spmr(tsi=state.tsi, data_port=state.data_port, options=(one,))) for one in options]
        return [control(segment, packet, to=path) for packet in packets]

    def forget_ended(self) -> None:
        """Forget proofs and key records of sessions that are forgotten."""
        for tsi in [tsi for tsi in self._judges if self._stream.sessions.get(tsi) is None]:
            del self._judges[tsi]
        for second in self._seconds:
            second.forget_all_but(self._judges)

    def _judged(self, effects: Effects) -> list[Effect]:
        """Return effects of further sessions for the driver, and what they let the application have."""
        out: list[Effect] = [effect for effect in effects if isinstance(effect, (Send, Notice))]
        if self._stream.setup.signers.keeps_proofs:
            out += [Evidence(effect) for effect in effects if isinstance(effect, (Deliver, Lost, Closed))]
        for tsi, judge in self._judges.items():
            if judge.take_news():
                session = self._stream.sessions.get(tsi)
                if session is None:
                    continue
                if judge.unopened:
                    judge.unopened = 0
                    text = "a key record for this receiver does not open: its keys are not those of the topology file"
                    out.append(Notice("unopened-secret", f"session {tsi_text(session.state.tsi)}: {text}"))
                out += session.delivery.resume()
        return out
