"""Settings of read moderation and of prefaulted memory, by role."""

from __future__ import annotations

from typing import Any

from pgm.parameters import Parameters


def read_moderation_settings(parameters: Parameters) -> dict[str, Any]:
    """Return the settings of read moderation for a receiver's driver."""
    return {
        "rest_ivl": parameters.rx_rest_ivl,
        "bulk_ivl": parameters.rx_bulk_ivl,
        "bulk_rte": parameters.rx_bulk_rte,
        "bulk_share": parameters.rx_bulk_share,
    }


def element_moderation_settings(parameters: Parameters) -> dict[str, Any]:
    """Return the settings of read moderation for an element in a process of its own."""
    return {**read_moderation_settings(parameters), "bulk_share": parameters.ne_bulk_share}


def prefault_settings(parameters: Parameters) -> dict[str, int]:
    """Return the settings of prefaulted memory for a receiver's driver."""
    return {"warm_ivl": parameters.rxw_warm_ivl, "warm_octets": parameters.rxw_bytes}
