"""Archive of the image. The Debian packages and the demo inside are of `.ci/checks`, because a build takes long."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from deploy.image import __main__ as build
from deploy.image.archive import all_below, layer_of, write_archive
from deploy.image.debian import PACKAGES, run
from pgm.errors import ProcessError
from tests.image.run import Image, read_image

CONFIG = {"Entrypoint": ["pgm"], "Cmd": ["--help"], "Env": ["LANG=C.UTF-8"]}


def _tree(root: Path) -> Path:
    (root / "usr/bin").mkdir(parents=True)
    (root / "usr/bin/tool").write_text("#!/bin/sh\n")
    (root / "usr/bin/tool").chmod(0o755)
    (root / "usr/bin/other").hardlink_to(root / "usr/bin/tool")
    (root / "bin").symlink_to("usr/bin")
    return root


def _image(folder: Path) -> tuple[Image, bytes]:
    folder.mkdir()
    root, file = _tree(folder / "root"), folder / "image.tar"
    base = all_below(root)
    (root / "more").write_text("x")
    layers = [layer_of(root, base), layer_of(root, set(all_below(root)) - set(base))]
    write_archive(file, layers, "amd64", CONFIG, "pgm:1")
    return read_image(file), file.read_bytes()


def test_archive_of_the_same_files_has_the_same_octets(tmp_path: Path) -> None:
    (image, octets), (_, again) = _image(tmp_path / "one"), _image(tmp_path / "two")
    assert octets == again
    assert (image.config, image.architecture, len(image.layers)) == (CONFIG, "amd64", 2)
    image.unpack(tmp_path / "out")
    for name in ("usr/bin/tool", "usr/bin/other", "bin/tool"):
        assert (tmp_path / "out" / name).read_text() == "#!/bin/sh\n"
    assert (tmp_path / "out/usr/bin/other").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "out/more").read_text() == "x"


def test_a_changed_layer_is_noticed(tmp_path: Path) -> None:
    _, octets = _image(tmp_path / "one")
    file = tmp_path / "image.tar"
    at = octets.rindex(b"\x1f\x8b") + 20
    file.write_bytes(octets[:at] + bytes([octets[at] ^ 1]) + octets[at + 1 :])
    with pytest.raises(AssertionError):
        read_image(file)


def test_the_containerfile_makes_the_same_image() -> None:
    text = Path(build.__file__).with_name("Containerfile").read_text()
    words = dict(re.findall(r"^(USER|ENV|ENTRYPOINT|CMD) (.*)$", text, re.MULTILINE))
    config = build.config_of("1")
    assert words["USER"] == config["User"]
    assert words["ENV"].split() == config["Env"]
    assert json.loads(words["ENTRYPOINT"]) == config["Entrypoint"]
    assert json.loads(words["CMD"]) == config["Cmd"]
    assert f"[{','.join(build.EXTRAS)}]" in text
    slim = {"base-files", "coreutils", "dash"}  # in every image of Debian
    assert all(f" {name} " in text.split("FROM")[2] for name in set(PACKAGES) - slim)


def test_a_program_that_fails_is_an_error_with_a_remedy() -> None:
    with pytest.raises(ProcessError, match="ls failed") as failed:
        run("ls", "/no/such/folder")
    assert failed.value.remedy
    with pytest.raises(ProcessError, match="no-such-program") as missing:
        run("no-such-program")
    assert missing.value.remedy
