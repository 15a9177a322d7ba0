"""A path with a switch between its two hosts: what is lost there is lost for good, and network cards join what is left to trains."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from deploy.bench.place import Namespaces, port_of, why_no_namespaces
from pgm.errors import ProcessError


class Switched(Namespaces):
    """Two hosts, and a switch in a namespace of its own.

    Where the sender's device cuts trains up, the switch has single packets to lose. The receiver's device joins those that
    follow each other in one go (GRO), whatever is missing between them, as network cards do: so trains with holes arrive.
    """

    kind = "switched namespaces"

    def __init__(self, mtu: int) -> None:
        super().__init__(mtu)

    def _join(self, segment: int) -> None:
        self._switch = self.make_switch()
        for host in (segment, segment + 1):
            self.plug(self._switch, host, self.seat(host, segment).interface, self.mtu)
            self._set_up(host, segment)

    def lose(self, segment: int, share: float, *, whole_trains: bool) -> None:
        """Lose a share of what comes to the switch from the sender: single packets, or trains as a whole."""
        self.cut_up(segment, not whole_trains)
        # A device that is on a pair joins what comes in only if its other end never hands it more than a packet at a time.
        self.run(self._switch, "ethtool", "-K", port_of(segment + 1), "tso", "off")
        self.run(segment + 1, "ethtool", "-K", self.seat(segment + 1, segment).interface, "gro", "on")
        self.drop(
            self._switch, "netdev", f"ingress device {port_of(segment)}", "meta protocol ip ip protocol udp", share
        )


@contextmanager
def open_switched(mtu: int) -> Iterator[Switched]:
    """Such a path for the length of a block. Raises `ProcessError` where there are no namespaces."""
    why_not = why_no_namespaces()
    if why_not:
        raise ProcessError(why_not)
    made = Switched(mtu)
    try:
        yield made
    finally:
        made.close()
