"""Upstream side of one session at a repairer: reception, recovery, and what goes to the parents."""

from __future__ import annotations

from pgm.core.acked.ack_merger import AckMerger
from pgm.core.element.setup import ElementSetup
from pgm.core.recovery.gap_detector import GapDetector
from pgm.core.recovery.nak_control import NakControl
from pgm.core.recovery.nak_sender import NakSender
from pgm.core.recovery.parents import Parents
from pgm.core.recovery.recovery import Recovery
from pgm.core.recovery.redundant_lines import RedundantLines, all_parents, lines_of
from pgm.core.recovery.siblings import Siblings
from pgm.core.recovery.spm_request import SpmRequest
from pgm.core.session.state import SessionState
from pgm.core.session_context import SessionContext
from pgm.parameters import Parameters
from repairer.redirect_offer import searches_answered


class Upstream:
    """Parts of one session that face the upstream segment."""

    def __init__(self, context: SessionContext, setup: ElementSetup) -> None:
        self.state = state = SessionState(context)
        self.parents = parents = Parents(context, all_parents(setup.parents, setup.lines))
        self.recovery = recovery = Recovery(context, parents.response_timeout)
        self.gap_detector = GapDetector(recovery)
        lines = lines_of(setup.up, setup.parents, setup.lines)
        self.lines = RedundantLines(context, lines, state, recovery)
        self.acks = AckMerger(context, state, parents, setup, self.lines)
        self.siblings = Siblings(context, setup.siblings)
        self.nak_sender = NakSender(context, state, parents, recovery, self.acks.reports, self.lines, self.siblings)
        self.spm_request = SpmRequest(context, setup.up)
        dlr_nla = searches_answered(setup, context.parameters)
        self.nak_control = NakControl(context, state, parents, recovery, setup.up, dlr_nla)

    def change(self, setup: ElementSetup, parameters: Parameters) -> None:
        """Take the parents and siblings of the setup, and timers, as they are now."""
        self.parents.change(all_parents(setup.parents, setup.lines))
        self.recovery.change(has_lines=bool(setup.lines))
        self.siblings.change(setup.siblings)
        self.nak_control.change(parameters)
