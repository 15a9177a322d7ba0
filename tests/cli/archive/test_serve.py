"""`pgm serve`: impossible requests are refused, and no option is ignored."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pytest

from deploy.archive.serve import _target
from pgm import Message, blocking
from pgm.archive.errors import BadRequest
from pgm.archive.service.publication_journal import completed_rows
from pgm.net.keys.key_directory import place_of
from pgm.net.keys.key_files import write_private_file
from pgm.parameters import ROWS
from pgm.trust.private_keys import PrivateFile
from tests.cli.command import invoked
from tests.net.support.places import Place, one_segment
from tests.unit.mutual_tls.parties import forest


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--publish-node", "source"], "--publish-node needs --publish"),
        (["--publish-stream", "s"], "--publish-stream needs --publish"),
        (["--publish-state", "state.json"], "--publish-state needs --publish"),
        (["--publish", "tree.toml"], "--publish-node NAME"),
        (["--publish", "pgm://239.192.9.1?interface=lo", "--publish-node", "x"], "leave out --publish-node"),
        (["--listen", "nonsense"], "HOST:PORT"),
        (["--listen", ":3057"], "HOST:PORT"),
        (["--listen", "127.0.0.1:65536"], "HOST:PORT"),
        (["--set", "archive_rows=5"], "archive_streams"),
        (["--set", "archive_streams=\u00b2"], "--set archive_streams=\u00b2: "),
        (["--set", "archive_poll_ivl=soon"], "--set archive_poll_ivl=soon: 'soon' is not a duration"),
        (["--tls-cert", "cert.pem"], "go together"),
        (["--client", "desk-1"], "--client needs --mutual-tls"),
        (["--identity", "exchange"], "--identity needs --mutual-tls"),
        (["--mutual-tls", "tree.toml"], "name the node whose keys are on this host: --identity NODE"),
    ],
)
def test_serve_refuses_conflicting_options_and_bad_addresses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], says: str
) -> None:
    monkeypatch.setattr("signal.sigwait", lambda _: pytest.fail("pgm serve runs instead of refusing"))
    invoked("serve", tmp_path, *arguments).complains(2, says)


def test_serve_address_taken_or_foreign_is_told_with_reason(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        invoked("serve", tmp_path, "--listen", taken).complains(
            1, f"{taken} cannot be listened on: Address already in use"
        )
    elsewhere = "192.0.2.1:3057"
    invoked("serve", tmp_path, "--listen", elsewhere).complains(1, f"{elsewhere} cannot be listened on: Cannot assign")


def test_serve_bad_certificate_is_not_blamed_on_the_address(tmp_path: Path) -> None:
    (wrong := tmp_path / "wrong.pem").write_text("nothing of a certificate\n")
    invoked("serve", tmp_path, "--listen", "127.0.0.1:0", "--tls-cert", wrong, "--tls-key", wrong).complains(
        2, f"{wrong} and {wrong} are no certificate with its key"
    )


def test_serve_unknown_host_name_is_reported(tmp_path: Path) -> None:
    invoked("serve", tmp_path, "--listen", "127.0.0..1:3057").complains(1, "127.0.0..1:3057", "it is no host name")


def test_serve_token_file_is_checked_as_that_of_the_monitor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("signal.sigwait", lambda _: None)
    options = ("--listen", "127.0.0.1:0", "--token-file", file := tmp_path / "token")
    invoked("serve", tmp_path, *options).complains(2, "No such file")
    for wrong in (bytes(range(128, 192)), b"short\n", b"two words of a long token", b"x" * 5000, b""):
        file.write_bytes(wrong)
        invoked("serve", tmp_path, *options).complains(2, f"{file}: a token is one word of 16 to 4096 ASCII characters")
    file.write_text("a-token-of-many-characters\n")
    for mode, is_told in ((0o644, True), (0o600, False)):
        file.chmod(mode)
        done = invoked("serve", tmp_path, *options)
        assert done.code == 0
        assert (f"other users can read {file}" in done.err) is is_told


def test_serve_empty_directory_is_served_with_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The recorder may start after the server; the message still reveals a wrong path."""
    monkeypatch.setattr("signal.sigwait", lambda _: None)
    done = invoked("serve", tmp_path, "--listen", "127.0.0.1:0")
    assert done.code == 0
    assert f"{tmp_path} holds no archive, or nothing was recorded there yet" in done.err


