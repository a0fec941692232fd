"""One description, three places: processes of a service, its containers, and `instance_type="local"`.

What a user sees is the same in all of them. What cannot be is taken out by `_MACHINES_OWN` and `_everywhere`, with
the reason; docs/job-contract.md has it as a table.
"""

from __future__ import annotations

import json
import re
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pai_sdk import Session
from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk._host.agent.memory import kernel_kills
from tests.docker.engine import Engine
from tests.docker.parity import Case, Place, Seen
from tests.docker.test_service import session_on
from tests.service.services import running_service
from tests.support.wheels import write_wheel

BACKENDS = ("process", "docker", "local")

# The machine's in one place, the image's in the others. Of all other variables, names and values are compared.
_MACHINES_OWN = re.compile(
    r"PATH|HOME|USER|LOGNAME|SHELL|LANG|LANGUAGE|LC_\w+|TZ|TMPDIR|VIRTUAL_ENV|LD_LIBRARY_PATH|HOSTNAME|MASTER_PORT"
    r"|(CUDA|NVIDIA|PIP)_\w+|SSL_CERT_(FILE|DIR)|(REQUESTS|CURL)_CA_BUNDLE|\w+_(proxy|PROXY)"
)

_MARKED_AT = re.compile(r'"time": [0-9.]+')  # in the marker of a checkpoint

PROBE = """
import json, os, stat, sys
from pathlib import Path

def refusal(act):
    try:
        act()
    except OSError as error:
        return error.strerror
    return ""

def tree(top):
    return {str(p): oct(stat.S_IMODE(p.lstat().st_mode)) for p in sorted([Path(top), *Path(top).rglob("*")])}

config = Path(os.environ["PAI_CONFIG_DIR"])
signals = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines() if "Sig" in line)
seen = {
    "environment": dict(os.environ),
    "cwd": os.getcwd(),
    "umask": oct(os.umask(0o22)),
    "tree": tree("/ml"),
    "hyperparameters": json.loads((config / "hyperparameters.json").read_text()),
    "request": json.loads((config / "training-job.json").read_text()),
    "arguments": sys.argv[1:],
    "stdin": sys.stdin.read(),
    "descriptors": sorted(fd for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}")),
    "blocked": signals["SigBlk"].strip(),
    "encodings": [sys.stdout.encoding, sys.getfilesystemencoding()],
    "train": {p.name: p.read_text() for p in Path(os.environ["PAI_INPUT_TRAIN"]).iterdir()},
    "table": Path(os.environ["PAI_INPUT_TABLE"]).read_text(),
    "writes": {
        str(folder): refusal((Path(folder) / "x").touch)
        for folder in (
            *("/ml/usercode", "/ml", "/ml/output", "/ml/output/model", "/ml/input", "/ml/input/config"),
            *("/ml/input/data", os.environ["PAI_INPUT_TRAIN"], "/tmp", "/dev/shm"),
        )
    },
    "home": refusal((Path.home() / ".probe").touch) or refusal((Path.home() / ".probe").unlink),
    "overwritten": refusal(lambda: Path(os.environ["PAI_INPUT_TABLE"]).write_text("")),
    "me": [os.getuid(), os.getgid()],
    "leader": os.getsid(0) == os.getpgid(0),
}
print("SEEN " + json.dumps(seen))
"""


def _stop_when_up(job: TrainingJob) -> None:
    next(iter(job.logs(follow=True)))
    job.stop()


