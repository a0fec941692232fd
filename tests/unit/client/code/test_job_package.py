"""The part of pai_sdk that is shipped with jobs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pai_sdk import Estimator, Processor, Session
from pai_sdk._client.code.job_package import SHIPPED, former_paths, job_package, mentions_pai_sdk, with_job_package
from pai_sdk._data.run.events.records import read_scalars
from pai_sdk._data.storage.tree import FileTree
from pai_sdk._wire.pai.request import TrainingJobRequest
from pai_sdk.errors import InvalidInputError
from tests.support.interpreters import IN_JOBS, INTERPRETERS
from tests.support.messages import refused
from tests.unit.data.run.report.test_imported_by_jobs import MODULES

CompletedText = subprocess.CompletedProcess[str]
TRAIN = "from pai_sdk import report; report({'loss': 0.5}, step=1); import pai_sdk; print(pai_sdk.__file__)"


def session() -> Session:
    return Session("cn-x", "7", oss_bucket_name="models", access_key_id="i", access_key_secret="s")


def code(folder: Path, **files: str) -> Path:
    folder.mkdir()
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    return folder


def run(program: str, folder: Path, *, python: str = sys.executable, path: str = "") -> CompletedText:
    """A job's command, without any site-packages; `path` is the PYTHONPATH of the image."""
    environment = {"PAI_WORKING_DIR": str(folder / "usercode"), "PAI_INPUT_PAI_SDK": str(job_package())}
    command = with_job_package([python, "-S", "-c", program])
    assert command[3:] == ["sh", python, "-S", "-c", program]
    return subprocess.run(
        command,
        env={**environment, **({"PYTHONPATH": path} if path else {})},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("version", IN_JOBS)
def test_a_job_reports_in_an_image_without_pai_sdk(tmp_path: Path, version: str) -> None:
    if version not in INTERPRETERS:
        pytest.skip(f"there is no Python {version} on this machine")
    done = run(TRAIN, tmp_path, python=INTERPRETERS[version])
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip() == str(job_package() / "pai_sdk" / "__init__.py")
    (events,) = (tmp_path / "output" / "tensorboard").iterdir()
    assert [(e.tag, e.step, e.value) for e in read_scalars(events)] == [("loss", 1, 0.5)]


def test_all_of_the_contract_is_shipped(tmp_path: Path) -> None:
    names = "Checkpoint, StopTraining, checkpoint_dir, get_checkpoint, get_context, report"
    done = run(f"from pai_sdk import {names}; print(get_context().folder)", tmp_path)
    assert (done.returncode, done.stdout) == (0, f"{tmp_path}/output\n")
    done = run("import pai_sdk; pai_sdk.Estimator", tmp_path)
    assert "the pai_sdk that is shipped with jobs has no 'Estimator'" in done.stderr


@pytest.mark.parametrize(
    ("statement", "missing"),
    [
        ("from pai_sdk import Estimator", "'Estimator'"),
        ("from pai_sdk.runs import RunStore", "pai_sdk.runs.RunStore"),
        ("from pai_sdk.runs import read_scalars", "pai_sdk.runs.read_scalars"),
        ("import pai_sdk.runs; pai_sdk.runs.RunStore", "pai_sdk.runs.RunStore"),
        ("import pai_sdk.storage", "pai_sdk.storage"),
        ("from pai_sdk.storage import OssUri", "pai_sdk.storage"),
    ],
)
def test_what_is_not_shipped_says_so_and_what_to_do(tmp_path: Path, statement: str, missing: str) -> None:
    last = run(statement, tmp_path).stderr.splitlines()[-1]
    assert f"the pai_sdk that is shipped with jobs has no {missing}" in last
    assert "pai-sdk wheel" in last
    assert "pai_sdk._" not in last


def test_what_is_not_shipped_can_be_asked_for(tmp_path: Path) -> None:
    program = "import pai_sdk, pai_sdk.runs as r; print(hasattr(pai_sdk, 'Estimator'), hasattr(r, 'RunStore'))"
    assert run(program, tmp_path).stdout.strip() == "False False"


@pytest.mark.parametrize("version", IN_JOBS)
def test_a_former_path_names_the_new_one_in_a_job(tmp_path: Path, version: str) -> None:
    if version not in INTERPRETERS:
        pytest.skip(f"there is no Python {version} on this machine")
    done = run("from pai_sdk.run.report import report", tmp_path, python=INTERPRETERS[version])
    assert done.stderr.splitlines()[-1] == (
        "ImportError: pai_sdk.run.report has moved: import its names from pai_sdk.reports"
    )


@pytest.mark.parametrize(
    ("text", "former"),
    [
        ("from pai_sdk.run.report import report", ["pai_sdk.run.report"]),
        ("def f():\n    from pai_sdk.run import store", ["pai_sdk.run.store"]),
        ("import pai_sdk.storage.uri as u", ["pai_sdk.storage.uri"]),
        ("import pai_sdk.run.report.session", ["pai_sdk.run.report"]),
        ("from pai_sdk.reports import report", []),
        ("from pai_sdk.storage import uri_of, OssUri", []),
        ("import pai_sdk.run.reporting", []),
    ],
)
def test_a_plan_warns_of_paths_that_have_moved(tmp_path: Path, text: str, former: list[str]) -> None:
    source = code(tmp_path / "src", train=text)
    assert former_paths(FileTree.scan(source), ["python", "train.py"]) == former
    assert former_paths(None, ["python", "-c", text]) == former
    warnings = Estimator(
        "python:3.11", "python train.py", source_dir=source, instance_type="ecs.c6.large", session=session()
    ).plan().warnings  # fmt: skip
    assert len(warnings) == len(former)
    assert all(path in warning for path, warning in zip(former, warnings, strict=True))


def test_every_shipped_module_is_checked_on_each_python() -> None:
    names = {
        name.removesuffix(".py").removesuffix("/__init__") for name in SHIPPED if name.startswith("_data/run/")
    }
    assert {f"pai_sdk.{name.replace('/', '.')}" for name in names} - {"pai_sdk._data.run"} <= set(MODULES)


def test_the_images_own_package_comes_first(tmp_path: Path) -> None:
    own = code(tmp_path / "own", unused="")
    (own / "pai_sdk").mkdir()
    (own / "pai_sdk" / "__init__.py").write_text("from pai_sdk.inner import report")
    (own / "pai_sdk" / "inner.py").write_text("def report(*args, **kwargs): print('own')")
    done = run(TRAIN, tmp_path, path=str(own))
    assert done.stdout.split() == ["own", str(own / "pai_sdk" / "__init__.py")]


@pytest.mark.parametrize(
    "init", ["import no_such_dependency", "", "raise SystemError", "from pai_sdk._core import no_such_name"]
)
def test_a_package_of_the_image_that_does_not_work_is_replaced(tmp_path: Path, init: str) -> None:
    own = tmp_path / "own" / "pai_sdk"
    (own / "_core").mkdir(parents=True)
    (own / "__init__.py").write_text(init)
    (own / "_core" / "__init__.py").write_text("")
    # Behind the shipped one on the path, as what is installed in an image is.
    program = f"import sys; sys.path.append({str(own.parent)!r}); {TRAIN}"
    done = run(program, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip() == str(job_package() / "pai_sdk" / "__init__.py")


def test_an_installed_package_behind_the_shipped_one_comes_first(tmp_path: Path) -> None:
    own = tmp_path / "own" / "pai_sdk"
    own.mkdir(parents=True)
    (own / "__init__.py").write_text("def report(*args, **kwargs): print('own')")
    done = run(f"import sys; sys.path.append({str(own.parent)!r}); {TRAIN}", tmp_path)
    assert done.stdout.split() == ["own", str(own / "__init__.py")]


def test_the_pythonpath_of_the_image_is_kept(tmp_path: Path) -> None:
    done = run("import os; print(os.environ['PYTHONPATH'])", tmp_path, path="/of/the/image")
    assert done.stdout.strip() == f"/of/the/image:{job_package()}"


def test_the_folder_is_made_once_and_mended(tmp_path: Path) -> None:
    folder = job_package()
    before = FileTree.scan(folder).digest
    (folder / "pai_sdk" / "_data" / "run" / "report" / "session.py").write_text("changed by hand")
    (folder / "pai_sdk" / "errors.py").unlink()
    assert job_package() == folder
    assert FileTree.scan(folder).digest == before


def test_a_home_that_cannot_be_written_is_no_obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "home").write_text("a file")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert (job_package() / "pai_sdk" / "__init__.py").is_file()
    assert job_package() == job_package()


@pytest.mark.parametrize(
    ("files", "command", "mentioned"),
    [
        ({"train": "from pai_sdk import report"}, ["python", "train.py"], True),
        ({"train": "def f():\n    import pai_sdk as p"}, ["python", "train.py"], True),
        ({"train": "import torch"}, ["python", "train.py"], False),
        ({"train": "my_pai_sdk2 = 1"}, ["python", "train.py"], False),
        ({}, ["sh", "-c", "python -c 'from pai_sdk import report'"], True),
        ({"train": "import pai_sdk", "pai_sdk": "report = print"}, ["python", "train.py"], False),
    ],
)
def test_what_mentions_pai_sdk(tmp_path: Path, files: dict[str, str], command: list[str], mentioned: bool) -> None:
    assert mentions_pai_sdk(FileTree.scan(code(tmp_path / "src", **files)), command) is mentioned


def test_a_large_notebook_is_searched_too(tmp_path: Path) -> None:
    """Files of more than 1 MiB were left out, and the job had no pai_sdk."""
    large = '"image/png": "' + "A" * (2 << 20) + '"\n"from pai_sdk import report"'
    assert mentions_pai_sdk(FileTree.scan(code(tmp_path / "src", **{"a.ipynb": large})), ["python"])


def test_code_that_reports_gets_the_channel_and_keeps_its_hash(tmp_path: Path) -> None:
    source = code(tmp_path / "src", train="from pai_sdk import report")

    def plan(**more: object) -> TrainingJobRequest:
        estimator = Estimator("image", "python train.py", source, instance_type="ecs.c6.large", session=session())
        return estimator.plan(**more)

    shipped = plan()
    spec = shipped.request.algorithm_spec
    assert spec.command == ["sh", "-c", with_job_package(["sh", "-c", "python train.py"])[2]]
    assert [channel.name for channel in shipped.request.input_channels] == ["pai_sdk"]
    assert [channel.name for channel in spec.input_channels] == ["pai_sdk"]
    code_upload, package = shipped.uploads
    assert code_upload.tree.digest == FileTree.scan(source).digest
    assert package.tree.root == job_package()
    assert package.uri == shipped.request.input_channels[0].input_uri
    other = plan(inputs={"pai_sdk": "oss://models/mine/"})
    assert [channel.input_uri for channel in other.request.input_channels] == ["oss://models/mine/"]
    assert other.request.algorithm_spec.command == ["sh", "-c", "python train.py"]


def test_other_code_is_left_as_it_is(tmp_path: Path) -> None:
    source = code(tmp_path / "src", train="print(1)")
    plan = Processor("image", "python train.py", source, instance_type="local", session=session()).plan()
    assert plan.request.input_channels == []
    assert plan.request.algorithm_spec.command == ["sh", "-c", "python train.py"]
    assert not (Path(os.environ["HOME"]) / ".pai" / "job-package").exists()


def test_code_that_does_not_mention_pai_sdk_is_searched_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, read, searched = code(tmp_path / "src", train="print(1)"), Path.read_bytes, []

    def counted(path: Path) -> bytes:
        searched.append(path.name)
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", counted)
    Processor("image", "python train.py", source, instance_type="ecs.c6.large", session=session()).plan()
    assert searched.count("train.py") == 1


def test_a_local_job_sees_the_package_where_it_is(tmp_path: Path) -> None:
    source = code(tmp_path / "src", train="from pai_sdk import report")
    plan = Processor("image", ["python", "train.py"], source, instance_type="local", session=session()).plan()
    (channel,) = plan.request.input_channels
    assert channel.input_uri == f"{job_package().as_uri()}/"
    assert plan.request.algorithm_spec.command[3:] == ["sh", "python", "train.py"]


def test_a_missing_script_is_still_found_before_anything_is_sent(tmp_path: Path) -> None:
    source = code(tmp_path / "src", train="from pai_sdk import report")
    with refused(InvalidInputError, "command"):
        Processor("image", "python trian.py", source, instance_type="local", session=session()).plan()


def test_a_folder_that_others_upload_never_has_drafts(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = job_package()
    shutil.rmtree(folder)
    seen: set[str] = set()
    replace = Path.replace

    def renamed(draft: Path, target: Path) -> None:
        seen.update(path.name for path in folder.rglob("*"))  # as an upload in another thread would list it
        replace(draft, target)

    monkeypatch.setattr(Path, "replace", renamed)
    assert job_package() == folder
    assert "__init__.py" in seen
    assert not [name for name in seen if name.startswith(".")]
