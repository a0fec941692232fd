"""The examples of the command's help, typed one after the other on an embedded service."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner, Result

from pai_sdk.cli.root import app
from tests.support.event_files import event, simple, write_events
from tests.support.waiting import until
from tests.unit.cli.test_cli_help import commands, groups

JOB = """
image_uri: python:3.11
command: python train.py $PAI_USER_ARGS
source_dir: src
instance_type: ecs.c6.large
labels: {team: vision, sweep: lr}
"""
TRAIN = """
import argparse
import os
from pathlib import Path
from pai_sdk import report
from pai_sdk.trace import TraceWriter

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.5)
report({"loss": parser.parse_args().lr}, step=1)
Path(os.environ["PAI_OUTPUT_MODEL"], "model.txt").write_text("0.5")
with TraceWriter({"loss": "double"}) as writer:
    writer.write(loss=[0.5, 0.25])
"""
PIPELINE = """
from pathlib import Path
from pai_sdk.pipeline import Pipeline

pipeline = Pipeline("digits", store=Path(__file__).parent / "store")
lr = pipeline.parameter("lr", float, 0.1)


def double(x):
    if Path("broken").exists():
        raise RuntimeError("the disk is full")
    return 2 * x


pipeline.step(double, arguments={"x": lr})
"""
JOB_ID, OTHER_ID = "train129f212o89d", "train7k2o89d129f2"
KEY = "LTAI0123456789abcdefghij"
RUN = "~/.pai/pipelines/digits/runs/20261124-044926-9911a2b"

NOT_TYPED = {
    "serve": "it serves until it is stopped",
    "tensorboard": "it serves until it is stopped",
    "forward": "it serves until it is stopped",
    "ssh": "its process becomes that of OpenSSH",
    "ssh-proxy": "OpenSSH starts it, and talks to it",
    "debug": "it waits for a breakpoint of the job",
}
SPEC = {"Image": "python:3.11", "Command": ["sh", "-c", "true"], "JobType": "PyTorchJob"}
FILES = {
    "job.yaml": JOB,
    "nightly.yaml": JOB,
    "src/train.py": TRAIN,
    "train.py": "import pai\n",
    "notebooks/old.py": "import pai\n",
    "digits.py": PIPELINE,
    "space.yaml": "search:\n  lr: [0.1, 0.5]\nobjective: {metric: loss}\n",
    "algorithm.json": json.dumps(SPEC),
    "recipe.json": json.dumps({"AlgorithmSpec": SPEC}),
    "data/a.csv": "1,2\n",
}
# The order of a life: what an example needs is made by those before it. The others are typed between these.
FIRST = ["demo", "run", "clone"]
LAST = [
    *(
        "metrics",
        "exec",
        "shell",
        "stacks",
        "top",
        "stop",
        "delete",
        "prune",
        "model create",
        "model show",
        "ls",
        "cp",
        "sync",
        "rm",
    ),
    *("schedule add", "schedule list", "schedule show", "schedule pause", "schedule resume", "schedule delete"),
    *("service user add", "service user key", "service user list", "service user right", "service user quota"),
    *("service workspace add", "service workspace list", "service workspace member", "service workspace members"),
    *("service workspace leave", "service workspace remove", "service user revoke", "service user remove"),
    *("service audit", "service status", "service clean", "service backup", "service restore", "service stop"),
    *("config set", "config get", "config list", "config path", "config profiles", "config", "config unset"),
]
BEFORE = {  # what makes the things that an example names
    "submit": "pai-sdk run job.yaml --save plan.json",
    "pipeline resume": "pai-sdk pipeline run digits.py --set lr=0.7",  # it fails
    "ls": "pai-sdk cp -r data oss://models/digits/",
    "exec": "pai-sdk run --image python:3.11 --command 'sleep 300' -t ecs.c6.large --label team=vision --no-wait",
    "delete": "pai-sdk run --image python:3.11 --command 'exit 3' -t ecs.c6.large",
    "config get": "pai-sdk config set workspace_id 1",
    "config list": "pai-sdk config set region_id cn-hangzhou --profile staging",
}
CODES = {
    "exec": 127,  # there is no nvidia-smi
    "doctor": None,  # it also looks for Docker
    "notify": None,  # nobody listens at its targets
    "notify test": None,
}


class Shell:
    """Types examples, with the names and the sizes of this place in them."""

    def __init__(self, folder: Path) -> None:
        self.replaced = {
            "oss://models/": "oss://pai-local/",
            "/tmp/demo": str(folder / "demo"),
            "/shared/me": str(folder / "wheels"),
            "--trials 50 --parallel 8": "--trials 2 --parallel 2",
            "ecs.g6.xlarge": "ecs.c6.large",
            "runs/first": JOB_ID,
            " --open": "",
            " --timestamps --follow": " --timestamps",
        }

    def type(self, example: str) -> Result:
        for before, after in self.replaced.items():
            example = example.replace(before, after)
        return CliRunner().invoke(app, shlex.split(example)[1:], prog_name="pai-sdk", input="y\n")

    def id_of(self, *words: str) -> str:
        return self.type(" ".join(("pai-sdk ps -q -n 1", *words))).stdout.strip()


def example_of(words: tuple[str, ...]) -> str:
    command = get_command(app)
    for word in words:
        command = command.commands[word]  # type: ignore[attr-defined]
    (example,) = re.findall(r"Example: (pai-sdk .+)", command.help or "")
    return str(example)


def in_order() -> list[tuple[str, str]]:
    """Each command with its example; a group's example follows that of the command that it shows."""
    examples = {" ".join(words).rstrip("_"): example_of(words) for words in (*commands(app), *groups(app))}
    others = [name for name in examples if name not in {*FIRST, *LAST, *NOT_TYPED}]
    by_example = {examples[name]: name for name in (*FIRST, *others, *LAST)}  # some groups show that of a command
    return [(name, example) for example, name in by_example.items()]


