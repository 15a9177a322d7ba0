"""Hypothesis profiles: `ci` repeats exactly and is quick, `thorough` is for the night. And what processes of tests inherit."""

import os
import signal

from hypothesis import HealthCheck, settings

_SLOW = [HealthCheck.too_slow]
settings.register_profile("ci", derandomize=True, max_examples=30, deadline=None, suppress_health_check=_SLOW)
settings.register_profile("thorough", max_examples=2000, deadline=None, suppress_health_check=_SLOW)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

# Of the many interpreters that tests start, each would keep a processor busy for a moment with threads of numpy's that nobody uses.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Under nohup a closed terminal is ignored, and so it would be by every process that a test starts and closes one on.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
