"""Jobs as processes: how they end, what they see, and that nothing of them is left."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from pai_sdk._core.reasons import image_unused_message
from pai_sdk._host.agent import mlroot
from pai_sdk._host.agent.journal import Journal
from pai_sdk._host.agent.sandbox import Sandbox
from pai_sdk._host.agent.supervising import hidden_by_ml, job_on_host, start_supervisor
from pai_sdk._host.execution.contract import job_description, launch_spec
from pai_sdk._host.execution.process.executor import ProcessExecutor
from pai_sdk._wire.pai.request import TrainingJobRequest
from pai_sdk._wire.pai.roles import Mount
from pai_sdk.errors import InvalidInputError
from tests.support import ml
from tests.support.messages import refused
from tests.support.waiting import PATIENCE_S, quickest, until
from tests.unit.host.execution.conftest import Jobs, make_request

pytestmark = pytest.mark.interpreter

_REPOSITORY = Path(__file__).parents[4]


def mount(path: str) -> Mount:
    return Mount(path=path, uri="oss://bucket/folder/")


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # the latter where it goes while its file is open
        return False


def wait_until_gone(process: int) -> None:
    until(lambda: not is_running(process), f"the end of process {process}")


# ---- how a job ends ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "exit_code", "reason"),
    [
        ("exit 1", 1, "NonZeroExit"),
        (["no-such-program", "--x"], 127, "CommandNotFound"),
        ("no-such-program", 127, "CommandNotFound"),
        (["/etc/passwd"], 126, "NotExecutable"),
        ("kill -9 $$", 137, "KilledBySignal"),
        ("sh -c 'kill -9 $$'; exit $?", 137, "KilledBySignal"),
        ("kill -SEGV $$", 139, "KilledBySignal"),
        (["python", "-c", "import os; os.abort()"], 134, "KilledBySignal"),
    ],
)
def test_a_failure_has_its_exit_code_and_reason(
    jobs: Jobs, command: str | list[str], exit_code: int, reason: str
) -> None:
    state = jobs.run(command)
    (instance,) = state.instances
    assert (state.succeeded, state.reason_code) == (False, reason)
    assert (instance.status, instance.exit_code) == ("Failed", exit_code)
    assert state.failed_instance == instance.name == "train1-master-0"
    assert instance.name in state.reason_message


@pytest.mark.parametrize("command", ["no-such-program", ["python", "-c", "import no_such_module.sub"]])
def test_what_is_missing_here_may_be_in_the_image_which_is_not_used(jobs: Jobs, command: str | list[str]) -> None:
    state = jobs.run(command)
    assert state.reason_message.endswith(" " + image_unused_message("unused"))


def test_other_failures_do_not_speak_of_the_image(jobs: Jobs) -> None:
    state = jobs.run("echo 'ModuleNotFoundError: nothing of the kind'; exit 1")
    assert state.reason_message == "Instance train1-master-0 ended with exit code 1."


def test_success(jobs: Jobs) -> None:
    before = time.time()
    state = jobs.run("echo out; echo err >&2")
    assert (state.succeeded, state.reason_code, state.failed_instance) == (True, "", None)
    assert [(i.name, i.role, i.status, i.exit_code) for i in state.instances] == [
        ("train1-master-0", "master", "Succeed", 0)
    ]
    assert state.started_at
    assert state.ended_at
    assert before <= state.started_at <= state.ended_at <= time.time()
    assert sorted(jobs.log().split()) == ["err", "out"]


def test_the_end_is_known_at_once(jobs: Jobs) -> None:
    names = (f"train{number}" for number in itertools.count())

    def delay_s() -> float:
        name = next(names)
        state = jobs.run("date +%s.%N", name=name)
        assert state.ended_at
        return state.ended_at - float(jobs.log(name=name))

    assert quickest(delay_s, enough_s=0.25) < 1


def test_a_job_runs_once_however_often_it_is_started(jobs: Jobs) -> None:
    request = make_request('echo run >> "$PAI_WORKING_DIR/../output/runs"; sleep 0.3')
    for _ in range(3):
        jobs.start(request)
    jobs.wait()
    ProcessExecutor(jobs.executor.cache_dir).start(launch_spec(jobs.root("train1"), "train1", request))
    assert (Sandbox(jobs.root("train1")).ml / "output" / "runs").read_text() == "run\n"


def test_max_running_time(jobs: Jobs) -> None:
    state = jobs.run("sleep 60", Scheduler={"MaxRunningTimeInSeconds": 1})
    assert state.reason_code == "MaxRunningTimeExceeded"
    assert "1 seconds" in state.reason_message
    assert state.started_at
    assert state.ended_at
    assert state.ended_at - state.started_at >= 1.0


def test_a_request_without_a_command_is_refused(jobs: Jobs) -> None:
    request = make_request().model_copy(update={"algorithm_spec": None, "algorithm_name": "registered"})
    with refused(InvalidInputError, "algorithm_spec.command"):
        jobs.executor.start(launch_spec(jobs.root("train1"), "train1", request))
    assert jobs.executor.state(jobs.root("train1")).phase == "absent"


# ---- what a job sees --------------------------------------------------------------------------------------


def test_the_job_sees_the_real_ml_or_is_told_where_its_folders_are(jobs: Jobs) -> None:
    script = """
