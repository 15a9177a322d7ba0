"""Nodes of a topology file whose certificates count, by the ids of their keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from datetime import date

import attrs

from pgm.errors import PeerRefused, UsageError
from pgm.trust.node_identity import names_node
from pgm.trust.public_keys import KeyState, PublicKeys


@attrs.frozen
class TlsPeer:
    """The other end of a connection: a node, and the id of the keys that signed its certificate."""

    node: str
    key_id: str

    def __str__(self) -> str:
        return f"{self.node} (keys {self.key_id})"


PEER_OF_TASK: ContextVar[TlsPeer | None] = ContextVar("pgm_tls_peer", default=None)


def current_peer() -> TlsPeer | None:
    """Return the client of the connection whose task runs; None without one.

    A task of trio that has made the handshake has it, and so have the tasks that it starts, such as the handlers of
    requests of Hypercorn.
    """
    return PEER_OF_TASK.get()


@attrs.frozen
class TreeMembers:
    """Keys of the nodes of one file. Names select some nodes; without names all nodes count."""

    tree: str
    keys: Mapping[str, tuple[PublicKeys, ...]] = attrs.field(repr=False)  # by node
    revoked: Mapping[str, str] = attrs.field(factory=dict, repr=False)  # id of keys -> reason
    by_id: Mapping[str, tuple[str, PublicKeys]] = attrs.field(init=False, repr=False)  # id of keys -> node, keys

    @by_id.default
    def _indexed(self) -> Mapping[str, tuple[str, PublicKeys]]:
        return {one.id: (node, one) for node, listed in self.keys.items() for one in listed}

    def only(self, names: tuple[str, ...]) -> TreeMembers:
        """Return the selected nodes alone."""
        keys = {node: listed for node, listed in self.keys.items() if _is_selected(node, names)}
        return TreeMembers(self.tree, keys, self.revoked)

    def require(self, names: Iterable[str]) -> None:
        """Raise `UsageError` for a name or pattern that no node with keys has."""
        for name in names:
            if not any(_is_selected(node, (name,)) for node in self.keys):
                known = ", ".join(list(self.keys)[:5]) or "none"
                raise UsageError(
                    f"{name} is no node with keys of the tree {self.tree}; nodes with keys: {known}",
                    remedy=f"make keys: pgm keys new FILE --node {name} --write, or correct the name",
                )

    def listed(self, names: tuple[str, ...] = ()) -> list[PublicKeys]:
        """Return the keys of the selected nodes that are not revoked. Their days do not matter here."""
        known = self.by_id.items()
        return [keys for key_id, (node, keys) in known if key_id not in self.revoked and _is_selected(node, names)]

    def peer_of_untrusted(self, key_id: str, day: date, names: tuple[str, ...] = ()) -> TlsPeer:
        """Return the node of keys, if it is selected and the keys are valid on a day. Raises `PeerRefused`."""
        if key_id in self.revoked:
            raise PeerRefused(
                "revoked",
                f"the keys {key_id} are revoked: {self.revoked[key_id]}",
                remedy="make new keys: pgm keys new",
            )
        if key_id not in self.by_id:
            raise PeerRefused(
                "unknown",
                f"the keys {key_id} are not in the topology file of {self.tree}",
                remedy="copy the newest topology file to this host, or make keys: pgm keys new",
            )
        node, keys = self.by_id[key_id]
        state = keys.state_on(day)
        if state is not KeyState.VALID:
            raise PeerRefused(
                state.name.lower(),
                f"the keys {key_id} of {node} are {state.value} on {day}",
                remedy=f"pgm keys rotate FILE --node {node} --write",
            )
        if not _is_selected(node, names):
            raise PeerRefused(
                "not-permitted",
                f"{node} (keys {key_id}) is none of {', '.join(names)}",
                remedy=f"permit it with --client {node}, or use the keys of another node",
            )
        return TlsPeer(node, key_id)


def _is_selected(node: str, names: tuple[str, ...]) -> bool:
    return not names or any(names_node(name, node) for name in names)
