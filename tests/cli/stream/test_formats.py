"""`pgm send` and `pgm recv` with lines, JSON, CBOR and Arrow: the output equals the input."""

from __future__ import annotations

import io
import json
import subprocess
from pathlib import Path

import cbor2
import pyarrow as pa
import pytest

from tests.cli.command import carried, command, environment, invoked
from tests.net.support.places import Place, one_segment

PATIENCE_S = 60
TABLE = pa.table({"price": [1.5, 2.5, 3.5], "symbol": ["a", "b", "c"]})
VALUES = [1, "text", [True, None], {"a": {"b": 2.5}}, "x" * 5000]


def arrow_stream() -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, TABLE.schema) as writer:
        writer.write_table(TABLE, max_chunksize=2)
    return sink.getvalue()


def carry(folder: Path, form: str, octets: bytes, *send: str, recv: tuple[str, ...] = (), framing: str = "batch"):
    """Send the input through a stream; return the output and the results of both ends."""
    file, place = folder / "tree.toml", Place.new()
    file.write_text(one_segment(place).replace("data_port = 7500", f'data_port = 7500\nframing = "{framing}"'))
    sends = ["--format", send[0] if send else form, *send[1:]]
    got = carried(file, place, octets, recv=["--format", form, *recv], send=sends)
    return got.out, got.sent, got.code, got.account


@pytest.mark.parametrize("framing", ["plain", "batch"])
def test_json_lines_come_out_as_they_went_in(tmp_path: Path, framing: str) -> None:
    text = b"\n\n".join(json.dumps(value).encode() for value in VALUES)
    out, done, code, account = carry(tmp_path, "json", text, framing=framing)
    assert done.returncode == code == 0, done.stderr
    assert [json.loads(line) for line in out.splitlines()] == VALUES
    assert account["messages"] == len(VALUES)


def test_recv_template_shows_subject_and_source(tmp_path: Path) -> None:
    template = "{{{source} {subject} {sqn} {value} {payload}|"
    out, done, code, account = carry(tmp_path, template, b'[1,"\xc3\xa9"]\n', "json", "--subject", "/a/b")
    assert done.returncode == code == 0, done.stderr
    assert out == '{source /a/b 0 [1, "é"] '.encode() + cbor2.dumps([1, "é"]) + b"|\n"
    assert account["messages"] == 1


@pytest.mark.parametrize("template", ["{subjet}", "{payload", "{sqn:>9}", "{tsi!r}"])
def test_recv_template_with_unknown_placeholder_is_refused(tmp_path: Path, template: str) -> None:
    told = invoked("recv", tmp_path / "tree.toml", "--node", "desk-1", "--format", template)
    told.complains(2, "is no format", "{subject}, {source}, {sqn}")


def test_a_cbor_sequence_comes_out_octet_by_octet(tmp_path: Path) -> None:
    octets = b"".join(cbor2.dumps(value) for value in [*VALUES, b"\0\1"])
    out, done, code, _ = carry(tmp_path, "cbor", octets)
    assert done.returncode == code == 0, done.stderr
    assert out == octets


def test_an_arrow_stream_comes_out_batch_by_batch(tmp_path: Path) -> None:
    out, done, code, account = carry(tmp_path, "arrow", arrow_stream())
    assert done.returncode == code == 0, done.stderr
    assert pa.ipc.open_stream(out).read_all() == TABLE
    assert account["messages"] == 2


def test_recv_subject_filter_selects_lines(tmp_path: Path) -> None:
    lines = b"one\ntwo\n\nfour\n"
    out, done, code, _ = carry(tmp_path, "lines", lines, "lines", "--subject", "/a/b", recv=("--subject", "/a/*"))
    assert done.returncode == code == 0, done.stderr
    assert out == lines
    out, done, code, account = carry(tmp_path, "lines", lines, "lines", "--to", "desk-2")
    assert (out, code, account["messages"]) == (b"", 0, 0)


def test_send_bad_input_is_told_by_its_place() -> None:
    for form, octets, why in (
        ("json", b'{"a": 1}\nnonsense\n', b"line 2 of standard input is no JSON"),
        ("cbor", cbor2.dumps(1) + b"\x5a\0", b"value 2 of standard input ends too early"),
        ("cbor", cbor2.dumps(1) + b"\xff", b"value 2 of standard input is no CBOR"),
        ("arrow", b"nonsense" * 10, b"no Arrow IPC stream"),
    ):
        url = Place.new().url(address="127.0.0.1", framing="batch")
        line = command("send", url, "--format", form, "--settle", "1ms")
        done = subprocess.run(
            line, input=octets, capture_output=True, env=environment(), timeout=PATIENCE_S, check=False
        )
        assert done.returncode == 2, done
        assert why in done.stderr


def test_recv_messages_of_another_format_are_counted(tmp_path: Path) -> None:
    lines = b'{"a": 1}\nnonsense\n'
    out, done, code, account = carry(tmp_path, "json", lines, "lines")
    assert done.returncode == 0
    assert (code, account["unreadable"]) == (1, 2)
    assert out == b""
