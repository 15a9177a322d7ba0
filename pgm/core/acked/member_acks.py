"""Acks of one receiver in one session, bounded by what its application has taken.

A packet counts when the application has taken it, not when the core has delivered it: the queue between them is lost with
the process. The application does not call the core for each message. While packets wait for it, its position is therefore
read once in an ack interval.
"""

from __future__ import annotations

from pgm.core.acked.ack_bound import AckBound
from pgm.core.acked.ack_sender import AckSender
from pgm.core.acked.ack_terms import AckTerms
from pgm.core.effects import Effects
from pgm.core.status import AckStatus
from pgm.units import NEVER
from pgm.wire.formats import Nla, Tsi


class MemberAcks:
    """Acks of one receiver in one session; idle until an SPM asks."""

    def __init__(self, tsi: Tsi, sender: AckSender, bound: AckBound, begin: int = -1, delivered: int = -1) -> None:
        """The session began behind `begin`, and everything up to `delivered` was delivered."""
        self._tsi = tsi
        self._sender = sender
        self._bound = bound
        self.begin = begin
        self.delivered = delivered
        self._check_ns = NEVER  # when the position of the application is read; NEVER while nothing waits for it
        self._is_ending = False  # nothing more will be delivered
        self._has_left = False

    @property
    def is_wanted(self) -> bool:
        """Return whether an SPM has asked for acks."""
        return self._sender.is_wanted

    @property
    def window(self) -> int:
        """Return how many packets the source sends ahead of its slowest member; 0 without acks."""
        return self._sender.terms.window

    @property
    def deadline_ns(self) -> int:
        """Return when `handle_deadline` must be called."""
        return min(self._sender.deadline_ns, self._check_ns)

    @property
    def status(self) -> AckStatus | None:
        """Return the status of the acks, for operators; None if the stream has no acks."""
        return self._sender.status(self.delivered)

    def open(self, next_sqn: int) -> None:
        """Begin at the sqn that is delivered next."""
        self.begin = self.delivered = next_sqn - 1

    def follow(self, terms: AckTerms, now_ns: int) -> None:
        """Take the terms of an SPM."""
        self._sender.follow(terms, now_ns)

    def on_confirmation(self, peer: Nla, now_ns: int, *, is_for_us: bool) -> Effects:
        """Take a parent's confirmation."""
        return self._sender.on_confirmation(peer, now_ns, is_for_us=is_for_us)

    def reached(self, delivered: int, now_ns: int) -> None:
        """Note that everything up to `delivered` was delivered."""
        self.delivered = delivered
        self._review(now_ns, now_ns)

    def taken(self, now_ns: int) -> Effects:
        """Note that the application has taken more. Return an ack that is due."""
        self._review(now_ns, now_ns)
        return self._sender.handle_deadline(now_ns)

    def end(self, now_ns: int) -> None:
        """Leave as soon as the application has taken everything: the session is over."""
        self._is_ending = True
        self._review(now_ns, now_ns)

    def leave(self, now_ns: int) -> Effects:
        """Say goodbye: the application leaves, and no node needs to wait for its acks."""
        self._review(now_ns, now_ns)
        self._leave(now_ns)
        return self._sender.handle_deadline(now_ns)

    def handle_deadline(self, now_ns: int) -> Effects:
        """Read the position of the application if that is due. Return an ack that is due."""
        if now_ns >= self._check_ns:
            self._check_ns = NEVER
            self._review(now_ns, now_ns - self._sender.ivl)  # the application may have moved since the last check
        return self._sender.handle_deadline(now_ns)

    def _review(self, now_ns: int, since_ns: int) -> None:
        """Follow the application, which may have moved at `since_ns`."""
        if self._has_left or not self.is_wanted:
            return
        acked = self._bound.acked(self._tsi, self.begin, self.delivered)
        self._sender.reached(acked, since_ns)
        if acked < self.delivered:
            self._check_ns = min(self._check_ns, now_ns + self._sender.ivl)
            return
        self._check_ns = NEVER
        if self._is_ending:
            self._leave(now_ns)

    def _leave(self, now_ns: int) -> None:
        if self._has_left:
            return
        self._has_left, self._check_ns = True, NEVER
        if self._bound.leave(self._tsi):
            self._sender.leave(now_ns)
        else:
            self._sender.stop()
