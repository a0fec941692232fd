"""What the error of a failed job says."""

from __future__ import annotations

import io
import json

import pytest

from pai_sdk._client.display.terminal import TerminalDisplay
from pai_sdk._client.job.follow.read_pace import shows_reason
from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk._wire.pai.record import ErrorInfo
from pai_sdk.errors import JobFailed
from tests.support.fake_backend import FAST, FakeBackend
from tests.unit.client.job.failure.test_tracebacks import BAD_JSON, MISSING, launched

CAUSE = "FileNotFoundError: [Errno 2] No such file or directory: '/data/points.csv'"


def failure_of(backend: FakeBackend) -> JobFailed:
    backend.status = "Failed"
    with pytest.raises(JobFailed) as caught:
        TrainingJob("train1", backend).raise_for_status()
    return caught.value


def test_the_first_line_has_the_root_cause_and_the_chain_is_whole(fake_backend: FakeBackend) -> None:
    fake_backend.lines = {"train1-master-0": ["epoch 1", *MISSING.splitlines()]}
    message = "Instance train1-master-0 ended with exit code 1."
    fake_backend.extra = {"ReasonCode": "NonZeroExit", "ReasonMessage": message}
    info = {"Instance": "train1-master-0", "ExitCode": 1}
    fake_backend.info = ErrorInfo(code="NonZeroExit", additional_info=json.dumps(info))
    failure = failure_of(fake_backend)
    first, _, facts, title, *rest = str(failure).splitlines()
    assert first == f"job fake (train1) Failed: {CAUSE}"
    assert facts == "  instance master-0, exit code 1, reason NonZeroExit"
    assert title == "  the traceback in its log:"
    assert [line[4:] for line in rest[:-1]] == MISSING.splitlines()
    assert "see the end of its log" not in str(failure)
    assert (failure.reason_message, failure.traceback) == (message, MISSING)


def test_a_reason_that_says_more_than_the_exception_stays_first(fake_backend: FakeBackend) -> None:
    fake_backend.lines = {"train1-master-0": MISSING.splitlines()}
    fake_backend.extra = {"ReasonCode": "DiskFull", "ReasonMessage": "The disk is full."}
    assert str(failure_of(fake_backend)).startswith("job fake (train1) Failed: The disk is full.\n")


def test_what_the_service_says_beyond_the_exit_code_is_shown_too(fake_backend: FakeBackend) -> None:
    fake_backend.lines = {"train1-master-0": MISSING.splitlines()}
    fake_backend.extra = {"ReasonCode": "NonZeroExit", "ReasonMessage": "The image is not used here."}
    lines = str(failure_of(fake_backend)).splitlines()
    assert lines[:2] == [f"job fake (train1) Failed: {CAUSE}", "  The image is not used here."]


def test_of_several_instances_the_cause_is_shown_and_not_what_followed_from_it(fake_backend: FakeBackend) -> None:
    lost = [
        "Traceback (most recent call last):",
        '  File "a.py", line 1',
        "ConnectionResetError: [Errno 104] reset",
    ]
    fake_backend.lines = {"train1-master-0": lost, "train1-worker-0": MISSING.splitlines()}
    fake_backend.extra = {"Instances": [{"Name": name} for name in fake_backend.lines]}
    failure = failure_of(fake_backend)
    assert failure.traceback == MISSING
    assert str(failure).startswith(f"job fake (train1) Failed: {CAUSE}")
    assert "the traceback in the log of worker-0:" in str(failure)
    assert "  in the log of master-0: ConnectionResetError: [Errno 104] reset" in str(failure).splitlines()


def test_the_first_line_names_the_error_of_the_program_that_a_launcher_started(fake_backend: FakeBackend) -> None:
    fake_backend.lines = {"train1-master-0": [*BAD_JSON.splitlines(), *launched().splitlines()]}
    first, *rest = str(failure_of(fake_backend)).splitlines()
    assert (
        first
        == "job fake (train1) Failed: json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)"
    )
    assert any("CalledProcessError" in line for line in rest)


def test_without_a_traceback_of_that_program_its_last_lines_are_shown(fake_backend: FakeBackend) -> None:
    usage = ["usage: train.py [--lr LR]", "train.py: error: unrecognized arguments: --rate"]
    traceback = launched("returned non-zero exit status 2.")
    fake_backend.lines = {"train1-master-0": ["ready", *usage, *traceback.splitlines()]}
    lines = str(failure_of(fake_backend)).splitlines()
    assert lines[3:7] == [
        "  the lines before the traceback, from the program that was started:",
        *[f"    {line}" for line in ("ready", *usage)],
    ]


def raising(error: str) -> list[str]:
    return ["Traceback (most recent call last):", '  File "train.py", line 1, in <module>', error]


@pytest.mark.parametrize(
    "last_line",
    [
        "train.py: error: unrecognized arguments: --rate",
        "python: can't open file '/ml/usercode/train.py': [Errno 2] No such file or directory",
        "sh: 1: cd: can't cd to src",
    ],
)
def test_the_last_words_of_a_program_are_the_cause(fake_backend: FakeBackend, last_line: str) -> None:
    fake_backend.lines = {"train1-master-0": ["ready", last_line, ""]}
    assert str(failure_of(fake_backend)).splitlines()[0].endswith(f"Failed: {last_line}")


def test_other_last_lines_are_no_cause(fake_backend: FakeBackend) -> None:
    fake_backend.lines = {"train1-master-0": ["train.py: error: retrying", "epoch 3: loss 0.1"]}
    assert "epoch" not in str(failure_of(fake_backend)).splitlines()[0]


