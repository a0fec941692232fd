"""The job behind a run over HTTP: what the page shows of it, and what it can do with it."""

from __future__ import annotations

import json
import math
import os
import secrets
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from pai_sdk import Session
from pai_sdk._data.rules.codec import WatchConfig
from pai_sdk._data.rules.signals import Finding
from pai_sdk._data.trace.parquet import ParquetSink
from pai_sdk._data.trace.trace_writer import TraceWriter
from pai_sdk._service.services.jobs.findings import record_finding, rules_of_job
from pai_sdk._wire.pai.names import PACKAGE_PREFIX
from tests.service.fakes import ScriptedExecutor
from tests.service.services import Client, job_body
from tests.service.web.browsing import Answer, ask_as_browser, headers_of_page, sign_in
from tests.support.waiting import until

_TRACEBACK = 'Traceback (most recent call last):\\n  File "a.py", line 1\\n'
_FAILS = f"echo begin; printf '{_TRACEBACK}KeyError: 3\\n'; exit 3"


def ended(client: Client, command: str = "true", **fields: Any) -> str:
    job_id = client.create(job_body(command, **fields))
    client.until(job_id)
    return job_id


def outputs(client: Client) -> list[dict[str, str]]:
    """An output channel `model` in a folder of its own."""
    folder = f"fit-{secrets.token_hex(8)}"
    return [{"Name": "model", "OutputUri": f"oss://{client.info.bucket}/{folder}/model/"}]


def test_a_failed_job_says_why_first(service: Client) -> None:
    job_id = ended(service, _FAILS, Environments={"DB_PASSWORD": "hunter2"})

    found = service.get(f"/runs/{job_id}/job")

    assert found["status"] == "Failed"
    failure = found["failure"]
    assert (failure["cause"], failure["exit_code"]) == ("KeyError: 3", 3)
    assert failure["traceback"].startswith("Traceback")
    assert failure["last_lines"] == ["begin"]  # without the traceback
    assert [one["status"] for one in found["history"]][-1] == "Failed"
    assert found["instances"][0]["status"] == "Failed"
    assert found["events"][0]["text"].startswith("The job was created")
    assert "hunter2" not in str(found)
    assert found["started_at"] <= found["ended_at"]


def test_a_cause_is_short_and_has_no_nul(service: Client) -> None:
    """PostgreSQL refuses a NUL: the job would never end."""
    failed = ended(service, f"printf '{_TRACEBACK}ValueError: a\\000b%09000d\\n' 0; exit 3")

    def cause() -> str:
        rows = service.get("/runs", fields="cause", filter=f"id={failed}")["runs"]
        return str(rows[0].get("cause", "")) if rows else ""

    until(cause)
    assert cause().startswith("ValueError: ab000")


@pytest.mark.parametrize("content", ["{}", "[1]", '[{"code": "STUCK"}]', "null", "[" * 100_000])
def test_findings_of_another_program_are_none(service: Client, content: str) -> None:
    job_id = ended(service)
    (service.info.data_dir / "jobs" / job_id / "findings.json").write_text(content)
    assert not any(rule["findings"] for rule in service.get(f"/runs/{job_id}/job")["rules"])


@pytest.mark.parametrize(
    "change", [{"code": None}, {"since": []}, {"message": 1}, {"values": {"x": None}}, {"key": ...}]
)
def test_a_damaged_finding_hides_no_other(tmp_path: Path, change: dict[str, Any]) -> None:
    rule = WatchConfig().rules("1", None)[0]
    found = Finding(rule.code, "raised", "it hangs", rule.action, "worker-0", {})
    record_finding(tmp_path, found, attempt=1, now=1.0)
    file = tmp_path / "findings.json"
    (row,) = json.loads(file.read_text())
    damaged = {name: value for name, value in {**row, **change}.items() if value is not ...}
    file.write_text(json.dumps([damaged, row, {name: row[name] for name in row if name != "code"}, None]))
    rules = rules_of_job(WatchConfig(), tmp_path, "1", None, 1)
    assert [each.message for each in rules[0].findings] == ["it hangs"]


