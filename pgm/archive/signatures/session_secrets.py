"""Secrets of one recorded sealed session, opened by the keys of a reader, for rows that are proved."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import NoReturn

import numpy as np

from pgm.archive.signatures.authority import counts_on
from pgm.archive.signatures.row_packets import Flags, Octets, RowPackets
from pgm.trust.key_records import SecretHead, verify_records_untrusted
from pgm.trust.private_keys import PrivateKeys
from pgm.trust.proofs import GENERATIONS
from pgm.trust.public_keys import PublicKeys
from pgm.trust.sealing import PayloadCipher

_MOST_SECRETS = 1 << 16  # of a session


class SessionSecrets:
    """Secrets of a session, by the sqns from which they hold. The object is neither printed nor pickled."""

    __slots__ = ("_ciphers", "_epoch_us", "_firsts", "_keys", "_sources", "_tsi")

    def __init__(self, tsi: bytes, epoch_us: int | None, sources: Mapping[str, PublicKeys], keys: PrivateKeys) -> None:
        """Take the records for `keys` that the keys of the source have signed."""
        self._tsi = tsi
        self._epoch_us = epoch_us
        self._sources = sources
        self._keys = keys
        self._firsts: dict[int, int] = {}  # generation of each secret that was told -> its first sqn
        self._ciphers: dict[int, PayloadCipher] = {}  # by generation

    def take(self, records: Iterable[bytes]) -> None:
        """Take key records; records of others, and those that do not count, change nothing."""
        for octets in records:
            head = SecretHead.of_untrusted(octets)
            if head is None or head.terms.generation in self._ciphers or len(self._firsts) >= _MOST_SECRETS:
                continue
            session = head.terms.session
            source = self._sources.get(head.key_id)
            if session.tsi != self._tsi or session.epoch // 1000 != self._epoch_us:
                continue
            if source is None or not counts_on(source, session.epoch):
                continue
            records_of_source = verify_records_untrusted(octets, source)
            if records_of_source is None:
                continue
            self._firsts[head.terms.generation] = head.first_sqn
            secret = records_of_source.secret_for_untrusted(self._keys)
            if secret is not None:
                self._ciphers[head.terms.generation] = PayloadCipher(secret, head.terms)

    def fits(self, sqn: int, tag: int) -> bool:
        """Return whether the secret of a packet has the generation that its proof tells, modulo `GENERATIONS`."""
        return self._generation_at(sqn) % GENERATIONS == tag

    def applied(self, packets: RowPackets) -> tuple[Octets, Flags]:
        """Return the payloads of packets, encrypted or decrypted, and for each packet whether its secret is there."""
        payloads, found = packets.payloads.copy(), np.zeros(len(packets.sqns), np.bool_)
        lengths = np.diff(packets.ends)
        generations = [self._generation_at(sqn) for sqn in packets.sqns.tolist()]
        is_next = np.append(False, (np.diff(packets.sqns) == 1) & (np.diff(lengths) == 0) & (np.diff(generations) == 0))
        starts = [*np.flatnonzero(~is_next).tolist(), len(packets.sqns)]
        for first, end in itertools.pairwise(starts):
            cipher = self._ciphers.get(generations[first])
            if cipher is None or lengths[first] > 16 * cipher.terms.blocks:
                continue
            begin, limit = int(packets.ends[first]), int(packets.ends[end])
            rows = payloads[begin:limit].reshape(end - first, int(lengths[first]))
            cipher.apply(int(packets.sqns[first]), rows, rows)
            found[first:end] = True
        return payloads, found

    def _generation_at(self, sqn: int) -> int:
        """Return the newest generation whose secret begins at or before a packet; 0 without any."""
        return max((one for one, first in self._firsts.items() if first <= sqn), default=0)

    def __repr__(self) -> str:
        return f"SessionSecrets({len(self._ciphers)} of {len(self._firsts)})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("secrets of a stream are never pickled or copied")
