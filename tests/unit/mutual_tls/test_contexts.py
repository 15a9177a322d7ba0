"""Handshakes between nodes: the keys of the topology file decide, and names decide nothing."""

from __future__ import annotations

import ipaddress
import ssl
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pgm.errors import PeerRefused, UsageError
from pgm.mutual_tls.contexts import client_context, peer_of, server_context
from pgm.mutual_tls.members import current_peer
from pgm.mutual_tls.names import SHARED_NAME, name_of_keys
from pgm.mutual_tls.refusals import Refusals
from pgm.mutual_tls.tree_file import identity_of_files
from tests.unit.mutual_tls import parties
from tests.unit.mutual_tls.parties import END, FIRST, TODAY, Forest, certificate, forest, keys, plain_client, shake

DESK, OTHER = keys(3), keys(4)


@pytest.fixture
def tree(tmp_path: Path) -> Forest:
    return forest(tmp_path)


def own_name(number: int) -> x509.DNSName:
    return x509.DNSName(name_of_keys(keys(number).public.id))


def test_right_nodes_know_each_other(tree: Forest) -> None:
    server, client = shake(
        server_context(tree.identity("recorder"), ("desk-*",)), client_context(tree.identity("desk-1"), ("recorder",))
    )
    assert str(peer_of(server)) == f"desk-1 (keys {DESK.public.id})"
    assert str(peer_of(client)) == f"recorder (keys {keys(2).public.id})"
    assert server.version() == "TLSv1.3"
    assert current_peer() is None, "a thread keeps no peer for later tasks"


def test_client_refuses_other_nodes_than_the_wanted_one(tree: Forest) -> None:
    """Servers send their authority with their certificate, so lists of one process must not share a root."""
    server = server_context(tree.identity("desk-2"))
    identity = tree.identity("desk-1")
    shake(server, client_context(identity))
    with pytest.raises(ssl.SSLError, match="certificate verify failed"):
        shake(server, client_context(identity, ("recorder", "exchange")))


def test_node_that_is_not_permitted_is_named(tree: Forest) -> None:
    told: list[tuple[str, str]] = []
    refusals = Refusals(lambda code, text: told.append((code, text)))
    server = server_context(tree.identity("recorder"), ("exchange", "desk-2"), refusals)
    for _ in range(3):
        with pytest.raises(ssl.SSLError, match="PGM-PEER: desk-1"):
            shake(server, client_context(tree.identity("desk-1")))
    assert refusals.counts["not-permitted"] == 3
    message = f"desk-1 (keys {DESK.public.id}) is none of exchange, desk-2; permit it with --client desk-1"
    assert told == [("refused-peer", f"{message}, or use the keys of another node")]


def test_names_without_keys_are_refused_at_once(tree: Forest) -> None:
    for name in ("desk-3", "desk-", "nobody", "hall-*"):
        with pytest.raises(UsageError, match=f"{name.replace('*', '.')} is no node with keys of the tree forest"):
            server_context(tree.identity("recorder"), (name,))


def test_clients_without_certificate_need_permission(tree: Forest, tmp_path: Path) -> None:
    stranger = plain_client(None, tmp_path)
    refusals = Refusals()
    with pytest.raises(ssl.SSLError, match="peer did not return a certificate"):
        shake(server_context(tree.identity("recorder"), refusals=refusals), stranger)
    assert refusals.counts["handshake"] == 1
    server, _ = shake(server_context(tree.identity("recorder"), may_be_unnamed=True), stranger)
    assert peer_of(server) is None


def test_keys_of_no_node_are_refused(tree: Forest, tmp_path: Path) -> None:
    for may_be_unnamed in (False, True):
        server = server_context(tree.identity("recorder"), may_be_unnamed=may_be_unnamed)
        for own in (keys(9), tree_of_others(tmp_path)):
            client = plain_client(certificate(own, [x509.DNSName(name_of_keys(DESK.public.id))]), tmp_path)
            with pytest.raises(ssl.SSLError, match="unable to get local issuer certificate"):
                shake(server, client)


def tree_of_others(folder: Path) -> parties.PrivateKeys:
    """Return keys that are listed in the file of another tree."""
    (folder / "other").mkdir(exist_ok=True)
    other = forest(folder / "other")
    other.listed["desk-1"] = [keys(7)]
    other.write()
    return other.listed["desk-1"][0]


