"""`pgm bench scale`: cost of more receivers, for each receiver and for the source."""

from __future__ import annotations

import statistics
import time
from contextlib import AsyncExitStack

import attrs
import trio

from deploy.bench.contender import Job
from deploy.bench.contenders.ours import OURS_TRIO
from deploy.bench.peer import Peer, running
from deploy.bench.place import ETHERNET_MTU, open_place
from deploy.bench.settings import BenchSettings, Row
from deploy.bench.tree import three_tiers
from deploy.bench.trial import environment
from deploy.node.roles import build_core
from pgm.impairments import Impairment
from pgm.sim.load import Load, NetworkConditions
from pgm.sim.runs.report import Observation, simulate
from pgm.topology.load import load_checked
from pgm.topology.node_plan import NodePlan, Role
from pgm.topology.plan import plan_all
from pgm.units import MICROSECOND

SIZE = 1400
_RATE = 10_000  # packets a second: a rate for several receivers on few cores
_START_S = 60.0
_SPARE_S = 60.0
_SIM_MESSAGES = 200
_SIM_SIZE = 100
_SIM_RATE = 2000  # messages a second
_LOSS = 0.01  # on every last hop
_DELAY = 50 * MICROSECOND


async def scale(settings: BenchSettings) -> list[Row]:
    """Measure real processes, then simulated trees; return a row for each count."""
    rows = []
    for count in settings.scale.receivers:
        rows.append(await _processes(count, settings))
        settings.emit(rows[-1])
    for count in settings.scale.simulated:
        rows.append(await trio.to_thread.run_sync(_simulated, count, settings, abandon_on_cancel=True))
        settings.emit(rows[-1])
    return rows


async def _processes(count: int, settings: BenchSettings) -> Row:
    with open_place(settings.path, ETHERNET_MTU) as place:
        job = settings.job(place, SIZE, rate=_RATE)
        async with AsyncExitStack() as stack:
            receivers = []
            for number in range(count):
                there = place.wrap(job.receiver.host, OURS_TRIO.command("recv", job))
                receivers.append(await stack.enter_async_context(running(f"receiver {number}", there, environment())))
            here = place.wrap(job.sender.host, OURS_TRIO.command("send", job))
            sender = await stack.enter_async_context(running("sender", here, environment()))
            for peer in (*receivers, sender):
                await peer.until("ready", _START_S)
            row = await _sent_to(sender, receivers, job)
        settings.say(
            f"{count} receiver{'s' * (count > 1)}: {row['cpu_us_per_packet_each']} us of CPU for each packet delivered"
        )
        return row | {"path": place.kind, "mtu": place.mtu}


async def _sent_to(sender: Peer, receivers: list[Peer], job: Job) -> Row:
    for receiver in receivers:
        await receiver.until("hears", _START_S)
    before, sender_before = [receiver.usage.cpu_s for receiver in receivers], sender.usage.cpu_s
    await sender.tell("go")
    sent = await sender.until("sent", job.seconds * 2 + _SPARE_S)
    sender_cpu = sender.usage.cpu_s - sender_before
    results = []
    for receiver in receivers:
        await receiver.tell(f"expect {sent['messages']}")
    for receiver in receivers:
        results.append(await receiver.until("result", _SPARE_S))
    cpu = [receiver.usage.cpu_s - used_before for receiver, used_before in zip(receivers, before, strict=True)]
    delivered = [result["messages"] for result in results]
    each = statistics.median(used / max(1, count) for used, count in zip(cpu, delivered, strict=True))
    return {
        "benchmark": "scale",
        "part": "processes",
        "contender": OURS_TRIO.name,
        "title": OURS_TRIO.title,
        "size": SIZE,
        "receivers": len(receivers),
        "messages_per_s": round(sum(delivered) / sent["seconds"]),
        "mb_per_s": round(sum(delivered) * SIZE / sent["seconds"] / 1e6, 2),
        "packets_per_s": round(sum(delivered) / sent["seconds"]),
        "lost": sum(sent["messages"] - count for count in delivered),
        "cpu_s": round(sender_cpu + sum(cpu), 3),
        "cpu_us_per_packet_each": round(each * 1e6, 3),
        "source_nak_sqns": sent["counters"].get("nak_sqns_in", 0),
        "wall_s": round(sent["seconds"], 3),
    }


def _simulated(count: int, settings: BenchSettings) -> Row:
    file = three_tiers(settings.folder, count)
    plans = {name: _lossy(plan) for name, plan in plan_all(load_checked(file)).items()}
    settings.say(f"simulating {count:,} receivers")
    began, cpu_began = time.monotonic(), time.process_time()
    report = simulate(
        plans,
        build_core,
        seed=1,
        load=Load(messages=_SIM_MESSAGES, size=_SIM_SIZE, rate=_SIM_RATE),
        conditions=NetworkConditions(delay=_DELAY),
        observation=Observation(repeat=f"pgm sim {file} --seed 1"),
    )
    wall_s = time.monotonic() - began
    delivered = report["totals"]["delivered"]
    return {
        "benchmark": "scale",
        "part": "simulator",
        "contender": "ours-simulated",
        "title": "pgm, simulated, three tiers, 1 % loss",
        "size": _SIM_SIZE,
        "receivers": count,
        "messages_per_s": round(delivered / wall_s),
        "mb_per_s": round(delivered * _SIM_SIZE / wall_s / 1e6, 3),
        "packets_per_s": round(delivered / wall_s),
        "lost": report["totals"]["lost"],
        "cpu_s": round(time.process_time() - cpu_began, 3),
        "source_nak_sqns": report["source"]["nak_sqns_in"],
        "nak_sqns": report["totals"]["nak_sqns"],
        "wall_s": round(wall_s, 3),
        "us_per_delivery": round(wall_s / max(1, delivered) * 1e6, 2),
    }


def _lossy(plan: NodePlan) -> NodePlan:
    if plan.role is not Role.RECEIVER:
        return plan
    segments = tuple(attrs.evolve(segment, impairment=Impairment(loss=_LOSS)) for segment in plan.segments)
    return attrs.evolve(plan, segments=segments)
