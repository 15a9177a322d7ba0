"""Archive after the OCI image layout (image-spec 1.1): one tar file that podman, buildah, skopeo and containerd read."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

_TYPE = "application/vnd.oci.image"
_GZIP_LEVEL = 1  # a tenth larger than level 6, in a third of the time
_TIME = 0  # of every file, so that the same files make the same image


@attrs.frozen
class Blob:
    """Content of the archive by its digest."""

    media_type: str
    octets: bytes = attrs.field(repr=False)
    annotations: Mapping[str, str] = attrs.field(factory=dict)

    @property
    def digest(self) -> str:
        """Return the SHA-256 of the octets in hexadecimal digits."""
        return hashlib.sha256(self.octets).hexdigest()

    @property
    def descriptor(self) -> dict[str, Any]:
        """Return the reference by which other blobs name this one."""
        notes = {"annotations": dict(self.annotations)} if self.annotations else {}
        return {"mediaType": self.media_type, "digest": f"sha256:{self.digest}", "size": len(self.octets), **notes}


@attrs.frozen
class Layer:
    """Files of one layer. `diff_id` is the digest before compression."""

    blob: Blob
    diff_id: str


def layer_of(root: Path, paths: Iterable[Path]) -> Layer:
    """Return a layer with files and folders below `root`, owned by root and without times."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for path in sorted(paths):
            info = tar.gettarinfo(path, str(path.relative_to(root)))
            info.uid = info.gid = 0
            info.uname = info.gname = ""
            info.mtime = _TIME
            if info.isreg() or info.islnk():  # a second name of a file becomes a copy
                info.type, info.linkname, info.size = tarfile.REGTYPE, "", path.stat().st_size
                with path.open("rb") as file:
                    tar.addfile(info, file)
            else:
                tar.addfile(info)
    octets = plain.getvalue()
    diff_id = hashlib.sha256(octets).hexdigest()
    packed = gzip.compress(octets, _GZIP_LEVEL, mtime=_TIME)
    return Layer(Blob(f"{_TYPE}.layer.v1.tar+gzip", packed), f"sha256:{diff_id}")


def all_below(root: Path) -> list[Path]:
    """Return all files, links and folders below a folder, without following links."""
    found = []
    for folder, folders, files in os.walk(root):
        found += [Path(folder, name) for name in (*folders, *files)]
    return found


def write_archive(path: Path, layers: Sequence[Layer], architecture: str, config: Mapping[str, Any], name: str) -> str:
    """Write an image of one platform into a tar file. Return the digest of its manifest.

    `config` has the members of the OCI image configuration, such as Entrypoint. `name` is a reference such as pgm:0.2.
    """
    described = {
        "architecture": architecture,
        "os": "linux",
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for layer in layers]},
    }
    blob = Blob(f"{_TYPE}.config.v1+json", _json(described))
    listed = {
        "schemaVersion": 2,
        "mediaType": f"{_TYPE}.manifest.v1+json",
        "config": blob.descriptor,
        "layers": [layer.blob.descriptor for layer in layers],
    }
    manifest = Blob(f"{_TYPE}.manifest.v1+json", _json(listed), {"org.opencontainers.image.ref.name": name})
    index = {"schemaVersion": 2, "mediaType": f"{_TYPE}.index.v1+json", "manifests": [manifest.descriptor]}
    with path.open("wb") as file, tarfile.open(fileobj=file, mode="w", format=tarfile.GNU_FORMAT) as tar:
        _add(tar, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
        _add(tar, "index.json", _json(index))
        for one in (manifest, blob, *(layer.blob for layer in layers)):
            _add(tar, f"blobs/sha256/{one.digest}", one.octets)
    return f"sha256:{manifest.digest}"


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _add(tar: tarfile.TarFile, name: str, octets: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.mtime = len(octets), 0o644, _TIME
    tar.addfile(info, io.BytesIO(octets))