@pytest.mark.parametrize(
    "names",
    [
        [own_name(4)],
        [own_name(3), own_name(4)],
        [own_name(4), own_name(3)],
        [x509.UniformResourceIdentifier(name_of_keys(OTHER.public.id)), own_name(3)],
        [x509.UniformResourceIdentifier(f"pgm://{name_of_keys(OTHER.public.id)}"), own_name(3)],
        [x509.RFC822Name(f"x@{name_of_keys(OTHER.public.id)}"), own_name(3)],
        [x509.IPAddress(ipaddress.ip_address("127.0.9.11")), own_name(3)],
        [x509.IPAddress(ipaddress.ip_address("::1")), own_name(3)],
    ],
)
def test_names_of_others_end_the_handshake(tree: Forest, tmp_path: Path, names: list[x509.GeneralName]) -> None:
    with pytest.raises(ssl.SSLError):
        shake(server_context(tree.identity("recorder")), plain_client(certificate(DESK, names), tmp_path))


@pytest.mark.parametrize(
    ("names", "subject"),
    [
        ([x509.DNSName(SHARED_NAME)], None),
        ([x509.DNSName(SHARED_NAME), own_name(3)], None),
        ([], None),
        ([x509.DNSName(f"x.{name_of_keys(DESK.public.id)}")], None),
        ([x509.DNSName(name_of_keys(DESK.public.id).upper())], None),
        ([own_name(3)], OTHER.public.id),
        ([], name_of_keys(OTHER.public.id)),
    ],
)
def test_shared_and_odd_names_are_no_identity(
    tree: Forest, tmp_path: Path, names: list[x509.GeneralName], subject: str | None
) -> None:
    client = plain_client(certificate(DESK, names, subject=subject), tmp_path)
    with pytest.raises(ssl.SSLError):
        shake(server_context(tree.identity("recorder")), client)


OTHERS_NAME = name_of_keys(OTHER.public.id)
TEXTS = st.sampled_from([OTHERS_NAME, name_of_keys(DESK.public.id), SHARED_NAME, f"x.{OTHERS_NAME}", "none.invalid"])
NAMES = st.one_of(
    TEXTS.map(x509.DNSName),
    TEXTS.map(x509.UniformResourceIdentifier),
    TEXTS.map(lambda text: x509.UniformResourceIdentifier(f"pgm://{text}/{OTHERS_NAME}")),
    TEXTS.map(lambda text: x509.RFC822Name(f"{OTHER.public.id}@{text}")),
    TEXTS.map(lambda text: x509.DirectoryName(parties.common_name(text))),
    TEXTS.map(lambda text: x509.OtherName(x509.ObjectIdentifier("1.2.3"), bytes([12, len(text)]) + text.encode())),
)


