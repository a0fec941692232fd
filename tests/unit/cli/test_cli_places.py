"""Which job a command means, by id, prefix, name or `-`; and in which place it looks."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from pai_sdk import Session
from pai_sdk._client.display.commands import list_command, next_commands
from pai_sdk._core.retry import RetryPolicy
from pai_sdk._wire.pai.job_names import without_suffix
from pai_sdk._wire.pai.record import JobRecord, MetricPoint
from pai_sdk.cli.root import app
from pai_sdk.cli.selection import job_names
from pai_sdk.errors import InvalidInputError, NotFoundError, PaiError, SettingsError
from tests.support.fake_backend import FakeBackend
from tests.support.messages import refused
from tests.support.waiting import PATIENCE_S

JOBS = {  # id: name, minute of its creation
    "trainaa11": ("digits", 1),
    "trainab22": ("words", 2),
    "trainab33": ("digits-2", 3),
    "trainzz44": ("twice", 4),
    "trainzz55": ("twice", 5),
    "trainhp66": ("hp-lr0.8-depth2-1a2b3c", 6),
    "trainhp77": ("hp-lr0.8-depth3-1a2b3d", 7),
    "trainhp88": ("hp-lr0.8-depth3-1a2b3e", 8),
    "trainhp99": ("hp-lr0.8-depth20-1a2b3f", 8),
}
LOCAL = {"local-cc66": ("here", 9), "local-dd77": ("words-here", 0)}


class ManyJobs(FakeBackend):
    """Has the jobs of a dict, the newest first."""

    def __init__(self, jobs: dict[str, tuple[str, int]]) -> None:
        super().__init__()
        self.jobs = jobs

    def get(self, job_id: str, **_: Any) -> JobRecord:
        if job_id not in self.jobs:
            raise NotFoundError(f"no {job_id}", code="TrainingJobNotFound", status_code=404)
        name, minute = self.jobs[job_id]
        self.extra = {"TrainingJobName": name, "GmtCreateTime": f"2026-11-22T05:{minute:02}:00Z"}
        return super().get(job_id)

    def list(self, *, name: str | None = None, **_: Any) -> Iterator[JobRecord]:
        newest = sorted(self.jobs, key=lambda job_id: -self.jobs[job_id][1])
        yield from (self.get(job_id) for job_id in newest if (name or "") in self.jobs[job_id][0])


@pytest.fixture
def service() -> ManyJobs:
    return ManyJobs(dict(JOBS))


@pytest.fixture
def docker() -> ManyJobs:
    return ManyJobs(dict(LOCAL))


@pytest.fixture(autouse=True)
def session(monkeypatch: pytest.MonkeyPatch, service: ManyJobs, docker: ManyJobs, clean_home: Path) -> Session:
    made = Session("cn-hangzhou", "1", oss_bucket_name="models", access_key_id="a", access_key_secret="b")
    monkeypatch.setattr("pai_sdk._client.session.default._default", made)
    monkeypatch.setattr(
        Session, "backend_for", lambda self, kind, api=None: docker if kind == "local" else service
    )
    monkeypatch.setattr(Session, "local", docker)
    return made


def pai(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def meant(*arguments: str) -> str:
    told = pai("status", *arguments, "--json")
    assert told.stdout, told.exception
    return str(json.loads(told.stdout)["TrainingJobId"])


@pytest.mark.parametrize(
    ("given", "job_id"),
    [
        ("trainaa11", "trainaa11"),
        ("trainaa", "trainaa11"),
        ("trainab2", "trainab22"),
        ("words", "trainab22"),
        ("digits", "trainaa11"),  # whole names only: not digits-2
        ("-", "local-cc66"),
        ("local-cc66", "local-cc66"),
        ("local-d", "local-dd77"),
        ("here", "local-cc66"),
        ("digits-", "trainab33"),  # the beginning of a name
        ("hp-lr0.8-depth2", "trainhp66"),  # as tables of runs print it
        ("hp-lr0.8-depth3 (p77)", "trainhp77"),
    ],
)
def test_what_names_a_job(given: str, job_id: str) -> None:
    assert meant(given) == job_id


def test_what_lists_of_jobs_lack_is_requested(monkeypatch: pytest.MonkeyPatch) -> None:
    get, list_jobs = ManyJobs.get, ManyJobs.list
    loss = MetricPoint(name="loss", value=0.25)

    def with_metrics(self: ManyJobs, job_id: str, **_: Any) -> JobRecord:
        return get(self, job_id).model_copy(update={"latest_metrics": [loss]})

    def without_metrics(self: ManyJobs, **filters: Any) -> Iterator[JobRecord]:
        return (each.model_copy(update={"latest_metrics": []}) for each in list_jobs(self, **filters))

    monkeypatch.setattr(ManyJobs, "get", with_metrics)
    monkeypatch.setattr(ManyJobs, "list", without_metrics)
    for given in ("trainaa11", "trainaa", "hp-lr0.8-depth2"):
        assert "loss" in pai("describe", given).stdout


def test_a_whole_name_comes_before_the_beginning_of_an_id(service: ManyJobs) -> None:
    service.jobs["other"] = ("trainab", 0)
    assert meant("trainab") == "other"


@pytest.mark.parametrize("given", ["trainab", "twice", "trainhp", "hp-lr0.8-depth3"])
def test_what_fits_several_jobs_names_them(given: str) -> None:
    error = pai("stop", given).exception
    assert isinstance(error, InvalidInputError)
    fitting = [
        job_id for job_id, (name, _) in JOBS.items() if job_id.startswith(given) or without_suffix(name) == given
    ]
    assert f"{given!r} fits {len(fitting)} jobs" in str(error)
    assert all(job_id in str(error) for job_id in fitting)


def test_a_misspelt_run_name_suggests_the_nearest() -> None:
    assert "did you mean 'hp-lr0.8-depth2'" in str(pai("status", "hp-lr0.8-detph2").exception)


def test_what_fits_no_job_says_where_it_looked() -> None:
    error = pai("status", "trainxx").exception
    assert isinstance(error, NotFoundError)
    assert "no job in cn-hangzhou, workspace 1 or in Docker on this machine" in str(error)
    assert "`pai-sdk ps` lists them; other places: --embedded, --profile NAME" in str(error)
    assert "did you mean 'digits-2'" in str(pai("logs", "digit-2").exception)


def test_the_newest_of_no_jobs(service: ManyJobs, docker: ManyJobs) -> None:
    service.jobs.clear()
    assert meant("-") == "local-cc66"
    docker.jobs.clear()
    with refused(NotFoundError, code="TrainingJobNotFound"):
        raise pai("logs", "-").exception or AssertionError


def test_a_machine_that_has_only_docker_needs_no_service(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra for the service may not be installed there."""

    def started() -> None:
        raise AssertionError("no service is to be started")

    monkeypatch.setattr("pai_sdk._client.session.default._default", None)
    monkeypatch.setattr(Session, "embedded", started)
    assert meant("-") == meant("here") == meant("local-cc") == "local-cc66"
    with refused(NotFoundError, code="TrainingJobNotFound"):
        raise pai("status", "nothing").exception or AssertionError