@pytest.fixture
def shell(embedded_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    for name, content in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
    write_events(
        tmp_path / "runs/a/events.out.tfevents.1790000000.a.1.0",
        event(1, simple("loss", 0.2), simple("eval/acc", 0.9)),
    )
    monkeypatch.setattr("pai_sdk._client.session.default._default", None)
    return Shell(tmp_path)


def prepare(shell: Shell, name: str) -> None:
    Path("broken").touch() if name == "pipeline resume" else None
    if name in BEFORE:
        shell.type(BEFORE[name])
    Path("broken").unlink(missing_ok=True)
    if name == "exec":
        until(lambda: bool(shell.id_of("--status Running")))
        shell.replaced[JOB_ID] = shell.id_of("--status Running")
    if name == "service user revoke":
        shell.replaced[KEY] = re.findall(r"LTAI\w+", shell.type("pai-sdk service user list").stdout)[-1]


def record(shell: Shell, name: str) -> None:
    """Remembers what a command has made, in place of what later examples name."""
    if name == "demo":
        shell.replaced[OTHER_ID] = shell.id_of()
    elif name == "run":
        shell.replaced[JOB_ID] = shell.id_of()
    elif name.startswith("pipeline"):
        shell.replaced[RUN] = str(max(Path("store/runs").iterdir()))


@pytest.mark.timeout(900)  # some eighty commands
def test_every_example_does_what_it_says(shell: Shell) -> None:
    failed = []
    for name, example in in_order():
        prepare(shell, name)
        result = shell.type(example)
        record(shell, name)
        expected = CODES.get(name, 0)
        if expected is not None and result.exit_code != expected:
            failed.append(f"{name}: {example}: {result.exit_code}\n{result.output[-600:]}\n{result.exception!r}")
    assert not failed, "\n\n".join(failed)
