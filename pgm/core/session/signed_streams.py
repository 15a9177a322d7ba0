"""Streams whose SPMs must carry a signature of their source.

Window edges, the begin and the end of a session then come from such SPMs alone. Without a valid signature an SPM changes
nothing. Data open no session, and neither their trail nor their OPT_FIN counts.

A verification takes some 0.15 ms, so its rate is bounded: known senders have a budget each, all others one together. An
SPM that repeats what a session knows is dropped before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs

from pgm.core.control_codes import NO_CONTROL_KEYS, ControlKeys, no_offset_ns
from pgm.core.counters import Counters
from pgm.core.pacing.token_bucket import TokenBucket
from pgm.core.session.proofs import NewProofCheck
from pgm.core.session.state import SessionState
from pgm.parameters import Parameters
from pgm.units import SECOND
from pgm.wire.control_packets import Packet, Spm
from pgm.wire.formats import Nla
from pgm.wire.signed_spm import SignedSpm, is_copy_of
from pgm.wire.train import Data, DataWithGaps

_MOST_SENDERS = 64  # senders of valid SPMs with a budget of their own; the one that was silent longest makes room


@attrs.frozen
class StreamSigners:
    """Verifiers of the signatures of some streams."""

    by_port: Mapping[int, Callable[[bytes, bytes, bytes], bool]] = attrs.field(factory=dict)
    """By data port of signed streams: whether a key id, by its signature, has signed some octets."""
    wall_offset_ns: Callable[[], int] = no_offset_ns
    """Returns the ns since 1970 when the node's clock showed 0. The value changes when the time of day is set."""
    proofs: Mapping[int, NewProofCheck] = attrs.field(factory=dict)
    """By data port of streams whose packets are proved: the check of a session's proofs."""
    sealed: frozenset[int] = frozenset()
    """Data ports of sealed streams whose packets are decrypted: those checks take key records, too."""
    control: ControlKeys = NO_CONTROL_KEYS  # codes of the requests of authenticated streams
    keeps_proofs: bool = False
    """Whether an archive gets the proofs, and all packets of the span in which reception begins."""


NO_SIGNERS = StreamSigners()


class SignedStreams:
    """Check of SPMs and data of signed streams, before a session takes them."""

    def __init__(self, signers: StreamSigners, parameters: Parameters, counters: Counters) -> None:
        self.has_any = bool(signers.by_port)  # an attribute, for the fast path
        self._signers = signers
        self._parameters = parameters
        self._counters = counters
        self._strangers = self._new_budget()
        self._senders: dict[Nla, TokenBucket] = {}  # of valid SPMs, the last one last

    def signs(self, data_port: int) -> bool:
        """Return whether a stream is signed."""
        return data_port in self._signers.by_port

    def refuses(self, item: Data | DataWithGaps | Packet, state: SessionState | None, peer: Nla, now_ns: int) -> bool:
        """Return whether a packet must be dropped, and count it. `state` is that of its session, if there is one."""
        if item.data_port not in self._signers.by_port:
            return False
        if isinstance(item, (Data, DataWithGaps)):
            if state is not None:
                return False
            self._counters.unproved_packets += item.count
            return True
        return isinstance(item, Spm) and not self._is_proved(item, state, peer, now_ns)

    def _is_proved(self, spm: Spm, state: SessionState | None, peer: Nla, now_ns: int) -> bool:
        if state is not None and state.repeats(spm):
            if state.spm is not None and is_copy_of(spm, state.spm):
                return True  # a copy, which another relay may have sent
            self._counters.spm_packets_stale += 1
            return False
        signed = SignedSpm.of(spm)
        if signed is None:
            self._counters.forged_spm_packets += 1
            return False
        if not self._senders.get(peer, self._strangers).take(1, now_ns):
            self._counters.unverified_spm_packets += 1
            return False
        verify = self._signers.by_port[spm.data_port]
        is_replay = state is None and self._age_ns(signed, now_ns) > self._parameters.signature_age
        if is_replay or not verify(signed.key_id, signed.signature, signed.octets):
            self._counters.forged_spm_packets += 1
            return False
        self._note(peer)
        return True

    def _age_ns(self, signed: SignedSpm, now_ns: int) -> int:
        """Return by how much the clocks of this node and the source differ at most, if the SPM is new."""
        return abs(now_ns + self._signers.wall_offset_ns() - signed.signed_at_ns)

    def _note(self, peer: Nla) -> None:
        budget = self._senders.pop(peer, None) or self._new_budget()
        self._senders[peer] = budget
        if len(self._senders) > _MOST_SENDERS:
            del self._senders[next(iter(self._senders))]

    def _new_budget(self) -> TokenBucket:
        return TokenBucket(self._parameters.spm_verify_rte, SECOND)