import json, os, pathlib
folder = pathlib.Path(os.environ["PAI_CONFIG_DIR"])
print(os.getcwd(), json.loads((folder / "hyperparameters.json").read_text())["note"])
print(pathlib.Path(os.environ["PAI_INPUT_TRAIN"]).read_text(), os.environ["PAI_INPUT_FOLDER"])
pathlib.Path(os.environ["PAI_OUTPUT_MODEL"], "模型.txt").write_text("ok")
"""
    sandbox = Sandbox(jobs.root("train1"))
    sandbox.input_dir("train").mkdir(parents=True)
    (sandbox.input_dir("train") / "a b.csv").write_text("data")
    sandbox.usercode.mkdir()
    (sandbox.usercode / "train.py").write_text(script)
    state = jobs.run(
        "python train.py",
        HyperParameters=[{"Name": "note", "Value": 'it\'s "$(x)" 中文'}],
        InputChannels=[
            {"Name": "train", "InputUri": "oss://b/data/a b.csv"},
            {"Name": "folder", "InputUri": "oss://b/data/"},
        ],
        OutputChannels=[{"Name": "model", "OutputUri": "oss://b/m/"}],
    )
    assert state.succeeded, jobs.diary()
    assert jobs.log().splitlines() == [
        f'{jobs.ml()}/usercode it\'s "$(x)" 中文',
        f"data {jobs.ml()}/input/data/folder",
    ]
    if ml.can_be_had():
        assert jobs.notice() == ""
    else:
        assert jobs.notice().endswith(f"; the PAI_* variables point at {sandbox.ml}\n")
    written = sandbox.output_dir("model") / "模型.txt"
    assert written.read_text() == "ok"
    assert written.stat().st_uid == os.getuid()


def test_inputs_below_ml_cannot_be_changed(jobs: Jobs) -> None:
    channel = [{"Name": "train", "InputUri": "oss://b/data/"}]
    state = jobs.run('touch "$PAI_INPUT_TRAIN/x"', InputChannels=channel)
    assert state.succeeded is not ml.can_be_had()
    assert ("Read-only" in jobs.log()) is ml.can_be_had()
    assert (Sandbox(jobs.root("train1")).input_dir("train") / "x").exists() is not ml.can_be_had()


def test_where_ml_cannot_be_had_the_variables_point_at_the_folders(jobs: Jobs) -> None:
    sandbox = Sandbox(jobs.root("train1"))
    sandbox.state_dir.mkdir(parents=True)
    (sandbox.state_dir / "mount").write_text("in the way of the mount, as a kernel that forbids it would be")
    state = jobs.run('cat "$PAI_CONFIG_DIR/hyperparameters.json"; pwd', count=2)
    assert state.succeeded, jobs.diary()
    for instance in ("master-0", "worker-0"):
        assert str(sandbox.ml) in jobs.notice(instance)
        assert jobs.log(instance) == f"{{}}\n{sandbox.usercode}\n"


def test_the_job_has_our_python_and_none_of_our_keys(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALIBABA_CLOUD_ACCESS_KEY_SECRET", "hush")
    monkeypatch.setenv("SOME_TOKEN", "hush")
    state = jobs.run(
        'env; python -c "import pydantic, sys; print(sys.version_info[:3])"; command -v python3 pip',
        Environments={"MINE": "a b\nc", "PYTHONUNBUFFERED": "0"},
    )
    assert state.succeeded, jobs.diary()
    log = jobs.log()
    assert "hush" not in log
    assert "MINE=a b\nc\n" in log
    assert "PYTHONUNBUFFERED=0\n" in log
    assert str(sys.version_info[:3]) in log


def test_the_jobs_own_python_comes_before_the_path_that_is_asked_for(jobs: Jobs) -> None:
    state = jobs.run('python -c "import sys; print(sys.prefix)"; echo "$PATH"', Environments={"PATH": "/bin:/own"})
    assert state.succeeded, jobs.log()
    prefix, path = jobs.log().splitlines()
    assert prefix.startswith(str(jobs.root("train1")))
    assert path.endswith(":/bin:/own")


def test_what_a_job_installs_stays_with_the_job(jobs: Jobs, tiny_package: Path) -> None:
    command = f'pip install -q --no-index --find-links "{tiny_package}" tiny && python -c "import tiny"'
    assert jobs.run(command).succeeded, jobs.diary()
    assert jobs.run("python -c 'import tiny'", name="train2").succeeded is False


def test_secrets_are_written_for_the_owner_only(jobs: Jobs) -> None:
    assert jobs.run("true", Environments={"TOKEN": "hush"}).succeeded
    root = jobs.root("train1")
    holding = [file for file in root.rglob("*") if file.is_file() and b"hush" in file.read_bytes()]
    assert [(file.name, file.stat().st_mode & 0o777) for file in holding] == [("job.json", 0o600)]


def test_when_the_log_had_which_size(jobs: Jobs) -> None:
    jobs.start(make_request("echo one; while [ ! -e noted ]; do sleep 0.01; done; echo two"))
    sandbox = Sandbox(jobs.root("train1"))

    def samples() -> list[tuple[float, int]]:
        times, above = sandbox.times_file("train1-master-0"), len(jobs.notice().encode())
        lines = times.read_text().splitlines() if times.exists() else []
        noted = [(float(seconds), int(size)) for seconds, size in (line.split() for line in lines)]
        return [(at, size - above) for at, size in noted if size > above]

    jobs.until(lambda _: bool(samples()))
    (sandbox.usercode / "noted").touch()
    assert jobs.wait().succeeded
    (first, after_one), (second, after_two) = samples()
    assert (after_one, after_two) == (4, 8)
    assert first <= second <= time.time()


# ---- several instances ------------------------------------------------------------------------------------

_ALL_REDUCE = """
import os, socket
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if rank == 0:
    server = socket.create_server(address)
    others = [server.accept()[0] for _ in range(world - 1)]
    total = rank + sum(int(other.recv(10)) for other in others)
    for other in others:
        other.sendall(str(total).encode())
