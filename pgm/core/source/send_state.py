"""Parts of a source that change with each packet that is sent."""

from __future__ import annotations

import attrs

from pgm.core.pacing.adaptive_rate import AdaptiveRate
from pgm.core.pacing.pacer import Pacer
from pgm.core.source.spm_schedule import SpmSchedule
from pgm.core.window.transmit_window import TransmitWindow


@attrs.frozen
class SendState:
    """Window, rate and SPM timer of a source, for its general and fast paths."""

    window: TransmitWindow
    pacer: Pacer
    adaptive_rate: AdaptiveRate
    schedule: SpmSchedule
