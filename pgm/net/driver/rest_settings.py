"""Settings of read moderation and of memory that is touched in advance, by role."""

from __future__ import annotations

from typing import Any

from pgm.parameters import Parameters


def read_moderation_settings(parameters: Parameters) -> dict[str, Any]:
    """What a receiver's driver is told of how often to read."""
    return {
        "rest_ivl": parameters.rx_rest_ivl,
        "bulk_ivl": parameters.rx_bulk_ivl,
        "bulk_rte": parameters.rx_bulk_rte,
        "bulk_share": parameters.rx_bulk_share,
    }


def element_moderation_settings(parameters: Parameters) -> dict[str, Any]:
    """The same for an element in a process of its own."""
    return {**read_moderation_settings(parameters), "bulk_share": parameters.ne_bulk_share}


def prefault_settings(parameters: Parameters) -> dict[str, int]:
    """What a receiver's driver is told of the memory to have ready."""
    return {"warm_ivl": parameters.rxw_warm_ivl, "warm_octets": parameters.rxw_bytes}