else:
    for _ in range(2000):
        try:
            master = socket.create_connection(address)
            break
        except ConnectionRefusedError:
            import time; time.sleep(0.02)
    master.sendall(str(rank).encode())
    total = int(master.recv(10))
print("rank", rank, "of", world, "total", total)
"""


def test_instances_find_each_other(jobs: Jobs) -> None:
    state = jobs.run(["python", "-c", _ALL_REDUCE], count=3)
    assert state.succeeded, jobs.diary()
    assert [i.name for i in state.instances] == ["train1-master-0", "train1-worker-0", "train1-worker-1"]
    for rank, instance in enumerate(["master-0", "worker-0", "worker-1"]):
        assert jobs.log(instance) == f"rank {rank} of 3 total 3\n"


def test_the_first_failure_stops_the_rest_and_is_the_one_told(jobs: Jobs) -> None:
    state = jobs.run('echo up; if [ "$RANK" = 1 ]; then exit 3; fi; sleep 60', count=3)
    assert state.failed_instance == "train1-worker-0"
    assert state.reason_code == "NonZeroExit"
    assert [i.status for i in state.instances] == ["Terminated", "Failed", "Terminated"]
    assert state.instances[1].exit_code == 3


def test_a_rank_that_ends_early_does_not_end_the_job(jobs: Jobs) -> None:
    state = jobs.run('[ "$RANK" = 0 ] || sleep 0.5; echo "$RANK"', count=2, job_type="TFJob")
    assert state.succeeded
    assert jobs.log("worker-1") == "1\n"


# ---- nothing is left --------------------------------------------------------------------------------------


def test_stop_lets_a_job_end_by_itself_first(jobs: Jobs) -> None:
    jobs.executor = ProcessExecutor(jobs.executor.cache_dir, grace_s=PATIENCE_S)
    root = jobs.start(make_request("trap 'echo saved; exit 0' TERM; echo up; while :; do sleep 0.01; done"))
    jobs.until_log("up")
    jobs.executor.stop(root, reason_code="StoppedByUser", reason_message="by Ann")
    jobs.executor.stop(root, reason_code="Other", reason_message="too late")
    state = jobs.wait()
    assert (state.succeeded, state.reason_code, state.reason_message) == (False, "StoppedByUser", "by Ann")
    assert [i.status for i in state.instances] == ["Terminated"]
    assert jobs.log().endswith("saved\n")


@pytest.mark.parametrize("apart", ["timeout 60", "setsid -w"])
def test_what_has_a_group_of_its_own_may_end_by_itself_too(jobs: Jobs, apart: str) -> None:
    jobs.executor = ProcessExecutor(jobs.executor.cache_dir, grace_s=PATIENCE_S)
    saves = "trap 'sleep 0.1; echo saved; exit 0' TERM; echo up; while :; do sleep 0.01; done"
    root = jobs.start(make_request(f'{apart} sh -c "{saves}"; echo never'))
    jobs.until_log("up")
    jobs.executor.stop(root, reason_code="StoppedByUser", reason_message="by Ann")
    jobs.wait()
    assert jobs.log().endswith("saved\n")
    assert "never" not in jobs.log()


def test_stop_ends_what_ignores_it(jobs: Jobs) -> None:
    command = (
        "trap '' TERM; sleep 60 & (setsid sh -c 'trap \"\" TERM; echo pid $$; sleep 61' &) ; echo pid $!; "
        "echo pid $$; while :; do sleep 1; done"
    )
    root = jobs.start(make_request(command))
    jobs.until(lambda _: jobs.log().count("pid") == 3)
    asked = time.time()
    jobs.executor.stop(root, reason_code="StoppedByUser", reason_message="by Ann")
    state = jobs.wait()
    assert state.ended_at
    assert state.ended_at - asked >= 0.4
    assert state.instances[0].exit_code == 137
    for line in jobs.log().splitlines():
        assert not is_running(int(line.split()[1]))


def test_background_processes_end_with_the_job(jobs: Jobs) -> None:
    command = "(setsid sh -c 'echo $$ >pid; exec sleep 600' &) ; while [ ! -s pid ]; do sleep 0.01; done; cat pid"
    assert jobs.run(command).succeeded
    assert not is_running(int(jobs.log()))


def test_a_wish_to_stop_during_the_start_is_not_lost(jobs: Jobs) -> None:
    root = jobs.start(make_request("sleep 60"))
    jobs.executor.stop(root, reason_code="StoppedByUser", reason_message="at once")
    assert jobs.wait().reason_code == "StoppedByUser"


def supervisor_of(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def test_nothing_survives_a_killed_supervisor(jobs: Jobs) -> None:
    root = jobs.start(make_request("(setsid sh -c 'echo child $$; exec sleep 60' &) ; echo main $$; sleep 60"))
    jobs.until(lambda _: jobs.log().count("\n") == 2)
    processes = {line.split()[0]: int(line.split()[1]) for line in jobs.log().splitlines()}
    os.kill(supervisor_of(processes["main"]), signal.SIGKILL)
    state = jobs.wait()
    assert (state.succeeded, state.reason_code) == (False, "SupervisorLost")
    assert [i.status for i in state.instances] == ["Failed"]
    assert not any(map(is_running, processes.values()))
    jobs.executor.start(launch_spec(root, "train1", make_request("echo again")))
    assert "again" not in jobs.log()


def test_a_machine_that_went_down_is_told_too(jobs: Jobs) -> None:
    jobs.start(make_request("(setsid sh -c 'echo child $$; exec sleep 60' &) ; echo main $$; sleep 60"))
    # The lines are there before it is written down that the job runs.
    jobs.until(lambda state: state.phase == "running" and jobs.log().count("\n") == 2)
    processes = {line.split()[0]: int(line.split()[1]) for line in jobs.log().splitlines()}
    supervisor = supervisor_of(processes["main"])
    guardian = supervisor_of(supervisor)
    os.kill(guardian, signal.SIGKILL)
    wait_until_gone(guardian)
    assert jobs.executor.state(jobs.root("train1")).phase == "running"
    os.kill(supervisor, signal.SIGKILL)
    assert jobs.wait().reason_code == "SupervisorLost"
    for process in processes.values():
        wait_until_gone(process)


def test_a_lost_job_takes_nobody_of_another_service_with_it(jobs: Jobs) -> None:
    namesake = {"PAI_INSTANCE_NAME": "train1-master-0", "PATH": os.defpath}
    with subprocess.Popen(["sleep", "60"], env=namesake) as bystander:
        jobs.start(make_request("echo main $$; sleep 60"))
        supervisor = supervisor_of(int(jobs.until_log("\n").split()[1]))
        os.kill(supervisor, signal.SIGKILL)
        assert jobs.wait().reason_code == "SupervisorLost"
        assert bystander.poll() is None
        bystander.kill()


def test_sigterm_to_the_supervisor_is_a_stop_from_outside(jobs: Jobs) -> None:
    jobs.start(make_request("echo main $$; sleep 60"))
    main = int(jobs.until_log("\n").split()[1])
    os.kill(supervisor_of(main), signal.SIGTERM)
    assert jobs.wait().reason_code == "StoppedFromOutside"
    assert not is_running(main)


_START = """
import os, signal, sys
from pathlib import Path
from pai_sdk._host.execution.contract import launch_spec
from pai_sdk._host.execution.process.executor import ProcessExecutor
from pai_sdk._wire.pai.request import TrainingJobRequest
request = TrainingJobRequest.model_validate_json(Path(sys.argv[2]).read_text())
ProcessExecutor(Path(sys.argv[3])).start(launch_spec(Path(sys.argv[1]), "train1", request))
os.killpg(0, signal.SIGKILL)
"""


def start_elsewhere(jobs: Jobs, request: TrainingJobRequest, *, under: Sequence[str] = ()) -> None:
    """Start a job from a process that is killed, with its whole group, right after."""
    file = jobs.folder / "request.json"
    file.write_text(request.to_json())
    root = jobs.root("train1")
    jobs.roots.append(root)
    starter = [sys.executable, "-c", _START, str(root), str(file), str(jobs.executor.cache_dir)]
    result = subprocess.run([*under, *starter], start_new_session=True, cwd=_REPOSITORY, timeout=60)
    assert result.returncode == -signal.SIGKILL


def test_a_job_outlives_the_process_that_started_it(jobs: Jobs) -> None:
    start_elsewhere(jobs, make_request("sleep 0.3; echo done"))
    assert jobs.wait().succeeded, jobs.diary()
    assert jobs.log() == "done\n"


# ---- the namespace ----------------------------------------------------------------------------------------


def test_it_is_tried_without_a_trace(tmp_path: Path) -> None:
    for name in ("ml", "new"):
        (tmp_path / name).mkdir()
    refusal = mlroot.refusal(tmp_path / "ml", tmp_path / "new")
    # What else is mounted may change at any time, by containers of another user for one.
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()
    if ml.can_be_had():
        assert refusal == ""
        assert "No such file" in mlroot.refusal(tmp_path / "absent", tmp_path / "new")
    else:
        assert "unshare" in refusal


def test_ml_without_the_right_to_mount(jobs: Jobs) -> None:
    """Who may not mount gets a user namespace; where there is none, the log says so."""
    weak = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin"] if os.geteuid() == 0 else []
    command = 'echo "$PAI_CONFIG_DIR"; cat "$PAI_CONFIG_DIR/hyperparameters.json"; touch "$PAI_WORKING_DIR/mine"'
    start_elsewhere(jobs, make_request(command), under=weak)
    assert jobs.wait().succeeded, jobs.diary()
    folder = Sandbox(jobs.root("train1")).ml
    config_dir, content = jobs.log().splitlines()
    if subprocess.run([*weak, "unshare", "--user", "true"], capture_output=True).returncode == 0:
        assert (jobs.notice(), config_dir) == ("", "/ml/input/config")
    else:  # in a chroot, say
        assert str(folder) in jobs.notice()
        assert config_dir == str(folder / "input" / "config")
    assert content == "{}"
    assert (folder / "usercode" / "mine").stat().st_uid == os.getuid()


def test_mounts_without_the_right_to_mount(jobs: Jobs) -> None:
    """A user namespace gives new mount points, too; without one the job ends with the reason."""
    weak = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin"] if os.geteuid() == 0 else []
    request = make_request("cat /pai-new/data/file; ls -d /etc", mounts=[mount("/pai-new/data")])
    sandbox = Sandbox(jobs.root("train1"))
    sandbox.mount_dir(0).mkdir(parents=True)
    (sandbox.mount_dir(0) / "file").write_text("content\n")
    start_elsewhere(jobs, request, under=weak)
    state = jobs.wait()
    if subprocess.run([*weak, "unshare", "--user", "true"], capture_output=True).returncode == 0:
        assert jobs.log() == "content\n/etc\n"
    else:
        assert (state.succeeded, state.reason_code) == (False, "SandboxFailed")


def test_mounts_where_nothing_can_be_mounted_end_the_job(jobs: Jobs) -> None:
    sandbox = Sandbox(jobs.root("train1"))
    sandbox.state_dir.mkdir(parents=True)
    (sandbox.state_dir / "mount").write_text("in the way of the mount")
    jobs.start(make_request("true", mounts=[mount("/mnt/data")]))
    state = jobs.wait()
    assert (state.reason_code, [one.status for one in state.instances]) == ("SandboxFailed", ["Terminated"])
    assert "mounts" in state.reason_message


def test_a_mount_that_would_hide_the_python_is_refused(jobs: Jobs) -> None:
    path = "/" + Path(sys.prefix).parts[1]
    with pytest.raises(InvalidInputError) as caught:
        jobs.executor.start(launch_spec(jobs.root("train1"), "train1", make_request("true", mounts=[mount(path)])))
    assert caught.value.problems[0].where == f"mounts[{path!r}]"


def test_a_python_that_lies_in_ml_itself_is_not_hidden() -> None:
    assert hidden_by_ml(["/usr", "/ml/usercode/.venv", "/mlx"]) == "/ml/usercode/.venv"
    assert hidden_by_ml(["/usr", "/mlx"]) == ""


@pytest.mark.parametrize("hides", [True, False])
@pytest.mark.parametrize("explicit", [True, False])
def test_an_instance_without_gpus_sees_none_unless_the_user_says_which(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hides: bool, explicit: bool
) -> None:
    """A cluster may leave it the variables of its node, which name all of them."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "0,1")
    request = make_request("true", Environments={"CUDA_VISIBLE_DEVICES": "1"} if explicit else {})
    spec = launch_spec(tmp_path / "train1", "train1", request)
    facts = {**job_description(spec, grace_s=10), "hides_gpus": hides}
    [instance] = job_on_host(spec.sandbox, facts, cache_dir=tmp_path / "cache")["instances"]
    found = instance["environments"]["plain"]
    assert found["CUDA_VISIBLE_DEVICES"] == ("1" if explicit else "" if hides else "0,1")
    assert found["HIP_VISIBLE_DEVICES"] == ("" if hides else "0,1")


