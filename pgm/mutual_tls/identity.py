"""Identity of a process for TLS: the private keys of its node, and the members of its tree.

The topology file is read again after a change. So new keys count, and revoked ones do not, while a process runs.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import attrs

from pgm.errors import KeyRefused, PeerRefused, PgmError
from pgm.mutual_tls.certificates import Certificate, authorities_of, certificate_for
from pgm.mutual_tls.members import TreeMembers
from pgm.mutual_tls.refusals import Tell, tell_nobody
from pgm.own_files import forbid_core_dumps, read_own_file
from pgm.trust.private_keys import MOST_OCTETS, PrivateKeys, parse_private_file

LIFETIME = timedelta(days=1)  # of a certificate; a stolen one counts no longer, and its keys can be revoked at once
_LOOK_S = 1.0  # until the file is looked at again


@attrs.frozen(eq=False)
class KeyRing:
    """Private keys of a node and the members of its tree, as they were read at one time."""

    own: PrivateKeys = attrs.field(repr=False)
    members: TreeMembers


@attrs.frozen(eq=False)
class TlsMaterial:
    """Certificate of this end, and the authorities that the other end needs; both as PEM."""

    certificate: Certificate
    authorities: bytes = attrs.field(repr=False)
    renew_at: datetime


Stamp = tuple[int, int, int]  # of a file: time of its change, inode, octets


class TlsIdentity:
    """Identity of one node. Any thread may use it. The object is not pickled."""

    def __init__(
        self,
        members: Callable[[], TreeMembers],
        own: Callable[[TreeMembers], PrivateKeys],
        file: Path | None = None,
        tell: Tell = tell_nobody,
    ) -> None:
        """Read the members and the own keys among them now, and again after each change of `file`.

        A later file that cannot be read changes nothing. If it lacks the own keys, the former ones stay, and other nodes
        refuse them. `tell` gets an event for both. Raises the errors of `members` and `own`.
        """
        self._members = members
        self._own = own
        self._file = file
        self._tell = tell
        self._lock = threading.RLock()
        self._stamp = self._stamp_now()
        self._looked_s = time.monotonic()
        known = members()
        self._ring = KeyRing(own(known), known)
        self._version = 0
        self._material: dict[tuple[tuple[str, ...], bool], tuple[int, TlsMaterial]] = {}

    @classmethod
    def of_members(cls, members: TreeMembers, key_file: str | Path) -> TlsIdentity:
        """Return the identity of the owner of a private file among given members. Raises `KeyRefused`."""
        return cls(lambda: members, partial(private_keys_of, Path(key_file)))

    @property
    def node(self) -> str:
        """Return the name of the node."""
        ring = self.ring()
        return ring.members.by_id[ring.own.public.id][0]

    def ring(self) -> KeyRing:
        """Return the keys, read again if the file has changed."""
        with self._lock:
            now_s = time.monotonic()
            if self._file is not None and now_s - self._looked_s >= _LOOK_S:
                self._looked_s = now_s
                stamp = self._stamp_now()
                if stamp != self._stamp:
                    self._stamp = stamp
                    self._read_again()
            return self._ring

    @property
    def version(self) -> int:
        """Return a number that grows with each change of the keys."""
        with self._lock:
            self.ring()
            return self._version

    def material(self, names: tuple[str, ...] = (), *, is_fixed: bool = False) -> TlsMaterial:
        """Return a certificate and the authorities of some nodes; without names of all.

        Material lasts until half of the certificate's life, or a change of the file. Fixed material has a certificate
        that ends with the keys, for a server that cannot renew it.
        """
        with self._lock:
            ring, now = self.ring(), datetime.now(UTC)
            known = self._material.get((names, is_fixed))
            if known is None or known[0] != self._version or now >= known[1].renew_at:
                certificate = certificate_for(ring.own, now, None if is_fixed else LIFETIME)
                renew_at = certificate.end if is_fixed else now + (certificate.end - now) / 2
                made = TlsMaterial(certificate, authorities_of(ring.members.listed(names)), renew_at)
                known = self._material[names, is_fixed] = self._version, made
            return known[1]

    def _stamp_now(self) -> Stamp | None:
        try:
            status = os.stat(self._file) if self._file is not None else None
        except OSError:  # between two writes of the file
            return None
        return None if status is None else (status.st_mtime_ns, status.st_ino, status.st_size)

    def _read_again(self) -> None:
        try:
            members = self._members()
        except (PgmError, OSError) as error:
            self._tell("keys-unread", f"{self._file} changed and cannot be read, so the former keys count: {error}")
            return
        try:
            own = self._own(members)
        except (PgmError, OSError) as error:
            own = self._ring.own
            self._tell("keys-unread", f"{self._file} changed, and this process keeps its former keys: {error}")
        self._ring = KeyRing(own, members)
        self._version += 1


def private_keys_of(path: Path, members: TreeMembers) -> PrivateKeys:
    """Read a private file whose keys are among those of members and not revoked. Raises `KeyRefused`.

    The days of the topology file hold, since the file is the authority and may prolong the validity of keys.
    """
    forbid_core_dumps()  # before the octets are in memory
    file = parse_private_file(read_own_file(path, MOST_OCTETS), str(path))
    own_id = file.keys.public.id
    try:
        members.peer_of_untrusted(own_id, datetime.now(UTC).date())
    except PeerRefused as error:
        raise KeyRefused(f"{path}: {error.message}", remedy=error.remedy) from None
    return attrs.evolve(file.keys, public=members.by_id[own_id][1])
