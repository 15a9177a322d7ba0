"""Names of version 0.1 that version 0.2 still accepts or gives, each with its present name.

`docs/reference/deprecated.md` is printed from these tables. Version 0.3 deletes them.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping

PARAMETERS: Mapping[str, str] = {
    "rx_look_ivl": "rx_poll_ivl",
    "rx_park_ivl": "rx_block_ivl",
    "rx_rest_ivl": "rx_wake_ivl",
}

# title, how the former names still work, former name -> present name
TABLES: tuple[tuple[str, str, Mapping[str, str]], ...] = (
    (
        "Parameters",
        "Topology files, addresses and keyword arguments accept the former name with a warning. Commands print the present name.",
        PARAMETERS,
    ),
)


def current_parameter(key: str) -> str:
    """Return the present name of a parameter, and warn of a former name."""
    name = PARAMETERS.get(key, key)
    if name != key:
        warnings.warn(f"the parameter {key} is now {name}", DeprecationWarning, stacklevel=3)
    return name