def test_a_place_that_is_named_is_the_only_one() -> None:
    assert meant("-", "--local") == "local-cc66"
    with refused(NotFoundError, code="TrainingJobNotFound"):
        raise pai("status", "digits", "--local").exception or AssertionError
    assert pai("ps", "-q", "--local").stdout.split() == ["local-cc66", "local-dd77"]


def test_a_profile_and_its_jobs(monkeypatch: pytest.MonkeyPatch, service: ManyJobs) -> None:
    staging = ManyJobs({"train99": ("of-staging", 1)})
    monkeypatch.setattr(
        Session,
        "backend_for",
        lambda self, kind, api=None: staging if self.settings.profile == "staging" else service,
    )
    pai("config", "set", "region_id", "cn-shanghai", "--profile", "staging")
    pai("config", "set", "workspace_id", "7", "--profile", "staging")
    assert meant("-", "--profile", "staging") == "train99"
    assert pai("ps", "-q", "--profile", "staging").stdout == "train99\n"
    assert "train99" not in pai("ps", "-q").stdout, "only that command is about the profile"
    with refused(NotFoundError, code="TrainingJobNotFound"):
        raise pai("status", "words", "--profile", "staging").exception or AssertionError
    with refused(SettingsError):
        raise pai("ps", "--profile", "stagin").exception or AssertionError