HOSTILE = {
    "plain": "0.1",
    "spaces": "two  words",
    "quotes": 'it\'s "q" `id` $(id) $HOME \\ *',
    "lines": "a\n\tb\r",
    "unicode": "损失 é",
    "dashed": "--x",
    "empty": "",
}
VARIABLES = {
    "QUOTES": 'it\'s "q" `id` $(id) $HOME \\',
    "LINES": "a\nb\n\n",
    "UNICODE": "损失 é",
    "EMPTY": "",
    "UID": "7",  # read-only in some shells
}
SAVER = """
import signal, sys, time
def save(*_):
    time.sleep(0.3)
    print("saved", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("up", flush=True)
time.sleep(60)
"""
UNTIL_TOLD = "trap 'echo saved; exit 0' TERM; echo up; sleep 60 & wait"
MIDDLE_FAILS = """
    trap 'echo asked; exit 0' TERM
    touch /ml/output/model/$RANK
    if [ $RANK = 1 ]; then
        until [ -e /ml/output/model/0 ] && [ -e /ml/output/model/2 ]; do sleep 0.1; done
        exit 5
    fi
    sleep 60 & wait
"""
TRAINING = """
    for i in 1 2 3; do echo "epoch=$i loss=$((10 - i)).5 acc=0.$i"; done
    printf 'loss=nan loss=x loss=1e400 loss=2\\rloss=1\\r\\n'
    cat $PAI_OUTPUT_CHECKPOINTS/*; echo second >$PAI_OUTPUT_CHECKPOINTS/2
    cd $PAI_OUTPUT_MODEL; echo m >m; mkdir -p 'a b/é'; echo x >'a b/é/x y'; : >empty
    echo 'echo hi' >run.sh; chmod +x run.sh; ln -s m latest
"""
TEXT = r"""
    printf 'one\r\n\r\nbar 1\rbar 2\n\377\376 odd\n\000nul\n  spaces  \n\033[31mred\033[0m\n'; echo err >&2
    head -c 100000 /dev/zero | tr '\000' x; echo; printf 'no end'
"""
METRICS = [{"Name": "loss", "Regex": r"loss=(\S+)"}, {"Name": "acc", "Regex": r"acc=([0-9.]+)"}]

# The image has no pai_sdk.
REPORTS = """
import os
from pai_sdk import checkpoint_dir, get_context, report

for step in (1, 2, 3):
    with checkpoint_dir(step) as folder:
        (folder / "weights").write_text(str(step))
    report({"loss": float(get_context().hyperparameters["lr"]) / step, "eval": {"step": step}}, step=step)
print("PYTHONPATH", os.environ["PYTHONPATH"])
"""

CASES = {
    # First, since it takes as long as the grace period.
    "stopped-deaf": Case("trap '' TERM; echo up; sleep 60", act=_stop_when_up, ends="StoppedByUser"),
    "probe": Case(
        'eval "set -- $PAI_USER_ARGS"; python3 probe.py "$@"',
        {
            "hyperparameters": HOSTILE,
            "environments": VARIABLES,
            "labels": {"team": "a b", "empty": ""},
            "max_run_time": 50,
        },
        inputs={"train": Path("my data"), "table": Path("one two.csv")},
    ),
    "text": Case(TEXT),
    "training": Case(TRAINING, {"metric_definitions": METRICS, "resumes": True}),
    "reports": Case(["python3", "-c", REPORTS], {"hyperparameters": {"lr": 0.5}}),
    "list": Case(["./no-shebang.sh", "a  b", "", "$HOME", "é\nx"], {"environments": {"PATH": "/opt/own"}}),
    "background": Case("sleep 60 & (setsid sleep 60 &); echo left"),
    "requirements": Case(
        "python3 -c 'import parity_tiny'",
        {"requirements": ["./parity_tiny-1-py3-none-any.whl"], "environments": {"PATH": "/opt/own:/usr/bin:/bin"}},
    ),
    "three": Case(
        "echo $RANK $WORLD_SIZE $NPROC_PER_NODE $PAI_INSTANCE_NAME; [ $RANK = 2 ] || sleep 0.5",
        {"instance_count": 3},
    ),
    "exit": Case("echo before; exit 3", ends="NonZeroExit"),
    "signal": Case("echo before; kill -SEGV $$", ends="KilledBySignal"),
    "killed": Case("echo before; kill -9 $$", ends="KilledBySignal"),
    "killed-group": Case("trap 'kill 0' EXIT; sleep 60 & echo up; exit 4", ends="KilledBySignal"),
    "not-found": Case("no-such-program --x", ends="CommandNotFound"),
    # A script that the command names is refused before it is sent; the shell finds this one.
    "crlf": Case("./cr*.sh", ends="CommandNotFound"),
    "not-executable": Case(["./not-executable.sh"], ends="NotExecutable"),
    "no-requirement": Case("true", {"requirements": ["./no-1-py3-none-any.whl"]}, ends="RequirementsFailed"),
    "out-of-memory": Case(
        ["python3", "-c", "import time; x = bytearray(200 << 20); x[::4096] = x[::4096]; time.sleep(60)"],
        {"instance_spec": {"cpu": 1, "memory": "64MiB"}},
        ends="OutOfMemory",
    ),
    "time-limit": Case(UNTIL_TOLD, {"max_run_time": 15}, ends="MaxRunningTimeExceeded"),
    "stopped": Case(UNTIL_TOLD, act=_stop_when_up, ends="StoppedByUser"),
    "stopped-child": Case("setsid -w python3 saver.py; echo never", act=_stop_when_up, ends="StoppedByUser"),
    "three-fail": Case(MIDDLE_FAILS, {"instance_count": 3}, ends="NonZeroExit"),
}
# Whether the kernel has killed for want of memory is known of all jobs together only.
_ALONE = ("killed", "out-of-memory")


