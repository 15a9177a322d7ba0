"""Session of the key records of a sealed source (`pgm.core.session.key_records`).

All records leave at the start and after each change of the secret, and then once in `key_record_ivl`. They are made one at
a time, and take turns with the data of the stream: a record takes some milliseconds to make.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import attrs

from pgm.core.effects import NOTHING, Effects
from pgm.core.segment import Channel
from pgm.core.session.key_records import PayloadSealer, key_port, key_tsi
from pgm.core.session.proofs import Prover
from pgm.core.source.companions import NewCompanion, Received, companion_setup
from pgm.core.source.proved import ProofSession, proof_parameters
from pgm.core.source.source import SourceCore
from pgm.core.status import SessionStatus
from pgm.core.window.transmit_window import Payload
from pgm.parameters import Parameters
from pgm.units import NEVER
from pgm.wire.formats import Nla
from pgm.wire.train import DataWithGaps, Item

_KEPT_ROUNDS = 2  # rounds of key records in their window


def record_parameters(parameters: Parameters) -> Parameters:
    """Return the parameters of the session of key records: its window holds the records of a whole interval."""
    return attrs.evolve(
        proof_parameters(parameters), txw_secs=max(parameters.txw_secs, _KEPT_ROUNDS * parameters.key_record_ivl)
    )


class KeyRecordSession:
    """Companion of a sealed stream: its key records."""

    data_deadline_ns = NEVER
    is_repair = False

    def __init__(self, sealer: PayloadSealer, stream: SourceCore, now_ns: int) -> None:
        parameters, setup = stream.parameters, stream.setup
        kept = parameters.key_record_ivl + parameters.ambient_spm_ivl  # this time has each record once
        own = companion_setup(setup, key_tsi(setup.tsi), key_port(setup.data_port), kept)
        self.core = SourceCore(own, record_parameters(parameters), now_ns, counters=stream.counters)
        self._sealer = sealer
        self._ivl = parameters.key_record_ivl
        self._stream = stream
        self._next_ns = 0  # when the next round begins; NEVER: no further round begins
        self._round: Iterator[bytes] = iter(())
        self._is_in_round = False
        self._is_turn = False

    def restart(self) -> None:
        """Begin a new round at once: the secret has changed."""
        if self._next_ns != NEVER:
            self._next_ns, self._is_in_round = 0, False
            self._stream.invalidate_deadline()

    def takes(self, item: Item | DataWithGaps) -> bool:
        """Return whether a packet is for the session of key records."""
        return item.tsi == self.core.setup.tsi

    def take(self, items: Received, channel: Channel, peer: Nla, now_ns: int) -> Effects:
        """Take NAKs and SPMRs for key records."""
        return self.core.take(items, channel, peer, now_ns)

    @property
    def deadline_ns(self) -> int:
        """When `handle_deadline` has something to do."""
        return min(self.core.deadline_ns, self._submits_ns)

    @property
    def _submits_ns(self) -> int:
        """When the next record is made: the one before has left."""
        if self.core.window.has_unsent:
            return NEVER
        return 0 if self._is_in_round else self._next_ns

    def handle_deadline(self, now_ns: int) -> Effects:
        """Make and send the next key record in every second call: the stream has the others."""
        self._is_turn = not self._is_turn
        if not self._is_turn:
            return NOTHING
        if self._submits_ns <= now_ns:
            self._submit_next(now_ns)
        return self.core.handle_deadline(now_ns) if self.core.deadline_ns <= now_ns else NOTHING

    def _submit_next(self, now_ns: int) -> None:
        if not self._is_in_round:
            self._round, self._next_ns, self._is_in_round = self._sealer.records(), now_ns + self._ivl, True
        record = next(self._round, b"")
        if record:
            self.core.submit((record,))
        else:
            self._is_in_round = False

    def spms(self, now_ns: int) -> Effects:
        """Return an SPM."""
        return (self.core.spm(now_ns),)

    def sent(self, first: int, end: int, now_ns: int) -> Effects:
        """Return nothing: no record is about packets."""
        return NOTHING

    def put_state(self, payload: Payload, now_ns: int) -> Effects:
        """Return nothing: the session sends no states."""
        return NOTHING

    def stream_ends(self) -> None:
        """Close the session after the round that has begun."""
        if not self._is_in_round and 0 < self._next_ns < NEVER:
            self._next_ns = NEVER
            self.core.close()

    def abort(self, now_ns: int, *, error: int, no_naks: bool) -> Effects:
        """Abort the session."""
        self._next_ns, self._is_in_round = NEVER, False
        return self.core.abort(now_ns, error=error, no_naks=no_naks)

    def set_rate(self, rate: int, now_ns: int) -> None:
        """Take the rate of the stream."""
        self.core.set_rate(rate, now_ns)

    def status(self, now_ns: int) -> list[SessionStatus]:
        """Return the row of the session."""
        return self.core.status(now_ns)


def proof_companions(prover: Prover | None, sealer: PayloadSealer | None) -> list[NewCompanion]:
    """Return the companions of a session that is proved, or sealed, or neither."""
    companions: list[NewCompanion] = []
    if prover is not None:
        companions.append(functools.partial(ProofSession, prover))
    if sealer is not None:
        companions.append(functools.partial(KeyRecordSession, sealer))
    return companions
