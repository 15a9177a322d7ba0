"""Alarms of a tree for Prometheus."""

from __future__ import annotations

from deploy.render.systemd import template


def prometheus_files(runbooks: str) -> dict[str, str]:
    """Return the file of rules. `runbooks` is the address of the page docs/guide/alarms.md."""
    return {"pgm-alarms.yml": template("alarms.yml").substitute(runbooks=runbooks)}