def _write_code(folder: Path) -> Path:
    code = folder / "code"
    code.mkdir()
    for name, text, mode in (
        ("probe.py", PROBE, 0o644),
        ("saver.py", SAVER, 0o644),
        ("crlf.sh", "#!/bin/sh\r\necho never\r\n", 0o755),
        ("not-executable.sh", "#!/bin/sh\necho never\n", 0o644),
        ("no-shebang.sh", "printf '<%s>\\n' \"$@\"\n", 0o755),
    ):
        (code / name).write_bytes(text.encode())
        (code / name).chmod(mode)
    write_wheel(code, "parity_tiny", "1", "print('tiny is there')\n")
    return code


@pytest.fixture(scope="module")
def ran(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Future[Seen]]:
    """All jobs, in all places."""
    folder = tmp_path_factory.mktemp("parity")
    code = _write_code(folder)
    for name, text in (("my data/a b é.txt", "folder"), ("one two.csv", "file"), ("earlier/1", "first\n")):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    seen: dict[tuple[str, str], Future[Seen]] = {}
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("DOCKER_HOST", engine.socket)
        patch.setenv("PAI_LOCAL_DIR", str(folder / "local"))
        patch.chdir(folder)
        places = [Place("local", stack.enter_context(Session()), folder / "from-local", str(folder / "earlier"))]
        for name in ("process", "docker"):
            client = stack.enter_context(running_service(folder / name, executor=name))
            session = stack.enter_context(session_on(client.info))
            earlier = session.upload(folder / "earlier", f"oss://{client.info.bucket}/earlier/", progress=False)
            places.append(Place(name, session, folder / f"from-{name}", earlier))
        pool = stack.enter_context(ThreadPoolExecutor(6))

        def run(*names: str) -> None:
            found = {
                (name, place.name): pool.submit(place.run, name, CASES[name], code)
                for name in names
                for place in places
            }
            wait(found.values())
            seen.update(found)

        for _ in range(5):  # others on this machine may run out of memory at this very moment
            kills = kernel_kills()
            run("killed")
            if kernel_kills() == kills:
                break
        run(*(name for name in CASES if name not in _ALONE))
        run("out-of-memory")
    return seen


_ITS_PAGE = re.compile(r"\n  its page: \S+")  # only the job of a service has one


@pytest.mark.parametrize("name", CASES)
def test_all_places_are_alike(name: str, ran: dict[tuple[str, str], Future[Seen]]) -> None:
    process, docker, local = (_everywhere(ran[name, place].result()) for place in BACKENDS)
    assert process.reason_code == CASES[name].ends
    assert docker == process
    assert local == process


