"""What a job's code finds, as values: variables, arguments, configuration, names."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pai_sdk._host.agent.distributed import Rendezvous, name_instances, rendezvous_variables
from pai_sdk._host.agent.sandbox import Sandbox
from pai_sdk._host.execution import contract
from pai_sdk._host.execution.unused_fields import unused_fields
from pai_sdk._wire.pai.hyperparameters import user_args
from pai_sdk._wire.pai.request import TrainingJobRequest
from pai_sdk._wire.pai.spec import HyperParameter
from pai_sdk.errors import InvalidInputError, Problem
from tests.support.waiting import PATIENCE_S
from tests.unit.host.execution.conftest import make_request

pytestmark = pytest.mark.interpreter


def parameters(**values: str) -> list[dict[str, str]]:
    return [{"Name": name, "Value": value} for name, value in values.items()]


UNQUOTED = "set -- $PAI_USER_ARGS"
EVAL = "eval set -- $PAI_USER_ARGS"
EVAL_QUOTED = 'eval "set -- $PAI_USER_ARGS"'


def shell_words(text: str, script: str, folder: Path) -> list[str]:
    """The words that a real `sh` makes of PAI_USER_ARGS."""
    result = subprocess.run(
        ["sh", "-c", f'{script}; [ $# = 0 ] || printf "%s\\0" "$@"'],
        env={"PAI_USER_ARGS": text, "PATH": os.defpath},
        cwd=folder,
        capture_output=True,
        timeout=PATIENCE_S,
    )
    assert (result.returncode, result.stderr) == (0, b"")
    return result.stdout.decode().split("\0")[:-1]


def arguments(pairs: Sequence[tuple[str, str]]) -> tuple[str, list[str]]:
    text = user_args([HyperParameter(name=name, value=value) for name, value in pairs], [])
    return text, [word for name, value in pairs for word in (f"--{name}", value)]


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which patterns match."""
    folder = tmp_path_factory.mktemp("crowded")
    for name in ("a", "b.py", "*", "ab", "\\", "?"):
        (folder / name).touch()
    return folder


HOSTILE = [
    "",
    " ",
    "a b",
    "a  b",
    "  x  ",
    "it's",
    "''",
    '"',
    "$(id)",
    "`id`",
    "$HOME",
    "a\nb",
    "\n",
    "\n\n",
    "\t",
    "a \n b",
]
HOSTILE += [
    "\\",
    "a\\",
    "\\n",
    "~",
    "~root",
    "*",
    "use *.py",
    "? a?",
    "[ab]",
    "#x",
    "中文",
    "a;b|c&",
    "-n",
    "--",
    "🙂",
    "{a,b}",
]
HOSTILE += [
    "!x",
    "<in",
    "x=1",
    "%s",
    "\r",
    "a\u00a0b",
    "\u3000",
    '{"k": [1, "two  words"]}',
    "$((1+1))",
    "${IFS}",
    "\\'",
]


@pytest.mark.parametrize("script", [EVAL, EVAL_QUOTED])
def test_eval_gives_back_every_hostile_value(script: str, crowded: Path) -> None:
    text, words = arguments([(f"p{i}", value) for i, value in enumerate(HOSTILE)])
    assert shell_words(text, script, crowded) == words


_TEXT = st.text(
    st.one_of(st.sampled_from(" \t\n'\"*?[]\\$`ab"), st.characters(exclude_characters="\0", codec="utf-8"))
)


@settings(max_examples=100, deadline=None)
@given(pairs=st.lists(st.tuples(_TEXT, _TEXT), max_size=8), script=st.sampled_from([EVAL, EVAL_QUOTED]))
def test_eval_gives_back_every_value(pairs: list[tuple[str, str]], script: str, crowded: Path) -> None:
    text, words = arguments(pairs)
    assert shell_words(text, script, crowded) == words


@given(value=_TEXT.filter(lambda text: not {"\t", "\n"} & {*text}))
def test_shlex_gives_back_values_of_one_line(value: str) -> None:
    text, words = arguments([("name", value)])
    assert shlex.split(text) == words


