"""Source of a signed stream, which proves its packets in a session of their own (`pgm.core.session.proofs`)."""

from __future__ import annotations

import random

import attrs

from pgm.core.effects import Effect, Effects, Send
from pgm.core.segment import Channel
from pgm.core.session.proofs import Prover, most_proof_octets, proof_port, proof_tsi
from pgm.core.source.setup import SourceSetup
from pgm.core.source.snapshots import SnapshotSource
from pgm.core.source.source import SourceCore
from pgm.core.source_names import NamedTsi, node_of
from pgm.core.status import SessionStatus
from pgm.parameters import Parameters
from pgm.units import MIB, NEVER
from pgm.wire.formats import Nla, Tsi
from pgm.wire.train import Train

_LEAST_WINDOW = 4 * MIB  # octets of proofs: some seconds of one proof a millisecond
_WINDOW_SHARE = 16  # of the stream's window: proofs of packets with few octets take a fraction of them


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
        own = attrs.evolve(
            self.setup,
            tsi=NamedTsi.of(proof_tsi(setup.tsi), node_of(setup.tsi)),
            data_port=proof_port(setup.data_port),
            first_sqn=0,
            flow="rate",
            # A joiner that misses the first SPM of the proofs still gets all proofs since the first SPM of the stream.
            join_back_ivl=2 * parameters.ambient_spm_ivl,
        )
        self._prover = prover
        self._is_proved = False  # all packets to the end
        self._proofs = SourceCore(own, proof_parameters(parameters), now_ns, counters=self.counters)

    @property
    def tsis(self) -> tuple[Tsi, ...]:
        """TSIs of the stream and of its proofs."""
        return *super().tsis, self._proofs.setup.tsi

    def set_rate(self, rate: int, now_ns: int) -> None:
        """Set the rate of stream and proofs."""
        super().set_rate(rate, now_ns)
        self._proofs.set_rate(rate, now_ns)

    def abort(self, now_ns: int, *, error: int = 0, no_naks: bool = False) -> Effects:
        """Abort stream and proofs."""
        proofs = self._proofs.abort(now_ns, error=error, no_naks=no_naks)
        return [*super().abort(now_ns, error=error, no_naks=no_naks), *proofs]

    def is_finished(self, now_ns: int) -> bool:
        """Return whether a closed source may exit: no NAKs come for the stream or its proofs."""
        return super().is_finished(now_ns) and self._proofs.is_finished(now_ns)

    def receive(self, train: Train, channel: Channel, peer: Nla, now_ns: int) -> Effects:
        """Take requests for proofs; everything else is for the stream."""
        items, rejects = train.parse_scattered_untrusted()
        tsi = self._proofs.setup.tsi
        proofs = [item for item in items if item.tsi == tsi]
        if not proofs:
            return super().receive(train, channel, peer, now_ns)
        effects = [*self._proofs.receive(train.part(proofs, []), channel, peer, now_ns)]
        rest = [item for item in items if item.tsi != tsi]
        if rest or rejects:
            effects += super().receive(train.part(rest, rejects), channel, peer, now_ns)
        return effects

    @property
    def deadline_ns(self) -> int:
        """When `handle_deadline` has something to do."""
        # A proof waits until the one before has left, so a low rate gets fewer and larger proofs.
        prover_ns = NEVER if self._proofs.window.has_unsent else self._prover.deadline_ns
        return min(super().deadline_ns, self._proofs.deadline_ns, prover_ns)

    def handle_deadline(self, now_ns: int) -> Effects:
        """Send what is due of the proofs, then of the stream, and prove it."""
        proofs = self._proofs
        if not proofs.window.has_unsent:
            self._submit(self._prover.handle_deadline(now_ns))
        effects: list[Effect] = []
        if proofs.deadline_ns <= now_ns:
            effects += proofs.handle_deadline(now_ns)
            if effects and isinstance(last := effects[-1], Send) and last.is_data:
                self._sending.pacer.data_sent(len(last.octets), now_ns, len(last.octets) // last.stride)
                return effects  # one train of data in a call
        lead, spm_sqn = self.window.lead, self._spms.spm_sqn
        effects += super().handle_deadline(now_ns)
        if self._spms.spm_sqn != spm_sqn:  # both sessions of a joiner begin at one time
            effects.insert(0, proofs.spm(now_ns))
        if self.window.lead > lead:
            self._submit(self._prover.take(self.window.parts(lead + 1, self.window.lead + 1)))
            if not proofs.window.has_unsent:
                self._submit(self._prover.handle_deadline(now_ns))
        if self._closing.has_begun and not self._is_proved and self._prover.deadline_ns == NEVER:
            self._is_proved = True
            proofs.close()
        return effects

    def _submit(self, proofs: list[bytes]) -> None:
        if proofs:
            self._proofs.submit(proofs)
            self._invalidate_deadline()

    def status(self, now_ns: int) -> list[SessionStatus]:
        """Return the rows of stream and proofs."""
        return [*super().status(now_ns), *self._proofs.status(now_ns)]


class ProvedSnapshotSource(ProvedSource, SnapshotSource):
    """A `ProvedSource` whose application offers states, which are not proved."""
