"""Table of the events of a session: a stable id, its meaning, and its remedy.

The events are `Opened`, `Closed`, `Lost`, `Conflict`, `Forged`, `NoSnapshot` and `Notice`. `kind_of` returns the row of an event. The command line logs and
counts events by these ids, and docs/reference/events.md is printed from this table.
"""

from __future__ import annotations

import attrs

from pgm.core.effects import (
    Closed,
    Conflict,
    Deliver,
    Evidence,
    Forged,
    Lost,
    NoSnapshot,
    Notice,
    Opened,
    Save,
    Snapshot,
    SnapshotWanted,
)
from pgm.wire.formats import tsi_text

Happening = Opened | Closed | Lost | Conflict | Forged | NoSnapshot | Notice
ForApplication = Deliver | Evidence | Save | Snapshot | SnapshotWanted | Happening


@attrs.frozen
class EventKind:
    """One row. `id` is stable and fit for scripts. `remedy` is empty if no action is needed."""

    id: str
    meaning: str
    remedy: str = ""


_ROWS = (
    EventKind("opened", "A source is up and its session begins."),
    EventKind("resumed", "A silent source is up again. The session of the source continues from the same point."),
    EventKind("source-restarted", "A source began a new session in place of an earlier session, which will not continue.", "Nothing if the restart was intended. Otherwise find out why the source's process ended."),
    EventKind("session-start", "The receiver gets the session from its first packet on."),
    EventKind("closed-fin", "A source is down: it closed its session after its last message."),
    EventKind("closed-reset", "A source is down: it failed and announced its failure.", "Look at the source's log."),
    EventKind("closed-unproven", "A session has ended by a FIN or RST that announced packets of which none came. It may be false.", "Check that the source has closed, and that its last packets reach this node. Look for a sender of false packets."),
    EventKind("closed-silent", "A source counts as down: nothing arrived from it for peer_expiry. The source may come back.", "Check with pgm status that the source runs, and which nodes of the tree receive its packets."),
    EventKind("closed-expired", "A source was silent for session_expiry. The missing packets of the source are lost.", "Start the source, or raise session_expiry for longer outages."),
    EventKind("closed-evicted", "More sources than max_sessions were active. A newcomer, or a session that had been silent for peer_expiry, was evicted.", "Raise max_sessions, or subscribe to fewer streams."),
    EventKind("closed-excess_naks", "This receiver sent excessive NAKs and closed the session, as excess_nak_policy requires.", "Find the cause of the losses at this receiver: cable, switch, socket buffer or processor."),
    EventKind("closed-overrun", 'The application could not keep up, and its receiver was opened with slow="close".', "Take messages faster, subscribe to fewer messages, or raise inbox_bytes."),
    EventKind("closed-no_secret", "The source of a sealed stream has sent no secret for this receiver in secret_wait, so it cannot decrypt the stream.", "Give the receiver keys, add it to the readers of the stream, and give the source the same topology file. A revoked receiver gets no secret."),
    EventKind("lost-retries", "Packets are lost: all retries ended without a repair.", "Check that a parent runs and receives this node's NAKs. Raise nak_data_retries or repair_budget."),
    EventKind("lost-unrepaired", "Packets are lost: the stream is unreliable, so no receiver requests repairs."),
    EventKind("lost-window", "Packets are lost: the source dropped them from its window before a repair came.", "Raise the stream's window, or put a repairer on the segment."),
    EventKind("lost-overrun", "Packets are lost: the application could not keep up with the rate.", "Take messages faster, subscribe to fewer messages, or raise inbox_bytes and rxw_bytes."),
    EventKind("lost-overload", "Packets are lost: the gaps or octets that waited for repairs exceeded the receive window.", "Raise rxw_bytes or rxw_gaps, or mend the line."),
    EventKind("lost-fragment", "Packets arrived, but another packet of their message is lost.", "Look at the event of that lost packet."),
    EventKind("lost-malformed", "Packets arrived that do not have the stream's framing.", "Give the source and its receivers the same framing."),
    EventKind("lost-source_gone", "Packets are lost: their source is gone.", "Put a repairer nearby. A repairer keeps packets that the source no longer has."),
    EventKind("jump-unproved", "A packet claims a place of its stream that is implausibly far ahead. The packet is dropped until others prove the claim. One event reports an episode.", "Nothing after an outage. Otherwise look for a sender of false packets, and name the source's address in sources."),
    EventKind("lost-jump", "Packets are lost: the stream jumped far ahead.", "Check whether the source restarted under the same TSI. Raise rxw_sqns for long outages."),
    EventKind("lost-resync", 'Packets were skipped: an earlier packet was lost, and the receiver was opened with on_loss="resync".'),
    EventKind("lost-excess_naks", "Packets are lost: this receiver closed the session because of its own excessive NAKs.", "See closed-excess_naks."),
    EventKind("lost-skipped", "Packets are lost: they were skipped because their group was announced as short, and the group then proved longer.", "Find the sender that forges packets in the source's name."),
    EventKind("conflict", "Two different copies of a packet came. One of them is false, and no node can know which without keys.", "Find the sender of false packets on this segment, or the element whose memory alters packets. List the sources of the stream (sources)."),
    EventKind("unlisted-sender", "A sender that is no source of the stream sent data or SPMs, which were dropped. The event comes again at ten times as many.", "Add the sender to the stream's sources if it is one, or find out why it sends. `sources = [\"any\"]` permits all senders."),
    EventKind("delivered-forged", "Packets were delivered, and the source has sent other ones. The stream has verify = \"after\".", "Undo what the application did with these messages. Find the sender of false packets; see forged-packets."),
    EventKind("delivered-unproved", "Packets were delivered, and no proof of the source came for them. The stream has verify = \"after\".", "See lost-unproved."),
    EventKind("lost-conflict", "Packets are lost: their copies differed again and again.", "See conflict."),
    EventKind("lost-unproved", "Packets of a signed stream arrived, but their proof, or another packet of their block, is lost.", "Look at the event of the lost packet. Give the source room in its window, or put a repairer on the segment."),
    EventKind("lost-forged", "Packets of a signed stream came again and again with other octets than the source has sent.", "Find the node that alters packets: forged-packets events name it. Revoke and replace it."),
    EventKind("forged-packets", "Packets of a signed stream were not those of the source. They are dropped and requested from another parent.", "Look at the node that the event names."),
    EventKind("lost-sealed", "Packets of a sealed stream arrived, and this receiver has no secret to decrypt them.", "See closed-no_secret."),
    EventKind("unopened-secret", "A key record for this receiver does not open by its private keys.", "Look for a damaged private file, or for other keys under the same name: pgm keys check FILE --node NAME."),
    EventKind("uncoded-packet", "A control packet of an authenticated stream had no valid code of its sender, and was dropped. One event names a peer.", "Look at the sender. If it is a node of the tree: compare topology files, clocks (signature_age) and keys (pgm keys check)."),
    EventKind("lost-recorder", "Packets are not in the archive: the disk was full or too slow, or no recorder ran.", "Give the archive a faster disk or more room (record_queue_bytes, record_bytes)."),
    EventKind("too-slow", "This receiver does not keep up: it loses packets for good, and the kernel drops packets of its own socket.", "Give the process more processor time, raise so_rcvbuf for short stops, or lower the source's rate."),
    EventKind("excess-naks", "This receiver sends excessive NAKs.", "Find the cause of the losses at this receiver. Until then excess_nak_policy determines its reaction."),
    EventKind("excess-naks-over", "The NAKs of this receiver are no longer excessive."),
    EventKind("child-excess-naks", "A child sends excessive NAKs and has a small budget from now on.", "Look at that child: cable, switch, socket buffer or processor."),
    EventKind("child-excess-naks-over", "The NAKs of that child are no longer excessive, or `pgm ctl` released the child."),
    EventKind("parent-changed", "Another parent now receives the NAKs: the previous parent gave no answer, or a better parent is back. One event may report many changes.", "Check that the previous parent runs."),
    EventKind("storm-brake", "More NAKs arrived than their budget allows. The excess is dropped and will be repeated.", "Find the senders with pgm status. Put a repairer or aggregator in between, or raise child_nak_rte."),
    EventKind("late-join", "A late joiner learnt the first packet of the history that it can get, or that no node keeps the history.", "Put a repairer on the segment or above it, or raise its cache_secs and cache_bytes."),
    EventKind("no-snapshot-not_offered", "A session begins without a snapshot: the application of its source offers none.", 'Open the source with snapshot=, or this receiver with another start, such as start="oldest".'),
    EventKind("no-snapshot-silent", "A session begins without a snapshot: no packet of one came for snapshot_wait_ivl, or the session ended before.", "Check that the source runs and calls send or flush now and then, and that all relays pass requests on. Or raise snapshot_wait_ivl."),
    EventKind("no-snapshot-lost", "A session begins without a snapshot: packets of several states in a row were lost.", "Look at the losses of this receiver, or raise the join_share, rate or window of the source, so that a state can be repaired in time."),
    EventKind("no-snapshot-too_large", "A session begins without a snapshot: the state of its source exceeds snapshot_bytes.", "Raise snapshot_bytes at the source and at its joiners, or make the state smaller."),
    EventKind("snapshot-too-large", "The application of a source gave a state above snapshot_bytes. Joiners get none.", "Raise snapshot_bytes at the source and at its joiners, or make the state smaller."),
    EventKind("relay-speaking", "This relay forwards the session downstream from now on.", "If the relay replaces another relay, find out why that relay is silent."),
    EventKind("relay-silent", "This relay leaves the session to its partner."),
    EventKind("slower", "The source slows down: requests for repairs exceed txw_yield_share or come late, or its full window had to wait.", "Put repairers near the receivers, or lower the source's rate."),
    EventKind("as-before", "The source sends at its full rate again."),
    EventKind("member-silent", "A member of an acknowledged stream was silent for ack_expiry. The member's parent no longer waits for it.", "Check that the member's node runs."),
    EventKind("member-stuck", "A member of an acknowledged stream takes nothing. The member's parent no longer waits for it.", "Look at the member's application."),
    EventKind("acker-distrusted", "The acker of a stream with congestion control never acknowledged, or its acks contradict its reports. Another acker is elected.", "Look at that node, and look for a sender that forges reports in its name."),
    EventKind("tape", "The inputs of this node are kept on a tape, in the folder that the event names."),
    EventKind("tape-ended", "A tape can take no more: the disk is full, or tape_bytes is too small for the state of the node. The node goes on.", "Free disk space, or raise tape_bytes, and restart the node for a new tape."),
    EventKind("archive-slow", "The disk is slower than the stream. The excess packets are in the archive as lost.", "Give the archive a faster disk. Raise record_queue_bytes if the disk is slow only for moments."),
    EventKind("archive-full", "The disk accepts no data. Packets are recorded as lost until the disk accepts data again.", "Free disk space, or lower record_bytes or record_secs."),
    EventKind("archive-resumed", "The disk accepts data again and recording continues."),
    EventKind("archive-torn", "The write in progress when recording ended was cut off.", "Nothing: the archive never reported these rows as recorded."),
    EventKind("archive-corrupt", "Synced rows of the archive can no longer be read.", "Check the disk, and restore the file from a copy."),
    EventKind("archive-service-died", "The process that serves the archive of a node ended, and is started again.", "Look at the messages on standard error; the address of serve must be one of this machine."),
    EventKind("recorder-died", "The process that writes the archive died and is restarted. The unwritten rows of the process are recorded as lost.", "Find the cause: a kernel short of memory (journalctl -k), or the messages on standard error."),
    EventKind("recorder-failed", "The process that writes the archive died too often. Recording has ended; repairs continue.", "Mend the cause in the last messages of that process, and restart the node."),
    EventKind("cache-restored", "A repairer took over what its earlier process had cached of a session, and requests what was sent meanwhile."),
    EventKind("cache-file-full", "The folder of the cache file has no room. Packets beyond the file are cached, and lost when the repairer restarts.", "Give the folder more room, or name another one with cache = { directory = \"...\" }."),
    EventKind("member-slow", "A member of an acknowledged stream held up its source and took less than ack_least_share. The member's parent no longer waits for it.", "Look at the member's application. Lower ack_least_share if a member may be this slow."),
    EventKind("member-unlisted", "An address that the topology does not name sends acks for an acknowledged stream. Its acks are refused.", "Add the node to the topology file, or find the sender."),
    EventKind("element-stuck", "An element's acks of an acknowledged stream stand still. The element's parent no longer waits for it.", "Look at that element and its children (pgm status), and look for a sender that forges acks in its name."),
    EventKind("setting-changed", "`pgm ctl`, or a reload of the topology file, changed a setting of this node while the node ran."),
    EventKind("interface-down", "An interface of the node went down, or lost its carrier: nothing is sent or received there.", "Look at the interface with ip link: cable, switch port and driver; ip link set NAME up starts it."),
    EventKind("interface-up", "An interface of the node is up again."),
    EventKind("address-gone", "An interface lost the address of the node: the kernel refuses the packets of the node.", "Give the address back: ip address add ADDRESS/PREFIX dev NAME. Find out who removed it: DHCP, NetworkManager or networkd."),
    EventKind("address-back", "An interface has the address of the node again."),
    EventKind("outage-cost", "The repairs after an outage of an interface or address are over."),
    EventKind("sends-fail", "The kernel refuses packets of the node, which are counted in send_errors.", "Look at the interface and its addresses with ip address: the interface must be up and have the node's address and a route to the group."),
    EventKind("sends-resume", "The kernel takes the packets of the node again."),
    EventKind("files-differ", "The source of a session runs with another topology file than this node.", "Compare both files with pgm status --fleet, copy the right one to both hosts, and restart or reload the node with the old one."),
    EventKind("unheard", "The node runs and has heard no source for peer_expiry.", "Check that the source runs, and that group, port and data_port are the same in the files of both hosts: pgm plan FILE --node NODE tells them."),
    EventKind("reloaded", "The node has read its topology file again, on SIGHUP or by pgm apply."),
    EventKind("reload-restart", "The topology file differs from the running node in something that is read at the start alone.", "Restart the node."),
    EventKind("reload-failed", "The node could not take over its topology file on SIGHUP, and runs on as before.", "Correct the file by pgm check, and send SIGHUP again."),
    EventKind("session-evicted", "An element had more sources than max_sessions. A newcomer, or a session that had been silent for peer_expiry, was evicted.", "Raise max_sessions."),
    EventKind("session-expired", "An element dropped the session of a source. The source was silent and no node requested repairs for session_expiry."),
)  # fmt: skip

