"""The first process of a container, without Docker: in a PID namespace, by every shell that an image may have."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil
import pytest

from pai_sdk._host.execution.docker.container import environment_file
from pai_sdk._host.execution.docker.shared_folder import SharedFolder
from tests.support.waiting import PATIENCE_S, until
from tests.support.wheels import write_wheel

Started = tuple["Containers", "subprocess.Popen[bytes]"]
SHELLS = {"dash": ["dash"], "bash": ["bash", "--posix"], "busybox": ["busybox", "sh"]}
_OWN_PIDS = ["unshare", *(() if os.geteuid() == 0 else ("--user", "--map-root-user"))]
_OWN_PIDS += ["--pid", "--fork", "--kill-child", "--mount-proc"]


def _is_possible() -> bool:
    try:
        return subprocess.run([*_OWN_PIDS, "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


pytestmark = pytest.mark.skipif(not _is_possible(), reason="needs a PID namespace (unshare of util-linux)")


@dataclass
class Containers:
    """Starts instances as a container would: the script is process 1 and sees only its own processes."""

    folder: Path
    shell: list[str]
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def run(self) -> SharedFolder:
        return SharedFolder(self.folder)

    def start(
        self,
        command: str | list[str],
        name: str = "one",
        *,
        variables: dict[str, str] | None = None,
        image_variables: dict[str, str] | None = None,
        requirements: tuple[str, ...] = (),
        go: bool = True,
        **settings: object,
    ) -> subprocess.Popen[bytes]:
        own = {
            "RANK": 0,
            "LIMIT_S": 0,
            "GRACE_S": int(PATIENCE_S),  # who listens does not need it, however slow the machine
            "PREEMPT_AFTER_S": 0,
            "GIVE_TO": "",
            "UMASK": "022",
        } | settings
        theirs = {"PAI_WORKING_DIR": str(self.folder / "code"), **(variables or {})}
        for folder in ("code", "logs"):
            (self.folder / folder).mkdir(parents=True, exist_ok=True)
        self.run.prepare(
            {
                f"{name}.settings": "".join(f"PAI_SDK_{key}={value}\n" for key, value in own.items()),
                f"{name}.env": environment_file(theirs),
            },
            requirements,
        )
        if go:
            self.run.go()
        words = ["sh", "-c", command] if isinstance(command, str) else command
        process = subprocess.Popen(
            [*_OWN_PIDS, *self.shell, str(self.folder / "instance.sh"), name, *words],
            env={
                "PATH": os.environ["PATH"],
                "PAI_SDK_SHARED": str(self.folder),
                "PAI_SDK_LOG": "the log",
                **(image_variables or {}),
            },
            stdout=subprocess.DEVNULL,
        )
        self.processes.append(process)
        return process

    def log(self, name: str = "one") -> str:
        path = self.folder / "logs" / f"{name}.log"
        return path.read_text() if path.exists() else ""

    def until_log(self, text: str, name: str = "one") -> None:
        until(lambda: text in self.log(name), f"{text!r} in the log of {name} of {self.folder}")

    def container_exit(self, process: subprocess.Popen[bytes], name: str = "one") -> int:
        """Its exit code, which the script must have written down too."""
        code = process.wait(timeout=PATIENCE_S)
        ended = self.run.read_exit(name)
        assert ended is not None, self.log(name)
        assert ended.code == code
        return code

    def lines(self, command: str | list[str], **settings: object) -> list[str]:
        """What an instance says that ends well."""
        assert self.container_exit(self.start(command, **settings)) == 0, self.log()  # type: ignore[arg-type]
        return self.log().splitlines()


@pytest.fixture
def everywhere(tmp_path: Path) -> Iterator[list[Containers]]:
    """One for each shell there is; what takes its time is tried with all of them at once."""
    there_are = [name for name, shell in SHELLS.items() if shutil.which(shell[0])]
    found = [Containers(tmp_path / f"a run by {name}", SHELLS[name]) for name in there_are]
    assert found, "none of the shells is on this machine"
    yield found
    for process in (process for containers in found for process in containers.processes):
        process.kill()
        process.wait()


@pytest.fixture(params=SHELLS)
def containers(request: pytest.FixtureRequest, everywhere: list[Containers]) -> Containers:
    """That of one shell."""
    for containers in everywhere:
        if containers.shell == SHELLS[request.param]:
            return containers
    pytest.skip(f"there is no {request.param} on this machine")


def test_the_command_has_its_variables_its_folder_and_no_input(containers: Containers) -> None:
    hostile = {"NOTE": "it's $HOME\n`x`", "PATH": f"/nowhere:{os.environ['PATH']}", "UMLAUT": "ü"}
    lines = containers.lines('printf "%s|" "$NOTE" "$UMLAUT" "$PWD" "${PATH%%:*}"; cat; umask', variables=hostile)
    assert "\n".join(lines) == f"it's $HOME\n`x`|ü|{containers.folder}/code|/nowhere|0022"


def test_variables_named_as_those_of_the_script_disturb_neither(containers: Containers) -> None:
    names = ("name", "run", "code", "looks", "begun", "child", "watcher", "waited", "beat", "other", "python")
    theirs = {name: f"their {name}" for name in names}
    command = "; ".join(f'echo "${name}"' for name in names)
    assert containers.lines(command, variables=theirs) == list(theirs.values())


def test_variables_of_the_image_reach_the_command_unchanged(containers: Containers) -> None:
    theirs = {name: f"their {name}" for name in ("name", "run", "code", "now", "looks")}
    command = "; ".join(f'echo "${name}"' for name in theirs)
    assert containers.lines(command, image_variables=theirs) == list(theirs.values())


def test_names_that_no_shell_takes_reach_the_command(containers: Containers) -> None:
    odd = {"UID": "77", "PPID": "it's", "a.name": "two words", "BASHOPTS": "x", "OPTIND": "y"}
    seen = containers.lines(["env"], variables=odd)
    assert [f"{name}={value}" for name, value in odd.items() if f"{name}={value}" not in seen] == []


@pytest.mark.parametrize("name", ["IFS", "_apart", "_attentive", "_env", "_run", "_name", "_pause"])
def test_no_variable_of_the_users_keeps_the_command_from_starting(containers: Containers, name: str) -> None:
    assert f"{name}=,-/ =" in containers.lines(["env"], variables={name: ",-/ ="})


def with_programs(containers: Containers, folder: Path, *programs: str) -> Containers:
    """The same, in an image that has these programs and no others."""
    folder.mkdir(exist_ok=True)
    for program in programs:
        (folder / program).symlink_to(str(shutil.which(program)))
    shell = [str(shutil.which(containers.shell[0])), *containers.shell[1:]]
    return replace(containers, shell=["env", f"PATH={folder}", *shell])


def test_an_image_without_sleep_waits_all_the_same(everywhere: list[Containers], tmp_path: Path) -> None:
    """Dash cannot wait by itself; it has the help of bash, which most images with dash have too."""
    images = [
        with_programs(containers, tmp_path / str(number), "bash", "env")
        for number, containers in enumerate(everywhere)
    ]
    command = ["/bin/sh", "-c", "/bin/sleep 1; echo done"]
    begun = [(containers, containers.start(command, go=False)) for containers in images]
    for containers, _ in begun:
        until((containers.folder / "one.beat").exists)
        containers.run.go()
    for containers, process in begun:
        assert containers.container_exit(process) == 0
        assert containers.log() == "done\n"


@pytest.mark.parametrize("containers", ["dash"], indirect=True)
def test_an_image_that_cannot_wait_at_all_is_refused(containers: Containers, tmp_path: Path) -> None:
    image = with_programs(containers, tmp_path / "nothing")
    assert image.start("echo never").wait(timeout=PATIENCE_S) == 126
    assert not image.run.has_opened_log("one")


@pytest.mark.skipif(os.geteuid() != 0, reason="a limit of processes is set by root")
def test_the_watch_goes_on_where_no_process_can_be_made(everywhere: list[Containers]) -> None:
    """The job has used up all it may have. The others still see signs of life, and a stop is heeded."""
    user = str(100_000 + os.getpid())  # whose processes are all those of this test
    rights = ["--inh-caps=+dac_override", "--ambient-caps=+dac_override"]  # to the folders of this test
    as_user = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", *rights]
    limited = [replace(containers, shell=[*as_user, *containers.shell]) for containers in everywhere]
    all_started = started(limited, "echo up; exec sleep 1000")
    for containers, process in all_started:
        beat = containers.folder / "one.beat"
        until(lambda beat=beat: beat.stat().st_mtime_ns > beat.parent.joinpath("one.started").stat().st_mtime_ns)
        for one in psutil.Process(process.pid).children(recursive=True):
            subprocess.run([*as_user, "prlimit", f"--pid={one.pid}", "--nproc=1:1"], check=True)
    for containers, _ in all_started:
        beat = containers.folder / "one.beat"
        for _ in range(3):
            before = beat.stat().st_mtime_ns
            until(lambda beat=beat, before=before: beat.stat().st_mtime_ns != before, "a sign of life")
        containers.run.request_stop("StoppedByUser", "why")
    for containers, process in all_started:
        assert containers.container_exit(process) == 143
        assert containers.run.end_reason("one") == "stopped"
        assert containers.log() == "up\n"


def test_a_path_of_the_users_does_not_blind_the_script(containers: Containers) -> None:
    # The command cannot be found, and that is said; it is not the script that fails.
    assert containers.container_exit(containers.start(["python3"], variables={"PATH": "/nowhere"})) == 127
    assert len(containers.log().splitlines()) == 1


# Busybox's shell has no way to give a command in the background its Ctrl-C back.
@pytest.mark.parametrize("containers", sorted(SHELLS.keys() - {"busybox"}), indirect=True)
def test_the_command_listens_to_ctrl_c(containers: Containers) -> None:
    program = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    assert containers.lines([sys.executable, "-c", program]) == ["True"]


def test_exit_codes(containers: Containers) -> None:
    for command, code in (("exit 3", 3), ("kill -SEGV $$", 139), ("no-such-program", 127)):
        containers.folder.mkdir(exist_ok=True)
        assert containers.container_exit(containers.start(command)) == code
        assert containers.run.first_failure == ("one", code)
        shutil.rmtree(containers.folder)
    assert containers.container_exit(containers.start(["/no/such/program"])) == 127


UP_AND_SAVES = "trap 'sleep 0.5; echo saved; exit 0' TERM; echo up; while :; do sleep 0.1; done"


def started(everywhere: list[Containers], command: str, **settings: object) -> list[Started]:
    """Starts a command with every shell and waits until it says that it is up."""
    processes = [containers.start(command, **settings) for containers in everywhere]  # type: ignore[arg-type]
    for containers in everywhere:
        containers.until_log("up")
    return list(zip(everywhere, processes, strict=True))


def test_a_stop_leaves_time_to_save(everywhere: list[Containers]) -> None:
    all_started = started(everywhere, UP_AND_SAVES)
    for containers in everywhere:
        containers.run.request_stop("StoppedByUser", "why")
    for containers, process in all_started:
        containers.container_exit(process)
        assert containers.log().splitlines()[-1] == "saved"
        assert containers.run.end_reason("one") == "stopped"
        assert containers.run.stop_request == ("StoppedByUser", "why")


def test_what_the_command_started_gets_that_time_too(everywhere: list[Containers]) -> None:
    all_started = started(everywhere, f"sh -c {shlex.quote(UP_AND_SAVES)}; echo never")
    for containers in everywhere:
        containers.run.request_stop("", "")
    for containers, process in all_started:
        containers.container_exit(process)
        assert "saved" in containers.log()


def test_what_does_not_listen_is_killed_after_the_grace_period(everywhere: list[Containers]) -> None:
    all_started = started(everywhere, "trap '' TERM; echo up; while :; do sleep 0.1; done", GRACE_S=1)
    for containers in everywhere:
        containers.run.request_stop("", "")
    for containers, process in all_started:
        assert containers.container_exit(process) == 137


def test_the_time_limit_is_kept_and_never_early(everywhere: list[Containers]) -> None:
    """The script knows whole seconds only: one may be over as soon as it has begun."""
    begun = [
        (containers, time.monotonic(), containers.start("exec sleep 1000", LIMIT_S=1)) for containers in everywhere
    ]
    for containers, begun_at, process in begun:
        assert containers.container_exit(process) == 143
        assert time.monotonic() - begun_at >= 1
        assert containers.run.end_reason("one") == "timeout"
        assert containers.run.first_failure is None


def test_the_time_limit_leaves_time_to_save(everywhere: list[Containers]) -> None:
    all_started = started(everywhere, UP_AND_SAVES)
    for containers in everywhere:
        (containers.folder / "timeout").write_text("two\n")  # as the first instance does that reaches it
    for containers, process in all_started:
        assert containers.container_exit(process) == 0
        assert containers.run.end_reason("one") == "timeout"
        assert "saved" in containers.log()


def test_the_clock_is_not_asked_for_the_time_limit(everywhere: list[Containers], tmp_path: Path) -> None:
    """A clock that is set while the job runs ends no job: here every look at it is a year on."""
    programs, looks = tmp_path / "programs", shlex.quote(str(tmp_path / "looks"))
    programs.mkdir()
    (programs / "date").write_text(f"#!/bin/sh\necho x >>{looks}\necho $(($(wc -l <{looks}) * 31536000))\n")
    (programs / "date").chmod(0o755)
    variables = {"PATH": f"{programs}:{os.environ['PATH']}"}
    for containers, process in started(everywhere, "echo up; sleep 1.2", image_variables=variables, LIMIT_S=60):
        assert containers.container_exit(process) == 0
        assert containers.run.end_reason("one") == ""


def test_told_to_end_by_the_engine(everywhere: list[Containers]) -> None:
    all_started = started(everywhere, UP_AND_SAVES)
    for _, process in all_started:
        tell_first_process(process)
    for containers, process in all_started:
        containers.container_exit(process)
        assert containers.run.stop_request == ("StoppedFromOutside", "")
        assert "saved" in containers.log()


# Bash does not know the code any more of what has ended while it was at its trap.
@pytest.mark.parametrize("containers", sorted(SHELLS.keys() - {"bash"}), indirect=True)
def test_told_to_end_while_the_command_ends_the_exit_code_is_still_its_own(containers: Containers) -> None:
    assert containers.container_exit(containers.start("trap '' TERM; kill -TERM 1; exit 5")) == 5


def test_what_is_being_ended_does_not_begin(containers: Containers) -> None:
    """Where the signal to end is sent before the command's process can feel it, it is not lost."""
    containers.folder.mkdir()
    for name, text in (("timeout", "two"), ("one.why", "timeout")):
        (containers.folder / name).write_text(f"{text}\n")
    assert containers.container_exit(containers.start("echo never; exec sleep 1000")) == 143
    assert "never" not in containers.log()