def test_serve_mutual_tls_names_nodes_without_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = forest(tmp_path)
    monkeypatch.setenv("PGM_KEY_DIR", str(tmp_path / "keys"))
    line = ("serve", tmp_path, "--listen", "127.0.0.1:0", "--mutual-tls", tree.file, "--identity")
    invoked(*line, "recorder").complains(2, "has no private file for them")
    place = place_of("forest", "recorder")
    write_private_file(place, PrivateFile("forest", "recorder", tree.listed["recorder"][0]))
    invoked(*line, "desk-3").complains(2, f"desk-3 has no keys in {tree.file}", "pgm keys new")
    invoked(*line, "recorder", "--client", "hall-*").complains(2, "hall-* is no node with keys of the tree forest")
    invoked(*line, "recorder", "--token-file", tmp_path / "token").complains(
        2, "--mutual-tls and --token-file exclude each other"
    )
    monkeypatch.setattr("signal.sigwait", lambda _: None)
    done = invoked(*line, "recorder", "--client", "desk-*")
    assert done.code == 0
    assert "on grpc+tls://127.0.0.1:" in done.err
    assert done.err.rstrip().endswith(", to desk-*")


def test_serve_help_names_every_archive_parameter() -> None:
    said = invoked("serve", "--help").out
    assert all(name in said for name in ROWS if name.startswith("archive_"))


def _rows(values: list[bytes], **names: list[str | None]) -> pa.Table:
    return completed_rows(pa.table({"value": pa.array(values, pa.binary()), **names}))


def test_serve_rows_for_another_stream_are_not_published(tmp_path: Path) -> None:
    """The refusal holds without `--publish-stream`."""
    file = tmp_path / "tree.toml"
    file.write_text(one_segment(Place.new()))
    options = {"publish": str(file), "publish_node": "source", "publish_stream": None, "publish_state": None}
    with ExitStack() as stack:
        target = _target(stack, options, tmp_path)
        assert target is not None
        assert target.where is not None
        with pytest.raises(BadRequest, match="'trades' is not published here"):
            target.publish("trades", _rows([b"lost its way"]))
        target.publish("s", _rows([b"one"]))
        target.publish("", _rows([b"two"]))
        assert target.where()[1] == 2
        assert not target.has_names


def test_serve_publishes_rows_with_their_subjects_and_nodes(tmp_path: Path) -> None:
    file = tmp_path / "tree.toml"
    file.write_text(one_segment(Place.new()).replace("[streams.s]", '[streams.s]\nframing = "batch"'))
    options = {"publish": str(file), "publish_node": "source", "publish_stream": None, "publish_state": None}
    with ExitStack() as stack:
        receiver = stack.enter_context(blocking.open_receiver(file, node="desk-1"))
        target = _target(stack, options, tmp_path)
        assert target is not None
        assert target.where is not None
        assert target.has_names
        target.publish(
            "", _rows([b"a", b"b", b"c", b"d"], subject=["/x", None, "/y", "/x"], to=[None, None, "desk-9", "desk-1"])
        )
        target.publish("", _rows([b"e"]))
        target.where()  # all have left
        got = []
        for message in receiver:
            if isinstance(message, Message):
                got.append((bytes(message.payload), message.subject))
                if got[-1][0] == b"e":
                    break
    assert got == [(b"a", "/x"), (b"b", None), (b"d", "/x"), (b"e", None)]  # c is for another node