def test_a_finding_that_is_raised_again_after_a_kill_is_one(tmp_path: Path) -> None:
    rule = WatchConfig().rules("1", None)[0]
    found = Finding(rule.code, "raised", "it hangs", rule.action, "worker-0", {})
    for now in (1.0, 2.0):
        record_finding(tmp_path, found, attempt=1, now=now)
    record_finding(tmp_path, replace(found, status="cleared"), attempt=1, now=3.0)
    record_finding(tmp_path, found, attempt=1, now=4.0)
    (tmp_path / ".findings.json").write_text("of a killed service")
    record_finding(tmp_path, found, attempt=2, now=5.0)
    rules = rules_of_job(WatchConfig(), tmp_path, "1", None, 2)
    times = [(each.since, each.cleared_at, each.is_open) for each in rules[0].findings]
    assert times == [(5.0, None, True), (4.0, None, False), (1.0, 3.0, False)]
    assert [file.name for file in tmp_path.iterdir()] == ["findings.json"]


def test_findings_are_not_read_from_a_pipe(service: Client) -> None:
    job_id = ended(service)
    os.mkfifo(service.info.data_dir / "jobs" / job_id / "findings.json")
    assert not any(rule["findings"] for rule in service.get(f"/runs/{job_id}/job")["rules"])


def test_the_list_says_whose_and_what_a_job_is_and_why_it_failed(service: Client) -> None:
    failed = ended(service, _FAILS)
    # Its instances have a size, not a type, and its log has no exception.
    quota = {"ResourceId": "quota-1", "InstanceCount": 2, "InstanceSpec": {"CPU": "1", "Memory": "2Gi"}}
    plain = ended(service, "exit 4", ComputeResource=quota)
    succeeded = ended(service)

    def rows() -> dict[str, dict[str, Any]]:
        listed = service.get("/runs", fields="owner,started_at,instance_type,instance_count,cause,status")["runs"]
        return {row["id"]: row for row in listed}

    until(lambda: rows().get(failed, {}).get("cause") and rows().get(succeeded, {}).get("status") == "Succeed")
    row, row_of_plain = rows()[failed], rows()[plain]
    assert (row["instance_type"], row["instance_count"], row["cause"]) == ("local", 1, "KeyError: 3")
    assert (row_of_plain["instance_type"], row_of_plain["instance_count"]) == ("1 CPU 2Gi", 2)
    assert "4" in row_of_plain["cause"]
    assert "cause" not in rows()[succeeded]
    assert row["started_at"] == pytest.approx(service.get(f"/runs/{failed}/job")["started_at"])
    filtered = service.get("/runs", filter="cause~keyerror duration<1h instance_type=local started>-1h")["runs"]
    ids = {each["id"] for each in filtered}
    assert failed in ids
    assert not ids & {plain, succeeded}


@pytest.mark.parametrize(
    ("command", "cause", "advice"),
    [
        ("trian --lr 1", "ended with exit code 127", "There is no program trian:"),
        ("echo 'RuntimeError: CUDA out of memory'; exit 1", "exit code 1", "The memory of the GPU ran"),
        (_FAILS.replace("KeyError: 3", "MemoryError"), "MemoryError", "The memory of the instance ran out:"),
        (
            _FAILS.replace("KeyError: 3", r"ModuleNotFoundError: No module named \047cv2\047"),
            "ModuleNotFoundError",
            "The module cv2 comes with opencv-python: add requirements=",
        ),
    ],
)
def test_a_failure_has_advice(service: Client, command: str, cause: str, advice: str) -> None:
    failure = service.get(f"/runs/{ended(service, command)}/job")["failure"]
    assert cause in failure["cause"]
    assert failure["advice"].startswith(advice)


def test_advice_of_the_reason_is_no_part_of_the_cause(start: Callable[..., Any]) -> None:
    executor = ScriptedExecutor()
    with start(executor) as client:
        job_id = client.create(job_body())
        client.until(job_id, "Running")
        executor.fail(client.info.data_dir / "jobs" / job_id, f"{job_id}-master-0", 137)
        client.until(job_id)
        failure = client.get(f"/runs/{job_id}/job")["failure"]
    assert failure["cause"].endswith("since memory ran out.")
    assert failure["advice"] == "Use a smaller batch or a larger instance."


