"""Paths of an agent's resources, which docs/reference/agent.md describes."""

from __future__ import annotations

STATE_PATH = "/fleet/v1/state"
CONTROL_PATH = "/fleet/v1/control"
DOCTOR_PATH = "/fleet/v1/doctor"
FLIGHT_PATH = "/fleet/v1/flight"
NETCHECK_PATH = "/fleet/v1/netcheck"
APPLY_PATH = "/fleet/v1/apply"