def test_a_state_that_was_cut_off_is_a_lost_job(jobs: Jobs) -> None:
    jobs.run("true")
    file = Sandbox(jobs.root("train1")).state_dir / "state.json"
    assert json.loads(file.read_text())["phase"] == "ended"
    file.write_text('{"phase": "run')
    assert jobs.wait().reason_code == "SupervisorLost"


def test_a_job_with_a_lifeline_is_killed_with_the_process_that_holds_it(tmp_path: Path) -> None:
    spec = launch_spec(tmp_path / "train1", "train1", make_request("sleep 1000 & echo $!; wait"))
    journal = Journal(spec.sandbox.state_dir)
    journal.write_job(job_on_host(spec.sandbox, job_description(spec, grace_s=10), cache_dir=tmp_path / "cache"))
    reader, writer = os.pipe()
    start_supervisor(spec.sandbox.root, package=_REPOSITORY, timeout_s=30, lifeline=reader)
    os.close(reader)
    log = spec.sandbox.log_file("train1-master-0")
    child = int(until(lambda: log.exists() and ml.split_notice(log.read_text())[1].strip(), "its log"))
    os.close(writer)
    until(lambda: not journal.is_locked(), "its end")
    wait_until_gone(child)
    state = journal.state()
    assert state is not None
    assert (state.phase, state.reason_code) == ("ended", "SupervisorLost")


