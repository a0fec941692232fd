"""Tunnels into a running job: ssh, copies and commands, beside OpenSSH's own server on loopback."""

from __future__ import annotations

import os
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

from pai_sdk import Processor, Session, TrainingJob
from pai_sdk._client.job.entering import EnteredJob, ExecResult
from tests.benchmarks.harness import Row, is_quick
from tests.support.sshd import OpenSshServer, why_not

REPETITIONS = 3

SSH_UP = Row("pai-sdk ssh: input of a program, to that of sshd", "times", at_least=0.3)
SSH_DOWN = Row("pai-sdk ssh: output of a program, to that of sshd", "times", at_least=0.3)
CP_UP = Row("pai-sdk cp into the job, to `ssh cat`", "times", at_least=0.5)
CP_DOWN = Row("pai-sdk cp from the job, to `ssh cat`", "times", at_least=0.5)
ADDED = Row("a byte there and back by pai-sdk ssh, added to sshd: median", "ms", at_most=5)
IDLE = Row("processor time while a session is idle, of a core", "%", at_most=0.5)
STEP = Row("longer steps of a training meanwhile; less than noise if about 0", "%")
NOBODY = Row("processes for tunnels in a job that nobody has entered", "", at_most=0)
EXEC = Row("pai-sdk exec to the first byte")
SSHD_UP, SSHD_DOWN = Row("the same by sshd, up", "MB/s"), Row("the same by sshd, down", "MB/s")
OWN_UP, OWN_DOWN = Row("pai-sdk ssh, up", "MB/s"), Row("pai-sdk ssh, down", "MB/s")
COPY_UP, COPY_DOWN = Row("pai-sdk cp, up", "MB/s"), Row("pai-sdk cp, down", "MB/s")
PLAIN_UP, PLAIN_DOWN = Row("job.copy_to alone, up", "MB/s"), Row("job.copy_from alone, down", "MB/s")
PLAIN_UP_RATIO = Row("job.copy_to alone, to `ssh cat`", "times")
PLAIN_DOWN_RATIO = Row("job.copy_from alone, to `ssh cat`", "times")
CAT_UP, CAT_DOWN = Row("`ssh cat` of a file, up", "MB/s"), Row("`ssh cat` of a file, down", "MB/s")
TRIP, SSHD_TRIP = Row("a byte by pai-sdk ssh", "ms"), Row("a byte by sshd", "ms")
STREAM_TRIP = Row("a byte by a stream of the tunnel alone", "ms")
ROWS = (
    *(SSH_UP, SSH_DOWN, CP_UP, CP_DOWN, ADDED, IDLE, STEP, NOBODY, EXEC),
    *(OWN_UP, OWN_DOWN, SSHD_UP, SSHD_DOWN, COPY_UP, COPY_DOWN, CAT_UP, CAT_DOWN, TRIP, SSHD_TRIP, STREAM_TRIP),
    *(PLAIN_UP, PLAIN_DOWN, PLAIN_UP_RATIO, PLAIN_DOWN_RATIO),
)

MEGABYTES = 30 if is_quick() else 150
ROUNDS = 1 if is_quick() else 3
BYTES = 200
IDLE_S = 3.0 if is_quick() else 6.0
WINDOWS, STEPS = (2, 30) if is_quick() else (6, 50)

PAI = [sys.executable, "-m", "pai_sdk"]
# A step is a fixed amount of work; each window of steps begins when the benchmark asks for it.
TRAINING = """
import sys, time
work = list(range(200_000))
print("ready", flush=True)
while True:
    times = []
    for _ in range(int(sys.argv[1])):
        start = time.perf_counter()
        sum(each * each for each in work)
        times.append(time.perf_counter() - start)
    print("window", sum(sorted(times)[len(times) // 4 : -len(times) // 4]), flush=True)
    time.sleep(0.2)
"""