def _everywhere(seen: Seen) -> Seen:
    """The same without what cannot be alike."""
    return replace(
        seen,
        # A local job is not queued.
        passed=[status for status in seen.passed if status not in ("Creating", "Submitted")],
        logs={instance: [_line(line) for line in lines] for instance, lines in seen.logs.items()},
        error=_line(_ITS_PAGE.sub("", seen.error)),
        outputs={
            channel: {name: [_MARKED_AT.sub("", str(text)), *more] for name, (text, *more) in files.items()}
            for channel, files in seen.outputs.items()
        },
    )


def _line(text: str) -> str:
    if text.startswith("SEEN "):
        return json.dumps(_of_the_contract(json.loads(text.removeprefix("SEEN "))), sort_keys=True)
    # What starts a command says in its own words that it cannot: a shell, or `env`.
    text = re.sub(r"launch: \d+: exec: (\S+): (.*)", r"\1: \2", text)
    text = re.sub(r"/usr/bin/env: '(\S+)': (.*)", r"\1: \2", text).replace(
        "No such file or directory", "not found"
    )
    # Only the processes of a service keep what they have installed.
    return text.replace("; later jobs with the same ones reuse them", "")


def _of_the_contract(probe: dict[str, Any]) -> dict[str, Any]:
    variables = {name: text for name, text in probe["environment"].items() if not _MACHINES_OWN.fullmatch(name)}
    # Where code and data come from, and the submission that a label names, differ as they have to.
    request = {name: value for name, value in probe["request"].items() if name not in ("WorkspaceId", "Labels")}
    request["AlgorithmSpec"]["CodeDir"] = request["ComputeResource"]["EcsSpec"] = None
    for channel in (*request["InputChannels"], *request["OutputChannels"]):
        channel |= dict.fromkeys({"InputUri", "OutputUri"} & channel.keys())
    return {**probe, "environment": variables, "request": request}


def test_what_a_job_finds_is_what_it_was_given(ran: dict[tuple[str, str], Future[Seen]]) -> None:
    for place in BACKENDS:
        seen = ran["probe", place].result()
        probe = json.loads(seen.logs["JOB-master-0"][-1].removeprefix("SEEN "))
        assert VARIABLES.items() <= probe["environment"].items()
        assert probe["hyperparameters"] == json.loads(probe["environment"]["PAI_HPS"]) == HOSTILE
        assert probe["arguments"] == [word for name, text in HOSTILE.items() for word in (f"--{name}", text)]
        assert (probe["train"], probe["table"]) == ({"a b é.txt": "folder"}, "file")
        assert seen.labels == {"team": "a b", "empty": ""}


def test_what_a_job_reports_is_found(ran: dict[tuple[str, str], Future[Seen]]) -> None:
    for place in BACKENDS:
        seen = ran["reports", place].result()
        expected = [["loss", 0.5 / step, step, "JOB-master-0"] for step in (1, 2, 3)]
        assert [metric for metric in seen.metrics if metric[0] == "loss"] == expected
        assert [seen.outputs["checkpoints"][f"{step}/weights"][0] for step in (1, 2, 3)] == ["1", "2", "3"]
        assert all(f"{step}/_COMPLETE" in seen.outputs["checkpoints"] for step in (1, 2, 3))
        assert seen.logs["JOB-master-0"] == ["PYTHONPATH /ml/input/data/pai_sdk"]


def test_what_a_job_leaves_is_found(ran: dict[tuple[str, str], Future[Seen]]) -> None:
    for place in BACKENDS:
        seen = ran["training", place].result()
        assert seen.outputs == {
            "model": {
                "a b/é/x y": ["x\n", False],
                "empty": ["", False],
                "latest": ["m\n", False],
                "m": ["m\n", False],
                "run.sh": ["echo hi\n", True],
            },
            "checkpoints": {"1": ["first\n", False], "2": ["second\n", False]},
        }
        assert [value for name, value, *_ in seen.metrics if name == "loss"] == [9.5, 8.5, 7.5, 2, 1]
        assert ran["exit", place].result().outputs["model"] == {
            "StorageError": ["wrote nothing to its output 'model'"]
        }
        assert ran["stopped-child", place].result().logs["JOB-master-0"] == ["up", "saved"]