def test_commands_that_are_shown_name_the_place(monkeypatch: pytest.MonkeyPatch, service: ManyJobs) -> None:
    monkeypatch.setattr(Session, "embedded", lambda: Session("local", endpoint="http://127.0.0.1:1"))
    shown: list[str] = []
    monkeypatch.setattr(
        "pai_sdk.cli.jobs.print_next_commands",
        lambda job: shown.extend([*next_commands(job.record), list_command()]),
    )

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pai_sdk._client.job.training_job.TrainingJob.wait", interrupted)
    assert pai("wait", "words", "--embedded", "--quiet").exit_code == 101
    assert shown[0].partition(" logs -f ")[2] == "trainab22 --embedded"
    assert shown[-1].endswith("ps --embedded")
    assert not any("--embedded" in line for line in next_commands(service.get("trainab22")))


@pytest.mark.parametrize(
    "options", [("--local", "--embedded"), ("--embedded", "--profile", "staging"), ("--profile", " ")]
)
def test_two_places_at_once_are_wrong_usage(options: tuple[str, ...]) -> None:
    assert pai("ps", *options).exit_code == 2


def test_run_local_is_an_instance_type(monkeypatch: pytest.MonkeyPatch) -> None:
    run = ("run", "--image", "python:3.11", "--command", "true", "--dry-run", "--local")
    assert '"EcsSpec": "local"' in pai(*run).stdout
    assert '"EcsSpec": "local_gpu"' in pai(*run, "-t", "local_gpu").stdout
    assert pai(*run, "-t", "ecs.c6.large").exit_code == 2


# ---- stopping


