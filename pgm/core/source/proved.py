"""Source of a signed stream, which proves its packets in a session of their own (`pgm.core.session.proofs`).

The source of a sealed stream has a third session, for key records (`pgm.core.session.key_records`).
"""

from __future__ import annotations

import random

import attrs

from pgm.core.effects import NOTHING, Effect, Effects, Send, with_tail
from pgm.core.pacing.token_bucket import TokenBucket
from pgm.core.segment import Channel
from pgm.core.session.key_records import key_port, key_tsi
from pgm.core.session.proofs import DETAIL_GROUP, Prover, detail_group, most_proof_octets, proof_port, proof_tsi
from pgm.core.source.multi_line import MultiLineSource
from pgm.core.source.record_schedule import RecordSchedule
from pgm.core.source.setup import SourceSetup
from pgm.core.source.snapshots import SnapshotSource
from pgm.core.source.source import SourceCore
from pgm.core.source_names import NamedTsi, node_of
from pgm.core.status import SessionEdges, SessionStatus
from pgm.parameters import Parameters
from pgm.units import MIB, NEVER, SECOND
from pgm.wire.control_packets import Packet, Spmr
from pgm.wire.formats import TYPE_AT, Nla, PacketType, Tsi
from pgm.wire.options import StateOffer, find
from pgm.wire.sequence_numbers import unwrap
from pgm.wire.train import Data, DataWithGaps, Train

_LEAST_WINDOW = 4 * MIB  # octets of proofs: some seconds of one proof a millisecond
_WINDOW_SHARE = 16  # of the stream's window: proofs of packets with few octets take a fraction of them
_KEPT_ROUNDS = 2  # rounds of key records in their window


