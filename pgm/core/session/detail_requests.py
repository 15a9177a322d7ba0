"""Requests of a receiver for details: digests of single packets (`pgm.core.session.proofs`).

A request that only a lost packet would need waits for `details_ivl`: the repair may still come. An urgent one waits for a
random back-off alone, in which the details may come for another receiver. A request without an answer is repeated
`details_retries` times, and is vain after that.
"""

from __future__ import annotations

import random

import attrs

from pgm.parameters import Parameters
from pgm.units import NEVER

_MOST_GROUPS = 64  # with a request at a time


@attrs.define(eq=False)
class _Request:
    """Request for the details of one group."""

    at_ns: int  # of the next request
    sent: int = 0
    is_vain: bool = False


class DetailRequests:
    """Requests for the details of the groups of one session, each named by a sqn."""

    def __init__(self, parameters: Parameters, rng: random.Random) -> None:
        self._parameters = parameters
        self._rng = rng
        self._requests: dict[int, _Request] = {}
        self.deadline_ns = NEVER

    def want(self, group: int, now_ns: int, *, is_urgent: bool) -> None:
        """Request the details of a group, unless that is under way."""
        wait_ns = self._rng.randint(1, self._parameters.nak_bo_ivl)
        at_ns = now_ns + wait_ns + (0 if is_urgent else self._parameters.details_ivl)
        request = self._requests.get(group)
        if request is None:
            if len(self._requests) >= _MOST_GROUPS:
                newest = max(self._requests)
                if group > newest:
                    return
                del self._requests[newest]  # the oldest group holds up delivery
            request = self._requests[group] = _Request(at_ns)
        elif not request.sent:
            request.at_ns = min(request.at_ns, at_ns)
        self.deadline_ns = min(self.deadline_ns, request.at_ns)

    def is_vain(self, group: int) -> bool:
        """Return whether no answer came to all requests for a group."""
        request = self._requests.get(group)
        return request is not None and request.is_vain

    def drop_before(self, sqn: int) -> None:
        """End the requests for groups below a sqn."""
        for group in [group for group in self._requests if group < sqn]:
            del self._requests[group]

    def answered(self, group: int) -> None:
        """End the request for a group, whose details have come."""
        self._requests.pop(group, None)

    def handle_deadline(self, now_ns: int) -> tuple[list[int], bool]:
        """Return the groups to request now, and whether a request has become vain."""
        due: list[int] = []
        has_failed = False
        for group, request in self._requests.items():
            if now_ns < request.at_ns:
                continue
            if request.sent > self._parameters.details_retries:
                request.is_vain, request.at_ns, has_failed = True, NEVER, True
                continue
            due.append(group)
            request.sent += 1
            request.at_ns = now_ns + self._parameters.details_ivl
        self.deadline_ns = min((request.at_ns for request in self._requests.values()), default=NEVER)
        return due, has_failed