def test_a_summary_says_what_a_job_runs(service: Client) -> None:
    body: dict[str, Any] = {
        "AlgorithmSpec": {"Image": "python:3.11", "Command": ["python", "train.py", "--api-key", "hunter2"]},
        "Labels": [{"Key": "git-commit", "Value": "1a2b"}, {"Key": "git-dirty", "Value": "true"}],
        "ComputeResource": {"EcsSpec": "ecs.c6.large", "EcsCount": 2},
    }
    summary = service.get(f"/runs/{ended(service, **body)}/job")["summary"]
    assert summary["command"] == "python train.py --api-key ******"
    assert (summary["image"], summary["commit"], summary["has_changes"]) == ("python:3.11", "1a2b", True)
    assert summary["tasks"] == [{"name": "", "count": 2, "instance_type": "ecs.c6.large", "image": ""}]
    assert summary["workspace"] == service.info.workspace_id


def test_a_run_tells_which_parts_it_has(service: Client) -> None:
    silent, loud = ended(service), ended(service, "echo hello")
    with_model = ended(service, "echo 1 > /ml/output/model/a.txt", OutputChannels=outputs(service))
    until(lambda: {silent, loud, with_model} <= {row["id"] for row in service.get("/runs")["runs"]})
    parts = {job_id: service.get(f"/runs/{job_id}")["parts"] for job_id in (silent, loud, with_model)}
    assert "log" not in parts[silent]
    assert "log" in parts[loud]
    assert "files" in parts[with_model]
    assert not any("trace" in names for names in parts.values())


def test_a_job_without_a_failure_has_none(service: Client) -> None:
    found = service.get(f"/runs/{ended(service)}/job")
    assert (found["failure"], found["queue_place"], found["status"]) == (None, None, "Succeed")
    assert service.call("GET", "/runs/train000000000000/job").status_code == 404


def test_queued_jobs_have_a_place(start: Callable[..., Any]) -> None:
    with start(ScriptedExecutor(), slots=1) as client:
        first = client.create(job_body())
        client.until(first, "Running")
        low = client.create(job_body())
        high = client.create(job_body(Priority=5))

        places = {job_id: client.get(f"/runs/{job_id}/job")["queue_place"] for job_id in (first, low, high)}
        until(lambda: client.get("/runs", fields="status")["total"] == 3)
        rows = client.get("/runs", fields="status,queue_place")["runs"]

        assert places == {first: None, low: 2, high: 1}
        with Session(
            "cn-local",
            "1",
            endpoint=client.info.endpoint,
            access_key_id=client.info.access_key_id,
            access_key_secret=client.info.access_key_secret,
        ) as session:
            reasons = [session.get_job(job_id).waiting_reason() for job_id in (first, low)]
        assert [reason and reason.position for reason in reasons] == [None, 2]
        assert {row["id"]: row.get("queue_place") for row in rows} == places
        running = client.get("/runs", filter="status=Running", fields="status")
        assert (running["total"], running["all"]) == (1, 3)
        assert (running["statuses"]["Running"], sum(running["statuses"].values())) == (1, 3)


def test_a_job_is_stopped_and_deleted(start: Callable[..., Any]) -> None:
    with start() as client:
        job_id = client.create(job_body("sleep 600"))
        client.until(job_id, "Running")
        assert client.call("DELETE", f"/runs/{job_id}").status_code == 409
        assert client.call("POST", f"/runs/{job_id}/stop", body={}).status_code == 200
        assert client.until(job_id)["Status"] == "Terminated"
        assert client.call("POST", f"/runs/{job_id}/stop", body={}).status_code == 200
        assert client.call("DELETE", f"/runs/{job_id}").status_code == 200
        assert client.call("GET", f"/runs/{job_id}/job").status_code == 404


