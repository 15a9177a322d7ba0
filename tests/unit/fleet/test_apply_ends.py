"""Ends of a change on several hosts: all at once, whatever signals come, and without a false claim."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest

from deploy.node.apply import interrupted_once
from pgm.errors import PgmError, ProcessError, UsageError
from tests.unit.fleet.hosts_of_nodes import NEW, SimulatedHost, change_of, two_hosts


@attrs.define
class HookedHost:
    """Host with a function that is called before each request, or a signal that comes with a request."""

    host: SimulatedHost
    before: Callable[[str], object] = str
    signals: Mapping[str, int] = attrs.field(factory=dict)
    forgets: bool = False

    @property
    def name(self) -> str:
        return self.host.name

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        self.before(request["do"])
        if request["do"] in self.signals:
            os.kill(os.getpid(), self.signals[request["do"]])
        return {"back": False} if self.forgets and request["do"] == "back" else self.host.ask(request)


@pytest.mark.parametrize("last", ["finish", "back"])
def test_hosts_end_a_change_at_once(tmp_path: Path, last: str) -> None:
    """One host after another would take longer than a lease."""
    both = threading.Barrier(2, timeout=5)
    hosts = [HookedHost(host, lambda do: do == last and both.wait()) for host in two_hosts(tmp_path)]
    if last == "back":
        hosts[1].host.refuses = "verify"
        with pytest.raises(UsageError, match="All hosts are as before"):
            change_of(hosts).run()
    else:
        change_of(hosts).run()
    assert not both.broken


def test_host_that_forgot_the_change_is_not_called_as_before(tmp_path: Path) -> None:
    hosts = [HookedHost(host) for host in two_hosts(tmp_path)]
    hosts[1].forgets, hosts[1].host.refuses = True, "put"
    with pytest.raises(ProcessError, match="not as before: rest: it has forgotten the change"):
        change_of(hosts).run()


def test_first_signal_undoes_the_change_and_later_ones_do_nothing(tmp_path: Path) -> None:
    numbers = {"verify": signal.SIGTERM, "back": signal.SIGINT}
    ones = two_hosts(tmp_path)
    before = [host.state for host in ones]
    hosts = [HookedHost(host, signals=numbers) for host in ones]
    with interrupted_once() as ignore, pytest.raises(PgmError, match=r"interrupted\. All hosts are as before"):
        change_of(hosts).run(ignore)
    assert [host.state for host in ones] == before


def test_signal_after_the_verification_splits_no_fleet(tmp_path: Path) -> None:
    ones = two_hosts(tmp_path)
    hosts = [HookedHost(host, signals={"finish": signal.SIGHUP}) for host in ones]
    with interrupted_once() as ignore:
        change_of(hosts).run(ignore)
    assert {host.state[0] for host in ones} == {NEW}
