"""Run of a tree in parts: in this process, or in tasks of Spark."""

from __future__ import annotations

from collections.abc import Callable

from pgm.sim.checks.invariants import cheap_checkers
from pgm.sim.parts.account import Progress, Report
from pgm.sim.parts.part import Part, PartSetup
from pgm.sim.parts.remote import RemoteLink, serve_part
from pgm.sim.parts.windows import LocalLink
from pgm.sim.runs.report import parts_of, run_parts


def run_cut(
    whole: PartSetup, parts: int | None, master: str | None, progress: Callable[[Progress], None] | None
) -> Report:
    """Cut a tree into at most `parts` parts, run these, and return the report, with the cost of each part.

    `master` is that of Spark: "" for all cores of this machine, None for no Spark. Raises `UsageError`, `ProcessError`.
    """
    if master is None:
        cut = parts_of(whole, parts or 1)
        local = [LocalLink(Part(part, cheap_checkers())) for part in cut]
        report = run_parts(whole, local, shared=frozenset(cut[0].shared), progress=progress)
        return report | {"parts": [link.part.usage().row for link in local]}
    return _on_spark(whole, parts, master, progress)


def _on_spark(whole: PartSetup, parts: int | None, master: str, progress: Callable[[Progress], None] | None) -> Report:
    from deploy.report.command import spark_session

    with spark_session("pgm sim", master, quick=True) as spark:
        from pgm.spark.jobs.linked_tasks import LinkedTasks

        cut = parts_of(whole, parts or spark.sparkContext.defaultParallelism)
        with LinkedTasks(spark, serve_part, cut) as tasks:
            links = [RemoteLink(connection) for connection in tasks.connections]
            report = run_parts(whole, links, shared=frozenset(cut[0].shared), progress=progress)
            return report | {"parts": [link.usage().row for link in links]}
