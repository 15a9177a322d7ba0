"""Address of several processes: here several members in one process, or a process of another user."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest

from pgm.errors import TransportError
from pgm.net.endpoint.open import resolve
from pgm.net.sockets import shared_address
from pgm.net.sockets.open import SegmentSockets, open_sockets
from pgm.net.sockets.shared_address import Concerns, SharedAddress, open_shared, sender_head
from pgm.topology.node_plan import Role
from pgm.wire.formats import HEADER, PacketType
from tests.net.support.lab import ROOT
from tests.net.support.places import Place

PATIENCE_S = 10
NOBODY = 65_534
GSI = b"\1\2\3\4\5\6"
ROOM = 2000

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def tsi(source_port: int) -> bytes:
    return GSI + source_port.to_bytes(2, "big")


def packet(kind: PacketType, source_port: int, data_port: int) -> bytes:
    is_request = kind is PacketType.NAK
    ports = (data_port, source_port) if is_request else (source_port, data_port)
    return HEADER.pack(*ports, kind, 0, 0, GSI, 0) + bytes(8)


def bind_udp(address: str, port: int) -> socket.socket:
    own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        own.bind((address, port))
    except OSError:
        own.close()
        raise
    own.setblocking(False)
    return own


class Members:
    """Members of one address in this process, in the order of opening."""

    def __init__(self, place: Place) -> None:
        self.address, self.port = place.address(1), place.port
        self.all: list[SharedAddress] = []

    def join(self, concerns: Concerns) -> SharedAddress:
        shared = open_shared(f"{self.address}/{self.port}", lambda: bind_udp(self.address, self.port))
        shared.own.setblocking(False)
        self.all.append(shared)
        shared.concern(concerns)
        self.all[0].serve()
        return shared

    def leave(self, member: SharedAddress) -> None:
        self.all.remove(member)
        member.close()
        member.own.close()

    def close(self) -> None:
        while self.all:
            self.leave(self.all[-1])


@pytest.fixture
def members(place: Place) -> Iterator[Members]:
    with closing(Members(place)) as made:
        yield made


def read(member: SharedAddress) -> tuple[bytes, tuple[str, int]]:
    """Read a packet that must come."""
    buffer = bytearray(ROOM)
    poll = select.poll()
    poll.register(member, select.POLLIN)
    while True:
        assert poll.poll(PATIENCE_S * 1000), "no packet came"
        try:
            count, _, _, name = member.recvmsg_into((buffer,))
        except BlockingIOError:
            continue
        return bytes(buffer[:count]), name


def has_nothing(member: SharedAddress) -> bool:
    try:
        member.recvmsg_into((bytearray(ROOM),))
    except BlockingIOError:
        return True
    return False


def forwarded(owner: SharedAddress, octets: bytes) -> tuple[bool, int]:
    return owner.forward(memoryview(octets), sender_head("127.0.0.9"))


def test_shared_address_gives_requests_to_the_process_of_the_source(members: Members):
    owner, one, other = (members.join(Concerns(frozenset({tsi(port)}))) for port in (1, 2, 3))
    assert [member.was_first for member in (owner, one, other)] == [True, False, False]
    assert forwarded(owner, packet(PacketType.NAK, 1, 7500)) == (True, 0)
    for port, member in ((2, one), (3, other)):
        nak = packet(PacketType.NAK, port, 7500)
        assert forwarded(owner, nak) == (False, 0)
        assert read(member) == (nak, ("127.0.0.9", 0))
    assert forwarded(owner, packet(PacketType.NAK, 4, 7500)) == (True, 0)  # unknown: the owner counts it
    assert forwarded(owner, b"short") == (True, 0)
    assert has_nothing(one)
    assert has_nothing(other)


def test_shared_address_gives_data_to_all_that_hear_the_port(members: Members):
    owner = members.join(Concerns(ports=frozenset({7500})))
    narrow, wide = members.join(Concerns(ports=frozenset({7501}))), members.join(Concerns(hears_all=True))
    for port, is_own, hears in ((7500, True, False), (7501, False, True)):
        repair = packet(PacketType.RDATA, 1, port)
        assert forwarded(owner, repair) == (is_own, 0)
        assert read(wide)[0] == repair
        assert not hears or read(narrow)[0] == repair
    assert has_nothing(narrow)


def test_shared_address_follows_changes_of_a_member(members: Members):
    owner, member = members.join(Concerns()), members.join(Concerns())
    nak = packet(PacketType.NAK, 9, 7500)
    assert forwarded(owner, nak) == (True, 0)
    member.concern(Concerns(frozenset({tsi(9)})))
    owner.serve()
    assert forwarded(owner, nak) == (False, 0)
    assert owner.tsis_of_others == {tsi(9)}
    assert members.join(Concerns()).tsis_of_others == {tsi(9)}


def test_shared_address_drops_and_counts_when_a_queue_is_full(members: Members):
    owner, member = members.join(Concerns()), members.join(Concerns(frozenset({tsi(2)})))
    nak = packet(PacketType.NAK, 2, 7500)
    sent = 0
    while forwarded(owner, nak) == (False, 0):
        sent += 1
        assert sent < 100_000, "the queue has no bound"
    assert forwarded(owner, nak) == (False, 1)
    for _ in range(sent):
        read(member)
    assert has_nothing(member)
    assert forwarded(owner, nak) == (False, 0)


@pytest.mark.parametrize("waiting", [0, 3])
def test_shared_address_passes_to_a_member_with_all_that_waits(members: Members, waiting: int):
    owner, *others = (members.join(Concerns(frozenset({tsi(port)}))) for port in range(4))
    told: list[int] = []
    others[0].on_company = lambda: told.append(others[0].owner_pid)
    for _ in range(waiting):  # forwarded already, to each
        for port in (1, 2, 3):
            forwarded(owner, packet(PacketType.NAK, port, 7500))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
        for number in range(5):  # not read by the owner
            peer.sendto(packet(PacketType.NAK, number, 7500), (members.address, members.port))
        members.leave(owner)
        for member in others:
            for _ in range(waiting):
                assert read(member)[1] == ("127.0.0.9", 0)
            if member is not others[0]:
                assert has_nothing(member)  # which joins the new owner here
            else:
                assert read(member)[0] == packet(PacketType.NAK, 0, 7500)
    heir, *rest = others
    assert [read(heir)[0] for _ in range(4)] == [packet(PacketType.NAK, number, 7500) for number in range(1, 5)]
    assert heir.owner_pid == os.getpid()
    assert told[0] == os.getpid()
    assert heir.has_company
    for port, member in zip((2, 3), rest, strict=True):
        nak = packet(PacketType.NAK, port, 7500)
        assert forwarded(heir, nak) == (False, 0)
        assert read(member)[0] == nak


def test_shared_address_does_not_wait_for_an_owner_that_stands_still(members: Members, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(shared_address, "_PATIENCE_S", 0.05)
    members.join(Concerns())
    failures: list[OSError] = []

    def join() -> None:
        try:
            open_shared(f"{members.address}/{members.port}", lambda: pytest.fail("bound"))
        except OSError as error:
            failures.append(error)

    thread = threading.Thread(target=join)  # this thread serves nothing meanwhile
    thread.start()
    thread.join(PATIENCE_S)
    assert [str(failure) for failure in failures] == ["[Errno 98] Address already in use"]


def test_newcomer_waits_for_the_heir_of_an_owner_that_ended(members: Members):
    owner, heir = members.join(Concerns()), members.join(Concerns())
    tries: list[int] = []
    is_over = threading.Event()

    def bind() -> socket.socket:
        tries.append(1)
        return bind_udp(members.address, members.port)  # fails: the heir has the port, and has not claimed the name yet

    def read_heir() -> None:
        poll = select.poll()
        poll.register(heir, select.POLLIN)
        while not is_over.is_set():
            if tries and poll.poll(1):
                has_nothing(heir)

    members.leave(owner)
    thread = threading.Thread(target=read_heir)
    thread.start()
    try:
        newcomer = open_shared(f"{members.address}/{members.port}", bind)
    finally:
        is_over.set()
        thread.join(PATIENCE_S)
    with closing(newcomer), newcomer.own:
        assert tries
        assert not newcomer.was_first


def test_member_whose_news_the_owner_does_not_read_connects_again(members: Members):
    owner, member = members.join(Concerns()), members.join(Concerns())
    for port in range(10_000):  # until the owner's queue is full
        member.concern(Concerns(ports=frozenset({port + 1})))
    assert has_nothing(member)  # which connects again, and tells the newest
    owner.serve()
    owner.serve()
    assert forwarded(owner, packet(PacketType.ODATA, 1, 10_000)) == (False, 0)


def test_shared_address_parts_from_a_member_that_makes_no_sense(members: Members):
    owner = members.join(Concerns())
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as channel:
        channel.connect(f"\0pgm-udp/{os.geteuid()}/{members.address}/{members.port}")
        channel.send(b"?")
        owner.serve()
        assert not channel.recv(1)
    assert not owner.has_company


def opened(place: Place, stack: ExitStack, role: Role, *, may_share: bool = True) -> SegmentSockets:
    plan = resolve(place.url(address=place.address(1)), None, role, {})
    return stack.enter_context(closing(open_sockets(plan.segments[0], plan.parameters, may_share=may_share)))


@pytest.mark.parametrize("first", [True, False])
def test_sockets_of_an_element_share_with_nobody(place: Place, first: bool):
    with ExitStack() as stack:
        opened(place, stack, Role.SOURCE, may_share=first)
        with pytest.raises(TransportError, match="is in use by this process"):
            opened(place, stack, Role.SOURCE, may_share=not first)


def test_sockets_of_members_send_from_one_port(place: Place):
    with ExitStack() as stack:
        first, second, third = (opened(place, stack, role) for role in (Role.SOURCE, Role.SOURCE, Role.RECEIVER))
        assert first.inputs == (first.group, first.own, *first.shared)
        assert second.inputs == (second.group, *second.shared)
        assert third.to_group is None
        assert second.to_group is not None
        assert {one.getsockname() for one in (first.own, second.own, third.own, second.to_group)} == {
            (place.address(1), place.port)
        }
        assert second.own.getblocking() is False


def test_shared_address_of_a_forked_child_ends_with_its_parent(members: Members):
    owner, member = members.join(Concerns()), members.join(Concerns())
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        os.close(theirs)
        os.read(ours, 1)
        os._exit(0)
    try:
        members.leave(owner)
        poll = select.poll()
        poll.register(member, select.POLLIN)
        while member.has_company:  # until the child has closed its copies
            assert poll.poll(PATIENCE_S * 1000)
            assert has_nothing(member)
        assert member.owner_pid == os.getpid()
    finally:
        os.close(theirs)
        os.waitpid(child, 0)
        os.close(ours)


# Other users

STRANGER = """
import os, socket, sys
from pgm.errors import TransportError
from pgm.net.endpoint.open import resolve
from pgm.net.sockets.open import open_sockets
from pgm.topology.node_plan import Role
url, name = sys.argv[1], chr(0) + sys.argv[2]
plan = resolve(url, None, Role.SOURCE, {{}})
os.setgroups([])
os.setgid({user})
os.setuid({user})
{body}
"""

OPENS = """
try:
    open_sockets(plan.segments[0], plan.parameters, may_share=True)
