"""Programs in docs/guide/telemetry.md run unchanged."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pgm.impairments import Impairment
from tests.spark.support.generated import lossy_links

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "telemetry.md"


def test_the_programs_of_the_page(spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 2
    lossy_links(tmp_path / "events", {"desk-1": Impairment(loss=0.1)}, 1000)
    names: dict[str, Any] = {}
    assert spark is not None  # session.start() returns the running one
    for block in blocks:
        exec(block.replace('"events"', repr(str(tmp_path / "events"))), names)  # the JVM has a folder of its own
    try:
        names["query"].processAllAvailable()
    finally:
        names["query"].stop()
    assert "desk-1 > desk-1" in capfd.readouterr().out
