"""Budgets that refuse: each node gets one of them for a while, by a file of its own, and an application that is too slow."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import attrs

from tests.net.campaigns.ten_hosts import slow_taker
from tests.net.campaigns.ten_hosts.losses import Planted
from tests.net.campaigns.ten_hosts.network import Hosts, file_text
from tests.net.campaigns.ten_hosts.planting import NAK, ODATA, RDATA, Planter, Rule, between, into, until_all_had

_TRIES = 4
_REFUSALS = 1  # requests without an answer, of one packet, at least
_AHEAD = 200  # packets: a node has come back by then


@attrs.frozen
class Budget:
    """Budget of one node, the losses of a receiver that meet it, and the packet whose verdict must name it."""

    name: str
    node: str
    parameters: str
    at: str
    losses: tuple[int, int, int]  # number of losses, packets of each, and packets from one to the next
    asked: int  # packets from the first loss on; of several losses that whose requests had fewest answers
    repair: tuple[str, str, str]  # kind, other node and cause


_FEW_NAKS = "child_nak_rte = 1, session_nak_rte = 1"
_FEW_REPAIRS = 'rdata_share = "0.1%"'
_SOON_EXCESSIVE = (
    'excess_nak_window_ivl = "400ms", excess_nak_check_ivl = "800ms", excess_nak_min_sqns = 4, '
    'excess_nak_share = "0.1%", excess_nak_sqn_rte = 1'
)
BUDGETS = (
    Budget("NAKs of a child", "keeper-a", _FEW_NAKS, "desk-1", (24, 1, 12), 0, ("nak-shed", "keeper-a", "nak_packets_braked")),
    Budget("NAKs of a child", "keeper-b", _FEW_NAKS, "desk-3", (24, 1, 12), 0, ("nak-shed", "keeper-b", "nak_packets_braked")),
    Budget("repairs of a segment", "keeper-b", _FEW_REPAIRS, "desk-3", (1, 80, 0), 70, ("repair-shed", "keeper-b", "repairs_braked")),
    Budget("repairs of a segment", "keeper-a", _FEW_REPAIRS, "desk-1", (1, 80, 0), 70, ("repair-shed", "keeper-a", "repairs_braked")),
    Budget("excessive NAKs", "keeper-a", _SOON_EXCESSIVE, "desk-2", (40, 4, 12), 0, ("nak-shed", "keeper-a", "excess_nak_packets")),
    Budget("requests in flight", "desk-2", "nak_max_outstanding = 63", "desk-2", (1, 400, 0), 380, ("waiting-for-room", "", "")),
)  # fmt: skip
_OVERLOAD = re.compile(r"lost-overload: .* sqns? ([0-9]+)")
_LANS = {"desk-1": "floor-a", "desk-2": "floor-a", "desk-3": "floor-b", "desk-4": "floor-b"}


@contextmanager
def with_parameters(ten: Hosts, node: str, parameters: str, module: str = "") -> Iterator[None]:
    """Run a node with further parameters for the length of a block, by a restart before and after."""
    file = ten.folder / f"{node}.toml"
    file.write_text(file_text({node: parameters}))
    ten.nodes[node].end()
    ten.start_node(node, file=file, module=module)
    try:
        ten.nodes[node].until(lambda: ten.sessions(node))
        until_all_had(ten, ten.lead() + 1)
        yield
    finally:
        ten.nodes[node].end()
        ten.start_node(node).until(lambda: ten.sessions(node))


def plant_budgets(ten: Hosts, planter: Planter, budgets: tuple[Budget, ...] = BUDGETS) -> Iterator[Planted]:
    """Yield the packet of each budget, after it has been lost and its repair been refused."""
    for budget in budgets:
        with with_parameters(ten, budget.node, budget.parameters):
            yield _planted(ten, planter, budget)


def _planted(ten: Hosts, planter: Planter, budget: Budget) -> Planted:
    """Lose packets until the budget has certainly refused one of them, as the wire shows."""
    lan = _LANS[budget.at]
    losses, count, step = budget.losses
    loss, name = ("link", budget.at, lan), f"{budget.name}, {budget.node}"
    for _ in range(_TRIES):
        first = ten.lead() + _AHEAD
        places = [first + at * step for at in range(losses)]
        planter.plant([Rule("switch", into(budget.at, lan), ODATA, place, count) for place in places])
        if losses > 1:
            planter.watch([(place, between(budget.at, budget.node, lan), into(budget.at, lan)) for place in places])
        until_all_had(ten, places[-1] + count + 1)
        assert planter.dropped() >= losses * count, "rules came too late"
        refused = planter.unanswered()
        planter.clear()
        if losses == 1:
            return Planted("budget", name, first + budget.asked, budget.at, loss, budget.repair)
        sqn = max(refused, key=lambda place: refused[place])
        if refused[sqn] >= _REFUSALS:
            return Planted("budget", name, sqn, budget.at, loss, budget.repair)
    raise AssertionError(f"{name}: the budget was never met")


def plant_retries(ten: Hosts, planter: Planter) -> Planted:
    """Lose a packet, and all requests for it, at a receiver that asks rarely."""
    with with_parameters(ten, "desk-4", "nak_ncf_retries = 1, nak_data_retries = 1"):
        sqn = ten.lead() + _AHEAD
        rules = [Rule("switch", into("desk-4", "floor-b"), ODATA, sqn)]
        rules += [Rule("switch", between("desk-4", keeper, "floor-b"), NAK, sqn) for keeper in ("keeper-b", "relay-b")]
        planter.plant(rules)
        until_all_had(ten, sqn + 20)
        planter.clear()
    return Planted("budget", "retries", sqn, "desk-4", ("link", "desk-4", "floor-b"), ("nak-lost", "keeper-b", ""))


def plant_full_window(ten: Hosts, planter: Planter) -> Planted:
    """Lose a packet and its repairs for so long that the receive window is full, which gives it up."""
    with with_parameters(ten, "desk-3", 'rxw_bytes = "256KiB"'):
        sqn = ten.lead() + _AHEAD
        planter.plant(
            [
                Rule("switch", into("desk-3", "floor-b"), ODATA, sqn),
                Rule("switch", into("desk-3", "floor-b"), RDATA, sqn),
            ]
        )
        until_all_had(ten, sqn + 1000)
        planter.clear()
        assert str(sqn) in " ".join(_OVERLOAD.findall(ten.nodes["desk-3"].log)), ten.nodes["desk-3"].log
    loss = ("link", "desk-3", "floor-b")
    return Planted("budget", "receive window", sqn, "desk-3", loss, ("rdata-lost", "keeper-b", ""), "overload")


def plant_slow_application(ten: Hosts, count: int) -> list[Planted]:
    """Let the application of desk-2 take nothing for a while. Return packets that it reports as lost."""
    parameters = 'rxw_bytes = "64KiB", inbox_bytes = "64KiB"'
    with with_parameters(ten, "desk-2", parameters, module=slow_taker.__name__):
        taker = ten.nodes["desk-2"]
        before, first = len(taker.out.splitlines()), ten.lead()
        taker.signal(signal.SIGUSR1)
        taker.until(lambda: len(taker.out.splitlines()) > before)
        until_all_had(ten, ten.lead())
        rows = [line.split() for line in taker.out.splitlines()[before:]]
    sqns = [int(row[0]) + at for row in rows for at in range(int(row[1])) if int(row[0]) > first]
    chosen = sqns[:: max(1, len(sqns) // count)][:count]
    return [
        Planted("application", "application of desk-2", sqn, "desk-2", ("application", "desk-2", "")) for sqn in chosen
    ]
