"""Reads of all that waits in a node's sockets, before the node judges what it heard or missed.

A node that stood still wakes to sockets full of packets and to timers that are over. Requests and reports of other
nodes then lie in one socket, and the data that they name in another. A node that believes the request first takes that
data for lost. So data is read before control packets, and all sockets are read before a late timer.

A pass ends with the octets that the kernel held when the pass came to a socket. A stream that fills the socket as
fast as it is read therefore holds up nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pgm.net.link.link import Link
from pgm.net.link.node_links import NodeLinks
from pgm.net.link.reader import SocketRead
from pgm.net.sockets.inputs import Input
from pgm.units import MIB

# Reads in a row, and octets of them, before other tasks get their turn. Either takes some two milliseconds, a fifth of
# the shortest default NAK_BO_IVL.
DRAIN_TRAINS = 32
DRAIN_OCTETS = 2 * MIB


class Backlog:
    """Octets that wait in the sockets of a node: in those with data alone, or in all of them, data first."""

    def __init__(self, links: NodeLinks, *, is_data_alone: bool) -> None:
        self._links = links
        self._is_data_alone = is_data_alone
        self._rest: Iterator[tuple[Link, Input, SocketRead]] | None = None  # of a pass in slices

    def __bool__(self) -> bool:
        """Return whether data waits."""
        return any(link.octets_waiting(sock) > 0 for link, sock in self._links.data_inputs)

    def reads(self) -> Iterator[tuple[Link, Input, SocketRead]]:
        """Read what waits now, train by train; each must be handed over before the next. Raises OSError."""
        yield from self._reads_of(self._links.data_inputs)
        if not self._is_data_alone:
            yield from self._reads_of(self._links.other_inputs)

    def _reads_of(self, inputs: Iterable[tuple[Link, Input]]) -> Iterator[tuple[Link, Input, SocketRead]]:
        links = self._links
        is_data = inputs is links.data_inputs
        for link, sock in inputs:
            left = link.octets_waiting(sock) if links.endpoints else 0
            # A handler may have closed the node. No waiter sees packets that an earlier read holds, so none may stay.
            while links.endpoints and (left > 0 or link.holds(sock)):
                if not is_data and self:
                    yield from self._reads_of(links.data_inputs)
                arrival = link.read(sock, gathers=left > 0) if links.endpoints else None
                if arrival is None:
                    break
                left = 0 if arrival.is_last else left - arrival.train.length
                yield link, sock, arrival

    def read_slice(self) -> bool:
        """Read and hand over as much as other tasks may wait for. Return whether the pass is over. Raises OSError."""
        if self._rest is None:
            self._rest = self.reads()
        trains = octets = 0
        for link, sock, arrival in self._rest:
            self._links.hand_over(link, sock, arrival)
            trains, octets = trains + 1, octets + arrival.train.length
            if (trains >= DRAIN_TRAINS or octets > DRAIN_OCTETS) and not link.holds(sock):
                return False
        self._rest = None
        return True
