"""Run of a tree in parts: in this process, or in tasks of Spark."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pgm.sim.parts.account import Progress, Report
from pgm.sim.parts.part import PartSetup
from pgm.sim.parts.remote import RemoteLink, serve_part
from pgm.sim.parts.windows import PartLink
from pgm.sim.runs.report import local_links, parts_of, run_parts

ProgressCall = Callable[[Progress], None]


def run_cut(whole: PartSetup, parts: int | None, master: str | None, progress: ProgressCall | None) -> Report:
    """Cut a tree into at most `parts` parts, run these, and return the report, with the cost of each part.

    `master` is that of Spark: "" for all cores of this machine, None for no Spark. Raises `UsageError`, `ProcessError`.
    """
    if master is None:
        cut = parts_of(whole, parts or 1)
        return _run(whole, cut, local_links(cut), progress)
    return _on_spark(whole, parts, master, progress)


def _run(
    whole: PartSetup, cut: Sequence[PartSetup], links: Sequence[PartLink], progress: ProgressCall | None
) -> Report:
    report = run_parts(whole, links, shared=frozenset(cut[0].shared), progress=progress)
    return report | {"parts": [link.usage().row for link in links]}


def _on_spark(whole: PartSetup, parts: int | None, master: str, progress: ProgressCall | None) -> Report:
    from deploy.report.command import spark_session

    with spark_session("pgm sim", master, quick=True) as spark:
        from pgm.spark.jobs.linked_tasks import LinkedTasks

        cut = parts_of(whole, parts or spark.sparkContext.defaultParallelism)
        with LinkedTasks(spark, serve_part, cut) as tasks:
            return _run(whole, cut, [RemoteLink(connection) for connection in tasks.connections], progress)
