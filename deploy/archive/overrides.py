"""Parameters that a command takes with `--set`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from pgm.errors import UnitError, UsageError
from pgm.parameters import ROWS, Parameters


def parameters_of(overrides: Sequence[str], known: Sequence[str], owner: str) -> Parameters:
    """Return the parameters with the values of `KEY=VALUE`. `owner` has the `known` keys. Raises `UsageError`."""
    values: dict[str, Any] = {}
    for text in overrides:
        key, equals, value = text.partition("=")
        if not equals or key not in known:
            raise UsageError(
                f"--set {text}: no parameter of {owner}",
                remedy=f"write as in {known[0]}={ROWS[known[0]].spell(ROWS[known[0]].default)}; the parameters are {', '.join(known)}",
            )
        try:
            values[key] = ROWS[key].read(int(value) if value.isdecimal() else value)
        except UnitError as error:
            raise UsageError(f"--set {text}: {error.message}", remedy=error.remedy) from None
    return attrs.evolve(Parameters(), **values)