# ---- another machine ----------------------------------------------------------------------------------------


def moved(jobs: Jobs, **machine: str) -> ProcessExecutor:
    """The executor of a service that goes on elsewhere; `machine` is what differs where the job was started."""
    path = Sandbox(jobs.root("train1")).state_dir / "job.json"
    job = json.loads(path.read_text())
    path.write_text(json.dumps({**job, "machine": {**job["machine"], **machine}}))
    return ProcessExecutor(jobs.executor.cache_dir)


def test_a_job_of_a_machine_that_does_not_serve_any_more_is_lost_and_told_to_end(jobs: Jobs) -> None:
    root = jobs.start(make_request("sleep 1000"))
    state = moved(jobs, host="gpu7", boot="0").state(root)
    assert (state.phase, state.succeeded, state.reason_code) == ("ended", False, "NodeLost")
    assert "on gpu7," in state.reason_message
    assert [one.status for one in state.instances] == ["Failed"]
    # Should the machine still be there, its processes see the request.
    until(lambda: jobs.executor.state(root).phase == "ended", "the end of the processes")


def test_a_job_that_had_ended_on_the_other_machine_keeps_its_end(jobs: Jobs) -> None:
    jobs.run("true")
    assert moved(jobs, host="gpu7", boot="0").state(jobs.root("train1")).succeeded


@pytest.mark.parametrize("differs", ["host", "boot"])
def test_a_machine_that_was_renamed_or_a_container_started_anew_is_the_same(jobs: Jobs, differs: str) -> None:
    jobs.start(make_request("sleep 1000"))
    assert moved(jobs, **{differs: "another"}).state(jobs.root("train1")).phase != "ended"
