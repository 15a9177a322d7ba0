"""Faults of the JSON files that `pgm plan` writes and commands read again: predictions, and profiles of a machine."""

from __future__ import annotations

import json


def fault_of(error: ValueError | KeyError | TypeError) -> str:
    """Return the fault that a reader of a JSON file has met, as text: the line, or the missing key."""
    if isinstance(error, json.JSONDecodeError):
        return f"line {error.lineno} is no JSON ({error.msg})"
    if isinstance(error, KeyError):
        return f"there is no key {error.args[0]!r}"
    return str(error)
