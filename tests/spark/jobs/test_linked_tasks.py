"""Parts of a tree in tasks that run together, with a connection each."""

from __future__ import annotations

import os
import re
import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from deploy.node.roles import build_core
from pgm.errors import ProcessError, UsageError
from pgm.sim.invariant_broken import InvariantBroken
from pgm.sim.load import Load, NetworkConditions
from pgm.sim.parts.remote import RemoteLink, serve_part
from pgm.sim.runs.report import parts_of, run_parts, whole_tree
from pgm.spark.jobs import linked_tasks
from pgm.spark.jobs.linked_tasks import LinkedTasks
from tests.sim.parts.compare import lossy_plans, run_cut

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILE = Path(__file__).parents[3] / "deploy" / "topologies" / "two-subnets.toml"


def test_parts_in_tasks_have_the_result_of_one_process(spark: SparkSession) -> None:
    plans = lossy_plans(FILE, {}, 0.02, 0.01)
    expected, _ = run_cut(plans, 1, Load(100))
    whole = whole_tree(plans, build_core, 1, Load(100), NetworkConditions())
    parts = parts_of(whole, 2)
    with LinkedTasks(spark, serve_part, parts) as tasks:
        links = [RemoteLink(connection) for connection in tasks.connections]
        report = run_parts(whole, links, shared=frozenset(parts[0].shared))
    del report["events"]
    assert report == expected


def _fail(case: int, connection: Any) -> None:
    connection.send(InvariantBroken(case, 5, "node", "is wrong", "again"))


def test_error_of_a_task_reaches_the_driver_as_it_is(spark: SparkSession) -> None:
    with LinkedTasks(spark, _fail, [7]) as tasks, pytest.raises(InvariantBroken, match=r"seed 7.*is wrong") as caught:
        RemoteLink(tasks.connections[0]).progress()
    assert caught.value.now_ns == 5


def _double(case: int, connection: Any) -> None:
    connection.send(2 * case)


def test_strangers_neither_end_nor_hold_up_the_job(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linked_tasks, "_PROOF_S", 1)
    job = LinkedTasks(spark, _double, [21])
    address = "127.0.0.1", job.port
    with socket.create_connection(address), socket.create_connection(address) as liar:  # the first one says nothing
        liar.sendall(b"\0\0\0\x20" + bytes(32))
        socket.create_connection(address).close()
        with job as tasks:
            assert tasks.connections[0].recv() == 42


def _die(_case: int, _connection: Any) -> None:
    os._exit(3)


def test_task_that_dies_ends_the_run_with_its_error(spark: SparkSession) -> None:
    with pytest.raises(ProcessError, match="part ended in the middle"), LinkedTasks(spark, _die, [1]) as tasks:
        RemoteLink(tasks.connections[0]).progress()


def _wait(_case: int, connection: Any) -> None:
    connection.send(os.getpid())
    while connection.recv() != "go":
        pass
    connection.send("gone")


def _stop_second(spark: SparkSession) -> None:
    """Stop the second of two tasks, and wait for both; the first one has to wait as long, and is not silent."""
    with LinkedTasks(spark, _wait, [1, 2], silence_s=2) as tasks, ThreadPoolExecutor(2) as pool:
        pids = [connection.recv() for connection in tasks.connections]
        os.kill(pids[1], signal.SIGSTOP)
        waiting, stopped = (pool.submit(RemoteLink(one).progress) for one in tasks.connections)
        error = stopped.exception()
        tasks.connections[0].send("go")
        assert waiting.result() == "gone"
        assert f"process {pids[1]} on" in str(error)
        stopped.result()


def test_stopped_task_ends_the_job_within_its_bound(spark: SparkSession) -> None:
    told = rf"task 2 of 2, process (\d+) on {socket.gethostname()}, has been silent for 2 s"
    with pytest.raises(ProcessError, match=told) as caught:
        _stop_second(spark)
    assert "continue or end that process" in caught.value.remedy
    with LinkedTasks(spark, _double, [1, 2]) as tasks:  # on both cores, so both tasks have ended
        assert [connection.recv() for connection in tasks.connections] == [2, 4]
    told_pid = re.search(told, caught.value.message)
    assert told_pid is not None
    with pytest.raises(ProcessLookupError):  # ended by Spark
        os.kill(int(told_pid[1]), signal.SIGCONT)


def _has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


@pytest.mark.skipif(not _has_ipv6(), reason="no ::1 on this machine")
@pytest.mark.parametrize(("host", "bound"), [("::1", ""), ("[::1]", "[::1]"), ("127.0.0.1", "::"), ("localhost", "")])
def test_driver_listens_at_either_family(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, host: str, bound: str
) -> None:
    conf = spark.sparkContext.getConf().set("spark.driver.host", host)
    if bound:
        conf.set("spark.driver.bindAddress", bound)
    monkeypatch.setattr(spark.sparkContext, "getConf", lambda: conf)
    with LinkedTasks(spark, _double, [21]) as tasks:
        assert tasks.connections[0].recv() == 42


def test_more_tasks_than_cores_are_refused(spark: SparkSession) -> None:
    with pytest.raises(UsageError, match="3 tasks must run at the same time"):
        LinkedTasks(spark, serve_part, [1, 2, 3])
