"""A driver serves its core's deadline in time, and its task wakes for nothing else."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from pgm.core.counters import Counters
from pgm.core.effects import NOTHING, Effect, Effects
from pgm.net.driver.trio_driver import TrioDriver
from pgm.net.driver.trio_reads import TrioReads
from pgm.net.link.node_links import NodeLinks
from pgm.units import MILLISECOND as MS
from pgm.units import NEVER, SECOND
from tests.net.support.listening import PATIENCE_S

LONG_NS = 900 * SECOND


class _Core:
    """Core that counts reads of its deadline and records when it is served."""

    def __init__(self) -> None:
        self.counters = Counters()
        self.at_ns, self.looks = NEVER, 0
        self.served: list[int] = []
        self.is_served = trio.Event()

    @property
    def deadline_ns(self) -> int:
        self.looks += 1
        return self.at_ns

    def handle_deadline(self, now_ns: int) -> Effects:
        self.served.append(now_ns - self.at_ns)
        self.at_ns = NEVER
        self.is_served.set()
        return NOTHING


class _Nobody:
    def take(self, effect: Effect) -> None:
        raise AssertionError(effect)

    def after(self) -> Effects:
        return NOTHING


async def started(nursery: trio.Nursery) -> tuple[_Core, TrioDriver]:
    """Start a driver whose task sleeps without end."""
    core: Any = _Core()
    driver = TrioDriver(core, TrioReads(NodeLinks(())), _Nobody())
    nursery.start_soon(driver.run)
    await trio.testing.wait_all_tasks_blocked()
    return core, driver


@pytest.mark.parametrize("ahead", [[5 * MS], [LONG_NS, 5 * MS], [-MS], [2 * LONG_NS, LONG_NS, 5 * MS], [LONG_NS, -MS]])
async def test_a_deadline_that_moved_is_served_in_time(ahead: list[int]) -> None:
    async with trio.open_nursery() as nursery:
        core, driver = await started(nursery)
        for one in ahead:
            core.at_ns = driver.now_ns() + one
            looks = core.looks
            driver.reschedule()
            if one >= LONG_NS:
                await trio.testing.wait_all_tasks_blocked()
                assert core.looks == looks + 1  # no task woke
        with trio.fail_after(PATIENCE_S):
            await core.is_served.wait()
        assert len(core.served) == 1
        assert core.served[0] >= 0
        nursery.cancel_scope.cancel()


async def test_a_deadline_that_was_served_by_another_task_wakes_nobody() -> None:
    """An application that reads for itself serves deadlines, too. The next deadline is still in time."""
    async with trio.open_nursery() as nursery:
        core, driver = await started(nursery)
        core.at_ns = driver.now_ns() + 2 * MS
        driver.reschedule()
        while driver.now_ns() <= core.at_ns:
            pass
        driver.serve_late()
        assert len(core.served) == 1
        looks, core.is_served = core.looks, trio.Event()
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert core.looks == looks
        core.at_ns = driver.now_ns() + 5 * MS
        driver.reschedule()
        with trio.fail_after(PATIENCE_S):
            await core.is_served.wait()
        assert len(core.served) == 2
        nursery.cancel_scope.cancel()
