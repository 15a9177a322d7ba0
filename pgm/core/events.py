"""What befalls a session, in one table: a stable id, what it means, what to do about it.

`Opened`, `Closed`, `Lost` and `Notice` are the events; `id_of` gives the row of each. The command line says and counts them
by these ids, and docs/reference/events.md is printed from here.
"""

from __future__ import annotations

import attrs

from pgm.core.effects import CloseCause, Closed, LossCause, Lost, Notice, Opened
from pgm.wire.formats import tsi_text

Happening = Opened | Closed | Lost | Notice


@attrs.frozen
class EventKind:
    """A row: `id` is stable and fit for scripts; `remedy` is empty where nothing need be done."""

    id: str
    meaning: str
    remedy: str = ""


_ROWS = (
    EventKind("opened", "A source is up: a session begins."),
    EventKind("resumed", "A source is up again that was silent; its session goes on where it stood."),
    EventKind("source-restarted", "A source began a new session in place of an earlier one, which will not go on.", "Nothing, if it was meant to; else look why its process ended."),
    EventKind("session-start", "The session is heard from its first packet on."),
    EventKind("closed-fin", "A source is down: it closed its session, and all of it was said."),
    EventKind("closed-reset", "A source is down: it failed and said so.", "Look at the source's log."),
    EventKind("closed-silent", "A source is down: nothing was heard of it for peer_expiry. It may come back.", "See whether the source runs, and who of the tree hears it: pgm status."),
    EventKind("closed-expired", "A source was silent for session_expiry; what was missing is lost.", "Start the source, or raise session_expiry for longer outages."),
    EventKind("closed-evicted", "There were more sources than max_sessions; the one silent for longest had to go.", "Raise max_sessions, or take fewer streams."),
    EventKind("closed-nagging", "This receiver asked for repairs all the time and closed the session, as its nagging_policy says.", "Find what loses packets here: cable, switch, socket buffer, processor."),
    EventKind("closed-overrun", 'The application could not keep up, and its receiver was opened with slow="close".', "Take messages faster, subscribe to fewer, or raise inbox_bytes."),
    EventKind("lost-retries", "Packets are lost: nobody answered often enough.", "See whether a parent runs and hears this node; raise nak_data_retries or repair_budget."),
    EventKind("lost-unrepaired", "Packets are lost: the stream is unreliable, so nobody asks for what is missing."),
    EventKind("lost-window", "Packets are lost: the source let go of them before a repair came.", "Raise the stream's window, or put a repairer on the segment."),
    EventKind("lost-overrun", "Packets are lost: the application could not keep up with the rate.", "Take messages faster, subscribe to fewer, or raise inbox_bytes and rxw_bytes."),
    EventKind("lost-overload", "Packets are lost: more gaps or octets waited for repairs than the receive window holds.", "Raise rxw_bytes or rxw_gaps, or mend the line."),
    EventKind("lost-fragment", "Packets came, but another one of their message is lost.", "See why that was lost."),
    EventKind("lost-malformed", "Packets came that are not in the stream's framing.", "Give source and receivers the same framing."),
    EventKind("lost-source_gone", "Packets are lost: their source is gone.", "Put a repairer near, which keeps what the source no longer has."),
    EventKind("lost-jump", "Packets are lost: the stream went on far ahead.", "Look whether the source was started anew under the same TSI; raise rxw_sqns for long outages."),
    EventKind("lost-resync", 'Packets were skipped: something before them was lost, and the receiver was opened with on_loss="resync".'),
    EventKind("lost-nagging", "Packets are lost: this receiver closed the session since it nagged.", "See closed-nagging."),
    EventKind("lost-skipped", "Packets were skipped since their group was said to end before them, and it did not: they are lost.", "Find who sends packets in the source's name."),
    EventKind("lost-recorder", "Packets are not in the archive: the disk was full or too slow, or nothing recorded then.", "Give the archive a faster disk or more room: record_queue_bytes, record_bytes."),
    EventKind("too-slow", "This receiver does not keep up: packets are lost to it for good, and the kernel drops packets of its own socket.", "Give its process more of a processor, raise so_rcvbuf for short stops, or send slower."),
    EventKind("nagging", "This receiver asks for repairs all the time.", "Find what loses packets here; nagging_policy says what it does meanwhile."),
    EventKind("nagging-over", "It asks no more than others."),
    EventKind("crying-child", "A child asks for repairs all the time, and has a small budget from now on.", "Look at that node: cable, switch, socket buffer, processor."),
    EventKind("crying-child-over", "That child asks no more than others, or was released by `pgm ctl`."),
    EventKind("parent-changed", "Another parent is asked for repairs, since the one before gave no answer, or a better one is back; many changes are told together.", "See whether the parent that was left runs."),
    EventKind("storm-brake", "More NAKs came than their budget allows; the rest is dropped, and comes again.", "Find who asks: pgm status; put a repairer or aggregator in between, or raise child_nak_rte."),
    EventKind("late-join", "A late joiner learnt from where on the stream can still be had, or that nobody keeps it.", "Put a repairer on the segment or above it, or raise its cache_secs and cache_bytes."),
    EventKind("relay-speaking", "This relay carries the session down from now on.", "Where it stands in for another, see why that is silent."),
    EventKind("relay-silent", "This relay leaves the session to its partner."),
    EventKind("slower", "The source slows down, since it is asked for more than txw_yield_share, or late, or since its full window had to wait.", "Put repairers near the receivers, or send slower."),
    EventKind("as-before", "The source sends at its full rate again."),
    EventKind("member-silent", "A member of an acknowledged stream was silent for ack_expiry and is waited for no longer.", "See whether that node runs."),
    EventKind("member-stuck", "A member of an acknowledged stream takes nothing, and is waited for no longer.", "See what its application does."),
    EventKind("acker-distrusted", "The acker of a stream with congestion control never acknowledged, or its acks show other losses or round trips than it says; another one is elected.", "Look at that node, and for somebody who sends reports in its name."),
    EventKind("archive-slow", "The disk took less than came: packets are in the archive as lost.", "Give the archive a faster disk, or raise record_queue_bytes if it is slow for moments only."),
    EventKind("archive-full", "The disk takes nothing: what comes is recorded as lost until it does again.", "Make room, or lower record_bytes or record_secs."),
    EventKind("archive-resumed", "The disk takes more; recording goes on."),
    EventKind("archive-torn", "What was being written when recording ended was cut off.", "Nothing: it was never told of as recorded."),
    EventKind("archive-corrupt", "Something that was synced cannot be read any more.", "Look at the disk; restore the file from a copy."),
    EventKind("recorder-died", "The process that writes the archive died and is begun anew; what it had not written is recorded as lost.", "See who killed it: the kernel where memory is short (journalctl -k), or what it said on standard error."),
    EventKind("recorder-failed", "The process that writes the archive died too often: recording has ended, repairs go on.", "Mend what its last words name, and start the node anew."),
    EventKind("element-stuck", "An element's acks of an acknowledged stream stand still, and those below it are waited for no longer.", "Look at that element and its children (pgm status), and for somebody who sends acks in its name."),
    EventKind("setting-changed", "Somebody changed a setting of this node while it ran, by `pgm ctl`."),
    EventKind("session-evicted", "An element had more sources than max_sessions; the one silent for longest had to go.", "Raise max_sessions."),
    EventKind("session-expired", "An element has forgotten a source that was silent, and that nobody asked for, for session_expiry."),
)  # fmt: skip

EVENTS: dict[str, EventKind] = {row.id: row for row in _ROWS}


def id_of(what: Happening) -> str:
    """The stable id of what befell a session."""
    if isinstance(what, Notice):
        return what.code
    if isinstance(what, Opened):
        return "resumed" if what.resumed else "opened"
    return f"{'closed' if isinstance(what, Closed) else 'lost'}-{what.cause.value}"


def text_of(item: Happening) -> str:
    """What befell, in words."""
    if isinstance(item, Notice):
        return item.text
    session = f"session {tsi_text(item.tsi)}"
    if isinstance(item, Opened):
        return f"{session} from {item.peer} at sqn {item.first}"
    if isinstance(item, Closed):
        return f"{session} at sqn {item.next_sqn}: {item.cause.value}"
    return f"{session} sqns {item.first} to {item.first + item.count - 1}: {item.cause.value}"


def kind_of(what: Happening) -> EventKind:
    """Its row; one without words for a notice that the table does not know."""
    found = id_of(what)
    return EVENTS.get(found) or EventKind(found, "")


CAUSES = {f"closed-{one.value}" for one in CloseCause} | {f"lost-{one.value}" for one in LossCause}