EVENTS: dict[str, EventKind] = {row.id: row for row in _ROWS}


def id_of(event: Happening) -> str:
    """Return the stable id of an event."""
    if isinstance(event, Notice):
        return event.code
    if isinstance(event, Opened):
        return "resumed" if event.resumed else "opened"
    if isinstance(event, Conflict):
        return "conflict"
    if isinstance(event, Forged):
        return f"delivered-{event.cause.value}"
    if isinstance(event, NoSnapshot):
        return f"no-snapshot-{event.cause.value}"
    return f"{'closed' if isinstance(event, Closed) else 'lost'}-{event.cause.value}"


def text_of(event: Happening) -> str:
    """Return the details of an event in words."""
    if isinstance(event, Notice):
        return event.text
    session = f"session {tsi_text(event.tsi)}"
    if isinstance(event, Opened):
        return f"{session} of {event.source} from {event.peer} at sqn {event.first}"
    if isinstance(event, NoSnapshot):
        return f"{session} begins at sqn {event.first} without a snapshot: {event.cause.value}"
    if isinstance(event, Closed):
        return f"{session} at sqn {event.next_sqn}: {event.cause.value}"
    sqns = f"{session} sqns {event.first} to {event.first + event.count - 1}"
    if isinstance(event, Conflict):
        return (
            f"{sqns}: two copies differ, {'and one was delivered' if event.is_delivered else 'and none was delivered'}"
        )
    return f"{sqns}: {'delivered, and ' if isinstance(event, Forged) else ''}{event.cause.value}"


def kind_of(event: Happening) -> EventKind:
    """Return the row of an event, or a row without meaning for a notice that the table lacks."""
    event_id = id_of(event)
    return EVENTS.get(event_id) or EventKind(event_id, "")
