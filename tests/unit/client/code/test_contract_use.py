"""Warnings of a plan about variables, arguments and scripts that the job will not have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pai_sdk import Estimator


def _warnings(command: str, code: str | None = None, inputs: dict[str, str] | None = None, **values: Any) -> str:
    folder = None
    if code is not None:
        folder = Path("src")
        folder.mkdir()
        (folder / "train.py").write_text(code)
    Path("data.csv").write_text("1,2\n")
    estimator = Estimator("python:3.11", command, source_dir=folder, instance_type="local", hyperparameters=values)
    return "\n".join(estimator.plan(inputs).warnings)


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_variable_that_the_job_does_not_have_is_named() -> None:
    warning = _warnings("python train.py --epochs $PAI_HPS_EPOCH", "", epochs=2)
    assert "PAI_HPS_EPOCH," in warning
    assert "did you mean 'PAI_HPS_EPOCHS'?" in warning


@pytest.mark.parametrize(
    "command",
    [
        "python train.py $PAI_HPS_EPOCHS ${PAI_HPS_EPOCHS} ${PAI_INPUT_MORE:-none} $PAI_OUTPUT_MODEL",
        "PAI_INPUT_MORE=x; python train.py $PAI_INPUT_MORE",
    ],
)
def test_variables_that_exist_or_have_a_default_are_right(command: str) -> None:
    assert not _warnings(command, "", epochs=2)


def test_code_that_reads_an_input_of_a_similar_name() -> None:
    code = "import os\nprint(os.environ.get('PAI_INPUT_TRAIN', 'data.csv'), os.environ.get('PAI_INPUT_EXTRA'))"
    warning = _warnings("python train.py", code, {"trian": "data.csv"})
    assert "PAI_INPUT_TRAIN," in warning
    assert "'trian'" in warning
    assert "EXTRA" not in warning


def test_values_with_quotes_need_eval() -> None:
    assert "hyperparameters['layers']" in _warnings("python train.py $PAI_USER_ARGS", "", layers=[1, 2], lr=0.1)


def test_values_with_quotes_and_eval() -> None:
    assert not _warnings('eval "set -- $PAI_USER_ARGS"; python train.py "$@"', "", layers=[1, 2])


def test_options_without_a_value() -> None:
    code = "p.add_argument('--amp', action='store_true')\np.add_argument('--sync', type=bool)"
    warning = _warnings("python train.py $PAI_USER_ARGS", code, amp=True, sync=True)
    assert "hyperparameters['amp']" in warning
    assert "sync" not in warning


def test_options_with_another_separator() -> None:
    code = "p.add_argument('--batch-size')\np.add_argument('--log_every')\np.add_argument('--lr')"
    warning = _warnings("python train.py $PAI_USER_ARGS", code, batch_size=4, log_every=1, lr=0.1)
    assert "--batch-size" in warning
    assert "log" not in warning


def test_a_script_without_code() -> None:
    assert "source_dir" in _warnings("python train.py")


@pytest.mark.parametrize("command", ["python /opt/train.py", "python -m train", "echo hello"])
def test_programs_of_the_image_need_no_code(command: str) -> None:
    assert not _warnings(command)


def test_a_script_by_its_path_on_this_machine() -> None:
    script = Path("src/train.py").absolute()
    assert "write 'train.py'" in _warnings(f"python {script}", "")
