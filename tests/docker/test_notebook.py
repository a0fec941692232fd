"""The notebook about jobs in Docker, in a real kernel and on a real engine."""

from __future__ import annotations

from pathlib import Path

from tests.docker.engine import BASE_IMAGE, Engine
from tests.e2e.test_notebooks import executed, shown


def test_the_notebook_about_docker(docker_host: Engine, tmp_path: Path) -> None:
    with docker_host.client() as client:
        client.images.get(BASE_IMAGE).tag("python", "3.11")
    notebook = executed("local-docker.ipynb", tmp_path)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]

    def under(source: str) -> str:
        return shown(next(cell for cell in cells if source in cell.source))

    assert "1 × local" in under("estimator.plan()")
    card = under("estimator.fit()")
    for fact in ("Succeed", "<svg", "step 20 loss="):
        assert fact in card
    assert '"in_container": true' in under("job.download")
    assert "<svg" in under("TrainingJob.get")
