"""Types of the parameters that openers take. Printed from `pgm/parameters.py` by `python -m deploy.reference --write`."""

from __future__ import annotations

from typing import Literal, TypedDict

Quantity = int | str  # nanoseconds, octets or octets a second; or with a unit, as in the topology file
Share = float | str  # a share of one; or with a percent sign


class CommonParameters(TypedDict, total=False):
    """Parameters of sources and of receivers."""

    txw_max_rte: Quantity
    max_subjects: int
    max_apdu: Quantity
    snapshot_bytes: Quantity
    signature_age: Quantity
    details_ivl: Quantity
    kernel_refusal_after: int
    nak_bo_ivl_min: Quantity
    nak_bo_ivl_max: Quantity
    excess_nak_window_ivl: Quantity
    excess_nak_check_ivl: Quantity
    excess_nak_min_sqns: int
    excess_nak_share: Share
    excess_nak_sqn_rte: int
    notice_ivl: Quantity
    file_ask_ivl: Quantity
    file_entries: int
    file_manifest_bytes: Quantity
    so_rcvbuf: Quantity
    so_sndbuf: Quantity
    multicast_hops: int
    dscp: int
    gro: bool
    rx_wake_ivl: Quantity
    tape_bytes: Quantity
    tape_secs: Quantity
    tapes_kept: int
    telemetry_rows: int
    telemetry_ivl: Quantity
    telemetry_sample_ivl: Quantity
    telemetry_queue: int
    telemetry_merge_ivl: Quantity
    telemetry_bytes: Quantity
    ready_ivl: Quantity
    watchdog_ivl: Quantity
    flight_bytes: Quantity
    flight_rte: int
    flight_sample_ivl: Quantity


class SourceParameters(CommonParameters, total=False):
    """Parameters of `open_source`."""

    txw_secs: Quantity
    txw_bytes: Quantity
    txw_sqns: int
    txw_adv_secs: Quantity
    txw_adv_ivl: Quantity
    txw_hold_share: Share
    txw_adv_mode: Literal["time", "data", "application"]
    txw_idle_ivl: Quantity
    txw_max_pps: int
    txw_min_rte: Quantity
    txw_yield_share: Share
    txw_yield_ivl: Quantity
    txw_burst_ivl: Quantity
    txw_slack_ivl: Quantity
    txw_peak_ratio: int
    txw_peak_ivl: Quantity
    txw_unsent_bytes: Quantity
    txw_unsent_secs: Quantity
    proof_ivl: Quantity
    key_record_ivl: Quantity
    flush_ivl: Quantity
    flush_rte: int
    batch_times: bool
    warm_bytes: Quantity
    max_tpdu: Quantity
    ack_window: int
    ack_every: int
    ack_ivl: Quantity
    ack_expiry: Quantity
    ack_stall_ivl: Quantity
    ack_least_share: Share
    ack_element_ivl: Quantity
    ack_child_members: int
    ack_full: Literal["wait", "go-on"]
    ack_quorum: int
    cc_hysteresis: Share
    cc_timeout_ivl: Quantity
    cc_bar_ivl: Quantity
    ambient_spm_ivl: Quantity
    ihb_min: Quantity
    ihb_max: Quantity
    join_ivl: Quantity
    mark_ends: bool
    fin_quiet_ivl: Quantity
    rdata_hold_ivl: Quantity
    rdata_ignore_ivl: Quantity
    unicast_repair_min_sqns: int
    rdata_share: Share
    ncf_ivl: Quantity
    join_share: Share
    snapshot_ivl: Quantity
    details_rte: int
    repair_states: int
    poll_ivl: Quantity
    poll_bo_ivl: Quantity
    poll_replies: int
    poll_max_replies: int
    poll_first_bits: int
    poll_history: int
    nak_bo_tuning: Literal["off", "duplicates", "polls"]
    nak_bo_ivl_default: Quantity
    nak_probe_num: int
    dup_nak_max: int
    fec_group: int
    fec_proactive: int
    fec_on_demand: bool
    fec_close_ivl: Quantity
    fec_serves_single: bool
    child_nak_rte: int
    child_proof_ivl: Quantity
    session_nak_rte: int
    session_ncf_rte: int
    brake_burst_ivl: Quantity
    max_children: int
    file_block_bytes: Quantity
    file_digest: Literal["crc32", "sha256"]
    file_rounds: int
    file_questions: int
    file_patience: Quantity
    file_receivers: int
    gso: bool
    private_options: bool


