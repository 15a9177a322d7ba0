"""Each reason for which a range service does not answer has its own code and remedy."""

from __future__ import annotations

import shutil
import socket
import threading
from pathlib import Path

import pytest

from pgm.archive.service.collection import Archives
from pgm.archive.service.service import RangeService, ServiceAccess
from pgm.parameters import Parameters
from pgm.spark.errors import CertificateRefused, DirectoryLost, RecorderDown, RecorderRefused, TlsMismatch
from pgm.spark.option_table import READ
from pgm.spark.options import read_options
from pgm.spark.recorders import survey
from tests.spark.support.archives import archive, at, served
from tests.spark.support.authority import Authority, made_authority


@pytest.fixture(scope="module", name="authority")
def _authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return made_authority(tmp_path_factory.mktemp("keys"))


def _failure(recorders: str, **values: str) -> RecorderDown | RecorderRefused:
    options = read_options({"recorders": recorders, "retrySeconds": "0", **values}, READ)
    with pytest.raises((RecorderDown, RecorderRefused)) as caught:
        survey(options)
    return caught.value


def _check(error: RecorderDown | RecorderRefused, kind: type, code: str, text: str, remedy: str) -> None:
    assert type(error) is kind
    assert str(error).startswith(f"{code}: ")
    assert text in error.message
    assert remedy in str(error)


def test_a_service_that_is_away() -> None:
    error = _failure("grpc://127.0.0.1:1")
    _check(error, RecorderDown, "PGM-SPARK-RECORDER", "nothing listens there", "start it (pgm serve)")
    error = _failure("grpc://no-such-host.invalid:3057")
    _check(error, RecorderDown, "PGM-SPARK-RECORDER", "the host name is unknown", "correct its address")


def test_a_program_that_is_no_range_service() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def refuse() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.sendall(b"220 mail\r\n")

        thread = threading.Thread(target=refuse, daemon=True)
        thread.start()
        error = _failure(f"grpc://127.0.0.1:{listener.getsockname()[1]}")
        listener.shutdown(socket.SHUT_RDWR)
    _check(error, RecorderDown, "PGM-SPARK-RECORDER", "is no range service", "correct its address")


def test_a_directory_that_is_gone(tmp_path: Path) -> None:
    archive(tmp_path / "archives" / "a")
    with served(tmp_path / "archives") as service:
        shutil.rmtree(tmp_path / "archives")
        error = _failure(at(service))
    _check(error, DirectoryLost, "PGM-SPARK-DIRECTORY", f"{tmp_path}/archives cannot be read", "mount or restore it")


def test_tls_that_meets_plain_text_and_wrong_certificates(tmp_path: Path, authority: Authority) -> None:
    archive(tmp_path / "a")
    with served(tmp_path) as service:
        error = _failure(f"grpc+tls://127.0.0.1:{service.port}")
        _check(error, TlsMismatch, "PGM-SPARK-TLS", "speaks plain text, and the address says TLS", "name it grpc://")
    access = ServiceAccess(certificate=(authority.certificate, authority.key))
    secured = RangeService(Archives(tmp_path), "grpc+tls://127.0.0.1:0", Parameters(), access=access)
    code, remedy = "PGM-SPARK-CERTIFICATE", "tlsRootCerts"
    try:
        error = _failure(f"grpc://127.0.0.1:{secured.port}")
        _check(error, TlsMismatch, "PGM-SPARK-TLS", "speaks TLS, and the address says plain text", "grpc+tls://")
        where = f"grpc+tls://127.0.0.1:{secured.port}"
        _check(_failure(where), CertificateRefused, code, "unable to get local issuer", remedy)
        roots = {"tlsRootCerts": str(authority.file)}
        error = _failure(where.replace("127.0.0.1", "localhost"), **roots)
        _check(error, CertificateRefused, code, "Hostname mismatch", "the service by a host of its certificate")
        assert survey(read_options({"recorders": where, **roots}, READ)).held
    finally:
        secured.end()