def measure(cache: Path) -> dict[str, float | str]:
    big = Path("big").resolve()
    big.write_bytes(os.urandom(MEGABYTES << 20))
    Path("src").mkdir()
    Path("src", "train.py").write_text(TRAINING)
    session = Session.embedded()
    processor = Processor(
        "python:3.11", "echo begun; sleep 600", source_dir="src", instance_type="ecs.c6.large", session=session
    )
    job = processor.run(wait=False, show_logs=False)
    next(line for line in job.logs(follow=True) if line.text == "begun")
    try:
        found: dict[str, float | str] = {NOBODY.name: float(len(_servers()))}
        found |= {EXEC.name: statistics.median(_first_byte(job) for _ in range(5))}
        found |= _copies_and_ssh(job, big)
        found |= {IDLE.name: _idle_percent(job)}
    finally:
        job.stop()
    found |= {STEP.name: _longer_steps(session)}
    return found


def _servers() -> list[psutil.Process]:
    """The servers of tunnels below this home, and their programs."""
    home = str(Path.home())
    servers = [
        process
        for process in psutil.process_iter(["cmdline"])
        if (words := process.info["cmdline"]) and "tunnel.serving" in " ".join(words) and home in " ".join(words)
    ]
    return [*servers, *(child for server in servers for child in server.children(recursive=True))]


def _first_byte(job: TrainingJob) -> float:
    started = time.perf_counter()
    with subprocess.Popen([*PAI, "exec", job.id, "--", "echo", "x"], stdout=subprocess.PIPE, bufsize=0) as process:
        assert process.stdout is not None
        assert process.stdout.read(1) == b"x"
        return time.perf_counter() - started


# ---- throughput and latency ---------------------------------------------------------------------------------


def _copies_and_ssh(job: TrainingJob, big: Path) -> dict[str, float | str]:
    if reason := why_not():
        return dict.fromkeys((row.name for row in (SSH_UP, SSH_DOWN, CP_UP, CP_DOWN, ADDED)), reason)
    subprocess.run([*PAI, "ssh-config", job.id, "--write"], check=True, capture_output=True)
    config = Path.home() / ".ssh" / "pai-sdk" / "config"
    own = ["ssh", "-F", str(config), f"{job.id}.pai"]
    in_job = Path(_capture(job, "pwd")) / "big"
    with OpenSshServer(Path("sshd").resolve()) as server:
        try:
            return _beside_each_other(job, own, server.command, big, in_job)
        finally:
            for command in (own, server.command):
                subprocess.run([*command[:-1], "-O", "exit", command[-1]], check=False, capture_output=True)


def _capture(job: TrainingJob, *argv: str) -> str:
    result = job.exec([*argv], capture=True)
    assert isinstance(result, ExecResult)
    return result.text.strip()


def _beside_each_other(
    job: TrainingJob, own: Sequence[str], theirs: Sequence[str], big: Path, in_job: Path
) -> dict[str, float | str]:
    for command in (own, theirs):
        subprocess.run([*command, "true"], check=True, stderr=subprocess.DEVNULL)
    target, back = str(in_job), str(big.with_name("back"))
    fresh = ["ssh", "-o", "ControlPath=none", *theirs[1:]]
    measures: dict[Row, Callable[[], float]] = {
        SSHD_UP: lambda: _rate([*theirs, "cat >/dev/null"], source=big),
        OWN_UP: lambda: _rate([*own, "cat >/dev/null"], source=big),
        SSHD_DOWN: lambda: _rate([*theirs, f"cat {big}"]),
        OWN_DOWN: lambda: _rate([*own, f"cat {target}"]),
        CAT_UP: lambda: _rate([*fresh, f"cat >{big}.there"], source=big),
        COPY_UP: lambda: _rate([*PAI, "cp", str(big), f"{job.id}:{target}.there"]),
        CAT_DOWN: lambda: _rate([*fresh, f"cat {big}"], target=Path(back)),
        COPY_DOWN: lambda: _rate([*PAI, "cp", f"{job.id}:{target}", f"{back}.copy"]),
        PLAIN_UP: lambda: _rate_of(lambda: job.copy_to(big, f"{target}.there", progress=False)),
        PLAIN_DOWN: lambda: _rate_of(lambda: job.copy_from(target, f"{back}.copy", progress=False)),
        SSHD_TRIP: lambda: _trip_ms([*theirs, "cat"]),
        TRIP: lambda: _trip_ms([*own, "cat"]),
        STREAM_TRIP: lambda: _stream_trip_ms(job),
    }
    job.copy_to(big, target, progress=False)
    values: dict[Row, list[float]] = {row: [] for row in measures}
    for _ in range(ROUNDS):
        for row, value in measures.items():
            values[row].append(value())
    assert Path(f"{back}.copy").read_bytes() == big.read_bytes()
    middle = {row: statistics.median(each) for row, each in values.items()}
    ratios = {SSH_UP: (OWN_UP, SSHD_UP), SSH_DOWN: (OWN_DOWN, SSHD_DOWN)}
    ratios |= {CP_UP: (COPY_UP, CAT_UP), CP_DOWN: (COPY_DOWN, CAT_DOWN)}
    ratios |= {PLAIN_UP_RATIO: (PLAIN_UP, CAT_UP), PLAIN_DOWN_RATIO: (PLAIN_DOWN, CAT_DOWN)}
    found: dict[str, float | str] = {row.name: value for row, value in middle.items()}
    for row, (one, other) in ratios.items():
        # Of each round, since other work slows both of a pair.
        found[row.name] = statistics.median(a / b for a, b in zip(values[one], values[other], strict=True))
    found[ADDED.name] = middle[TRIP] - middle[SSHD_TRIP]
    return found