def test_plain_values_survive_plain_word_splitting(crowded: Path) -> None:
    values = ["0.1", "64,32", "/ml/input/x.csv", "12:30", "模型", "-1", "1e-05", "true", "k=v"]
    text, words = arguments([(f"p{i}", value) for i, value in enumerate(values)])
    assert shell_words(text, UNQUOTED, crowded) == words


def test_nul_is_refused() -> None:
    problems: list[Problem] = []
    user_args([HyperParameter(name="a", value="x\0y")], problems)
    assert [problem.where for problem in problems] == ["hyperparameters['a']"]


def environment(**fields: object) -> dict[str, str]:
    request = make_request(**fields)
    instance = contract.instances("train1", request)[0]
    return contract.environment("train1", request, instance, input_files={}).at("/ml")


def test_the_variables_of_a_job() -> None:
    request = make_request(
        HyperParameters=parameters(**{"lr.rate-x": "0.1", "note": "a b"}),
        InputChannels=[{"Name": "train-data", "InputUri": "oss://b/x.csv"}, {"Name": "val", "DatasetId": "d-1"}],
        OutputChannels=[{"Name": "model", "OutputUri": "oss://b/m/"}],
        Environments={"MINE": "1", "PAI_MINE": "2"},
    )
    instance = contract.instances("train1", request)[0]
    assert contract.environment("train1", request, instance, input_files={"train-data": "x.csv"}).at("/ml") == {
        "PAI_TRAINING_JOB_ID": "train1",
        "PAI_INSTANCE_NAME": "train1-master-0",
        "PAI_WORKING_DIR": "/ml/usercode",
        "PAI_CONFIG_DIR": "/ml/input/config",
        "PAI_HPS": '{"lr.rate-x": "0.1", "note": "a b"}',
        "PAI_HPS_LR_RATE_X": "0.1",
        "PAI_HPS_NOTE": "a b",
        "PAI_USER_ARGS": "--lr.rate-x 0.1 --note 'a b'",
        "PAI_INPUT_TRAIN_DATA": "/ml/input/data/train-data/x.csv",
        "PAI_INPUT_VAL": "/ml/input/data/val",
        "PAI_OUTPUT_MODEL": "/ml/output/model",
        "MINE": "1",
        "PAI_MINE": "2",
    }


@pytest.mark.parametrize("name", ["a.csv", "my data.csv", "100%41 #1?.csv", "损失,a:b='x'"])
def test_a_channel_that_is_a_file_is_known_by_the_files_name(tmp_path: Path, name: str) -> None:
    """A URI of this machine is written with percent signs, one of OSS as the key is."""
    uris = {
        "here": (tmp_path / name).as_uri(),
        "there": f"oss://bucket/k/{name}",
        "folder": f"{tmp_path.as_uri()}/",
    }
    request = make_request(InputChannels=[{"Name": key, "InputUri": uri} for key, uri in uris.items()])
    sandbox = Sandbox(tmp_path / "job")
    sandbox.create(request)
    for channel in ("here", "there"):
        (sandbox.input_dir(channel) / name).touch()
    assert contract.input_files(sandbox, request) == {"here": name, "there": name}


@pytest.mark.parametrize(
    ("job_type", "expected"),
    [
        ("PyTorchJob", ["j-master-0", "j-worker-0", "j-worker-1"]),
        ("TFJob", ["j-worker-0", "j-worker-1", "j-worker-2"]),
        ("MPIJob", ["j-worker-0", "j-worker-1", "j-worker-2"]),
    ],
)
def test_names_of_instances(job_type: str, expected: list[str]) -> None:
    instances = contract.instances("j", make_request(count=3, job_type=job_type))
    assert [i.name for i in instances] == expected
    assert [i.rank for i in instances] == [0, 1, 2]


def of_second_instance(request: TrainingJobRequest, meeting: Rendezvous) -> dict[str, str]:
    instance = contract.instances("train1", request)[1]
    variables = contract.environment("train1", request, instance, input_files={}).at("/ml")
    return {**rendezvous_variables(instance, meeting, job_type=contract.job_type(request)), **variables}