class ReceiverParameters(CommonParameters, total=False):
    """Parameters of `open_receiver`."""

    cc_bo_ivl: Quantity
    apdu_ivl: Quantity
    open_hold_ivl: Quantity
    spmr_bo_ivl: Quantity
    spmr_spm_ivl: Quantity
    nak_bo_ivl: Quantity
    nak_bo: Literal["uniform", "exponential"]
    nak_bo_group: int
    reorder_ivl: Quantity
    ab_hold_ivl: Quantity
    nak_rpt_ivl: Quantity
    nak_rdata_ivl: Quantity
    nak_rdata_min_ivl: Quantity
    nak_max_ivl: Quantity
    nak_ncf_retries: int
    nak_data_retries: int
    nak_max_outstanding: int
    nak_group_copy: bool
    parent_patience: int
    parent_retry_ivl: Quantity
    rxw_bytes: Quantity
    rxw_warm_bytes: Quantity
    rxw_warm_ivl: Quantity
    join_from: Literal["now", "oldest", "last", "sqn", "snapshot"]
    join_sqns: int
    join_secs: Quantity
    snapshot_ask_ivl: Quantity
    snapshot_wait_ivl: Quantity
    durable_sync_ivl: Quantity
    durable_hold_ivl: Quantity
    durable_archive_ivl: Quantity
    durable_gone_ivl: Quantity
    rxw_sqns: int
    rxw_gaps: int
    conflict_keep_bytes: Quantity
    ncf_lead_sqns: int
    jump_burst_sqns: int
    jump_rate_factor: int
    jump_confirmations: int
    jump_packets: int
    jump_ivl: Quantity
    jump_silence_ivl: Quantity
    spm_confirmations: int
    max_sessions: int
    session_confirmations: int
    peer_expiry: Quantity
    stall_ivl: Quantity
    end_confirm_ivl: Quantity
    forged_retries: int
    forged_allowed: int
    secret_wait: Quantity
    details_retries: int
    spm_verify_rte: int
    false_proof_rte: int
    session_expiry: Quantity
    inbox_bytes: Quantity
    honour_redirects: bool
    fec_hold_ivl: Quantity
    fec_retries: int
    fec_groups: int
    excess_nak_policy: Literal["go-on", "lower", "close"]
    record_bytes: Quantity
    record_secs: Quantity
    record_segment_bytes: Quantity
    record_segment_ivl: Quantity
    record_batch_bytes: Quantity
    record_batch_ivl: Quantity
    record_sync_bytes: Quantity
    record_sync_ivl: Quantity
    record_queue_bytes: Quantity
    record_retry_ivl: Quantity
    record_nice: int
    record_restarts: int
    record_lock_ivl: Quantity
    archive_streams: int
    archive_client_streams: int
    archive_request_bytes: Quantity
    archive_rte: Quantity
    archive_poll_ivl: Quantity
    archive_end_ivl: Quantity
    archive_stage_bytes: Quantity
    archive_stage_ivl: Quantity
    table_commit_bytes: Quantity
    table_file_bytes: Quantity
    table_keep_ivl: Quantity
    file_blocks: int
    rx_poll_ivl: Quantity
    rx_spin_ivl: Quantity
    rx_block_ivl: Quantity
    rx_bulk_ivl: Quantity
    rx_bulk_rte: Quantity
    rx_bulk_share: Share