def _rate_of(copy: Callable[[], object]) -> float:
    started = time.perf_counter()
    copy()
    return (MEGABYTES << 20) / 1e6 / (time.perf_counter() - started)


def _rate(command: Sequence[str], *, source: Path | None = None, target: Path | None = None) -> float:
    """MB/s of the large file."""
    with Path(source or os.devnull).open("rb") as data, Path(target or os.devnull).open("wb") as output:
        started = time.perf_counter()
        subprocess.run(command, stdin=data, stdout=output, stderr=subprocess.DEVNULL, check=True)
        return (MEGABYTES << 20) / 1e6 / (time.perf_counter() - started)


def _trip_ms(command: Sequence[str]) -> float:
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        read, write = process.stdout.read, process.stdin.write
        return _median_ms(lambda: (write(b"x"), read(1)))


def _stream_trip_ms(job: TrainingJob) -> float:
    with EnteredJob(job.backend, job.refresh()).connect(None) as tunnel:
        stream = tunnel.open("program", argv=["cat"], terminal=None, variables={}, cwd=None)

        def trip() -> None:
            stream.write(b"x")
            stream.read()

        return _median_ms(trip)


def _median_ms(trip: Callable[[], object]) -> float:
    times = []
    for _ in range(BYTES):
        started = time.perf_counter()
        trip()
        times.append(time.perf_counter() - started)
        time.sleep(0.003)
    return statistics.median(times) * 1000


# ---- what an idle session costs -----------------------------------------------------------------------------


def _idle_percent(job: TrainingJob) -> float:
    """The processor time of the server of tunnels and its programs while nothing is typed."""
    with EnteredJob(job.backend, job.refresh()).connect(None) as tunnel:
        stream = tunnel.open("program", argv=["cat"], terminal=None, variables={}, cwd=None)
        stream.write(b"x")
        assert stream.read()
        servers = _servers()
        assert servers
        time.sleep(1)
        started, used = time.monotonic(), sum(_used_s(process) for process in servers)
        time.sleep(IDLE_S)
        used = sum(_used_s(process) for process in servers) - used
        return 100 * used / (time.monotonic() - started)


def _used_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _longer_steps(session: Session) -> float:
    """Windows of steps, in turns without a session and with one."""
    processor = Processor(
        "python:3.11",
        f"python3 train.py {STEPS}",
        source_dir="src",
        instance_type="ecs.c6.large",
        session=session,
    )
    job = processor.run(wait=False, show_logs=False)
    lines = (line.text for line in job.logs(follow=True))
    next(line for line in lines if line == "ready")

    def window() -> float:
        # The one that runs is partly of the state before.
        for _ in range(2):
            text = next(line for line in lines if line.startswith("window"))
        return float(re.findall(r"[\d.e-]+$", text)[0])

    ratios = []
    try:
        for _ in range(WINDOWS):
            without = window()
            with EnteredJob(job.backend, job.refresh()).connect(None) as tunnel:
                stream = tunnel.open("program", argv=["cat"], terminal=None, variables={}, cwd=None)
                stream.write(b"x")
                stream.read()
                ratios.append(window() / without)
    finally:
        job.stop()
    shutil.rmtree("src", ignore_errors=True)
    return 100 * (statistics.median(ratios) - 1)
