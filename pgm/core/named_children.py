"""Children that the topology names.

An address that the topology names has a budget of its own at its parent from its first NAK on. All other addresses first
share one budget, because a sender may use any number of addresses.
"""

from __future__ import annotations

import attrs

from pgm.wire.formats import Nla


@attrs.frozen
class NamedChildren:
    """Addresses that the topology names on the segments below a node."""

    addresses: frozenset[Nla] = frozenset()
    elements: frozenset[Nla] = frozenset()  # they ask on behalf of other nodes
    are_all: bool = False  # no other address may be a member of an acknowledged stream


NO_CHILDREN = NamedChildren()
