"""The counter table: one attribute a row, with unit and sentence, read by the cores, the exporters and the docs.

Counters are plain integers that only grow, but for those whose unit says "now". They belong to the core; formatting and sending
them does not.
"""

from __future__ import annotations

import collections
from typing import Any

import attrs

from pgm.core.loss_observer import LossObserver


def _count(unit: str, doc: str) -> Any:
    return attrs.field(default=0, metadata={"unit": unit, "doc": doc})


@attrs.define
class Counters:
    """What one node has done. Rows that do not concern a role stay 0."""

    # data
    odata_packets: int = _count("packets", "ODATA sent by a source, or forwarded down by a relay, per segment.")
    odata_octets: int = _count("octets", "Octets of that ODATA.")
    rdata_packets: int = _count("packets", "RDATA sent from the own window or cache.")
    rdata_octets: int = _count("octets", "Octets of that RDATA.")
    rdata_forwarded: int = _count("packets", "RDATA that a relay passed down to segments that had asked.")
    rdata_unwanted: int = _count("packets", "RDATA without repair state, dropped (NE-32).")
    received_packets: int = _count("packets", "Data packets taken in for the first time.")
    received_octets: int = _count("octets", "Octets of those packets.")
    duplicate_packets: int = _count("packets", "Data packets that were already there.")
    twin_packets: int = _count("packets", "Data packets that another line of the stream had brought already.")
    delivered_packets: int = _count("packets", "Data packets handed to the application in order.")
    delivered_octets: int = _count("octets", "Payload octets handed to the application.")
    lost_sqns: int = _count("sqns", "Reported to the application as lost.")
    framing_rejects: int = _count("packets", "Packets that arrived and are not in the stream's framing.")
    object_rejects: int = _count(
        "messages", "Messages that arrived and that the codec of objects() did not understand."
    )
    messages_sent: int = _count("messages", "Messages sent in batches.")
    messages_received: int = _count("messages", "Messages received in batches, for this node and subscribed.")
    queue_octets: int = _count("octets now", "Delivered and not yet taken by the application.")
    queue_most_octets: int = _count("octets at most", "The most that ever was.")
    messages_skipped: int = _count(
        "messages", "Messages in batches that were for other nodes, or of subjects that nobody has subscribed."
    )
    # recovery
    missing_sqns: int = _count("sqns", "Found missing.")
    late_sqns: int = _count("sqns", "Missing and then arrived as ODATA: reordered, or recovered by the relay above.")
    repaired_sqns: int = _count("sqns", "Missing and then arrived as RDATA.")
    repaired_locally: int = _count("sqns", "Of those, sent by a repairer of the own segment from its cache.")
    nak_packets: int = _count("packets", "NAKs sent.")
    nak_sqns: int = _count("sqns", "Sqns asked for in NAKs sent, repeats included.")
    nak_cuts: int = _count("events", "Times less was asked for at a time since the own socket dropped packets.")
    naks_suppressed: int = _count("events", "NAKs not sent since an NCF or another NAK came first.")
    parent_changes: int = _count("events", "Changes of the parent that is asked.")
    # answering
    nak_packets_in: int = _count("packets", "NAKs received from children.")
    nak_sqns_in: int = _count("sqns", "Sqns in those NAKs.")
    nak_packets_eliminated: int = _count("packets", "NAKs not forwarded since all their sqns were under way.")
    nnak_packets: int = _count("packets", "Null NAKs sent, or passed on to the source.")
    nnak_packets_in: int = _count("packets", "Null NAKs received.")
    nnak_packets_eliminated: int = _count("packets", "Null NAKs not passed on since the source was told, or is asked.")
    nak_packets_braked: int = _count("packets", "NAKs dropped over the limit of a child or session.")
    nak_packets_foreign: int = _count(
        "packets", "NAKs for another source address, group or port, or for a sqn never sent."
    )
    nak_packets_late: int = _count("packets", "NAKs confirmed and not forwarded: nobody above has these sqns any more.")
    ncf_packets: int = _count("packets", "NCFs sent.")
    ncf_packets_damped: int = _count("packets", "NCFs put off since an identical one had just been sent.")
    ncf_packets_braked: int = _count("packets", "NCFs dropped over the session's limit.")
    ncf_packets_in: int = _count("packets", "NCFs heard from above.")
    ncf_packets_below: int = _count("packets", "NCFs heard that are no answer from above.")
    repairs_cancelled: int = _count("sqns", "Repairs not sent since somebody else sent them first.")
    repairs_ignored: int = _count("sqns", "Sqns asked for again right after their repair.")
    cache_misses: int = _count("sqns", "Sqns that a child asked for and the cache did not hold.")
    window_holds: int = _count(
        "events",
        "Times that a full window waited: for what was asked for of its oldest part, for acks, or for the application.",
    )
    rate_cuts: int = _count("events", "Times the source slowed down since it was asked for too much.")
    # parity
    parity_packets: int = _count("packets", "Parity packets sent, asked for or not; they are in ODATA and RDATA too.")
    parity_packets_in: int = _count("packets", "Parity packets received.")
    parity_packets_unused: int = _count(
        "packets", "Of those, packets of groups that lacked nothing, or that nothing is known of."
    )
    parity_packets_dropped: int = _count(
        "packets", "Parity packets that waited, or were to wait, beyond rxw_bytes or fec_groups."
    )
    parity_sqns: int = _count("sqns", "Missing and then rebuilt from parity; they are in repaired_sqns too.")
    parity_naks: int = _count("packets", "NAKs sent that ask for parity.")
    parity_naks_in: int = _count("packets", "NAKs received that ask for parity.")
    parity_packets_braked: int = _count(
        "packets", "Parity asked for beyond an asker's share of the repairs' rate, and left out."
    )
    parity_corrupt: int = _count(
        "events", "Groups whose parity gave what cannot have been sent; single packets are asked for."
    )
    skipped_sqns: int = _count("sqns", "Found missing and then told to be behind the end of a short group: never sent.")
    short_groups_denied: int = _count("groups", "Told to be short, and then seen to be longer.")
    # SPMs
    spm_packets: int = _count("packets", "SPMs sent or forwarded, per segment.")
    spm_packets_in: int = _count("packets", "SPMs taken in.")
    spm_packets_stale: int = _count("packets", "SPMs dropped since their SPM_SQN was not newer (RCV-20).")
    spm_sqns_followed: int = _count(
        "times",
        "Sessions whose SPMs went on behind the newest SPM_SQN until they were believed again: that one was forged, or damaged on its way.",
    )
    spmr_packets: int = _count("packets", "SPMRs sent.")
    spmrs_suppressed: int = _count("events", "SPMRs not sent since another receiver's came first.")
    spmr_packets_in: int = _count("packets", "SPMRs received.")
    spmr_packets_braked: int = _count("packets", "SPMRs not answered, over the limit.")
    # polls, and what parents say of asking
    poll_packets: int = _count("packets", "POLLs sent.")
    poll_packets_in: int = _count("packets", "POLLs received from parents.")
    polr_packets: int = _count("packets", "POLRs sent.")
    polr_packets_in: int = _count("packets", "POLRs that answer a poll under way.")
    polr_packets_foreign: int = _count("packets", "POLRs that answer none.")
    polls_aborted: int = _count("events", "Polls taken back since too many answered.")
    redirects_sent: int = _count("packets", "POLRs by which a repairer offered itself to its segment.")
    redirects_taken: int = _count("events", "Repairers learnt of by OPT_REDIRECT.")
    redirects_ignored: int = _count("packets", "Offers ignored: redirects are not honoured, or not from there.")
    redirects_dropped: int = _count("events", "Repairers so learnt of that did not answer, and are asked no more.")
    nak_packets_of_crying: int = _count(
        "packets", "NAKs dropped over the small limit of a child that asks all the time."
    )
    children_crying: int = _count("children", "Children found to ask for repairs all the time.")
    children_unreachable: int = _count(
        "events", "Times multicast to a segment below was taken for failed, by duplicate NAKs."
    )
    neighbour_unreachable: int = _count(
        "packets", "NCFs and SPMs by which the parent said that it cannot be heard (OPT_NBR_UNREACH)."
    )
    strangers_unreachable: int = _count("packets", "The same of somebody who is not the parent; ignored.")
    path_mismatches: int = _count("packets", "SPMs whose path is none of the topology's parents.")
    # the archive
    recorded_rows: int = _count("rows", "Messages and losses written to the archive.")
    recorder_lost: int = _count("sqns", "Delivered and recorded as lost: the disk was full or too slow.")
    recorder_deaths: int = _count("events", "Times that the process which writes the archive died.")
    # acknowledged streams
    ack_packets: int = _count("packets", "Acks sent to a parent.")
    ack_packets_in: int = _count("packets", "Acks received from children.")
    ack_confirmations: int = _count("packets", "Acks of children confirmed, to one or to all of a segment.")
    acks_refused: int = _count("packets", "Acks of children over max_children, or of one that has not caught up yet.")
    ack_parent_changes: int = _count("events", "Changes of the parent that is acked to.")
    ack_terms_changes: int = _count("events", "Times that SPMs asked for acks in another way than before, or no more.")
    members_joined: int = _count("events", "Children whose acks began to count.")
    members_left: int = _count("events", "Children that said goodbye.")
    members_expired: int = _count("events", "Children forgotten since they were silent for ack_expiry.")
    members_stuck: int = _count(
        "events",
        "Receivers not waited for since they took nothing for ack_stall_ivl, and elements whose acks stood still for ack_element_ivl.",
    )
    window_blockings: int = _count("events", "Times that the window of an acknowledged stream was full.")
    window_blocked_us: int = _count("microseconds", "How long it was, all together.")
    window_blocked_most_us: int = _count("microseconds at most", "The longest time.")
    # congestion control
    cc_reports: int = _count("packets", "Acks and reports of congestion sent, or passed on.")
    cc_reports_in: int = _count("packets", "Reports of congestion that came to the source, on acks and NAKs.")
    cc_reports_refused: int = _count(
        "packets",
        "Reports of an address that no receiver can have, or of an acker that is distrusted.",
    )
    cc_losses: int = _count("packets", "Packets that the acker's acks showed as lost.")
    cc_timeouts: int = _count("events", "Times that acks were overdue and the window began anew.")
    acker_changes: int = _count("events", "Elections of another acker, or of none.")
    ackers_distrusted: int = _count(
        "events", "Ackers given up since they never acknowledged, or since their reports and their acks disagreed."
    )
    # sessions and bounds
    sessions_opened: int = _count("events", "Sessions begun.")
    sessions_evicted: int = _count("events", "Sessions dropped for a new one over max_sessions.")
    sessions_expired: int = _count("events", "Sessions dropped after session_expiry.")
    jumps_rejected: int = _count("packets", "Packets whose sqns lie beyond rxw_sqns.")
    jumps_followed: int = _count("events", "Such jumps that were confirmed and followed.")
    states_refused: int = _count("events", "Repair state not made, over repair_states.")
    takeovers: int = _count("events", "Times this relay began to speak in place of another.")
    other_speakers: int = _count("packets", "SPMs heard from another relay on a segment where this one speaks.")
    opx_discarded: int = _count(
        "packets", "Packets dropped since an option unknown here asks elements to drop them (OPX)."
    )
    unlisted_packets: int = _count("packets", "Data and SPMs of addresses that are not among a stream's sources.")
    foreign_packets: int = _count("packets", "Packets for a port, stream or role that is not ours.")
    # from outside
    settings_changed: int = _count(
        "events", "Settings changed while the node ran, and children released, by `pgm ctl`."
    )
    control_refused: int = _count("events", "Requests on the control socket that were refused.")
    # driver
    trains_in: int = _count("reads", "Reads that gave packets.")
    packets_in: int = _count("packets", "Packets in those reads, own echoes left out.")
    injected_losses: int = _count("packets", "Packets that the loss injector dropped.")
    sends_dropped: int = _count("packets", "Control packets the kernel did not take; their timers repeat them.")
    send_errors: int = _count("packets", "Packets the kernel refused with an error.")
    truncated_reads: int = _count("reads", "Reads cut short by the buffer.")
    socket_drops: int = _count("packets", "Packets the kernel dropped since a receive buffer was full.")

    rejects: collections.Counter[str] = attrs.field(factory=collections.Counter)  # by reason, see pgm.wire.rejects
    watch: LossObserver | None = attrs.field(
        default=None, repr=False, eq=False
    )  # told which, where counters say how many

    def snapshot(self) -> dict[str, int | dict[str, int]]:
        """All rows that are not 0, and the rejects by reason."""
        values: dict[str, int | dict[str, int]] = {
            row.name: getattr(self, row.name) for row in ROWS if getattr(self, row.name)
        }
        if self.rejects:
            values["rejects"] = dict(self.rejects)
        return values


ROWS = [field for field in attrs.fields(Counters) if "doc" in field.metadata]