@pytest.fixture
def stopped(service: ManyJobs, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The jobs that are stopped; those in `ENDED` have ended before."""
    stopped: list[str] = []

    def get(self: ManyJobs, job_id: str, **_: Any) -> JobRecord:
        self.status = "Terminated" if job_id in stopped else "Succeed" if job_id == "trainab33" else "Running"
        return ManyJobs.get(self, job_id)

    monkeypatch.setattr(service, "get", get.__get__(service))
    monkeypatch.setattr(service, "stop", stopped.append, raising=False)
    return stopped


def test_several_jobs_are_stopped_at_once(stopped: list[str]) -> None:
    result = pai("stop", "words", "trainaa", "digits", "trainab33")
    assert result.exit_code == 0, result.exception
    assert stopped == ["trainab22", "trainaa11"]
    assert result.stdout == "trainab22 Terminated\ntrainaa11 Terminated\ntrainab33 Succeed\n"


def test_an_unknown_job_stops_none(stopped: list[str]) -> None:
    assert isinstance(pai("stop", "words", "nothing").exception, NotFoundError)
    assert not stopped


def test_matching_jobs_are_stopped_after_a_question(stopped: list[str]) -> None:
    refused_once = CliRunner().invoke(app, ["stop", "--name", "digits"], input="n\n")
    assert (refused_once.exit_code, stopped) == (1, [])
    assert "trainaa11" in refused_once.stderr
    assert "trainab33" not in refused_once.stderr  # it has ended
    assert pai("stop", "--name", "digits", "--yes").stdout == "trainaa11 Terminated\n"
    assert pai("stop", "--name", "digits", "--yes").stdout == "no running job matches\n"
    assert pai("stop", "--name", "digits", "--json").stdout == ""


@pytest.mark.parametrize("words", [(), ("words", "--name", "digits")])
def test_stop_takes_either_jobs_or_filters(stopped: list[str], words: tuple[str, ...]) -> None:
    assert pai("stop", *words).exit_code == 2
    assert not stopped


def test_a_job_that_cannot_be_stopped_does_not_keep_the_others(
    stopped: list[str], service: ManyJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(job_id: str) -> None:
        if job_id == "trainab22":
            raise NotFoundError("gone", code="TrainingJobNotFound", status_code=404)
        stopped.append(job_id)

    monkeypatch.setattr(service, "stop", stop)
    result = pai("stop", "words", "trainaa")
    assert (result.exit_code, stopped) == (1, ["trainaa11"])
    assert "error: gone" in result.stderr
    assert "trainaa11 Terminated" in result.stdout


# ---- completion


def completed(words: str) -> list[str]:
    environment = {
        "_PAI_SDK_COMPLETE": "complete_bash",
        "COMP_WORDS": f"pai-sdk {words}",
        "COMP_CWORD": str(len(words.split(" "))),
    }
    return CliRunner().invoke(app, prog_name="pai-sdk", env=environment).stdout.split()


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAI_REGION_ID", "cn-hangzhou")


@pytest.mark.usefixtures("key")
def test_ids_and_names_are_completed() -> None:
    assert completed("logs trainab") == ["trainab33", "trainab22"]
    assert completed("wait wo") == ["words", "words-here"]
    assert completed("logs --local ") == ["local-cc66", "here", "local-dd77", "words-here"]
    for command in (
        "status",
        "stop",
        "delete trainaa11",
        "diff trainaa11",
        "exec",
        "top",
        "metrics",
        "trace head",
    ):
        assert "words" in completed(f"{command} wo"), command


@pytest.mark.usefixtures("key")
def test_names_of_runs_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hp-runs" / "first").mkdir(parents=True)
    (tmp_path / "hp-notes.txt").touch()
    monkeypatch.chdir(tmp_path)
    # A name that two jobs share is completed with its random suffix, as is one typed so far.
    jobs = ["hp-lr0.8-depth3-1a2b3e", "hp-lr0.8-depth20", "hp-lr0.8-depth3-1a2b3d", "hp-lr0.8-depth2"]
    assert completed("logs hp-") == jobs
    assert completed("logs hp-lr0.8-depth2-") == ["hp-lr0.8-depth2-1a2b3c"]
    assert completed("ui --run hp-lr0.8-depth20") == jobs[1:2]
    for command in ("metrics", "trace head", "compare here", "runs"):
        assert completed(f"{command} hp-") == [*jobs, "hp-runs"], command
        assert completed(f"{command} hp-runs/") == ["hp-runs/first"], command
        assert completed(f"{command} {tmp_path}/hp") == [f"{tmp_path}/hp-runs"], command


def test_profiles_and_settings_are_completed() -> None:
    pai("config", "set", "region_id", "cn-shanghai", "--profile", "staging")
    assert completed("ps --profile st") == ["staging"]
    assert "region_id" in completed("config get reg")


@pytest.mark.usefixtures("key")
def test_a_completion_never_shows_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise PaiError("out of reach")

    monkeypatch.setattr(Session, "list_jobs", fails)
    assert completed("logs ") == []


def test_a_completion_starts_no_service(monkeypatch: pytest.MonkeyPatch) -> None:
    def started() -> None:
        raise AssertionError("a completion must not start a service")

    monkeypatch.setattr(Session, "embedded", started)
    assert completed("logs --embedded tr") == []
    assert completed("logs tr") == []


@pytest.mark.usefixtures("key")
def test_a_service_that_hangs_delays_a_completion_for_seconds_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_names, "_COMPLETION", RetryPolicy(deadline_s=0.05))
    over = threading.Event()

    def hangs(place: object) -> Iterator[object]:
        over.wait(PATIENCE_S)
        return iter(())

    monkeypatch.setattr(job_names, "_candidates", hangs)
    begun = time.monotonic()
    assert completed("logs tr") == []
    assert time.monotonic() - begun < PATIENCE_S
    over.set()


# ---- the end of the demo


@pytest.mark.parametrize(
    ("options", "region", "listed_by"),
    [
        (("--instance-type", "local"), "", "ps --local"),
        (("--local",), "cn-hangzhou", "ps --local"),
        ((), "", "ps"),
        ((), "cn-hangzhou", "ps --embedded"),
        (("--embedded",), "cn-hangzhou", "ps --embedded"),
        (("--profile", "staging"), "", "ps --profile staging"),
    ],
)
def test_the_demo_ends_with_the_command_that_lists_its_jobs(
    monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], region: str, listed_by: str
) -> None:
    pai("config", "set", "region_id", "cn-shanghai", "--profile", "staging")
    monkeypatch.setenv("PAI_REGION_ID", region)

    def embedded() -> Session:
        made = Session("local", endpoint="http://127.0.0.1:1", profile="")
        made._embedded.data_dir = Path("/nowhere")
        return made

    monkeypatch.setattr(Session, "embedded", embedded)
    for step in ("_prepare", "_train", "_show_results", "_show_page"):
        monkeypatch.setattr(f"pai_sdk.cli.demo.{step}", lambda *_: None)
    told = pai("demo", *options)
    assert told.exit_code == 0, told.exception
    assert f" {listed_by}` lists the jobs." in told.stdout
