"""Hypothesis profiles, environment of the processes that tests start, and the addresses of one test.

The profile `ci` is quick and repeats exactly; `thorough` is for long runs.
"""

import os
import signal
import sys

import pytest
from hypothesis import HealthCheck, settings

from tests.net.support.places import Place

_SLOW = [HealthCheck.too_slow]
settings.register_profile("ci", derandomize=True, max_examples=30, deadline=None, suppress_health_check=_SLOW)
settings.register_profile("thorough", max_examples=2000, deadline=None, suppress_health_check=_SLOW)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

# numpy would start threads in each of the many interpreters that tests start, and the threads would keep processors busy.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Tests start hundreds of interpreters, each of which would compile this package for itself.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# nohup makes a process ignore a closed terminal, and a shell makes a background process ignore Ctrl-C. Processes that
# tests start would inherit both.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def place() -> Place:
    """Return addresses and ports that no other test uses."""
    return Place.new()


def pytest_xdist_auto_num_workers() -> int:
    """Return two workers more than processors: with one more, a fifth of their time was idle."""
    return len(os.sched_getaffinity(0)) + 2


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests of Spark first: one worker runs them with one JVM, and others take over what follows."""
    items.sort(key=lambda item: "spark" not in item.path.relative_to(item.config.rootpath).parts)
