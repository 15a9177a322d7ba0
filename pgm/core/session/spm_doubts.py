"""SPMs out of sequence, or in agreement with the data of a session, counted until they are enough."""

from __future__ import annotations

from pgm.parameters import Parameters
from pgm.wire.sequence_numbers import is_newer, wrap


class SpmDoubts:
    """SPMs of one session that are out of sequence, or that agree with the data."""

    def __init__(self, parameters: Parameters) -> None:
        self._parameters = parameters
        self._old_sqn, self._old_spms = 0, 0  # SPMs out of sequence: the newest SPM_SQN, and how many in order
        self._spm_lead = -1  # of the last SPM whose edges were taken
        self._agreements = 0  # SPMs that fit the data since the SPM before

    @property
    def agreements(self) -> int:
        """Return how many SPMs fitted the data that had come since the SPM before."""
        return self._agreements

    def end_old_sqns(self) -> None:
        """Note an SPM in sequence."""
        self._old_spms = 0

    def compare(self, spm_lead: int, data_lead: int) -> None:
        """Compare the lead of an SPM with the newest sqn known before the SPM."""
        if data_lead > self._spm_lead and data_lead - spm_lead <= self._parameters.rxw_sqns:
            self._agreements += 1
        self._spm_lead = max(spm_lead, data_lead)

    def confirms_old_sqns(self, spm_sqn: int) -> bool:
        """Count an SPM out of sequence.

        Return whether enough have come to show that the newest SPM was forged. The counted SPMs are in order among
        themselves, with no SPM in sequence between them. Copies do not count, nor SPMs that a few others have
        overtaken.
        """
        enough = self._parameters.spm_confirmations
        if self._old_spms and not is_newer(spm_sqn, self._old_sqn):
            if wrap(self._old_sqn - spm_sqn) < enough:
                return False
            self._old_spms = 0
        self._old_sqn = spm_sqn
        self._old_spms += 1
        return self._old_spms >= enough
