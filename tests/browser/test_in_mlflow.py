"""The report where people look for it: among the artifacts of a run, in the pages of a real MLflow
server.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import mlflow
import pytest

from cfk_plugin import PrivacyReport
from tracking_server import tracking_server

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.slow
EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "governance" / "example-report.json"


def test_mlflow_shows_the_report(started: Browser, tmp_path: Path) -> None:
    """In a sandbox, in which links do nothing."""
    with tracking_server(tmp_path) as server:
        server.start()
        client = mlflow.MlflowClient(tracking_uri=server.url)
        run = client.create_run(client.create_experiment("credit"))
        data = PrivacyReport.read(EXAMPLE).data
        PrivacyReport(data, (run.info.run_id,), server.url).log()
        page = started.new_page(viewport={"width": 1600, "height": 1000})
        said: list[str] = []
        where = f"{server.url}/#/experiments/{run.info.experiment_id}/runs/{run.info.run_id}/artifacts/cfk/report.html"
        page.on("console", lambda message: said.append(message.text))
        page.goto(where)
        frame = page.frame_locator("iframe").first
        frame.locator("h1").wait_for(timeout=60_000)
        assert frame.locator("h1").inner_text() == data.report["title"]
        assert frame.locator("body").inner_text().count("Pass") > 10
        frame.locator("summary").first.click()  # folding needs no script
        assert frame.locator("details[open]").count() == 1
        # MLflow's pane is a sandbox in which links do nothing; they must not lose the report
        # either.
        frame.get_by_role("link", name="Annexes").first.click()
        assert frame.locator("h1").is_visible()
        shot = tmp_path / "mlflow.png"
        page.screenshot(path=shot)
        assert shot.stat().st_size > 50_000
        assert not [
            text for text in said if "Content Security Policy" in text or "report.html" in text
        ]
        page.close()
