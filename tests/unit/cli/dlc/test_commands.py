"""The commands of `pai-sdk dlc`: requests, output, exit codes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pai_sdk._client.api.dlc_jobs import DlcJobs
from pai_sdk._client.api.transport import Transport
from pai_sdk._client.submission import SubmissionPolicy
from pai_sdk._core.config.credentials import static_credentials
from pai_sdk._wire.pai.secret_values import MASK
from pai_sdk.cli.dlc import creation
from pai_sdk.cli.dlc.submitting import follow
from tests.unit.cli.dlc.conftest import Dlc
from tests.unit.client.api.scripted_server import Asked, Reply, Reset, ScriptedServer
from tests.unit.client.api.test_training_jobs import paged

JOB = "dlc1xjcumbfm7aai"
SUBMIT = (
    *("submit", "pytorchjob", "--name=a", "--command=echo 1", "--workspace_id=1", "--resource_id=q"),
    *("--workers=1", "--worker_image=i", "--worker_cpu=1"),
)


def answers(by_path: Mapping[str, Any]) -> Any:
    """A server that has a response for each path."""

    def answer(asked: Asked) -> Reply:
        body = by_path.get(asked.path)
        return Reply({"Code": "NotFound", "Message": "no such thing"}, 404) if body is None else Reply(body)

    return answer


def jobs_of(count: int) -> list[dict[str, Any]]:
    statuses = ("Running", "Succeeded", "Failed")
    return [
        {
            "JobId": f"dlc{n:013}",
            "DisplayName": f"chunk {n}",
            "JobType": "PyTorchJob",
            "Status": statuses[n % 3],
            "WorkspaceId": "77",
            "GmtCreateTime": "2026-11-28T00:00:00Z",
            "Duration": "5",
        }
        for n in range(count)
    ]


# ---- submit -------------------------------------------------------------------------------------------------


def test_submit_prints_the_request_and_the_ids_in_a_box(dlc: Dlc, server: ScriptedServer) -> None:
    server.script = [Reply({"JobId": JOB, "RequestId": "R-1"})]
    result = dlc(*SUBMIT, "--envs=TOKEN=very-secret-value")
    assert result.exit_code == 0
    request, box = result.stdout[: result.stdout.index("+--")], result.stdout[result.stdout.index("+--") :]
    assert json.loads(request)["DisplayName"] == "a"
    assert request.splitlines()[1].startswith('   "DisplayName"')
    assert "very-secret-value" not in result.output
    assert re.findall(r"\|\s+(dlc[0-9a-z]+)\s+\|", box) == [JOB]  # as programs find it
    assert (server.asked[0].method, server.asked[0].path) == ("POST", "/api/v1/jobs")
    assert server.asked[0].json["Envs"].items() >= {"TOKEN": "very-secret-value"}.items()
    assert server.asked[0].headers["x-acs-version"] == "2020-12-03"


def test_submit_as_json(dlc: Dlc, server: ScriptedServer) -> None:
    server.script = [Reply({"JobId": JOB, "RequestId": "R-1"})]
    assert json.loads(dlc(*SUBMIT, "--output=json").stdout) == {"JobId": JOB, "RequestId": "R-1"}


def test_a_dry_run_sends_nothing(dlc: Dlc, server: ScriptedServer) -> None:
    result = dlc(*SUBMIT, "--dry_run")
    assert (result.exit_code, json.loads(result.stdout)["UserCommand"], server.asked) == (0, "echo 1", [])


def test_wrong_usage_sends_nothing(dlc: Dlc, server: ScriptedServer) -> None:
    result = dlc(*SUBMIT, "--worker_colour=red")
    assert (result.exit_code, server.asked) == (2, [])
    assert "--worker_colour" in result.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("submit", "unknownjob"),
        ("submit",),
        (*SUBMIT, "stray"),
        ("frobnicate",),
        ("get", "cheese"),
        ("stop", JOB),
        ("stop", "job"),
        ("logs",),
        ("events",),
        ("completion", "bash"),
        ("get", "job", "--page_size=0"),
        ("get", "job", "--start_time=soon"),
        ("get", "job", "--display_name_regex=("),
        ("get", "job", "--output=xml"),
        ("help", "nothing"),
        ("--foo", "get", "job"),
        ("create", "cluster"),
    ],
)
def test_wrong_usage(words: tuple[str, ...], dlc: Dlc, server: ScriptedServer) -> None:
    assert (dlc(*words).exit_code, server.asked) == (2, [])


def test_a_refusal_is_printed_as_the_original_does(dlc: Dlc, server: ScriptedServer) -> None:
    server.script = [Reply({"Code": "InvalidParameter", "Message": "no such quota", "RequestId": "R-2"}, 400)]
    result = dlc(*SUBMIT)
    assert (result.exit_code, result.stderr) == (1, "code: 400, no such quota request id: R-2\n")


def test_a_lost_response_says_how_to_find_the_job(
    dlc: Dlc, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(creation, "SubmissionPolicy", partial(SubmissionPolicy, search_s=0.0))
    server.answer = lambda asked: Reset if asked.method == "POST" else Reply({"Jobs": [], "TotalCount": 0})
    result = dlc(*SUBMIT)
    assert (result.exit_code, [asked.method for asked in server.asked].count("POST")) == (1, 1)
    assert "dlc get job --display_name a" in result.stderr


def test_the_file_wins_over_flags(dlc: Dlc, server: ScriptedServer, tmp_path: Path) -> None:
    file = tmp_path / "x.params"
    file.write_text("name=of-the-file\ncommand=echo good && sleep 120\n")
    server.script = [Reply({"JobId": JOB})]
    assert dlc(*SUBMIT, f"--job_file={file}").exit_code == 0
    body = server.asked[0].json
    assert (body["DisplayName"], body["UserCommand"]) == ("of-the-file", "echo good && sleep 120")


def test_the_older_generation_is_translated(dlc: Dlc, server: ScriptedServer) -> None:
    server.script = [Reply({"JobId": JOB})]
    words = ("--kind", "BatchJob", "--name=a", "--command=c", "--worker_count", "2", "--worker_memory", "1024")
    result = dlc("create", "job", *words, "--worker_image=i", "--resource_id=q", "--workspace_id=ws1")
    assert (result.exit_code, "submit pytorchjob" in result.stderr) == (0, True)
    body = server.asked[0].json
    assert (body["JobType"], body["JobSpecs"][0]["PodCount"]) == ("PyTorchJob", 2)
    assert body["JobSpecs"][0]["ResourceConfig"] == {"Memory": "1024Gi"}


@pytest.mark.parametrize(
    ("status", "code", "exit_code"),
    [("Succeeded", None, 0), ("Failed", 7, 1), ("Stopped", None, 1), ("Stopped", 7, 7), ("Stopped", 0, 0)],
)
def test_interactive_prints_each_status(
    status: str, code: int | None, exit_code: int, server: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    walk = ["Creating", "Queuing", "Queuing", "Running", "SucceededReserving", status]
    server.script = [Reply({"JobId": JOB, "Status": each, "ReasonCode": "Why"}) for each in walk]
    transport = Transport(server.endpoint, static_credentials("a", "b"), version="2020-12-03")
    pauses: list[float] = []
    assert follow(DlcJobs(transport), JOB, stopped_code=code, sleep=pauses.append) == exit_code
    transport.close()
    printed = capsys.readouterr().out.splitlines()
    assert printed == [f"Job {JOB} is [{each}]" for each in dict.fromkeys(walk)]
    assert len(pauses) == len(walk) - 1
    assert min(pauses) >= 5


# ---- get ----------------------------------------------------------------------------------------------------


def test_a_job_is_printed_as_json_with_sorted_keys(dlc: Dlc, server: ScriptedServer) -> None:
    job = {
        "Status": "Running",
        "JobId": JOB,
        "ReasonCode": "",
        "Pods": [{"Ip": "10.0.0.5"}],
        "Envs": {"A": "secret"},
    }
    server.answer = answers({f"/api/v1/jobs/{JOB}": job})
    printed = json.loads(dlc("get", "job", JOB, "--workspace_id=1", "--show_detail").stdout)
    assert printed == {**job, "Envs": {"A": MASK}}
    assert [*printed] == sorted(job)
    assert printed["ReasonCode"] == ""


def test_a_job_that_does_not_exist(dlc: Dlc, server: ScriptedServer) -> None:
    server.answer = answers({})
    result = dlc("get", "job", JOB)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("code: 404, no such thing")


def test_a_list_has_plain_columns(dlc: Dlc, server: ScriptedServer) -> None:
    server.answer = paged("Jobs", jobs_of(30), largest=100)
    lines = [line.split() for line in dlc("get", "job", "--workspace_id", "77").stdout.splitlines()]
    assert lines[0][:3] + lines[0][7:8] == ["DisplayName", "JobId", "JobType", "Status"]
    assert len(lines) == 11  # ten jobs, as the original
    assert {len(line) for line in lines} == {9}
    assert (lines[1][0], lines[1][1], lines[1][7]) == ("chunk_0", "dlc0000000000000", "Running")
    query = server.asked[0].query
    assert (query["WorkspaceId"], query["PageSize"], query["PageNumber"]) == ("77", "10", "1")
    assert "StartTime" not in query


@pytest.mark.parametrize(
    ("words", "numbers"),
    [
        (("--page_size=250",), range(250)),
        (("--page_num=2", "--page_size=150"), range(150, 300)),
        (("--page_num=4", "--page_size=100"), range(0)),
        (("--page_num=3", "--page_size=20"), range(40, 60)),
        (("--status=Failed", "--page_size=5"), range(5)),
        (("--status=Failed,Running", "--page_size=200"), [n for n in range(300) if n % 3 != 1]),
        (("--display_name_regex=^chunk 1.5$", "--page_num=2", "--page_size=4"), range(145, 195, 10)),
        (("--display_name_regex=[", "--page_size=4"), None),
    ],
)
def test_lists_have_any_page_size(words: tuple[str, ...], numbers: Any, dlc: Dlc, server: ScriptedServer) -> None:
    server.answer = paged("Jobs", jobs_of(300), largest=100)
    result = dlc("get", "jobs", "--output=json", *words)
    if numbers is None:
        assert result.exit_code == 2
        return
    names = [int(job["JobId"][3:]) for job in json.loads(result.stdout)["Jobs"]]
    if words[0] != "--status=Failed":  # one status is the service's to filter; this one does not
        assert names == [*numbers][: len(names)]
        assert len(names) == min(len([*numbers]), int(words[-1].partition("=")[2]))
    assert {int(asked.query["PageSize"]) <= 100 for asked in server.asked} == {True}


def test_filters_of_a_list_reach_the_service(dlc: Dlc, server: ScriptedServer) -> None:
    server.answer = paged("Jobs", [], largest=100)
    words = (
        "-n",
        "a",
        "--status",
        "Running",
        "--job_type=tfjob",
        "--resource_id=q",
        "--start_time=2026-04-27T00:00:00",
    )
    assert dlc("list", "jobs", *words, "--end_time=2026-04-28T00:00:00Z").exit_code == 0
    query = server.asked[0].query
    assert (query["DisplayName"], query["Status"], query["JobType"], query["ResourceId"]) == (
        "a",
        "Running",
        "TFJob",
        "q",
    )
    assert (query["StartTime"], query["EndTime"]) == ("2026-04-27T00:00:00Z", "2026-04-28T00:00:00Z")


def test_events(dlc: Dlc, server: ScriptedServer) -> None:
    server.answer = answers(
        {
            f"/api/v1/jobs/{JOB}": {"JobId": JOB, "Status": "Queuing"},
            f"/api/v1/jobs/{JOB}/events": {"Events": ["e1", "e2"]},
            f"/api/v1/jobs/{JOB}/pods/{JOB}-worker-0/events": {"Events": ["p1"]},
        }
    )
    assert json.loads(dlc("get", "job", JOB, "--events").stdout)["Events"] == ["e1", "e2"]
    assert dlc("get", "job", JOB, "--events_only", "--max_events_num=7").stdout == "e1\ne2\n"
    assert server.asked[-1].query == {"MaxEventsNum": "7"}
    assert dlc("events", JOB).stdout == "e1\ne2\n"
    for pod in (f"{JOB}-worker-0", "worker-0"):
        assert dlc("get", "pod", JOB, pod).stdout == "p1\n"
    assert server.asked[-1].query == {"MaxEventsNum": "2000"}


def test_instance_types_and_quotas(dlc: Dlc, server: ScriptedServer) -> None:
    spec = {"InstanceType": "ecs.c6.large", "Cpu": 2, "Memory": 4, "IsAvailable": True}
    quota = {"Id": "quota1", "Name": "q", "Specs": [{"Name": "GPU", "Value": "8"}]}
    server.answer = answers(
        {
            "/api/v1/ecsspecs": {"EcsSpecs": [spec], "TotalCount": 1},
            "/api/v1/quotas": {"Quotas": [quota], "TotalCount": 1},
        }
    )
    assert dlc("get", "specs").stdout.splitlines()[1].split()[:4] == ["ecs.c6.large", "-", "2", "4"]
    assert json.loads(dlc("get", "specs", "-o", "json").stdout)["EcsSpecs"] == [spec]
    assert dlc("get", "quota", "--workspace_id", "1").stdout.splitlines()[1].split() == [
        "quota1",
        "q",
        "-",
        "GPU=8",
    ]


# ---- logs, stop, delete -------------------------------------------------------------------------------------


def test_the_log_of_a_pod(dlc: Dlc, server: ScriptedServer) -> None:
    path = f"/api/v1/jobs/{JOB}/pods/{JOB}-master-0/logs"
    pods = [{"PodId": f"{JOB}-worker-0", "Type": "worker"}, {"PodId": f"{JOB}-master-0", "Type": "master"}]
    server.answer = answers({path: {"Logs": ["a", "", " b"]}, f"/api/v1/jobs/{JOB}": {"JobId": JOB, "Pods": pods}})
    window = ("--start_time", "2026-11-28T00:00:00Z", "--end_time=2026-11-28T01:00:00Z")
    assert dlc("logs", JOB, f"{JOB}-master-0", "--max_events_num=5", *window).stdout == "a\n\n b\n"
    assert server.asked[-1].query == {
        "MaxLines": "5",
        "StartTime": "2026-11-28T00:00:00Z",
        "EndTime": "2026-11-28T01:00:00Z",
    }
    assert dlc("logs", JOB).stdout == "a\n\n b\n"  # of rank 0
    assert server.asked[-1].query == {"MaxLines": "2000"}
    result = dlc("logs", JOB, f"{JOB}-worker-7")
    assert (result.exit_code, result.stdout, f"{JOB}-master-0" in result.stderr) == (1, "", True)


def test_stop(dlc: Dlc, server: ScriptedServer) -> None:
    server.answer = answers({f"/api/v1/jobs/{JOB}/stop": {"JobId": JOB}})
    stopped = f"[OK] Job [{JOB}] was stopped successfully\n"
    assert dlc("stop", "job", JOB, "--force", "--workspace_id=1").stdout == stopped
    assert dlc("stop", "job", JOB, "-f", "--quiet").stdout == ""
    assert dlc("stop", "job", JOB, input="y\n").stdout.endswith(stopped)
    count = len(server.asked)
    assert dlc("stop", "job", JOB, input="n\n").exit_code == 1
    assert dlc("stop", "job", JOB).exit_code == 1  # no answer at all
    assert len(server.asked) == count


def test_a_job_that_has_ended_cannot_be_stopped(dlc: Dlc, server: ScriptedServer) -> None:
    message = "Job can't be stopped, because it is Stopped"
    server.script = [Reply({"Code": "BadRequest", "Message": message, "RequestId": "R-3"}, 400)]
    result = dlc("stop", "job", JOB, "--force")
    assert (result.exit_code, result.stdout) == (1, f"[FAILED] code: 400, {message} request id: R-3\n")


def test_delete(dlc: Dlc, server: ScriptedServer) -> None:
    server.answer = answers({f"/api/v1/jobs/{JOB}": {"JobId": JOB}})
    result = dlc("delete", "job", JOB, "dlc2", "--force")
    assert result.exit_code == 1
    assert [line.split()[0] for line in result.stdout.splitlines()] == ["[OK]", "[FAILED]"]
    assert [asked.method for asked in server.asked] == ["DELETE", "DELETE"]


# ---- config, help -------------------------------------------------------------------------------------------


def test_config_writes_a_file_for_its_owner(dlc: Dlc, tmp_path: Path, server: ScriptedServer) -> None:
    file = tmp_path / "dlc" / "config"
    key = ("-a", "LTAI-example", "--access_key=a-secret", "-r", "cn-x", "--protocol", "http")
    result = dlc("config", *key, "-e", server.endpoint[7:], "-c", str(file))
    assert (result.exit_code, file.stat().st_mode & 0o777) == (0, 0o600)
    assert "a-secret" not in result.output
    server.answer = paged("Jobs", [], largest=100)
    assert dlc("-c", str(file), "get", "job").exit_code == 0
    assert dlc("get", "job", "--config", str(file)).exit_code == 0
    assert dlc("config", "--region=cn-y", "-c", str(file)).exit_code == 0
    assert {"region=cn-y", "access_key=a-secret"} <= {*file.read_text().splitlines()}


def test_config_asks(dlc: Dlc, tmp_path: Path) -> None:
    file = tmp_path / "config"
    assert dlc("config", "-c", str(file), input="LTAI-example\na-secret\n\ncn-x\n\n").exit_code == 0
    assert file.read_text().splitlines()[1:] == ["access_id=LTAI-example", "access_key=a-secret", "region=cn-x"]


def test_a_file_of_another_program_is_read_and_not_overwritten(dlc: Dlc, clean_home: Path) -> None:
    file = clean_home / ".dlc" / "config"
    before = file.read_text()
    assert dlc("config", "--region=cn-y").exit_code == 2
    assert file.read_text() == before


@pytest.mark.parametrize(
    "content",
    [
        '{"accessId": "LTAI-example", "accessKey": "a-secret", "endpoint": "HOST", "protocol": "http"}',
        "[default]\naccess_id: LTAI-example\naccess_key: 'a-secret'\nendpoint: HOST\nprotocol: http\n",
    ],
)
def test_other_forms_of_the_file(content: str, dlc: Dlc, server: ScriptedServer, tmp_path: Path) -> None:
    (tmp_path / "config").write_text(content.replace("HOST", server.endpoint[7:]))
    server.answer = paged("Jobs", [], largest=100)
    assert dlc("get", "job", "-c", str(tmp_path / "config")).exit_code == 0
    assert "LTAI-example" in server.asked[0].headers["authorization"]


def test_a_config_file_that_does_not_exist(dlc: Dlc, tmp_path: Path) -> None:
    assert dlc("get", "job", "-c", str(tmp_path / "no")).exit_code == 2


def test_help_and_version(dlc: Dlc) -> None:
    assert dlc("version").stdout.startswith("pai-sdk dlc ")
    for words in (("help",), (), ("help", "submit"), ("submit", "pytorchjob", "--help"), ("get", "job", "-h")):
        result = dlc(*words)
        assert (result.exit_code, result.stdout.startswith("Usage: pai-sdk dlc")) == (0, True)
    assert "--worker_shared_memory" in dlc("help", "submit").stdout
