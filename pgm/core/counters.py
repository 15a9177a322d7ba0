"""Table of counters: one attribute per row, with unit and meaning, for the cores, the exporters and the docs.

Counters are plain integers that only grow, except those whose unit contains "now". The cores count; other layers format and
export the values.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable
from typing import Any

import attrs

from pgm.core.loss_observer import NO_OBSERVER, LossObserver
from pgm.core.subject_counts import SubjectCounts
from pgm.deprecated import COUNTERS, with_former_names


def _count(unit: str, doc: str) -> Any:
    return attrs.field(default=0, metadata={"unit": unit, "doc": doc})


@attrs.define
class Counters:
    """Counters of one node. Rows that do not concern its role stay 0."""

    # data
    odata_packets: int = _count(
        "packets", "ODATA packets that a source sent, or that a relay forwarded downstream, counted per segment."
    )
    odata_octets: int = _count("octets", "Octets of the packets in odata_packets.")
    rdata_packets: int = _count("packets", "RDATA packets sent from the node's own window or cache.")
    rdata_octets: int = _count("octets", "Octets of the packets in rdata_packets.")
    rdata_forwarded: int = _count("packets", "RDATA packets that a relay forwarded to the segments that had sent NAKs.")
    rdata_unwanted: int = _count("packets", "RDATA packets dropped because no repair state matched (NE-32).")
    received_packets: int = _count("packets", "Data packets received for the first time.")
    received_octets: int = _count("octets", "Octets of the packets in received_packets.")
    duplicate_packets: int = _count("packets", "Data packets received again.")
    twin_packets: int = _count("packets", "Data packets that another line of the stream had already brought.")
    delivered_packets: int = _count("packets", "Data packets delivered to the application in order.")
    delivered_octets: int = _count("octets", "Payload octets delivered to the application.")
    lost_sqns: int = _count("sqns", "Sqns reported to the application as lost.")
    conflict_sqns: int = _count(
        "sqns", "Sqns of which two different copies came: one of them was forged, or damaged before its checksum."
    )
    archive_sqns: int = _count(
        "sqns", "Sqns that a durable receiver took from an archive; most of them count as lost, too."
    )
    framing_rejects: int = _count("packets", "Received packets that do not have the stream's framing.")
    object_rejects: int = _count("messages", "Received messages that the codec of objects() could not decode.")
    messages_sent: int = _count("messages", "Messages sent in batches.")
    messages_received: int = _count("messages", "Messages received in batches, addressed to this node and subscribed.")
    queue_octets: int = _count("octets now", "Octets delivered and not yet taken by the application.")
    queue_most_octets: int = _count("octets at most", "Highest value of queue_octets so far.")
    messages_skipped: int = _count(
        "messages", "Messages in batches that were addressed to other nodes, or whose subject has no subscription."
    )
    # recovery
    missing_sqns: int = _count("sqns", "Sqns detected as missing.")
    late_sqns: int = _count(
        "sqns",
        "Missing sqns that then arrived as ODATA: the network reordered the packets, or the relay above recovered them.",
    )
    repaired_sqns: int = _count("sqns", "Missing sqns that then arrived as RDATA.")
    repaired_locally: int = _count(
        "sqns", "Sqns of repaired_sqns that a repairer on the own segment sent from its cache."
    )
    nak_packets: int = _count("packets", "NAKs sent.")
    nak_sqns: int = _count("sqns", "Sqns requested in NAKs sent, repeats included.")
    nak_cuts: int = _count(
        "events", "Times that the node reduced its requests in flight because its own socket dropped packets."
    )
    naks_suppressed: int = _count("events", "NAKs not sent because an NCF or another node's NAK came first.")
    parent_changes: int = _count("events", "Changes of the parent that receives the NAKs.")
    # answers to NAKs
    sibling_sqns: int = _count("sqns", "Sqns of nak_sqns that were requested of repairers of the same segment.")
    nak_packets_in: int = _count("packets", "NAKs received from children.")
    nak_sqns_in: int = _count("sqns", "Sqns requested in the NAKs of nak_packets_in.")
    nak_packets_eliminated: int = _count("packets", "NAKs not forwarded because all their sqns were already requested.")
    nnak_packets: int = _count("packets", "Null NAKs sent, or forwarded to the source.")
    nnak_packets_in: int = _count("packets", "Null NAKs received.")
    nnak_packets_eliminated: int = _count(
        "packets", "Null NAKs not forwarded because the source has been informed, or receives a NAK for the same sqns."
    )
    nak_packets_held: int = _count("packets", "NAKs confirmed but not passed to a parent, beyond their sender's share.")
    nak_packets_braked: int = _count("packets", "NAKs dropped above the limit of a child or session.")
    nak_packets_foreign: int = _count(
        "packets", "NAKs for another source address, group or port, or for a sqn that was never sent."
    )
    nak_packets_late: int = _count(
        "packets", "NAKs that were confirmed and not forwarded, because no node above still holds their sqns."
    )
    ncf_packets: int = _count("packets", "NCFs sent.")
    ncf_packets_damped: int = _count("packets", "NCFs delayed because an identical NCF had just been sent.")
    ncf_packets_braked: int = _count("packets", "NCFs dropped above the limit of the session.")
    ncf_packets_in: int = _count("packets", "NCFs received from above.")
    ncf_packets_below: int = _count("packets", "NCFs received that do not come from a parent or relay above.")
    unicast_repair_sqns: int = _count(
        "sqns", "Sqns that one child alone requested, and whose repairs go to that child by unicast."
    )
    repairs_cancelled: int = _count("sqns", "Repairs not sent because another node sent them first.")
    repairs_braked: int = _count(
        "sqns", "Repairs not sent because an asker beyond its share had requested more than an interval can carry."
    )
    repairs_ignored: int = _count("sqns", "Sqns requested again right after their repair.")
    cache_misses: int = _count("sqns", "Sqns that a child requested and the cache did not hold.")
    window_holds: int = _count(
        "events",
        "Times that a full window waited for repairs of its oldest part, for acks, or for the application.",
    )
    rate_cuts: int = _count("events", "Times that the source slowed down because of too many requests for repairs.")
    # parity
    parity_packets: int = _count(
        "packets", "Parity packets sent, requested or not. The counters of ODATA and RDATA include parity packets."
    )
    parity_packets_in: int = _count("packets", "Parity packets received.")
    parity_packets_unused: int = _count("packets", "Packets of parity_packets_in whose group is complete or unknown.")
    parity_packets_dropped: int = _count(
        "packets", "Parity packets dropped because waiting parity would exceed rxw_bytes or fec_groups."
    )
    parity_sqns: int = _count("sqns", "Missing sqns rebuilt from parity. repaired_sqns includes these sqns.")
    parity_naks: int = _count("packets", "NAKs sent that request parity.")
    parity_naks_in: int = _count("packets", "NAKs received that request parity.")
    parity_packets_braked: int = _count(
        "packets", "Parity packets not sent because a child had requested more than its share of the repair rate."
    )
    parity_corrupt: int = _count(
        "events", "Groups whose parity rebuilt an impossible packet. Single packets are requested instead."
    )
    skipped_sqns: int = _count(
        "sqns",
        "Sqns that were detected as missing and then found to lie after the end of a short group. No packet had these sqns.",
    )
    short_groups_denied: int = _count("groups", "Groups that were announced as short and then proved longer.")
    # SPMs
    spm_packets: int = _count("packets", "SPMs sent or forwarded, counted per segment.")
    spm_packets_in: int = _count("packets", "SPMs accepted.")
    spm_packets_stale: int = _count("packets", "SPMs dropped because their SPM_SQN was not newer (RCV-20).")
    spm_sqns_followed: int = _count(
        "times",
        "Times that SPMs with an older SPM_SQN continued until the node accepted them again. The newest SPM_SQN was forged, or damaged in transit.",
    )
    spmr_packets: int = _count("packets", "SPMRs sent.")
    spmrs_suppressed: int = _count("events", "SPMRs not sent because another receiver's SPMR came first.")
    spmr_packets_in: int = _count("packets", "SPMRs received.")
    spmr_packets_braked: int = _count("packets", "SPMRs not answered because of the limit.")
    # polls, redirects and excessive NAKs
    poll_packets: int = _count("packets", "POLLs sent.")
    poll_packets_in: int = _count("packets", "POLLs received from parents.")
    polr_packets: int = _count("packets", "POLRs sent.")
    polr_packets_in: int = _count("packets", "POLRs that answer a poll in progress.")
    polr_packets_foreign: int = _count("packets", "POLRs that answer no poll.")
    polls_aborted: int = _count("events", "Polls cancelled because too many children answered.")
    redirects_sent: int = _count("packets", "POLRs by which a repairer offered itself to its segment.")
    redirects_taken: int = _count("events", "Repairers learnt from OPT_REDIRECT.")
    redirects_ignored: int = _count(
        "packets", "Offers ignored because redirects are not honoured, or not from that address."
    )
    redirects_dropped: int = _count(
        "events", "Repairers learnt from OPT_REDIRECT that did not answer and receive no more NAKs."
    )
    excess_nak_packets: int = _count("packets", "NAKs dropped above the small limit of a child with excessive NAKs.")
    excess_nak_children: int = _count("children", "Times that a child was found to send excessive NAKs.")
    children_unreachable: int = _count(
        "events", "Times that multicast to a segment below was considered failed because of duplicate NAKs."
    )
    neighbour_unreachable: int = _count(
        "packets", "NCFs and SPMs in which the parent reports that its multicast fails (OPT_NBR_UNREACH)."
    )
    strangers_unreachable: int = _count(
        "packets",
        "NCFs and SPMs with OPT_NBR_UNREACH from a node that is not the parent. The receiver of these packets ignores them.",
    )
    path_mismatches: int = _count("packets", "SPMs whose path is none of the topology's parents.")
    # the archive
    recorded_rows: int = _count("rows", "Messages and losses written to the archive.")
    recorder_lost: int = _count("sqns", "Sqns delivered and recorded as lost, because the disk was full or too slow.")
    recorder_deaths: int = _count("events", "Times that the process which writes the archive died.")
    # the cache file
    cache_packets_restored: int = _count(
        "packets", "Packets that an earlier process of the node had cached, taken over from the cache file."
    )
    cache_packets_discarded: int = _count(
        "packets", "Packets of the cache file that were not taken over, because they belong to another session."
    )
    cache_packets_unsaved: int = _count(
        "packets", "Cached packets that found no room in the cache file. They are requested again after a restart."
    )
    cache_records_refused: int = _count(
        "records", "Records of the cache file with a wrong checksum, or with impossible values."
    )
    # acknowledged streams
    ack_packets: int = _count("packets", "Acks sent to a parent.")
    ack_packets_in: int = _count("packets", "Acks received from children.")
    ack_confirmations: int = _count("packets", "Confirmations of children's acks, to one child or to all of a segment.")
    acks_refused: int = _count(
        "packets", "Acks refused from children above max_children, or from a child that has not caught up."
    )
    acks_unlisted: int = _count("packets", "Acks refused from addresses that the topology does not name.")
    ack_parent_changes: int = _count("events", "Changes of the parent that receives the acks.")
    ack_terms_changes: int = _count("events", "Times that SPMs changed or ended their request for acks.")
    members_joined: int = _count("events", "Children whose acks began to count.")
    members_left: int = _count("events", "Children that announced their departure.")
    members_expired: int = _count("events", "Children forgotten after a silence of ack_expiry.")
    members_stuck: int = _count(
        "events",
        "Members excluded from the window: receivers that took nothing for ack_stall_ivl, and elements whose acks stood still for ack_element_ivl.",
    )
    members_slow: int = _count(
        "events",
        "Members excluded from the window: they held up the source and acknowledged less than ack_least_share allows.",
    )
    window_blockings: int = _count("events", "Times that the window of an acknowledged stream was full.")
    window_blocked_us: int = _count("microseconds", "Total time that the window of an acknowledged stream was full.")
    window_blocked_most_us: int = _count(
        "microseconds at most", "Longest single time that the window of an acknowledged stream was full."
    )
    # congestion control
    cc_reports: int = _count("packets", "Acks and congestion reports sent or forwarded.")
    cc_reports_in: int = _count("packets", "Congestion reports that reached the source on acks and NAKs.")
    cc_reports_refused: int = _count(
        "packets",
        "Congestion reports from an address that no receiver can have, or from a distrusted acker.",
    )
    cc_losses: int = _count("packets", "Packets that the acker's acks show as lost.")
    cc_timeouts: int = _count("events", "Times that acks were overdue and the window restarted from its initial size.")
    acker_changes: int = _count("events", "Elections of another acker, or of none.")
    ackers_distrusted: int = _count(
        "events", "Ackers dropped because they never acknowledged, or because their reports and acks disagreed."
    )
    # sessions and bounds
    sessions_opened: int = _count("events", "Sessions opened.")
    sessions_refused: int = _count(
        "packets", "Packets of new sessions refused, because max_sessions sessions in use had proved themselves."
    )
    sessions_evicted: int = _count("events", "Sessions evicted by a new one above max_sessions.")
    sessions_expired: int = _count("events", "Sessions dropped after session_expiry.")
    ends_refuted: int = _count("events", "Ends of sessions, claimed by an FIN or RST, that other packets contradicted.")
    jumps_rejected: int = _count(
        "packets", "Packets dropped because their sqns, or their lead, lie implausibly far ahead."
    )
    jumps_followed: int = _count("events", "Implausible jumps that were proved and followed.")
    jumps_refuted: int = _count("events", "Claims of a lead far ahead that an SPM of the source contradicted.")
    states_refused: int = _count("events", "Repair states refused above repair_states.")
    takeovers: int = _count("events", "Times that this relay became active in place of another.")
    other_speakers: int = _count("packets", "SPMs received from another relay on a segment where this relay is active.")
    opx_discarded: int = _count(
        "packets", "Packets dropped because OPX of an unknown option requires elements to drop them."
    )
    forged_spm_packets: int = _count(
        "packets", "SPMs of signed streams without a valid signature, or signed longer than signature_age ago. Dropped."
    )
    unverified_spm_packets: int = _count(
        "packets", "SPMs of signed streams dropped because their sender had used its budget (spm_verify_rte)."
    )
    uncoded_packets: int = _count(
        "packets",
        "Control packets of authenticated streams that were dropped, because they had no valid code of their sender.",
    )
    unaddressed_requests: int = _count(
        "packets", "Own requests of authenticated streams that were not sent: the file has no keys of the node asked."
    )
    forged_packets: int = _count(
        "packets",
        "Data packets of signed streams in blocks that do not fit their proof, and packets refused for it. Dropped.",
    )
    forged_sqns: int = _count(
        "sqns",
        'Sqns of streams with verify = "after" that were delivered, and reported as forged or unproved after that.',
    )
    forged_key_records: int = _count(
        "packets",
        "Key records of sealed streams that their source has not signed for the session. Dropped, and requested again.",
    )
    unchecked_proofs: int = _count(
        "packets",
        "Proofs and key records dropped without a check, because wrong signatures had used the budget (false_proof_rte).",
    )
    unopened_key_records: int = _count(
        "packets",
        "Valid key records for this receiver that its private keys do not open. The receiver gets no secret by them.",
    )
    detail_requests: int = _count(
        "requests", "Requests for details of 32 packets of signed streams: sent by a receiver, answered by a source."
    )
    detail_requests_braked: int = _count(
        "requests",
        "Requests for details beyond details_rte or the budget of their sender, or soon after an answer. Not answered.",
    )
    unproved_packets: int = _count(
        "packets", "Data packets of signed streams dropped because no signed SPM of their session had come."
    )
    unlisted_packets: int = _count(
        "packets", "Data packets and SPMs from addresses that are not among a stream's sources."
    )
    kernel_refused_packets: int = _count(
        "packets",
        "Packets of unlisted senders that the kernel dropped before the process read them (kernel_refusal_after).",
    )
    foreign_packets: int = _count("packets", "Packets for another port, stream or role.")
    # changes by an operator
    settings_changed: int = _count(
        "events", "Settings changed, and children released, by `pgm ctl` while the node ran."
    )
    control_refused: int = _count("events", "Requests on the control socket that were refused.")
    # driver
    trains_in: int = _count("reads", "Reads that returned packets.")
    packets_in: int = _count("packets", "Packets in the reads of trains_in, without the node's own echoes.")
    injected_losses: int = _count("packets", "Packets dropped by the loss injector.")
    sends_dropped: int = _count(
        "packets", "Control packets that the kernel did not take. The packets' timers repeat them."
    )
    send_errors: int = _count("packets", "Packets that the kernel refused with an error.")
    truncated_reads: int = _count("reads", "Reads that the buffer truncated.")
    socket_drops: int = _count("packets", "Packets that the kernel dropped because a receive buffer was full.")

    rejects: collections.Counter[str] = attrs.field(factory=collections.Counter)  # by reason, see pgm.wire.rejects
    subjects: dict[int, SubjectCounts] = attrs.field(factory=dict)  # by data port, of streams with batches
    # Receives single losses, which counters only number.
    watch: LossObserver = attrs.field(default=NO_OBSERVER, repr=False, eq=False)

    @classmethod
    def total(cls, parts: Iterable[Counters]) -> Counters:
        """Return the sums over the endpoints of one node."""
        total = cls()
        for part in parts:
            total.rejects.update(part.rejects)
            for row in ROWS:
                setattr(total, row.name, getattr(total, row.name) + getattr(part, row.name))
        return total

    def snapshot(self) -> dict[str, int | dict[str, int]]:
        """Return all rows that are not 0, also under former names, and the rejects by reason."""
        values: dict[str, int | dict[str, int]] = {
            row.name: getattr(self, row.name) for row in ROWS if getattr(self, row.name)
        }
        if self.rejects:
            values["rejects"] = dict(self.rejects)
        return with_former_names(values, COUNTERS)


ROWS = [field for field in attrs.fields(Counters) if "doc" in field.metadata]