@pytest.fixture(scope="module")
def chain_alone(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    """Return a context that verifies chains, without a check of names."""
    context = server_context(forest(tmp_path_factory.mktemp("tree")).identity("recorder")).newest()
    context.sslobject_class = ssl.SSLObject
    return context


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(names=st.lists(NAMES, max_size=3), subject=st.sampled_from([DESK.public.id, OTHER.public.id, OTHERS_NAME]))
def test_no_certificate_of_a_node_has_the_name_of_another(
    chain_alone: ssl.SSLContext, tmp_path: Path, names: list[x509.GeneralName], subject: str
) -> None:
    """gRPC gives an application the first name of any kind, or the subject. So none of them may be that of another node."""
    try:
        server, _ = shake(chain_alone, plain_client(certificate(DESK, names, subject=subject), tmp_path))
    except ssl.SSLError:
        return
    told = server.getpeercert()
    assert told is not None
    assert OTHERS_NAME not in [text for _, text in told.get("subjectAltName", ())]
    assert told["subject"] == ((("commonName", DESK.public.id),),)


def test_two_keys_of_a_node_are_valid_during_a_rotation(tree: Forest) -> None:
    tree.listed["desk-1"].append(keys(5))
    tree.listed["recorder"].append(keys(6))
    tree.write()
    for server_key in (0, 1):
        for client_key in (0, 1):
            server, client = shake(
                server_context(tree.identity("recorder", server_key)),
                client_context(tree.identity("desk-1", client_key), ("recorder",)),
            )
            assert [str(peer_of(server)), str(peer_of(client))] == [
                f"desk-1 (keys {tree.listed['desk-1'][client_key].public.id})",
                f"recorder (keys {tree.listed['recorder'][server_key].public.id})",
            ]


@pytest.mark.parametrize(
    ("first", "end", "says"),
    [
        (FIRST, TODAY, "certificate has expired"),
        (TODAY + timedelta(days=2), END, "certificate is not yet valid"),
    ],
)
def test_keys_count_within_their_days_alone(
    tree: Forest, tmp_path: Path, first: object, end: object, says: str
) -> None:
    tree.listed["desk-1"] = [keys(3, first, end)]  # type: ignore[arg-type]
    tree.write()
    client = plain_client(certificate(DESK, [own_name(3)]), tmp_path)
    with pytest.raises(ssl.SSLError, match=says):
        shake(server_context(tree.identity("recorder")), client)


@pytest.fixture
def looks_always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let identities look at their file for each connection."""
    monkeypatch.setattr("pgm.mutual_tls.identity._LOOK_S", 0.0)


@pytest.mark.usefixtures("looks_always")
def test_running_ends_follow_the_replaced_file(tree: Forest, tmp_path: Path) -> None:
    refusals = Refusals()
    identity = tree.identity("recorder")
    server = server_context(identity, refusals=refusals)
    desk = client_context(tree.identity("desk-1"))
    open_before, _ = shake(server, desk)
    peer = peer_of(open_before)
    assert peer is not None

    former, tree.listed["desk-1"] = tree.listed["desk-1"], [keys(5)]
    tree.write()
    with pytest.raises(PeerRefused, match="are not in the topology file of forest"):
        peer_of(open_before)
    with pytest.raises(ssl.SSLError, match="unable to get local issuer certificate"):
        shake(server, desk)
    newer, _ = shake(server, client_context(tree.identity("desk-1")))
    assert str(peer_of(newer)) == f"desk-1 (keys {keys(5).public.id})"

    tree.listed["desk-1"] = [*former, keys(5)]
    tree.revoked[keys(3).public.id] = "2026-12-01 desk-1: stolen"
    tree.write()
    with pytest.raises(PeerRefused, match="are revoked: 2026-12-01 desk-1: stolen"):
        peer_of(open_before)
    with pytest.raises(ssl.SSLError):
        shake(server, plain_client(certificate(DESK, [own_name(3)]), tmp_path))
    assert (refusals.counts["unknown"], refusals.counts["revoked"], refusals.counts["handshake"]) == (1, 1, 2)


@pytest.mark.usefixtures("looks_always")
def test_damaged_file_changes_nothing_and_is_told(tree: Forest) -> None:
    told: list[str] = []
    own = tree.private_file("recorder", keys(2))
    identity = identity_of_files(tree.file, own, lambda code, text: told.append(f"{code}: {text}"))
    server, desk = server_context(identity), client_context(tree.identity("desk-1"))
    good = tree.file.read_text()
    tree.file.write_text("version = 1\nname = ")
    shake(server, desk)
    assert len(told) == 1
    assert told[0].startswith(f"keys-unread: {tree.file} changed and cannot be read")
    tree.file.write_text(good.replace(keys(4).public.line, keys(5).public.line))
    with pytest.raises(PeerRefused, match="not in the topology file"):
        identity.ring().members.peer_of_untrusted(keys(4).public.id, TODAY)


@pytest.mark.usefixtures("looks_always")
def test_process_whose_own_keys_are_revoked_still_refuses_others(tree: Forest) -> None:
    told: list[str] = []
    own = tree.private_file("recorder", keys(2))
    identity = identity_of_files(tree.file, own, lambda _, text: told.append(text))
    tree.revoked = {keys(2).public.id: "lost", keys(3).public.id: "lost"}
    del tree.listed["recorder"], tree.listed["desk-1"]
    tree.write()
    assert set(identity.ring().members.keys) == {"exchange", "desk-2"}
    assert "this process keeps its former keys" in told[0]


def test_certificates_are_renewed_before_they_end(tree: Forest, monkeypatch: pytest.MonkeyPatch) -> None:
    identity = tree.identity("recorder")
    first = identity.material()
    assert identity.material() is first
    monkeypatch.setattr("pgm.mutual_tls.identity.datetime", _Later)
    second = identity.material()
    assert second.certificate.end - first.certificate.end > timedelta(hours=12)
    fixed = identity.material(is_fixed=True)
    assert fixed.certificate.end.date() == END - timedelta(days=1)


class _Later(parties.datetime):
    """Clock that is half a day ahead."""

    @classmethod
    def now(cls, tz: object = None) -> parties.datetime:  # type: ignore[override]
        return parties.datetime.now(tz) + timedelta(hours=12, seconds=1)  # type: ignore[arg-type]