def proof_parameters(parameters: Parameters) -> Parameters:
    """Return the parameters of the session of proofs. Its octets count against the rate of the stream."""
    octets = parameters.txw_bytes and max(_LEAST_WINDOW, parameters.txw_bytes // _WINDOW_SHARE)
    return attrs.evolve(
        parameters,
        txw_bytes=octets,
        txw_sqns=0,
        txw_max_pps=0,
        txw_min_rte=0,
        txw_adv_mode="time",
        max_apdu=most_proof_octets(parameters.max_tpdu),
        fec_group=0,
        warm_bytes=0,
        mark_ends=False,
    )


def record_parameters(parameters: Parameters) -> Parameters:
    """Return the parameters of the session of key records: its window holds the records of a whole interval."""
    return attrs.evolve(
        proof_parameters(parameters), txw_secs=max(parameters.txw_secs, _KEPT_ROUNDS * parameters.key_record_ivl)
    )


class _DetailLimit:
    """Limit on groups of packets whose details are sent. Each is sent once in half of `details_ivl`."""

    def __init__(self, parameters: Parameters) -> None:
        self._ivl = parameters.details_ivl // 2
        self._bucket = TokenBucket(parameters.details_rte, SECOND)
        self._sent: dict[int, int] = {}  # until when a group is not sent again; oldest first, `details_rte` at most

    def admit(self, group: int, now_ns: int) -> bool:
        """Return whether the details of a group may be sent now."""
        self._sent = {sqn: until_ns for sqn, until_ns in self._sent.items() if until_ns > now_ns}
        if group in self._sent or not self._bucket.take(1, now_ns):
            return False
        self._sent[group] = now_ns + self._ivl
        return True


class ProvedSource(SourceCore):
    """A `SourceCore` that proves its packets. `prover` signs their blocks."""

    def __init__(
        self,
        setup: SourceSetup,
        parameters: Parameters,
        now_ns: int,
        prover: Prover,
        rng: random.Random | None = None,
    ) -> None:
        super().__init__(setup, parameters, now_ns, rng)
        self.single.close()
        self._prover = prover
        self._is_proved = False  # all packets to the end, or nothing is to be proved any more
        # A joiner that misses the first SPM of the proofs still gets all proofs since the first SPM of the stream.
        proofs = _second(self.setup, proof_tsi(setup.tsi), proof_port(setup.data_port), 2 * parameters.ambient_spm_ivl)
        self._proofs = SourceCore(proofs, proof_parameters(parameters), now_ns, counters=self.counters)
        self._proved_end = self.window.lead + 1  # no packet from here on was given to the prover
        self._details = _DetailLimit(parameters)
        self._seconds = [self._proofs]  # further sessions of this source
        self._records: RecordSchedule | None = None
        self._is_turn_of_records = False
        if setup.sealer is not None:
            # The last interval has each record once.
            kept = parameters.key_record_ivl + parameters.ambient_spm_ivl
            own = _second(self.setup, key_tsi(setup.tsi), key_port(setup.data_port), kept)
            session = SourceCore(own, record_parameters(parameters), now_ns, counters=self.counters)
            self._seconds.append(session)
            self._records = RecordSchedule(setup.sealer, session, parameters.key_record_ivl)
        for session in self._seconds:  # requests for all sessions together get no more than the share of one
            session.share_repairs(self._sending.pacer.repairs)
        self._by_tsi = {session.setup.tsi: session for session in self._seconds}
        self._is_turn_of_repairs = False  # of the stream: the last repairs were those of another session
        self._seconds_ns = 0  # when the other sessions have something to do; 0: compute it again

    @property
    def tsis(self) -> tuple[Tsi, ...]:
        """TSIs of the stream, of its proofs and of its key records."""
        return *super().tsis, *(session.setup.tsi for session in self._seconds)

    def secret_changed(self) -> None:
        """Note that the sealer has a new secret: send its records at once."""
        if self._records is not None:
            self._records.restart()
            self._invalidate_deadline()

    def set_rate(self, rate: int, now_ns: int) -> None:
        """Set the rate of all sessions."""
        super().set_rate(rate, now_ns)
        for session in self._seconds:
            session.set_rate(rate, now_ns)

    def abort(self, now_ns: int, *, error: int = 0, no_naks: bool = False) -> Effects:
        """Abort all sessions."""
        self._is_proved, self._records = True, None
        effects = [*super().abort(now_ns, error=error, no_naks=no_naks)]
        for session in self._seconds:
            effects += session.abort(now_ns, error=error, no_naks=no_naks)
        return effects

    def is_finished(self, now_ns: int) -> bool:
        """Return whether a closed source may exit: no NAKs come for any of its sessions."""
        return super().is_finished(now_ns) and all(session.is_finished(now_ns) for session in self._seconds)

    def receive(self, train: Train, channel: Channel, peer: Nla, now_ns: int) -> Effects:
        """Take requests for proofs and key records; everything else is for the stream."""
        items, rejects = train.parse_scattered_untrusted()
        by_tsi = self._by_tsi
        if all(item.tsi not in by_tsi for item in items):
            return super().receive(train, channel, peer, now_ns)
        effects: list[Effect] = []
        self._seconds_ns = 0
        for tsi, session in by_tsi.items():
            own = [item for item in items if item.tsi == tsi]
            if session is self._proofs:
                own = [item for item in own if not self._is_request(item, channel, peer, now_ns)]
                effects += session.control_codes.take_effects()
            if own:
                effects += session.receive(train.part(own, []), channel, peer, now_ns)
        rest = [item for item in items if item.tsi not in by_tsi]
        if rest or rejects:
            effects += super().receive(train.part(rest, rejects), channel, peer, now_ns)
        return effects

    def _is_request(self, item: Data | DataWithGaps | Packet, channel: Channel, peer: Nla, now_ns: int) -> bool:
        """Return whether a packet requests details, and answer it."""
        if not isinstance(item, Spmr) or channel.is_group:
            return False
        wanted = find(item.options, StateOffer)
        if wanted is None or not wanted.details:
            return False
        codes = self._proofs.control_codes
        if codes.has_any and codes.checked(item, channel.segment, peer, now_ns) is None:
            return True
        group = detail_group(unwrap(wanted.sqn, self.window.lead))
        first, end = max(group, self.window.trail), min(group + DETAIL_GROUP, self._proved_end)
        if first >= end or self._closing.is_over(now_ns):
            return True
        if not self._naks.limits.admit_nak(peer, now_ns) or not self._details.admit(group, now_ns):
            self.counters.detail_requests_braked += 1
            return True
        self.counters.detail_requests += 1
        self._closing.on_nak(now_ns)
        # The session of proofs may have ended: the details then follow its FIN, and void it.
        self._proofs.window.append(self._prover.details(list(self.window.parts(first, end))))
        self._invalidate_deadline()
        return True

    @property
    def deadline_ns(self) -> int:
        """When `handle_deadline` has something to do."""
        # A proof waits until the one before has left, so a low rate gets fewer and larger proofs.
        prover_ns = NEVER if self._proofs.window.has_unsent else self._prover.deadline_ns
        return min(super().deadline_ns, prover_ns, self._seconds_ns or self._compute_seconds())

    def _compute_seconds(self) -> int:
        """Return when the other sessions have something to do. Data of the stream brings it no nearer."""
        at = self._proofs.deadline_ns
        if self._records is not None:
            at = min(at, self._records.session.deadline_ns, self._records.deadline_ns)
        self._seconds_ns = at
        return at

    def _invalidate_deadline(self) -> None:
        super()._invalidate_deadline()
        self._seconds_ns = 0

    def handle_deadline(self, now_ns: int) -> Effects:
        """Send what is due of proofs and key records, then of the stream, and prove it."""
        if not self._proofs.window.has_unsent:
            self._submit(self._prover.handle_deadline(now_ns))
        effects = self._serve_seconds(now_ns)
        if _last_data(effects) is not None:
            return effects  # one train of data in a call, and its proof
        lead, spm_sqn = self.window.lead, self._spms.spm_sqn
        effects += super().handle_deadline(now_ns)
        if effects and _is_repair(effects[-1]):
            self._is_turn_of_repairs = False
        if self._spms.spm_sqn != spm_sqn:  # all sessions of a joiner begin at one time
            effects[:0] = [session.spm(now_ns) for session in self._seconds]
            self._seconds_ns = 0
        if self.window.lead > lead:
            self._proved_end = self.window.lead + 1
            self._submit(self._prover.take(self.window.parts(lead + 1, self.window.lead + 1)))
            if not self._proofs.window.has_unsent:
                self._submit(self._prover.handle_deadline(now_ns))
            effects = _together(effects, self._serve(self._proofs, now_ns))
        if self._closing.has_begun:
            self._close_seconds()
        return effects

    def _serve_seconds(self, now_ns: int) -> list[Effect]:
        """Return what is due of the other sessions, one train of data at most."""
        effects: list[Effect] = []
        if (self._seconds_ns or self._compute_seconds()) > now_ns:
            return effects
        self._seconds_ns = 0
        for session in self._seconds:
            if session is self._proofs or self._may_send_records(now_ns):
                effects += self._serve(session, now_ns)
                if _last_data(effects) is not None:
                    break
        return effects

    def _serve(self, session: SourceCore, now_ns: int) -> Effects:
        """Return what is due of another session. Its data count against the rate of the stream."""
        if session.deadline_ns > now_ns:
            return NOTHING
        self._seconds_ns = 0
        if self._is_turn_of_repairs and not session.window.has_unsent and self._may_repair(now_ns):
            return NOTHING  # repairs of all sessions have one bucket, and take turns
        effects = session.handle_deadline(now_ns)
        if (train := _last_data(effects)) is not None:
            self._sending.pacer.data_sent(len(train.octets), now_ns, len(train.octets) // train.stride)
            self._is_turn_of_repairs = self._is_turn_of_repairs or _is_repair(train)
        return effects

    def _close_seconds(self) -> None:
        """Close the other sessions once they have told all."""
        self._seconds_ns = 0
        if not self._is_proved and self._prover.deadline_ns == NEVER:
            self._is_proved = True
            self._proofs.close()
        if self._records is not None and not self._records.is_busy:
            self._records.session.close()
            self._records = None

    def _may_send_records(self, now_ns: int) -> bool:
        """Take the next key record. Return whether records may leave: a round of them takes turns with the stream."""
        self._is_turn_of_records = not self._is_turn_of_records
        if self._records is not None and self._is_turn_of_records:
            self._records.handle_deadline(now_ns)
        return self._is_turn_of_records

    def _submit(self, proofs: list[bytes]) -> None:
        if proofs and not self._is_proved:
            self._proofs.submit(proofs)
            self._seconds_ns = 0

    def status(self, now_ns: int) -> list[SessionStatus]:
        """Return the rows of all sessions."""
        return [*super().status(now_ns), *(row for session in self._seconds for row in session.status(now_ns))]

    def edges(self) -> list[SessionEdges]:
        """Return how far each session has come."""
        return [*super().edges(), *(edges for session in self._seconds for edges in session.edges())]


def _together(effects: list[Effect], of_proofs: Effects) -> list[Effect]:
    """Return the effects of a stream, and those of its proofs. A proof leaves with the train that it proves."""
    train, proof = _last_data(effects), _last_data(of_proofs)
    if train is None or proof is None:
        return [*effects, *of_proofs]
    return [*effects[:-1], *of_proofs[:-1], *with_tail(train, proof)]


def _last_data(effects: Effects) -> Send | None:
    """Return the last effect if it sends data."""
    last = effects[-1] if effects else None
    return last if isinstance(last, Send) and last.is_data else None


def _is_repair(effect: Effect) -> bool:
    return isinstance(effect, Send) and effect.is_data and effect.octets[TYPE_AT] == PacketType.RDATA


def _second(setup: SourceSetup, tsi: Tsi, data_port: int, join_back_ivl: int) -> SourceSetup:
    """Return the setup of a further session of a source."""
    return attrs.evolve(
        setup,
        tsi=NamedTsi.of(tsi, node_of(setup.tsi)),
        data_port=data_port,
        first_sqn=0,
        flow="rate",
        join_back_ivl=join_back_ivl,
        sealer=None,
    )


class ProvedSnapshotSource(ProvedSource, SnapshotSource):
    """A `ProvedSource` whose application offers states, which are not proved."""


class ProvedMultiLineSource(MultiLineSource, ProvedSource):
    """A `ProvedSource` on several lines: each carries the stream, its proofs and its key records."""

    def __init__(
        self,
        setup: SourceSetup,
        parameters: Parameters,
        now_ns: int,
        prover: Prover,
        rng: random.Random | None = None,
    ) -> None:
        ProvedSource.__init__(self, setup, parameters, now_ns, prover, rng)
        self._all = (setup.segment, *setup.lines)