except TransportError as error:
    print(error.message)
"""

ASKS = """
channel = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
channel.connect(name)
print("connected", flush=True)
try:
    channel.send(bytes([1, 0, 0, 0, 0, 0]))
    print(socket.recv_fds(channel, 1000, 1))
except ConnectionError as error:
    print("refused")
"""

REUSES = """
for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, option, 1)
        try:
            sock.bind((plan.segments[0].address, plan.segments[0].unicast_port))
            print("bound")
        except OSError as error:
            print(error.strerror)
"""

SQUATS = """
sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
sock.bind(name)
sock.listen()
print("holds", flush=True)
sys.stdin.read()
"""


def stranger(place: Place, body: str) -> subprocess.Popen[str]:
    """Start a process of another user."""
    script = STRANGER.format(user=NOBODY, body=body)
    name = f"pgm-udp/{os.geteuid()}/{place.address(1)}/{place.port}"
    command = [sys.executable, "-c", script, place.url(address=place.address(1)), name]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment
    )


def said_by(place: Place, body: str, meanwhile: Callable[[], None] = lambda: None) -> list[str]:
    with stranger(place, body) as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line.rstrip())
            meanwhile()
        return lines


@needs_root
def test_shared_address_is_refused_to_another_user(place: Place):
    with ExitStack() as stack:
        sockets = opened(place, stack, Role.SOURCE)
        [message] = said_by(place, OPENS)
        assert f"{place.address(1)} port {place.port} is in use by another process" in message
        assert said_by(place, REUSES) == ["Address already in use"] * 2
        [shared] = sockets.shared
        lines = said_by(place, ASKS, shared.serve)
        assert lines in (["connected", "refused"], ["connected", "(b'', [], 0, None)"])
        assert not shared.has_company


@needs_root
def test_shared_address_works_alone_if_another_user_has_the_name(place: Place):
    with stranger(place, SQUATS) as process, ExitStack() as stack:
        assert process.stdout is not None
        assert process.stdout.readline() == "holds\n"
        sockets = opened(place, stack, Role.SOURCE)
        [shared] = sockets.shared
        assert sockets.inputs == (sockets.group, sockets.own, shared)
        assert has_nothing(shared)
        assert process.stdin is not None
        process.stdin.close()
