"""Takes the pictures of the page: `python -m tests.docs.pictures FOLDER`.

A service is started in a temporary folder, with a real search over the hyperparameters of a small network, and
with jobs that run and fail. `--docs` replaces the pictures of the documentation, too.
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pai_sdk import Estimator, Session, TrainingJob, Tuner
from pai_sdk._client.tune import IntRange, LogUniform
from pai_sdk._service.embedded import ensure_running
from pai_sdk.errors import JobFailed
from tests.support.browser import open_browser, open_page
from tests.support.packages import install_packages
from tests.support.service_process import end_service
from tests.support.waiting import PATIENCE_S

if TYPE_CHECKING:
    from playwright.sync_api import Page, ViewportSize

TRAIN = '''
"""Trains a network with one hidden layer to tell the arms of a spiral apart."""

import os
import time

import numpy as np

from pai_sdk import report

lr, width = float(os.environ["PAI_HPS_LR"]), int(os.environ["PAI_HPS_WIDTH"])
decay, epochs = float(os.environ["PAI_HPS_DECAY"]), int(os.environ.get("PAI_HPS_EPOCHS", "60"))
pause_s = float(os.environ.get("PAUSE_S", "0.02"))
random = np.random.default_rng(7)


def spiral(points):
    radius = np.tile(np.linspace(0.05, 1, points), 3)
    arm = np.repeat([0, 1, 2], points)
    angle = 4 * radius + arm * 2 * np.pi / 3 + random.normal(0, 0.18, radius.size)
    return np.stack([radius * np.sin(angle), radius * np.cos(angle)], 1), arm


(inputs, arms), (other_inputs, other_arms) = spiral(200), spiral(60)
first = random.normal(0, 1, (2, width))
first_bias, second_bias = np.zeros(width), np.zeros(3)
second = random.normal(0, 1 / np.sqrt(width), (width, 3))
print(f"{inputs.shape[0]} points, width {width}, lr {lr:.4g}", flush=True)
for epoch in range(1, epochs + 1):
    for batch in np.array_split(random.permutation(len(inputs)), 10):
        x, y = inputs[batch], np.eye(3)[arms[batch]]
        hidden = np.maximum(0, x @ first + first_bias)
        scores = hidden @ second + second_bias
        chances = np.exp(scores - scores.max(1, keepdims=True))
        chances /= chances.sum(1, keepdims=True)
        error = (chances - y) / len(batch)
        back = (error @ second.T) * (hidden > 0)
        second -= lr * (hidden.T @ error + decay * second)
        first -= lr * (x.T @ back + decay * first)
        second_bias -= lr * error.sum(0)
        first_bias -= lr * back.sum(0)
    scores = np.maximum(0, inputs @ first + first_bias) @ second + second_bias
    scores -= scores.max(1, keepdims=True)
    loss = float(-(scores[np.arange(len(arms)), arms] - np.log(np.exp(scores).sum(1))).mean())
    found = (np.maximum(0, other_inputs @ first + first_bias) @ second + second_bias).argmax(1)
    accuracy = float((found == other_arms).mean())
    report({"loss": loss, "eval/accuracy": accuracy}, step=epoch)
    print(f"epoch {epoch:3} loss {loss:.4f} accuracy {accuracy:.3f}", flush=True)
    time.sleep(pause_s)
'''
FAILURES = {
    "tokenize-corpus": "import tokenizers_of_ours",
    "pretrain-large": "batch = bytearray(4096)\nraise MemoryError('cannot allocate 38.2 GiB for the activations')",
    "export-onnx": "open('/ml/input/data/model/weights.pt', 'rb')",
}
_DOCS_FOLDER = Path(__file__).parents[2] / "docs"
_DOCS = {"study": "page.png", "jobs": "page-jobs.png", "job": "page-job.png"}
_DESKTOP: ViewportSize = {"width": 1440, "height": 900}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.docs.pictures", description=__doc__)
    parser.add_argument("folder", type=Path, help="of the pictures")
    parser.add_argument("--trials", type=int, default=24)
    parser.add_argument("--docs", action="store_true", help="copy those of the documentation into docs/")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    if not subprocess.run(["fc-list", ":lang=zh"], check=True, capture_output=True).stdout:
        install_packages("fonts-noto-cjk")  # boxes would stand for Chinese signs
    with tempfile.TemporaryDirectory(prefix="pai-pictures-") as folder:
        home = Path(folder)
        ensure_running(home / "service", timeout_s=PATIENCE_S)
        try:
            session = Session.embedded(home / "service")
            job, study = _work(session, home, arguments.trials)
            for name in _pictures(session, job, study, arguments.folder):
                print(name)
        finally:
            end_service(home / "service")
    if arguments.docs:
        for view, name in _DOCS.items():
            shutil.copy(arguments.folder / f"{view}-desktop-light-en.png", _DOCS_FOLDER / name)


def _work(session: Session, home: Path, trials: int) -> tuple[TrainingJob, str]:
    """Runs a search, and begins other jobs; returns a finished job of the search, and the name of its study."""
    source = home / "source"
    source.mkdir()
    (source / "train.py").write_text(TRAIN)
    tuner = Tuner(
        _estimator(session, source, "spiral", {}),
        {"lr": LogUniform(0.01, 2), "width": IntRange(4, 128, log=True), "decay": LogUniform(1e-6, 1e-2)},
        objective="eval/accuracy",
        direction="maximize",
        trials=trials,
        parallel=2,
        pruner="median",
        seed=7,
        study=str(home / "spiral"),
    )
    tuner.run()
    for name, program in FAILURES.items():
        (source / "failing.py").write_text(program)
        failing = _estimator(session, source, name, {}, command="python failing.py", size="xlarge")
        with suppress(JobFailed):
            failing.fit(show_logs=False)
    for name, lr, width in (("spiral-wide", 0.3, 128), ("spiral-narrow", 0.6, 16)):
        values = {"lr": lr, "width": width, "decay": 1e-5, "epochs": 600}
        _estimator(session, source, name, values, pause_s=0.5).fit(wait=False, show_logs=False)
    best = tuner.best.job
    assert best is not None
    session.runs.annotate(best, star=True, add_tags=["best"], note="The widest of the good ones; try 256 next.")
    return best, best.labels["pai-sdk-study"]


def _estimator(
    session: Session,
    source: Path,
    name: str,
    values: dict[str, Any],
    *,
    command: str = "python train.py",
    size: str = "large",
    pause_s: float = 0.02,
) -> Estimator:
    return Estimator(
        "registry.example.com/team/train:py311-cpu",
        command,
        source,
        hyperparameters=values,
        environments={"PAUSE_S": str(pause_s)},
        instance_type=f"ecs.c6.{size}",
        base_job_name=name,
        session=session,
        labels={"team": "vision"},
    )


def _pictures(session: Session, job: TrainingJob, study: str, folder: Path) -> Iterator[str]:
    """Takes each picture; yields its name."""
    views = {
        "jobs": "",
        "job": f"run={job.id}",
        "study": f"view=study&study={study}",
        "curves": "view=curves",
        "hyperparameters": "view=hparams&metric=eval/accuracy",
        "queue": "view=queue",
        "files": f"run={job.id}&tab=files",
        "log": f"run={job.id}&tab=log",
        "request": f"run={job.id}&tab=request",
        "schedules": "view=schedules",
        "admin": "view=admin",
    }
    with open_browser() as browser:
        for device, theme, language in itertools.product(("desktop", "phone"), ("light", "dark"), ("en", "zh")):
            link = session.new_page_link()
            with open_page(
                browser,
                link.partition("/ui/")[0],
                is_phone=device == "phone",
                is_dark=theme == "dark",
                language={"en": "en-US", "zh": "zh-CN"}[language],
            ) as watched:
                if device == "desktop":
                    watched.page.set_viewport_size(_DESKTOP)
                watched.page.goto(link)
                watched.page.locator(".connection").wait_for()
                for name, address in views.items():
                    _show(watched.page, address)
                    picture = folder / f"{name}-{device}-{theme}-{language}.png"
                    watched.page.screenshot(path=picture)
                    yield picture.name
                assert watched.faults == []


def _show(page: Page, address: str) -> None:
    """Goes to a view, and waits until it is drawn."""
    page.evaluate("address => { location.hash = address }", address)
    page.locator("main").wait_for()
    page.wait_for_timeout(1500)  # charts are drawn after their data is there


if __name__ == "__main__":
    main()