def test_what_a_running_job_uses_is_known(start: Callable[..., Any]) -> None:
    with start() as client:
        job_id = client.create(job_body("sleep 600"))
        client.until(job_id, "Running")
        until(lambda: client.get(f"/runs/{job_id}/usage")["instances"][0]["times"], "a sample of the usage")

        found = client.get(f"/runs/{job_id}/usage")
        (instance,) = found["instances"]

        assert len(instance["cpu"]) == len(instance["memory_bytes"]) == len(instance["times"])
        assert 0 < instance["memory_bytes"][0] < found["limits"]["memory_bytes"]
        client.call("POST", f"/runs/{job_id}/stop", body={})
        client.until(job_id)


def test_two_jobs_differ_in_what_was_changed(service: Client) -> None:
    one = ended(service, HyperParameters=[{"Name": "lr", "Value": "0.1"}, {"Name": "token", "Value": "a-secret"}])
    other = ended(service, HyperParameters=[{"Name": "lr", "Value": "0.2"}, {"Name": "epochs", "Value": "3"}])

    found = service.get(f"/runs/{one}/diff", **{"with": other})

    assert {row["path"]: (row["kind"], row.get("before"), row.get("after")) for row in found["rows"]} == {
        "HyperParameters.lr": ("changed", "0.1", "0.2"),
        "HyperParameters.epochs": ("added", None, "3"),
        "HyperParameters.token": ("removed", "******", None),
    }
    assert found["same"] > 3


def test_differences_of_hyperparameters_come_first_and_what_always_differs_last(service: Client) -> None:
    jobs = [
        ended(
            service,
            f"echo {lr}",
            TrainingJobName=f"fit-{lr}",
            HyperParameters=[{"Name": "lr", "Value": lr}],
            OutputChannels=outputs(service),
            Labels=[{"Key": "pai-sdk-trial", "Value": lr}],
        )
        for lr in ("0.1", "0.2")
    ]
    rows = service.get(f"/runs/{jobs[0]}/diff", **{"with": jobs[1]})["rows"]
    assert [(row["group"], row["path"]) for row in rows] == [
        ("hyperparameter", "HyperParameters.lr"),
        ("setting", "AlgorithmSpec.Command"),
        ("unique", "TrainingJobName"),
        ("unique", "OutputChannels.model.OutputUri"),
        ("unique", "Labels.pai-sdk-trial"),
    ]


def test_the_name_of_a_rerun_follows_its_hyperparameters(service: Client) -> None:
    values = [{"Name": "learning_rate", "Value": "0.1"}, {"Name": "seed", "Value": "1"}]
    first = ended(service, TrainingJobName="fit-lr0.1-3f2a9c", HyperParameters=values)
    form = service.get(f"/runs/{first}/rerun")
    assert form["short_names"] == {"learning_rate": "lr"}
    changes = {"hyperparameters": {"learning_rate": "0.2", "seed": "1"}}
    body = {"changes": changes, "token": secrets.token_hex(8)}
    made = service.call("POST", f"/runs/{first}/rerun", body=body).json()["id"]
    assert service.until(made)["TrainingJobName"].startswith("fit-lr0.2-")


