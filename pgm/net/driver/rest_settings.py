"""Settings of a driver's reads: moderation and prefaulted memory, by role."""

from __future__ import annotations

import attrs

from pgm.parameters import Parameters


@attrs.frozen(kw_only=True)
class ReadSettings:
    """Bounds of a driver's reads; the default is no moderation and no prefaulted memory.

    `wake_ivl` and `bulk_ivl`, in ns, and `bulk_rte` are the parameters with the prefix `rx_`. `bulk_share` is
    `rx_bulk_share`, or `ne_bulk_share` for an element in a process of its own. At a steady high rate, memory for the
    octets of `warm_ivl` ns, up to `warm_octets`, is prefaulted.
    """

    wake_ivl: int = 0
    bulk_ivl: int = 0
    bulk_rte: int = 1
    bulk_share: float = 0.0
    warm_ivl: int = 0
    warm_octets: int = 0


NO_MODERATION = ReadSettings()


def receiver_read_settings(parameters: Parameters) -> ReadSettings:
    """Return the settings for a receiver's driver."""
    return ReadSettings(
        wake_ivl=parameters.rx_wake_ivl,
        bulk_ivl=parameters.rx_bulk_ivl,
        bulk_rte=parameters.rx_bulk_rte,
        bulk_share=parameters.rx_bulk_share,
        warm_ivl=parameters.rxw_warm_ivl,
        warm_octets=parameters.rxw_bytes,
    )


def element_read_settings(parameters: Parameters) -> ReadSettings:
    """Return the settings for an element in a process of its own; it prefaults no memory."""
    own = receiver_read_settings(parameters)
    return attrs.evolve(own, bulk_share=parameters.ne_bulk_share, warm_ivl=0, warm_octets=0)
