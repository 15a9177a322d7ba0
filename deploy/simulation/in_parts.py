"""Run of a tree in parts: in this process, or in tasks of Spark."""

from __future__ import annotations

from collections.abc import Callable

from pgm.sim.parts.account import Progress, Report
from pgm.sim.parts.part import PartSetup
from pgm.sim.parts.remote import RemoteLink, serve_part
from pgm.sim.runs.report import local_links, parts_of, run_parts


def run_cut(
    whole: PartSetup, parts: int | None, master: str | None, progress: Callable[[Progress], None] | None
) -> Report:
    """Cut a tree into at most `parts` parts, run these, and return the report, with the number of parts.

    `master` is that of Spark: "" for all cores of this machine, None for no Spark. Raises `UsageError`, `ProcessError`.
    """
    if master is None:
        cut = parts_of(whole, parts or 1)
        report = run_parts(whole, local_links(cut), shared=frozenset(cut[0].shared), progress=progress)
    else:
        report, cut = _on_spark(whole, parts, master, progress)
    return report | {"parts": len(cut)}


def _on_spark(
    whole: PartSetup, parts: int | None, master: str, progress: Callable[[Progress], None] | None
) -> tuple[Report, list[PartSetup]]:
    from deploy.report.command import spark_session

    with spark_session("pgm sim", master, quick=True) as spark:
        from pgm.spark.jobs.linked_tasks import LinkedTasks

        cut = parts_of(whole, parts or spark.sparkContext.defaultParallelism)
        with LinkedTasks(spark, serve_part, cut) as tasks:
            links = [RemoteLink(connection) for connection in tasks.connections]
            return run_parts(whole, links, shared=frozenset(cut[0].shared), progress=progress), cut
