"""Names of version 0.1 that version 0.2 still accepts or gives, each with its present name.

`docs/reference/deprecated.md` is printed from these tables. Version 0.3 deletes them.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

PARAMETERS: Mapping[str, str] = {
    "nagging_window_ivl": "excess_nak_window_ivl",
    "nagging_check_ivl": "excess_nak_check_ivl",
    "nagging_max_sqns": "excess_nak_min_sqns",
    "nagging_share": "excess_nak_share",
    "nagging_policy": "excess_nak_policy",
    "crying_sqn_rte": "excess_nak_sqn_rte",
    "rx_look_ivl": "rx_poll_ivl",
    "rx_park_ivl": "rx_block_ivl",
    "rx_rest_ivl": "rx_wake_ivl",
}
COUNTERS: Mapping[str, str] = {
    "nak_packets_of_crying": "excess_nak_packets",
    "children_crying": "excess_nak_children",
}
KEYS: Mapping[str, str] = {
    "is_crying": "has_excess_naks",
    "crying_babies": "excess_naks",
}
EVENTS: Mapping[str, str] = {
    "nagging": "excess-naks",
    "nagging-over": "excess-naks-over",
    "crying-child": "child-excess-naks",
    "crying-child-over": "child-excess-naks-over",
    "closed-nagging": "closed-excess_naks",
    "lost-nagging": "lost-excess_naks",
}
PYTHON: Mapping[str, str] = {
    "CloseCause.NAGGING": "CloseCause.EXCESS_NAKS",
    "LossCause.NAGGING": "LossCause.EXCESS_NAKS",
    "pgm.spark.jobs.repairs.crying_babies": "pgm.spark.jobs.repairs.excess_naks",
}

OPTIONS = {"pgm render --output": "pgm render --out"}

# title, how the former names still work, former name -> present name
TABLES: tuple[tuple[str, str, Mapping[str, str]], ...] = (
    (
        "Parameters",
        "Topology files, addresses and keyword arguments accept the former name with a warning. Commands print the present name.",
        PARAMETERS,
    ),
    ("Counters", "JSON has both names. Prometheus has a family `pgm_NAME` of each name.", COUNTERS),
    ("Keys of JSON output", "Rows of `askers` in `pgm status`, and the account of `pgm report`, have both keys.", KEYS),
    (
        "Events and causes",
        "Only the present id is printed, and only the present cause, `excess_naks`, is written. Scripts must follow. Archives and"
        " telemetry that version 0.1 wrote keep the former cause, `nagging`.",
        EVENTS,
    ),
    ("Options", "A command accepts the former name with a warning.", OPTIONS),
    ("Python", "Both names are one object.", PYTHON),
)


def with_former_names(values: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return values with those of renamed keys under their former names too."""
    return {**values, **{former: values[name] for former, name in names.items() if name in values}}


def current_parameter(key: str) -> str:
    """Return the present name of a parameter, and warn of a former name."""
    name = PARAMETERS.get(key, key)
    if name != key:
        warnings.warn(f"the parameter {key} is now {name}", DeprecationWarning, stacklevel=3)
    return name
