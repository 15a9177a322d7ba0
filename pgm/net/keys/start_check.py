"""Check of a node's identity before it opens its sockets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from pgm.errors import KeyRefused
from pgm.net.keys.key_directory import KeyPlace, place_of_plan
from pgm.net.keys.key_files import read_private_file
from pgm.topology.node_plan import NodePlan
from pgm.trust.node_identity import NodeIdentity
from pgm.trust.public_keys import PublicKeys

if TYPE_CHECKING:
    from pgm.trust.private_keys import PrivateKeys


def today() -> date:
    """Return the present day in UTC."""
    return datetime.now(UTC).date()


def own_keys(plan: NodePlan) -> PrivateKeys | None:
    """Return the keys with which a node signs; None for a node without keys. Raises `KeyRefused`.

    A node whose keys are revoked, expired, missing or unsafe is refused. A tree without keys reads no file.
    """
    if plan.identity.is_empty:
        return None
    return keys_on(plan.identity, place_of_plan(plan), today())


def all_own_keys(plan: NodePlan) -> list[PrivateKeys]:
    """Return all valid keys of a node whose private file is here: during a rotation two. Raises `KeyRefused`."""
    first, place, day = own_keys(plan), place_of_plan(plan), today()
    if first is None:
        raise KeyRefused(
            f"{plan.name} has no keys, and its streams are authenticated",
            remedy=f"make keys: pgm keys new FILE --node {plan.name} --write",
        )
    return [first, *_read(place, [keys for keys in plan.identity.valid_on(day) if keys != first.public], place.held())]


def _read(place: KeyPlace, valid: Sequence[PublicKeys], held: Mapping[str, Path]) -> list[PrivateKeys]:
    # The days of the topology file hold: it is the authority, and may prolong the validity of keys.
    return [
        attrs.evolve(read_private_file(place, held[public.id]), public=public) for public in valid if public.id in held
    ]


def keys_on(identity: NodeIdentity, place: KeyPlace, day: date) -> PrivateKeys | None:
    """Return the keys with which a node signs on a day: the first that are valid and held. Raises `KeyRefused`."""
    held = place.held()
    if not identity.listed:
        revoked = sorted(identity.revoked.intersection(held))
        if revoked:
            raise KeyRefused(
                f"the keys {revoked[0]} of {place.node} are revoked, and it has no others",
                remedy=f"make new ones: pgm keys new FILE --node {place.node} --write, and remove {held[revoked[0]]}",
            )
        return None
    valid = identity.valid_on(day)
    if not valid:
        states = ", ".join(
            f"{keys.id} {state.value}" for keys, state in zip(identity.listed, identity.states_on(day), strict=True)
        )
        raise KeyRefused(
            f"{place.node} has no valid keys on {day}: {states}",
            remedy=f"make new ones: pgm keys rotate FILE --node {place.node} --write",
        )
    found = _read(place, valid, held)
    if found:
        return found[0]
    raise KeyRefused(
        f"{place.node} has keys in the topology file, and {place.directory} has no private file for them",
        remedy="run it on the host of its keys; lost keys are replaced by: pgm keys revoke, then pgm keys new",
    )
