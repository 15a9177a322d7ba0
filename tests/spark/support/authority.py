"""Certificate authority by openssl, and a range service's certificate for 127.0.0.1."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import attrs
import pytest


@attrs.frozen
class Authority:
    """File of the authority's certificate, and the certificate and key of a service."""

    file: Path
    certificate: bytes
    key: bytes


def made_authority(folder: Path) -> Authority:
    """Make the keys in a folder; skip the test without openssl."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl: apt-get install openssl")

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    new = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    openssl("req", "-x509", *new, "-subj", "/CN=authority", "-keyout", "ca.key", "-out", "ca.pem")
    (folder / "names").write_text("subjectAltName = IP:127.0.0.1\n")
    openssl("req", *new, "-subj", "/CN=service", "-keyout", "service.key", "-out", "service.csr")
    signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names")
    openssl("x509", "-req", "-in", "service.csr", *signed, "-out", "service.pem")
    return Authority(folder / "ca.pem", (folder / "service.pem").read_bytes(), (folder / "service.key").read_bytes())
