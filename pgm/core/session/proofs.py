"""Proofs of a signed stream: the messages of a second session of the same source.

The data port of the proofs and the source port of their TSI differ from those of the stream in one bit, so receivers
without keys never take a proof. Otherwise the session is ordinary PGM: relays pass it on, and repairers cache it. Each
proof is one packet. Cores know no cryptography: what makes and checks proofs is given to them.

A receiver that lacks a packet for good, or has a wrong one, requests the details of its group: the digest of each packet.
The request is an SPMR of the session of proofs with `StateOffer`, from hop to hop up to the source. The source sends
details as further packets of the session of proofs, so all receivers have them, and repairers cache them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from pgm.wire.formats import DATA_HEADER_OCTETS, PROOFS_BIT, Tsi, companion_tsi
from pgm.wire.train import Run

DETAIL_GROUP = 32  # packets of a request for details: their digests fill two packets


def proof_port(data_port: int) -> int:
    """Return the data port of the proofs of a stream, or of the stream of proofs."""
    return data_port ^ PROOFS_BIT


def proof_tsi(tsi: Tsi) -> Tsi:
    """Return the TSI of the proofs of a session, or of the session of proofs."""
    return companion_tsi(tsi, PROOFS_BIT)


def detail_group(sqn: int) -> int:
    """Return the first sqn of the group of a packet, of which details are requested together."""
    return sqn // DETAIL_GROUP * DETAIL_GROUP


def most_proof_octets(max_tpdu: int) -> int:
    """Return the octets of the largest proof, which fits into one packet."""
    return max_tpdu - DATA_HEADER_OCTETS


class Prover(Protocol):
    """Maker of the proofs of one session. Runs have the source's own numbers, and stay in memory until proved."""

    @property
    def deadline_ns(self) -> int:
        """When `handle_deadline` has something to do."""

    def take(self, runs: Iterable[Run]) -> list[bytes]:
        """Take the packets that leave, in order. Return proofs that cannot wait."""

    def handle_deadline(self, now_ns: int) -> list[bytes]:
        """Return the proof that is due."""

    def details(self, runs: Sequence[Run]) -> list[bytes]:
        """Return proofs of each packet of ordered runs, between which sqns may be left out."""


class ProvedSpan(Protocol):
    """Consecutive packets of one digest. Sqns are the source's own numbers."""

    @property
    def first(self) -> int:
        """The first sqn."""

    @property
    def end(self) -> int:
        """The sqn after the last."""

    @property
    def digest(self) -> bytes:
        """The digest of the packets."""


class TakenProof(Protocol):
    """Content of a valid proof."""

    @property
    def spans(self) -> Sequence[ProvedSpan]:
        """The spans, which ascend."""

    @property
    def has_details(self) -> bool:
        """Whether each span is one packet of a group whose details were requested."""


class ProofCheck(Protocol):
    """Check of the proofs of one session, and of its key records if it is sealed. Sqns are the source's own numbers."""

    def proof_of_untrusted(self, octets: bytes) -> TakenProof | None:
        """Return a valid proof; None for other octets. Never raises."""

    @property
    def wrong_signatures(self) -> int:
        """How many proofs and key records had a wrong signature, which was checked."""

    def block_start(self, sqn: int) -> int:
        """Return the first sqn of the block of a packet. No span begins in one block and ends in another."""

    def digest(self, runs: Sequence[Run]) -> bytes:
        """Return the digest of consecutive runs, which have the source's own numbers."""

    @property
    def unopened(self) -> int:
        """How many valid key records for the receiver's own keys did not open."""

    def take_record_untrusted(self, octets: bytes) -> bool:
        """Take key records of a sealed stream. Return whether they are those of the source. Never raises."""

    def may_open(self, first: int, end: int) -> bool:
        """Return whether the secrets of consecutive packets are there, or none is needed."""

    def openable_from(self, sqn: int) -> int | None:
        """Return the first sqn of the next secret that is there, for packets after `sqn`; None if none is."""

    def opened(self, run: Run) -> Iterator[Run]:
        """Yield packets that may be opened, with payloads in the clear."""


NewProofCheck = Callable[[Tsi, int], ProofCheck]  # of a session: its TSI, and its start in ns since 1970
