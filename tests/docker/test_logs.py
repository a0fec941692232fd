"""The logs of local jobs: every byte that was written, whatever happens to the engine and to the readers."""

from __future__ import annotations

import threading

import pytest

from pai_sdk.errors import JobFailed
from tests.docker.conftest import lines_of
from tests.support.waiting import PATIENCE_S


def test_bytes_long_lines_and_a_last_line_without_end(submit):
    job = submit(r"printf 'a\377b\n'; head -c 200000 /dev/zero | tr '\0' x; echo; printf last").wait(
        timeout=PATIENCE_S, show_logs=False
    )
    lines = lines_of(job)
    assert [lines[0], len(lines[1]), lines[2]] == ["a�b", 200000, "last"]


def test_the_last_line_before_a_kill_is_there(submit):
    job = submit("echo one; printf two; kill -9 $$")
    with pytest.raises(JobFailed):
        job.wait(timeout=PATIENCE_S, show_logs=False)
    assert lines_of(job) == ["one", "two"]


def test_what_is_written_just_before_the_end_is_followed_to_its_last_line(submit):
    jobs = [submit("seq 200; echo 'ValueError: the reason' >&2; exit 1") for _ in range(5)]
    for job in jobs:
        lines = [line.text for line in job.logs(follow=True)]
        assert lines == [*map(str, range(1, 201)), "ValueError: the reason"]
        with pytest.raises(JobFailed) as failed:
            job.wait(timeout=PATIENCE_S, show_logs=False)
        assert failed.value.log_tail[-1] == "ValueError: the reason"


def test_an_engine_that_is_killed_costs_no_line(submit, engine):
    """While the engine is away the job goes on, its log is read, and its end is seen."""
    job = submit("for i in $(seq 60); do echo line $i; sleep 0.05; done")
    seen: list[str] = []
    started = threading.Event()

    def follow() -> None:
        for line in job.logs(follow=True):
            seen.append(line.text)
            started.set()

    reader = threading.Thread(target=follow)
    reader.start()
    assert started.wait(timeout=PATIENCE_S)
    engine.kill()
    try:
        reader.join(timeout=PATIENCE_S)
        assert seen == [f"line {number}" for number in range(1, 61)]
    finally:
        engine.up()
    job.wait(timeout=PATIENCE_S, show_logs=False)
    assert job.status == "Succeed"