@pytest.mark.parametrize(
    "error",
    [
        "FileNotFoundError: [Errno 2] No such file or directory: 'data/train.csv'",
        "FileNotFoundError: data/train.csv not found.",
    ],
)
def test_a_file_that_the_job_does_not_have_is_explained(fake_backend: FakeBackend, error: str) -> None:
    fake_backend.lines = {"train1-master-0": raising(error)}
    fake_backend.extra = {"InputChannels": [{"Name": name, "InputUri": "oss://b/m/"} for name in ("v", "pai_sdk")]}
    assert "  a job finds its own files only; its inputs are $PAI_INPUT_V" in str(failure_of(fake_backend)).split(
        "\n"
    )


def test_a_missing_program_is_no_missing_file(fake_backend: FakeBackend) -> None:
    fake_backend.lines = {
        "train1-master-0": raising("FileNotFoundError: [Errno 2] No such file or directory: 'nvidia-smi'")
    }
    assert "its own files" not in str(failure_of(fake_backend))


@pytest.mark.parametrize(
    ("variable", "expected"),
    [
        ("PAI_HPS_LR", "the job has no hyperparameter for PAI_HPS_LR; it has: PAI_HPS_LEARNING_RATE"),
        ("PAI_HPS_LEARNING_RAT", "did you mean 'PAI_HPS_LEARNING_RATE'?"),
        ("PAI_INPUT_TRAIN", "the job has no inputs: fit({'train': 'data/'}) sets $PAI_INPUT_TRAIN"),
        ("PAI_OUTPUT_FIGURES", "the job has no output for PAI_OUTPUT_FIGURES; it has: PAI_OUTPUT_MODEL"),
    ],
)
def test_a_missing_variable_of_the_job_is_explained(
    fake_backend: FakeBackend, variable: str, expected: str
) -> None:
    fake_backend.lines = {"train1-master-0": raising(f"KeyError: {variable!r}")}
    fake_backend.extra = {
        "HyperParameters": [{"Name": "learning-rate", "Value": "1"}],
        "OutputChannels": [{"Name": "model", "OutputUri": "oss://b/m/"}],
    }
    assert expected in str(failure_of(fake_backend)).splitlines()[1]
    fake_backend.lines = {"train1-master-0": raising("KeyError: 'PATH'")}
    assert "the job has" not in str(failure_of(fake_backend))


def test_a_traceback_that_was_just_printed_is_not_repeated(fake_backend: FakeBackend) -> None:
    fake_backend.lines = {"train1-master-0": raising("ValueError: bad")}
    fake_backend.status = "Failed"
    stream = io.StringIO()
    with pytest.raises(JobFailed) as caught:
        TrainingJob("train1", fake_backend).wait(display=TerminalDisplay(stream), policy=FAST)
    assert stream.getvalue().count("Traceback") == 1
    assert "Failed: ValueError: bad" in str(caught.value)
    assert "Traceback" not in str(caught.value)
    assert "Traceback" in caught.value.traceback
    for show_logs, lines in ((False, fake_backend.lines), (True, {**fake_backend.lines, "train1-worker-0": []})):
        fake_backend.lines = lines
        with pytest.raises(JobFailed, match="Traceback"):
            TrainingJob("train1", fake_backend).wait(
                display=TerminalDisplay(io.StringIO()), show_logs=show_logs, policy=FAST
            )


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        ("cv2", "comes with opencv-python: add requirements=['opencv-python']"),
        ("PIL", "comes with pillow: "),
        ("sklearn", "comes with scikit-learn: "),
        ("yaml", "comes with pyyaml: "),
        ("google.protobuf", "comes with protobuf: "),
        (
            "sklearn.externals",
            "the installed scikit-learn has no sklearn.externals: require a version that has it",
        ),
        (
            "my_tools",
            "if my_tools is a package, add requirements=['my-tools'], or a line in requirements.txt; if it",
        ),
        (
            "distutils",
            "newer versions of Python have no distutils: add requirements=['setuptools'], or use an image",
        ),
        (
            "tkinter",
            "the module tkinter belongs to the standard library, but is missing from the Python of this image",
        ),
    ],
)
@pytest.mark.parametrize("is_raised", [True, False])
def test_a_missing_module_names_the_requirement(
    fake_backend: FakeBackend, module: str, expected: str, is_raised: bool
) -> None:
    trace = ["Traceback (most recent call last):", '  File "train.py", line 1, in <module>']
    lines = [*trace, f"ModuleNotFoundError: No module named {module!r}"]
    if not is_raised:  # python -m MODULE
        lines = [f"/usr/bin/python3: No module named {module}"]
    fake_backend.lines = {"train1-master-0": lines}
    assert expected in str(failure_of(fake_backend)).splitlines()[1]


def test_no_requirement_is_named_for_an_error_of_another_kind(fake_backend: FakeBackend) -> None:
    survived = [
        "Traceback (most recent call last):",
        "  File 'a.py'",
        "ModuleNotFoundError: No module named 'cv2'",
    ]
    fake_backend.lines = {"train1-master-0": [*survived, "goes on", *MISSING.splitlines()]}
    assert "requirements" not in str(failure_of(fake_backend))


def test_a_log_line_does_not_reach_the_terminal_with_its_control_sequences(fake_backend: FakeBackend) -> None:
    fake_backend.lines = {
        "train1-master-0": ["Traceback (most recent call last):", "  File 'a'", "KeyError: \x1b]0;t\x07x"]
    }
    assert "\x1b" not in str(failure_of(fake_backend))


def test_a_metric_with_error_in_its_name_is_no_reason() -> None:
    assert not shows_reason(["epoch 3", "val_error: 0.25"])
    assert shows_reason(["train.py: error: unknown option --lr"])
