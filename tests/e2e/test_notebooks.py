"""The notebooks run from top to bottom, in a real kernel, and show what they promise."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from traitlets.config import Config

from tests.support.waiting import PATIENCE_S

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"

# Of an upload that took longer than half a second, the closed progress bar is left.
BAR = "application/vnd.jupyter.widget-view+json"


def executed(name: str, folder: Path) -> nbformat.NotebookNode:
    shutil.copy(NOTEBOOKS / name, folder)
    notebook = nbformat.read(folder / name, as_version=4)
    # By sockets in a folder: ports are chosen before the kernel takes them, and others may do so first.
    with tempfile.TemporaryDirectory() as sockets:
        NotebookClient(
            notebook,
            timeout=2 * PATIENCE_S,
            startup_timeout=2 * PATIENCE_S,
            iopub_timeout=PATIENCE_S,
            raise_on_iopub_timeout=True,
            resources={"metadata": {"path": str(folder)}},
            config=Config({"KernelManager": {"transport": "ipc", "ip": f"{sockets}/kernel"}}),
        ).execute()
    return notebook


def shown(cell: nbformat.NotebookNode) -> str:
    """All that a cell put under itself, as text."""
    parts = []
    for output in cell.get("outputs", []):
        parts.append(output.get("text", ""))
        parts += [str(value) for value in output.get("data", {}).values()]
    return "\n".join(parts)


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("embedded_home")
def test_the_first_job(tmp_path: Path) -> None:
    notebook = executed("first-job.ipynb", tmp_path)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    fit = next(cell for cell in cells if "estimator.fit()" in cell.source)
    shown_data = [output.get("data", {}) for output in fit["outputs"]]
    # The place of the buttons is empty: without a page, no press reaches the kernel.
    outputs = [data for data in shown_data if BAR not in data and data.get("text/html") != ""]
    assert len(outputs) == 1, "one card that updates in place, not a pile of output"
    card = outputs[0]["text/html"]
    for fact in ("Succeed", "loss", "<svg", "epoch 30", "model"):
        assert fact in card
    failed = next(shown(cell) for cell in cells if "JobFailed" in cell.source)
    assert "invalid float value: 'fast'" in failed
    assert "exit code 2" in failed
    again = shown(cells[-1])
    for fact in ("Succeed", "<svg", "epoch 30"):
        assert fact in again, "a job that is found again has its curve and the end of its log"


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("embedded_home")
def test_report_and_resume(tmp_path: Path) -> None:
    notebook = executed("report-and-resume.ipynb", tmp_path)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]

    def under(source: str) -> str:
        return shown(next(cell for cell in cells if source in cell.source))

    assert under("run.save()").strip().endswith("runs/line/saved/1'")
    assert "goes on from step 20" in under("resumed.restore")
    assert "60 results in both runs together" in under("resumed.restore")
    card = under("estimator.fit()")
    assert all(fact in card for fact in ("Succeed", "loss", "<svg"))
    assert "True" in under("in_job == here")
    assert "goes on from step 60" in under("longer.fit")
    assert "lr=2 is too large" in under("final_loss(2)")
    assert "Traceback" in under("final_loss(2)")


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("embedded_home")
def test_trace(tmp_path: Path) -> None:
    notebook = executed("trace.ipynb", tmp_path)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]

    def under(source: str) -> str:
        return shown(next(cell for cell in cells if source in cell.source))

    for sink in ("TraceWriter(schema) as", "TraceWriter(schema, sink) as"):
        assert "rows_fed=20000, rows_committed=20000" in under(sink)
    assert "<td>0.9" in under("AS accuracy")
    assert int(under("isin(wrong)").split(" of these 40 ")[0]) > 25, "random samples: 1 of 40"
    assert "20000 rows of this run" in under("open_reader")
    assert "True" in under("in_folder.equals(in_table)")


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("clean_home")
def test_many_runs(tmp_path: Path) -> None:
    notebook = executed("many-runs.ipynb", tmp_path)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]

    def under(source: str) -> str:
        return shown(next(cell for cell in cells if source in cell.source))

    assert under("threads.append").strip() == "20"
    assert "20 runs, 2,400 points" in under("manager.subscribe()")
    table = under("manager.table(")
    assert table.count("<tr>") == 9
    assert table.count("<polyline") == 8
    assert ">lr</th>" in table
    assert under(".plot(log_y=True)").count('class="pai-line"') == 20
    assert "▲" in under(".plot(log_y=True)")
    assert under('band="range"').count('fill-opacity=".22"') == 7
    assert "the accuracy" in under("hparams_diff")
    assert "metrics.accuracy" in under("to_pandas")
    assert "<svg" in (tmp_path / "best.svg").read_text(encoding="utf-8")


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("embedded_home")
def test_a_search(tmp_path: Path) -> None:
    notebook = executed("tune.ipynb", tmp_path)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]

    def under(source: str) -> str:
        return shown(next(cell for cell in cells if source in cell.source))

    live = under("trials = tuner.run()")
    assert "12 trials" in live
    assert "best so far: trial" in live
    assert live.count("<table") == 1, "one table that updates in place"
    table = under("trials\n") if any(cell.source == "trials\n" for cell in cells) else shown(cells[2])
    assert table.count("<tr>") == 13
    assert "<b>" in table
    assert "pruned" in table
    assert "accuracy" not in under("best.params")
    assert "weights.npz" in under("best.job.download")
    assert under('tuner.plot("history"').count('class="pai-line"') == 2
    assert "<svg" in under('tuner.plot("curves"')
    assert under("later.run()").strip().endswith("15")
    assert "'x':" in under("small.run()")


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("embedded_home")
def test_several_instances(tmp_path: Path) -> None:
    notebook = executed("several-instances.ipynb", tmp_path)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]

    def under(source: str) -> str:
        return shown(next(cell for cell in cells if source in cell.source))

    plan = under("--dry-run")
    assert "3 × ecs.c6.large" in plan
    assert plan.count("<details") >= 3
    card = under("the sum is")
    for fact in ("Succeed", "worker-1 | round 2: got 36", "master-0 | round 2: the sum is 36"):
        assert fact in card
    assert "worker-1 | round 0: got 30" in under('logs(instance="worker-1")')
    assert "Succeed" in under("background.wait")
    assert under("session.list_jobs()").count("<tr>") == 3


def test_every_notebook_is_executed() -> None:
    tests = [Path(__file__), Path(__file__).parents[1] / "docker" / "test_notebook.py"]
    named = "".join(path.read_text(encoding="utf-8") for path in tests)
    assert [path.name for path in NOTEBOOKS.glob("*.ipynb") if f'executed("{path.name}"' not in named] == []


def test_notebooks_are_committed_without_output() -> None:
    committed = [*NOTEBOOKS.glob("*.ipynb")]
    assert committed
    for path in committed:
        for cell in nbformat.read(path, as_version=4).cells:
            assert not cell.get("outputs"), f"{path.name}: clear its outputs before committing"


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("embedded_home")
def test_a_pipeline(tmp_path: Path) -> None:
    notebook = executed("pipeline.ipynb", tmp_path)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]

    def under(source: str) -> str:
        return shown(next(cell for cell in cells if source in cell.source))

    assert "prepare.outputs.point: step 'prepare' has no output 'point' (did you mean 'points'?)" in under("wrong")
    (picture,) = next(cell for cell in cells if cell.source.endswith("\nrun"))["outputs"]
    assert picture["data"]["text/html"].count("succeeded</title>") or "×4" in picture["data"]["text/html"]
    assert "lr 1.0: y = 3.0" in under('run["report"].result')
    assert "'report': 'cached'" in under("again =")
    changed = under("changed =")
    for line in (
        "prepare    succeeded  the code has changed",
        "train[0]   succeeded  the code has changed",
        "unneeded   skipped",
    ):
        assert line in changed
    assert "<svg" in under("PipelineRun.load")