def test_where_instances_meet() -> None:
    request = make_request(count=2, Environments={"MASTER_PORT": "1"})
    meeting = Rendezvous.of_hosts(["train1-master-0", "train1-worker-0"], nproc_per_node=8)
    variables = of_second_instance(request, meeting)
    names = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "NPROC_PER_NODE")
    assert [variables[name] for name in names] == ["train1-master-0", "1", "2", "1", "8"]
    assert "TF_CONFIG" not in variables


def test_tf_config() -> None:
    request = make_request(count=2, job_type="TFJob")
    meeting = Rendezvous.on_loopback([1000, 2000, 2001])
    variables = of_second_instance(request, meeting)
    assert json.loads(variables["TF_CONFIG"]) == {
        "cluster": {"worker": ["127.0.0.1:2000", "127.0.0.1:2001"]},
        "task": {"type": "worker", "index": 1},
        "environment": "cloud",
    }


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"HyperParameters": parameters(**{"a.b": "1", "a-b": "2"})}, ["'a.b'", "'a-b'", "PAI_HPS_A_B"]),
        (
            {"InputChannels": [{"Name": n, "DatasetId": "d"} for n in ("x", "X")]},
            ["input channel 'x'", "input channel 'X'", "PAI_INPUT_X"],
        ),
        ({"Environments": {"PAI_HPS": "{}"}}, ["environments['PAI_HPS']"]),
        ({"Environments": {"A=B": "1"}}, ["A=B"]),
        ({"Environments": {"A": "x\0"}}, ["variable A", "NUL"]),
        ({"HyperParameters": parameters(big="x" * 200_000)}, ["PAI_HPS_BIG", "bytes"]),
    ],
)
def test_what_no_environment_can_hold_is_told_at_once(fields: dict[str, object], words: list[str]) -> None:
    with pytest.raises(InvalidInputError) as caught:
        environment(**fields)
    assert [word for word in words if word not in str(caught.value)] == []


def test_the_configuration_files(tmp_path: Path) -> None:
    request = make_request(
        HyperParameters=parameters(text="it's\n中文", empty=""),
        Environments={"TOKEN": "hush"},
        PythonRequirements=["git+https://ann:hush@example.com/x.git", "scipy"],
    )
    sandbox = Sandbox(tmp_path)
    sandbox.create(request)
    contract.write_config(sandbox, request)
    assert json.loads((sandbox.config_dir / "hyperparameters.json").read_text()) == {
        "text": "it's\n中文",
        "empty": "",
    }
    text = (sandbox.config_dir / "training-job.json").read_text()
    assert "hush" not in text
    shown = json.loads(text)
    assert shown["TrainingJobName"] == "demo"
    assert shown["Environments"] == {"TOKEN": "******"}
    assert shown["PythonRequirements"] == ["git+https://******@example.com/x.git", "scipy"]
    assert sorted(file.name for file in sandbox.config_dir.iterdir()) == [
        "hyperparameters.json",
        "training-job.json",
    ]


@pytest.mark.parametrize(
    ("scheduler", "seconds"),
    [
        (None, None),
        ({}, None),
        ({"MaxRunningTimeInSeconds": 0}, None),
        ({"MaxRunningTimeInSeconds": 90}, 90),
        ({"MaxRunningTimeInMinutes": 2}, 120),
    ],
)
def test_the_time_limit(scheduler: dict[str, int] | None, seconds: int | None) -> None:
    fields = {"Scheduler": scheduler} if scheduler is not None else {}
    assert contract.max_running_seconds(make_request(**fields)) == seconds


def test_only_arguments_with_spaces_are_quoted() -> None:
    pairs = [HyperParameter(name="lr", value="0.1"), HyperParameter(name="note", value="two words")]
    assert user_args(pairs, []) == "--lr 0.1 --note 'two words'"


def test_a_pytorch_job_has_a_master() -> None:
    names = [instance.name for instance in name_instances("train1", "PyTorchJob", 3)]
    assert names == ["train1-master-0", "train1-worker-0", "train1-worker-1"]


def test_fields_without_an_effect_are_named() -> None:
    fields = {"TrainingJobName": "n", "ComputeResource": {"EcsSpec": "x"}, "RoleArn": "r", "Priority": 2}
    assert unused_fields(TrainingJobRequest.model_validate(fields), used=["Priority"]) == ["RoleArn"]