def test_a_job_runs_again_with_changes(service: Client) -> None:
    first = ended(
        service,
        "echo first > /ml/output/model/a.txt",
        TrainingJobName="fit-3f2a9c",
        HyperParameters=[{"Name": "lr", "Value": "0.1"}, {"Name": "api_key", "Value": "a-secret"}],
        Environments={"DB_PASSWORD": "hunter2", "MODE": "fast"},
        Labels=[{"Key": "team", "Value": "nlp"}],
        OutputChannels=outputs(service),
    )
    form = service.get(f"/runs/{first}/rerun")["fields"]
    assert (form["name"], form["labels"], form["instance_count"]) == ("fit", {"team": "nlp"}, 1)
    assert form["hyperparameters"] == {"lr": "0.1", "api_key": "******"}
    assert form["environment"] == {"DB_PASSWORD": "******", "MODE": "******"}
    changes = {
        "hyperparameters": {"lr": "0.2", "api_key": "******"},
        "environment": {"DB_PASSWORD": "******", "MODE": "slow"},
        "command": 'echo "$DB_PASSWORD $MODE $PAI_HPS_LR $PAI_HPS_API_KEY" > /ml/output/model/a.txt',
        "labels": {"team": "nlp", "second": "yes"},
    }
    body = {"changes": changes, "token": secrets.token_hex(8)}

    made = [service.call("POST", f"/runs/{first}/rerun", body=body).json()["id"] for _ in range(2)]

    assert made[0] == made[1] != first
    job = service.until(made[0])
    assert job["Status"] == "Succeed", job
    assert job["TrainingJobName"].startswith("fit-")
    assert {label["Key"]: label["Value"] for label in job["Labels"]}["second"] == "yes"
    (before,), (after,) = (service.get(f"/trainingjobs/{job_id}")["OutputChannels"] for job_id in (first, made[0]))
    assert before["OutputUri"] != after["OutputUri"]
    bucket, key = service.bucket(), after["OutputUri"].partition("://")[2].partition("/")[2]
    assert bucket.get_object(f"{key}a.txt").read() == b"hunter2 slow 0.2 a-secret\n"
    key = before["OutputUri"].partition("://")[2].partition("/")[2]
    assert bucket.get_object(f"{key}a.txt").read() == b"first\n"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"colour": "red", "size": 1}, ("colour", "size")),
        ({"environment": {"NEW": "******"}}, ("NEW",)),
        ({"hyperparameters": {"lr": {"a": 1}}}, ("lr",)),
        ({"hyperparameters": [1], "labels": 5, "environment": None}, ("hyperparameters", "labels", "environment")),
        ({"name": {"a": 1}, "command": "", "image": None}, ("name", "command", "image")),
        ({"command": "train --api-key ******"}, ("command", "masked")),
        ({"instance_count": "many", "max_runtime_s": 0}, ("instance_count", "max_runtime_s")),
        ({"instance_count": 10_000}, ("instances",)),
    ],
)
def test_wrong_changes_make_no_job(service: Client, changes: dict[str, Any], told: tuple[str, ...]) -> None:
    job_id = ended(service)
    body = {"changes": changes, "token": secrets.token_hex(8)}

    answer = service.call("POST", f"/runs/{job_id}/rerun", body=body)

    assert answer.status_code == 400, answer.text
    assert all(word in answer.json()["Message"] for word in told), answer.text


def test_a_command_with_a_secret_runs_again_as_it_was(service: Client) -> None:
    first = ended(service, "echo --api-key abcdef", Scheduler={"MaxRunningTimeInSeconds": 60})
    form = service.get(f"/runs/{first}/rerun")["fields"]
    assert (form["command"], form["max_runtime_s"]) == ("echo --api-key ******", 60)
    body = {"changes": {**form, "environment": {"COUNT": 2}, "max_runtime_s": None}, "token": secrets.token_hex(8)}

    made = service.call("POST", f"/runs/{first}/rerun", body=body).json()["id"]

    job = service.until(made)
    assert service.log(made) == ["--api-key abcdef"]
    assert job["Environments"] == {"COUNT": "2"}
    assert "Scheduler" not in job


def test_a_job_of_a_registered_algorithm_runs_again(service: Client) -> None:
    name = f"fit-{secrets.token_hex(4)}"
    body = {"AlgorithmName": name, "WorkspaceId": service.info.workspace_id}
    algorithm = service.call("POST", "/algorithms", body=body).json()["AlgorithmId"]
    spec = {"AlgorithmSpec": {"Image": "none", "Command": ["sh", "-c", "echo registered"]}}
    assert service.call("POST", f"/algorithms/{algorithm}/versions/v1", body=spec).status_code == 200
    provider = service.get(f"/algorithms/{algorithm}")["AlgorithmProvider"]
    named = {"AlgorithmName": name, "AlgorithmVersion": "v1", "AlgorithmProvider": provider}
    first = service.create({key: value for key, value in job_body(**named).items() if key != "AlgorithmSpec"})
    service.until(first)

    def rerun(changes: dict[str, Any]) -> dict[str, Any]:
        answer = service.call(
            "POST", f"/runs/{first}/rerun", body={"changes": changes, "token": secrets.token_hex(8)}
        )
        assert answer.status_code == 200, answer.text
        return service.until(answer.json()["id"])

    alike, other = rerun({"labels": {"team": "nlp"}}), rerun({"command": "echo other"})
    assert (alike["AlgorithmName"], alike["IsTempAlgo"]) == (name, False)
    assert service.log(alike["TrainingJobId"]) == ["registered"]
    assert (other.get("AlgorithmName"), other["IsTempAlgo"]) == (None, True)
    assert service.log(other["TrainingJobId"]) == ["other"]


