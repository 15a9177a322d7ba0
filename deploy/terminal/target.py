"""Check of a command's target: a topology file needs a node, an address has no node."""

from __future__ import annotations

from pgm.errors import UsageError
from pgm.topology.url import is_url


def require_node(target: str, node: str | None, option: str = "--node") -> None:
    """Raise `UsageError` for a file without a node, or for an address with a node."""
    if node is None and not is_url(target):
        raise UsageError(f"{target} is a topology file, which has many nodes", remedy=f"name one with {option} NAME")
    if node is not None and is_url(target):
        raise UsageError(
            f"an address has no nodes, and so no {node!r}",
            remedy=f"leave out {option}, write name={node} into the address, or name a topology file",
        )
