"""`pgm monitor --otlp` as a process, beside a collector."""

from __future__ import annotations

from pathlib import Path

from tests.net.support.processes import PATIENCE_S, Process
from tests.unit.otlp.collector import collecting


def test_monitor_sends_metrics_to_a_collector(tmp_path: Path) -> None:
    (tmp_path / "headers").write_text("x-tenant: trading\n")
    (tmp_path / "headers").chmod(0o600)
    with collecting() as collector:
        options = ["--otlp", collector.url, "--otlp-headers", str(tmp_path / "headers"), "--otlp-interval", "1"]
        process = Process("monitor", ["monitor", "--port", "0", *options], env={"PGM_RUNTIME_DIR": str(tmp_path)})
        try:
            requests = [collector.requests.get(timeout=PATIENCE_S) for _ in range(2)]
            process.process.terminate()
            code = process.process.wait(PATIENCE_S)
        finally:
            process.close()
    assert (code, "Traceback" in process.log) == (0, False)
    assert [request.headers["x-tenant"] for request in requests] == ["trading"] * 2
    assert requests[0].points()["pgm_monitor_nodes", "up"][0] == 0