def test_one_token_for_two_jobs_makes_two(service: Client) -> None:
    first, second, token = ended(service), ended(service), secrets.token_hex(8)
    made = {
        service.call("POST", f"/runs/{run}/rerun", body={"token": token}).json()["id"] for run in (first, second)
    }
    assert len(made) == 2


def test_secrets_that_differ_are_a_difference_and_masked(service: Client) -> None:
    one, other = (ended(service, Environments={"MODE": mode}) for mode in ("hunter2", "hunter3"))
    found = service.get(f"/runs/{one}/diff", **{"with": other})
    assert found["rows"] == [
        {
            "path": "Environments.MODE",
            "kind": "changed",
            "group": "setting",
            "before": "******",
            "after": "******",
        }
    ]


def test_commands_differ_as_text_without_secrets(service: Client) -> None:
    commands = (["sh", "-c", f"{PACKAGE_PREFIX}echo 1"], ["echo", "a b", "--api-key", "hunter2"])
    one, other = (ended(service, AlgorithmSpec={"Command": command}) for command in commands)
    (row,) = service.get(f"/runs/{one}/diff", **{"with": other})["rows"]
    assert (row["before"], row["after"]) == (["echo 1"], ["echo 'a b' --api-key ******"])


def test_a_new_command_keeps_the_package(service: Client) -> None:
    first = ended(service, f"{PACKAGE_PREFIX}echo 1")
    assert service.get(f"/runs/{first}/rerun")["fields"]["command"] == "echo 1"
    body = {"changes": {"command": 'echo "$PYTHONPATH"'}, "token": secrets.token_hex(8)}
    made = service.call("POST", f"/runs/{first}/rerun", body=body).json()["id"]
    service.until(made)
    assert service.log(made)[-1].endswith("/pai_sdk")


def test_a_rerun_differs_in_no_label_of_the_library(service: Client) -> None:
    first = ended(service, Labels=[{"Key": "team", "Value": "nlp"}])
    made = service.call("POST", f"/runs/{first}/rerun", body={"token": secrets.token_hex(8)}).json()["id"]
    paths = [row["path"] for row in service.get(f"/runs/{made}/diff", **{"with": first})["rows"]]
    assert paths == ["TrainingJobName"]


def test_a_long_traceback_has_its_exception(service: Client) -> None:
    frame = 'echo "  File \\"/a/long/path/module_$i.py\\", line $i, in f"; echo "    call(it)"'
    begin = "echo 'Traceback (most recent call last):'"
    job_id = ended(service, f"{begin}; for i in $(seq 90); do {frame}; done; echo 'KeyError: 3'; exit 1")
    failure = service.get(f"/runs/{job_id}/job")["failure"]
    assert len(failure["traceback"]) > 2000
    assert failure["traceback"].endswith("KeyError: 3")


def test_a_metric_of_the_log_is_one_of_the_run(service: Client) -> None:
    metrics = [{"Name": "loss", "Regex": "loss=([0-9.]+)"}]
    job_id = ended(service, "echo loss=0.5; echo loss=0.25", AlgorithmSpec={"MetricDefinitions": metrics})
    until(lambda: service.find(f"/runs/{job_id}/tags").get("tags"))
    (tag,) = service.get(f"/runs/{job_id}/tags")["tags"]
    assert (tag["tag"], tag["count"], tag["last"]["value"]) == ("loss", 2, 0.25)
    found = service.call("POST", "/compare", body={"runs": [job_id], "tags": ["loss"]})
    assert found.status_code == 200, found.text


