"""The command `pgm fleet`: tables of the events of all nodes by minute, and changes of regime in them."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from deploy.report.command import require_spark, spark_session
from deploy.terminal.options import FOLDER, PATH, option
from deploy.terminal.output import command, print_json, remedy, warn
from pgm.errors import ProcessError, UsageError
from pgm.figures.minutes import NO_LIMITS, Limits
from pgm.fleet.hosts import hosts_of
from pgm.topology.load import load_checked
from pgm.topology.model import Topology
from pgm.topology.node_plan import NodePlan
from pgm.topology.plan import plan_all
from pgm.topology.problems import joined
from pgm.units import SECOND, parse_duration

if TYPE_CHECKING:
    from pgm.spark.fleet.findings import Finding

_POLL_S = 0.5  # between looks for a signal and for the end of the query


@click.command()
@click.argument("action", type=click.Choice(["tables", "changes"]))
@click.argument("sources", metavar="SOURCE...", nargs=-1, required=True, type=PATH)
@click.option("--out", type=FOLDER, help="tables: folder of the tables.")
@click.option("--once", is_flag=True, help="tables: end with the events that exist now.")
@option("--late", "late", default="2min", help="tables: time for which a minute waits for its events.")
@option("--token-file", type=PATH, help="tables: file with the agents' token.", envvar="PGM_TOKEN_FILE")
@option("--ca-file", type=PATH, help="tables: certificate of the authority of the agents' certificates.", envvar="PGM_CA_FILE")  # fmt: skip
@click.option("--master", default="", metavar="URL", help="tables: Spark master; by default this machine.")
@command
def fleet(action: str, sources: tuple[Path, ...], as_json: bool, **options: Any) -> None:
    """Keep tables of all nodes' events by minute, and find changes of regime in them.

    `tables` reads the event logs of all nodes as they grow, and writes Parquet tables of losses by link, repair
    latencies, excessive NAKs, capacity, nodes and agents. SOURCE is a topology file, whose hosts run pgm agent, or a
    folder of telemetry. With both, the folder is read, and the file gives names and limits. The command goes on until
    Ctrl-C, and continues when it is started again.

    `changes` lists when the loss of a link or its repair latency has changed for good, with the evidence. SOURCE is
    a folder of tables.

    \b
    pgm fleet tables tree.toml --out tables
    pgm fleet tables /var/lib/pgm/telemetry --out tables --once
    pgm fleet changes tables
    pgm monitor tree.toml --fleet --tables tables

    With --json each finding is one object and line. The command needs pip install 'pgm-repair-network[spark]', and
    `tables` needs Java 17 or later. docs/guide/fleet-tables.md describes the tables.
    """
    if action == "changes":
        _changes(sources, as_json=as_json)
    else:
        _tables(sources, as_json=as_json, **options)


def _changes(sources: tuple[Path, ...], *, as_json: bool) -> None:
    require_spark()
    from pgm.spark.fleet.findings import Findings
    from pgm.spark.fleet.tables import TableFolder

    for folder in sources:
        tables = TableFolder(folder)
        if not tables.files("links"):
            raise UsageError(f"{folder} has no tables", remedy=f"pgm fleet tables SOURCE --out {folder}")
        found = Findings(tables).look()
        for finding in found:
            _say(finding, as_json=as_json)
        if not found and not as_json:
            warn(f"no link of {folder} has changed")


def _say(finding: Finding, *, as_json: bool) -> None:
    print_json(finding) if as_json else click.echo(finding["text"])


def _tables(
    sources: tuple[Path, ...], *, as_json: bool, out: Path | None, once: bool, late: str, master: str, **files: Any
) -> None:
    if out is None:
        raise UsageError("--out is missing", remedy="name a folder for the tables: --out tables")
    where, limits = _where(sources, **files)
    late_s = max(1, parse_duration(late) // SECOND)
    warn_of_away(where)
    with spark_session("pgm fleet", master) as spark:
        from pgm.spark import fleet_tables, register
        from pgm.spark.fleet.findings import Findings
        from pgm.spark.fleet.tables import TableFolder

        findings = Findings(TableFolder(out), lambda finding: _say(finding, as_json=as_json))
        where = {**where, "trigger": "now"} if once else where
        query = fleet_tables(
            register(spark), where, out, limits=limits, late_s=late_s, on_batch=lambda _: findings.look(is_last=False)
        )
        if not as_json:
            warn(f"keeping tables in {out}")
        _wait(query)
        findings.look()
        if once and not findings.tables.files("nodes"):
            warn(f"no minute is over yet: the newest event must be {late} later than the end of a minute")


def warn_of_away(where: Mapping[str, str]) -> None:
    """Warn of the places of event logs that do not answer now. Raises `PlaceAway` for a file that cannot be read."""
    require_spark()
    from pgm.spark.fleet.options import read_options
    from pgm.spark.fleet.places import places_of, survey

    places = places_of(read_options(where)).values()
    away = survey(places).away
    if away:
        warn(f"{len(away)} of {len(places)} places do not answer: {joined(away.values(), most=3)}")
        remedy("run pgm agent FILE on each host; events of a place are read when the place answers again")


def _wait(query: Any) -> None:
    """Wait for the end of a query, or for SIGINT or SIGTERM. Raises `ProcessError` for an error of the query."""
    is_over = threading.Event()
    former = {number: signal.signal(number, lambda *_: is_over.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        while query.isActive and not is_over.wait(_POLL_S):
            pass
        query.stop()
        if not is_over.is_set() and query.exception() is not None:
            raise ProcessError(
                f"the query ended: {str(query.exception()).strip().splitlines()[0]}",
                remedy="start the command again: it continues, and each event counts once",
            )
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def _where(sources: tuple[Path, ...], token_file: Path | None, ca_file: Path | None) -> tuple[dict[str, str], Limits]:
    """Return the options of the source of events, and the limits of a topology file among them. Raises `UsageError`."""
    folders = [str(path.resolve()) for path in sources if path.is_dir()]
    trees = [path for path in sources if not path.is_dir()]
    if len(trees) > 1:
        raise UsageError("several topology files", remedy="run a job for each tree, with a folder of its own")
    if not trees:
        return {"path": ",".join(folders)}, NO_LIMITS
    topology = load_checked(trees[0])
    plans = plan_all(topology)
    limits = limits_of(plans)
    if folders:
        return {"path": ",".join(folders)}, limits
    where = {"agents": ",".join(agents_of(topology, plans, has_tls=ca_file is not None))}
    if token_file is not None:
        where["tokenFile"] = str(token_file.resolve())
    if ca_file is not None:
        where["caFile"] = str(ca_file.resolve())
    return where, limits


def agents_of(topology: Topology, plans: dict[str, NodePlan], *, has_tls: bool) -> list[str]:
    """Return the agents of a topology file, as the option `agents` of Spark has them."""
    scheme, port = "https" if has_tls else "http", topology.fleet.port
    spelled: Callable[[str], str] = lambda address: f"[{address}]" if ":" in address else address  # noqa: E731
    return [
        "|".join(f"{scheme}://{spelled(address)}:{port}" for address in host.addresses)
        for host in hosts_of(topology, plans)
    ]


def limits_of(plans: dict[str, NodePlan]) -> Limits:
    """Return the limits of nodes in packets of full size, and the names of their addresses."""
    pps: dict[str, float] = {}
    names: dict[tuple[str, str], str] = {}
    for name, plan in plans.items():
        own = plan.parameters
        pps[name] = own.txw_max_rte / own.max_tpdu
        if own.txw_max_pps:
            pps[name] = min(pps[name], float(own.txw_max_pps))
        for segment in plan.segments:
            if segment.address is not None:
                names[segment.name, segment.address] = name
    return Limits(pps, names)
