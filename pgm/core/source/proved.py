"""Session of the proofs of a signed source (`pgm.core.session.proofs`)."""

from __future__ import annotations

import attrs

from pgm.core.effects import NOTHING, Effect, Effects
from pgm.core.pacing.token_bucket import TokenBucket
from pgm.core.segment import Channel
from pgm.core.session.proofs import DETAIL_GROUP, Prover, detail_group, most_proof_octets, proof_port, proof_tsi
from pgm.core.source.companions import Received, companion_setup
from pgm.core.source.source import SourceCore
from pgm.core.status import SessionStatus
from pgm.core.window.transmit_window import Payload
from pgm.parameters import Parameters
from pgm.units import MIB, NEVER, SECOND
from pgm.wire.control_packets import Spmr
from pgm.wire.formats import Nla
from pgm.wire.options import StateOffer, find
from pgm.wire.sequence_numbers import unwrap
from pgm.wire.train import DataWithGaps, Item

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


class ProofSession:
    """Companion of a signed stream: its proofs. `prover` signs the blocks of the stream."""

    is_repair = False

    def __init__(self, prover: Prover, stream: SourceCore, now_ns: int) -> None:
        setup, parameters = stream.setup, stream.parameters
        # A joiner that misses the first SPM of the proofs still gets all proofs since the first SPM of the stream. Where
        # a joiner may begin with all that is in the window, it gets all proofs.
        join_back_ivl = NEVER if setup.join_back_ivl == NEVER else 2 * parameters.ambient_spm_ivl
        own = companion_setup(setup, proof_tsi(setup.tsi), proof_port(setup.data_port), join_back_ivl)
        self.core = SourceCore(own, proof_parameters(parameters), now_ns, counters=stream.counters)
        stream.single.close()  # every packet comes to `sent`
        self._stream = stream
        self._prover = prover
        self._is_proved = False  # all packets to the end, or nothing is to be proved any more
        self._proved_end = stream.window.lead + 1  # no packet from here on was given to the prover
        self._details = _DetailLimit(parameters)

    def takes(self, item: Item | DataWithGaps) -> bool:
        """Return whether a packet is for the session of proofs."""
        return item.tsi == self.core.setup.tsi

    def take(self, items: Received, channel: Channel, peer: Nla, now_ns: int) -> Effects:
        """Take requests for proofs and details."""
        others = [item for item in items if not self._is_request(item, channel, peer, now_ns)]
        effects: list[Effect] = [*self.core.control_codes.take_effects()]
        return [*effects, *self.core.take(others, channel, peer, now_ns)] if others else effects

    def _is_request(self, item: Item | DataWithGaps, channel: Channel, peer: Nla, now_ns: int) -> bool:
        """Return whether a packet requests details, and answer it."""
        if not isinstance(item, Spmr) or channel.is_group:
            return False
        wanted = find(item.options, StateOffer)
        if wanted is None or not wanted.details:
            return False
        codes, stream = self.core.control_codes, self._stream
        if codes.has_any and codes.checked(item, channel.segment, peer, now_ns) is None:
            return True
        group = detail_group(unwrap(wanted.sqn, stream.window.lead))
        first, end = max(group, stream.window.trail), min(group + DETAIL_GROUP, self._proved_end)
        if first >= end or stream.end.is_over(now_ns):
            return True
        if not stream.nak_limits.admit_nak(peer, now_ns) or not self._details.admit(group, now_ns):
            stream.counters.detail_requests_braked += 1
            return True
        stream.counters.detail_requests += 1
        stream.end.on_nak(now_ns)
        # The session of proofs may have ended: the details then follow its FIN, and void it.
        self.core.window.append(self._prover.details(list(stream.window.parts(first, end))))
        self.core.invalidate_deadline()
        return True

    @property
    def deadline_ns(self) -> int:
        """When there is something to send."""
        return self.core.deadline_ns

    @property
    def data_deadline_ns(self) -> int:
        """When a proof is due."""
        # A proof waits until the one before has left, so a low rate gets fewer and larger proofs.
        return NEVER if self.core.window.has_unsent else self._prover.deadline_ns

    def handle_deadline(self, now_ns: int) -> Effects:
        """Prove what is due, and send proofs."""
        if not self.core.window.has_unsent:
            self._submit(self._prover.handle_deadline(now_ns))
        return self.core.handle_deadline(now_ns) if self.core.deadline_ns <= now_ns else NOTHING

    def spms(self, now_ns: int) -> Effects:
        """Return an SPM."""
        return (self.core.spm(now_ns),)

    def sent(self, first: int, end: int, now_ns: int) -> Effects:
        """Prove data packets. Return the proof if it is due, so that it leaves with the packets."""
        self._proved_end = end
        self._submit(self._prover.take(self._stream.window.parts(first, end)))
        return self.handle_deadline(now_ns)

    def put_state(self, payload: Payload, now_ns: int) -> Effects:
        """Return nothing: the session sends no states."""
        return NOTHING

    def stream_ends(self) -> None:
        """Close the session once all packets are proved."""
        if not self._is_proved and self._prover.deadline_ns == NEVER:
            self._is_proved = True
            self.core.close()

    def abort(self, now_ns: int, *, error: int, no_naks: bool) -> Effects:
        """Abort the session."""
        self._is_proved = True
        return self.core.abort(now_ns, error=error, no_naks=no_naks)

    def set_rate(self, rate: int, now_ns: int) -> None:
        """Take the rate of the stream."""
        self.core.set_rate(rate, now_ns)

    def _submit(self, proofs: list[bytes]) -> None:
        if proofs and not self._is_proved:
            self.core.submit(proofs)

    def status(self, now_ns: int) -> list[SessionStatus]:
        """Return the row of the session."""
        return self.core.status(now_ns)
