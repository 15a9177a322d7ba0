"""Check of a session's proofs and packets, in the form that cores take."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import attrs

from pgm.trust.blocks import BLOCK_BITS
from pgm.trust.proofs import Proof
from pgm.trust.verifier import ProofChain
from pgm.wire.packet_run import Run


def _is_no_record(_octets: bytes) -> bool:
    return False


@attrs.define(eq=False)
class SessionCheck:
    """Check by the chain of a session. The first proof that comes begins the chain."""

    _chain: ProofChain
    _is_record: Callable[[bytes], bool] = (
        _is_no_record  # of the source; a recorder keeps key records that it cannot open
    )
    unopened = 0  # key records
    _wrong_records: int = 0

    def proof_of_untrusted(self, octets: bytes) -> Proof | None:
        """Return a proof that continues the chain, or has details; None for other octets. Never raises."""
        proof = self._chain.take_untrusted(octets)
        return proof if isinstance(proof, Proof) else None

    @property
    def wrong_signatures(self) -> int:
        """Return how many proofs and key records had a wrong signature, which was checked."""
        return self._chain.wrong_signatures + self._wrong_records

    def block_start(self, sqn: int) -> int:
        """Return the first sqn of the block of a packet."""
        return sqn >> BLOCK_BITS << BLOCK_BITS

    def digest(self, runs: Sequence[Run]) -> bytes:
        """Return the digest of consecutive runs. Raises `ValueError` for gaps."""
        return self._chain.session.digest(runs)

    def take_record_untrusted(self, octets: bytes) -> bool:
        """Return whether key records are kept here, and are those of the source. Never raises."""
        is_valid = self._is_record(octets)
        self._wrong_records += not is_valid
        return is_valid

    def may_open(self, _first: int, _end: int) -> bool:
        """Return True: packets are delivered as they are."""
        return True

    def openable_from(self, _sqn: int) -> int | None:
        """Return None: no packet waits for a secret."""
        return None

    def opened(self, run: Run) -> Iterator[Run]:
        """Yield the packets as they are."""
        yield run