# ---- files ------------------------------------------------------------------------------------------------------


def browser(client: Client) -> Callable[..., Answer]:
    """Asks as the page does, signed in."""
    port = urlsplit(client.info.endpoint).port
    assert port is not None
    signed_in = sign_in(port, client.call("POST", "/pagelinks", body={}).json()["Url"])

    def ask(method: str, path: str, body: Any = None) -> Answer:
        return ask_as_browser(port, method, path, body, **headers_of_page(port, **signed_in))

    return ask


def test_outputs_are_browsed_and_downloaded(service: Client) -> None:
    job_id = ended(
        service,
        "mkdir -p /ml/output/model/deep; echo hello > '/ml/output/model/deep/a \"b\".txt'",
        OutputChannels=outputs(service),
    )
    ask = browser(service)
    top = {entry["name"] for entry in service.get(f"/runs/{job_id}/files")["entries"]}
    (deep,) = service.get(f"/runs/{job_id}/files?path=model")["entries"]
    (file,) = service.get(f"/runs/{job_id}/files?path=model/deep")["entries"]

    assert {"model", "logs"} <= top
    assert (deep["name"], deep["is_folder"], deep["size_bytes"]) == ("deep", True, 6)
    assert (file["name"], file["is_folder"], file["size_bytes"]) == ('a "b".txt', False, 6)
    url = ask("POST", f"/api/v1/runs/{job_id}/downloads", {"path": 'model/deep/a "b".txt'}).json["url"]
    port = urlsplit(service.info.endpoint).port or 0
    downloaded = ask_as_browser(port, "GET", url)  # a link sends no key
    assert (downloaded.status, downloaded.content) == (200, b"hello\n")
    assert downloaded.headers["content-disposition"].startswith('attachment; filename="a-b-.txt"')
    assert downloaded.headers["x-content-type-options"] == "nosniff"
    assert ask_as_browser(port, "GET", url).status == 403


@pytest.mark.parametrize(
    "path",
    [
        "logs/../../state",
        "../logs",
        "logs/%2e%2e/x",
        "/etc/passwd",
        "model/passwd",
        "model/up/x",
        "model/pipe",
        "nothing",
        "logs/\0",
    ],
)
def test_no_path_leads_out_of_a_job(service: Client, path: str) -> None:
    job_id = ended(
        service,
        "cd /ml/output/model; ln -s /etc/passwd passwd; ln -s / up; mkfifo pipe; true",
        OutputChannels=outputs(service),
    )
    ask = browser(service)

    prepared = ask("POST", f"/api/v1/runs/{job_id}/downloads", {"path": path})
    listed = service.call("GET", f"/runs/{job_id}/files?path={quote(path)}")

    assert prepared.status in (400, 404), prepared.content
    assert b"root:" not in prepared.content
    assert listed.status_code in (400, 404) or listed.json()["entries"] == []


@pytest.mark.parametrize("place", ["trace", "model/trace"])
def test_a_trace_is_shown_as_rows(service: Client, place: str) -> None:
    pytest.importorskip("duckdb")
    job_id = ended(service)
    folder = service.info.data_dir / "jobs" / job_id / "ml" / "output" / place
    with TraceWriter({"step": "bigint", "loss": "double"}, ParquetSink(folder), run_id="fit") as writer:
        for step, loss in enumerate((0.5, math.nan, 0.1)):
            writer.write(step=[step], loss=[loss])

    found = service.get(f"/runs/{job_id}/trace", offset=1, limit=2)

    assert found["total"] == 3
    names = [column["name"] for column in found["columns"]]
    rows = [dict(zip(names, row, strict=True)) for row in found["rows"]]
    assert [(row["step"], row["loss"]) for row in rows] == [(1, "nan"), (2, 0.1)]


def test_a_job_without_a_trace_has_no_tables(service: Client) -> None:
    assert service.get(f"/runs/{ended(service)}/trace")["tables"] == []
    with_model = ended(service, OutputChannels=outputs(service))
    assert service.get(f"/runs/{with_model}/trace")["tables"] == []