def test_a_reason_whose_writer_was_killed_is_written_again(containers: Containers) -> None:
    """The watcher may be ended with the rest of the container, between making the file and filling it."""
    loses_it = "until [ -s ../one.why ]; do sleep 0.02; done; printf '' >../one.why; exit 1"
    process = containers.start(f"trap '' TERM; echo up; {loses_it}")
    containers.until_log("up")
    containers.run.request_stop("StoppedByUser", "why")
    assert containers.container_exit(process) == 1
    assert (containers.run.end_reason("one"), containers.run.first_failure) == ("stopped", None)


def test_a_reason_that_was_given_stays_when_the_engine_is_told_too(everywhere: list[Containers]) -> None:
    waits = "trap 'until [ -e told ]; do sleep 0.02; done; exit 0' TERM; echo up; while :; do sleep 0.1; done"
    all_started = started(everywhere, waits)
    for containers, process in all_started:
        containers.run.request_stop("StoppedByUser", "why")
        tell_first_process(process)
        (containers.folder / "code" / "told").touch()
    for containers, process in all_started:
        assert containers.container_exit(process) == 0
        assert containers.run.stop_request == ("StoppedByUser", "why")


def tell_first_process(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM for the script, as `docker stop` sends it; it is the only child of `unshare`."""
    [child] = psutil.Process(process.pid).children()
    child.terminate()


def test_the_first_failure_ends_the_others(everywhere: list[Containers]) -> None:
    peers = [containers.start(UP_AND_SAVES, "two", RANK=1) for containers in everywhere]
    for containers, peer in zip(everywhere, peers, strict=True):
        containers.until_log("up", "two")
        assert containers.container_exit(containers.start("exit 4", "one"), "one") == 4
        containers.container_exit(peer, "two")
        assert (containers.run.first_failure, containers.run.end_reason("two")) == (("one", 4), "peer")


# Busybox has a `sleep` of its own, so there it would take its time until an instance counts as lost.
@pytest.mark.parametrize("containers", sorted(SHELLS.keys() - {"busybox"}), indirect=True)
def test_who_has_ended_and_still_gives_its_files_to_their_owner_is_not_lost(
    containers: Containers, tmp_path: Path
) -> None:
    """With many files it takes longer than another instance may be silent."""
    programs, all_given = tmp_path / "programs", tmp_path / "all given"
    programs.mkdir()
    waits = f"until [ -e {shlex.quote(str(all_given))} ]; do /bin/sleep 0.02; done"
    for name, text in (("chown", waits), ("sleep", "exec /bin/sleep 0.01")):
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    quick = {"PATH": f"{programs}:{os.environ['PATH']}"}
    gives = containers.start("true", "two", RANK=1, GIVE_TO="0:0", image_variables=quick)
    until((containers.folder / "two.exit.part").exists)
    refresh = containers.start("until [ -e ../two.exit ]; do sleep 1; done", image_variables=quick)
    mark = containers.folder / "one.mark"
    until(mark.exists)
    for _ in range(2):
        before = mark.stat().st_mtime_ns
        until(lambda before=before: mark.stat().st_mtime_ns != before)  # type: ignore[misc]
    assert containers.run.first_failure is None
    all_given.touch()
    assert (containers.container_exit(gives, "two"), containers.container_exit(refresh)) == (0, 0)


@pytest.mark.parametrize("why", ["stopped", "timeout"])
def test_who_fails_because_its_peer_is_ended_has_not_failed_first(everywhere: list[Containers], why: str) -> None:
    """It cannot go on without the other, and fails, mostly before its own watcher has told it to end."""
    misses = "trap '' TERM; echo up; until [ -e ../two.why ]; do sleep 0.02; done; echo missed its peer; exit 1"
    peers = started(everywhere, misses)
    limit_s = 1 if why == "timeout" else 0
    ended = [containers.start("echo up; exec sleep 1000", "two", LIMIT_S=limit_s) for containers in everywhere]
    for containers in everywhere:
        if why == "stopped":
            containers.run.request_stop("StoppedByUser", "why")
    for (containers, peer), other in zip(peers, ended, strict=True):
        assert (containers.container_exit(other, "two"), containers.container_exit(peer)) == (143, 1)
        assert containers.run.first_failure is None, "an instance is blamed that only missed the other"
        assert [containers.run.end_reason(name) for name in ("one", "two")] == [why, why]


@pytest.mark.parametrize("save_s", [0, 0.7])
def test_the_drill_takes_all_instances_before_any_begins_anew(everywhere: list[Containers], save_s: float) -> None:
    """However long one takes to save, and however soon the other misses it: they meet again."""
    saves = f"trap 'sleep {save_s}; >saved; exit 1' TERM; echo up; while :; do sleep 0.02; done"
    misses = "trap '' TERM; echo up; until [ -e saved ]; do sleep 0.02; done; exit 1"
    commands = {"one": f"[ -e saved ] && exit 0; {saves}", "two": f"[ -e saved ] && exit 0; {misses}"}
    pairs = [
        [containers.start(command, name, PREEMPT_AFTER_S=1000) for name, command in commands.items()]
        for containers in everywhere
    ]
    for containers in everywhere:
        for name in commands:
            containers.until_log("up", name)
        (containers.folder / "preempt").touch()  # as the first of them does when its time has come
    for containers, processes in zip(everywhere, pairs, strict=True):
        codes = [
            containers.container_exit(process, name) for process, name in zip(processes, commands, strict=True)
        ]
        assert codes == [0, 0], containers.log("one") + containers.log("two")
        for name in commands:
            assert containers.log(name).count("is preempted now") == 1
            assert containers.log(name).count("is started again") == 1


def test_the_drill_preempts_once(everywhere: list[Containers]) -> None:
    command = "until [ -e ../one.vacated ]; do sleep 0.1; done"
    begun = [(containers, containers.start(command, PREEMPT_AFTER_S=1)) for containers in everywhere]
    for containers, process in begun:
        assert containers.container_exit(process) == 0
        told = [line for line in containers.log().splitlines() if "drill" in line]
        assert ["is preempted now" in told[0], "is started again" in told[1], len(told)] == [True, True, 2]


def test_what_is_left_behind_does_not_keep_the_instance(containers: Containers) -> None:
    assert containers.lines("sleep 1000 & echo left") == ["left"]


@pytest.mark.parametrize("counts", ["memory.events", "memory/memory.oom_control"])
def test_it_knows_when_the_kernel_has_killed_for_want_of_memory(containers: Containers, counts: str) -> None:
    """Both kinds of control groups count it; what was counted before belongs to another job."""
    file = f"/sys/fs/cgroup/{counts}"
    prepared = 'mount -t tmpfs none /sys/fs/cgroup && mkdir -p "${0%/*}" && echo oom_kill 2 >"$0" && exec "$@"'
    grouped = replace(containers, shell=["sh", "-c", prepared, file, *containers.shell])
    for command, is_killed in (("true", False), (f"echo oom_kill 3 >{file}; exit 137", True)):
        grouped.container_exit(grouped.start(command))
        assert grouped.run.ran_out_of_memory("one") == is_killed


def test_requirements_that_cannot_be_installed_end_all(everywhere: list[Containers], tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "python3").write_text("#!/bin/sh\ncase $* in *install*) echo no network; exit 1;; esac\n")
    (programs / "python3").chmod(0o755)
    path = {"PATH": f"{programs}:{os.environ['PATH']}"}
    needed = ("tinydb",)
    for containers in everywhere:
        second = containers.start("echo never", "two", RANK=1, requirements=needed, go=False)
        first = containers.start("echo never", "one", requirements=needed, variables=path)
        assert containers.container_exit(first, "one") == 1
        assert containers.container_exit(second, "two") != 0
        assert containers.run.requirements_failed
        assert "no network" in containers.log("one")
        assert "never" not in containers.log("one") + containers.log("two")


def test_requirements_that_are_kept_are_installed_once(everywhere: list[Containers], tmp_path: Path) -> None:
    """Also when another instance has installed them meanwhile, or was killed while it did."""
    wheels, kept = tmp_path / "wheels", tmp_path / "kept"
    wheels.mkdir()
    entry_points = "[console_scripts]\ntiny = tiny:main\n"
    write_wheel(wheels, "tiny", "1", "def main():\n    print('called')\n", entry_points=entry_points)
    variables = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(wheels),
    }
    for number, containers in enumerate(everywhere):
        if number % 2 == 0:  # as the host prepares it; the second shell finds what the first has installed
            shutil.rmtree(kept, ignore_errors=True)
            (kept / ".killed" / "target").mkdir(parents=True)
            (kept / "image").write_text("img\n")
        containers.folder.mkdir(parents=True, exist_ok=True)
        (containers.folder / "requirements").symlink_to(kept)
        process = containers.start("tiny; echo $?", requirements=("tiny==1",), variables=variables)
        assert containers.container_exit(process) == 0, containers.log()
        said = containers.log().splitlines()
        assert said[-2:] == ["called", "0"]
        assert any("installing" in line for line in said) == (number % 2 == 0)
        assert {path.name for path in kept.iterdir()} == {".killed", "image", "python", "complete"}


def test_a_run_folder_that_takes_no_more_files_ends_the_job_in_time(everywhere: list[Containers]) -> None:
    all_started = started(everywhere, "echo up; while :; do sleep 0.1; done", LIMIT_S=1, GRACE_S=1)
    for containers in everywhere:  # moved, since it is not empty for long enough to be removed
        containers.folder.rename(containers.folder.with_name(f"{containers.folder.name}, gone"))
    for _, process in all_started:
        assert process.wait(timeout=PATIENCE_S) != 0
