"""`%%pai_job`: the code of a cell as a job."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from IPython.testing.globalipapp import start_ipython

import pai_sdk
from pai_sdk._client.backend.base import Plan
from pai_sdk.errors import InvalidInputError
from tests.support.fake_backend import FakeBackend
from tests.support.messages import refused


class Shell:
    """What the magic needs of IPython's shell."""

    def __init__(self) -> None:
        self.user_ns: dict[str, object] = {}
        self.magics: dict[str, object] = {}

    def register_magic_function(self, function: object, kind: str, name: str) -> None:
        assert kind == "line_cell"
        self.magics[name] = function


@pytest.fixture
def shell(memory: FakeBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    monkeypatch.setenv("HOME", str(tmp_path))
    shell = Shell()
    pai_sdk.load_ipython_extension(shell)
    return shell


def run(shell: Shell, line: str, cell: str | None = "print('hello')\n") -> object:
    return shell.magics["pai_job"](line, cell)  # type: ignore[operator]


def test_a_plan_of_the_cell(shell: Shell, tmp_path: Path) -> None:
    plan = run(shell, "--instance-type ecs.c6.large --set lr=0.1 --image python:3.12 --dry-run")
    assert isinstance(plan, Plan)
    spec = plan.request.algorithm_spec
    assert spec is not None
    assert (spec.image, spec.command) == ("python:3.12", ["sh", "-c", "python cell.py $PAI_USER_ARGS"])
    assert [(value.name, value.value) for value in plan.request.hyperparameters] == [("lr", "0.1")]
    (upload,) = plan.uploads
    assert Path(upload.tree.root, "cell.py").read_text(encoding="utf-8") == "print('hello')\n"
    assert Path(upload.tree.root).is_relative_to(tmp_path)
    assert "pai_job" not in shell.user_ns


def test_a_job_file_and_a_command(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("image_uri: pytorch\ninstance_type: ecs.c6.large\n")
    plan = run(shell, f"{file} --command 'torchrun cell.py' --dry-run")
    assert isinstance(plan, Plan)
    assert plan.request.algorithm_spec is not None
    assert plan.request.algorithm_spec.image == "pytorch"
    assert plan.request.algorithm_spec.command == ["sh", "-c", "torchrun cell.py"]


def test_the_job_is_kept_and_the_image_is_this_python(
    shell: Shell, memory: FakeBackend, capsys: pytest.CaptureFixture[str]
) -> None:
    memory.status = "Succeed"
    job = run(shell, "-t ecs.c6.large")
    assert shell.user_ns["pai_job"] is job
    assert memory.submitted.algorithm_spec is not None
    assert (memory.submitted.algorithm_spec.image or "").startswith("python:3.")
    assert "train1 Succeed" in capsys.readouterr().out


def test_without_a_wait(shell: Shell, memory: FakeBackend, capsys: pytest.CaptureFixture[str]) -> None:
    job = run(shell, "-t ecs.c6.large --no-wait")
    assert repr(job).startswith("<TrainingJob train1")
    assert "Succeed" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--instance-typ ecs.c6.large", "No such option:? '?--instance-typ"),
        ("--source-dir src", "No such option:? '?--source-dir"),
        ("-t ecs.c6.large --session mine", "there is no variable 'mine'"),
        ("--set lr=0.1", "instance_type"),
    ],
)
def test_wrong_options(shell: Shell, line: str, said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        run(shell, line)


def test_a_session_by_the_name_of_its_variable(shell: Shell) -> None:
    from pai_sdk._client.session import get_default_session

    shell.user_ns["mine"] = get_default_session()
    assert isinstance(run(shell, "-t ecs.c6.large --session mine --dry-run"), Plan)
    assert isinstance(run(shell, "-t ecs.c6.large --session=mine --dry-run"), Plan)


def test_a_line_has_no_code_to_run(shell: Shell) -> None:
    with refused(InvalidInputError, "%pai_job"):
        run(shell, "--instance-type ecs.c6.large", None)


@pytest.mark.parametrize("cell", [None, "print(1)"])
def test_help_is_printed(shell: Shell, capsys: pytest.CaptureFixture[str], cell: str | None) -> None:
    assert run(shell, "--help", cell) is None
    shown = capsys.readouterr().out
    assert "--instance-type" in shown
    assert "--schema" not in shown


def test_it_loads_into_ipython() -> None:
    shell = start_ipython()
    shell.run_line_magic("load_ext", "pai_sdk")
    assert shell.find_cell_magic("pai_job") is not None
