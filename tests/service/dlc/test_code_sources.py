"""Jobs of DLC see clones of registered repositories."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.service.dlc.dlc_client import WORKSPACE_VERSION, DlcClient, dlc_body
from tests.service.services import Client, job_body
from tests.support.git_hosts import GitServer, Repository, git_server, url_of
from tests.support.waiting import PATIENCE_S, until

TOKEN = "gh-token-of-ann"


@pytest.fixture(scope="module", autouse=True)
def git_settings() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AUTHOR", "COMMITTER"):
            patch.setenv(f"GIT_{name}_NAME", "a")
            patch.setenv(f"GIT_{name}_EMAIL", "a@example.com")
        patch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
        yield


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    return Repository(tmp_path_factory.mktemp("srv") / "project.git")


@pytest.fixture(scope="module")
def host(repository: Repository) -> Iterator[GitServer]:
    with git_server(repository.path.parent) as server:
        yield server


@pytest.fixture(scope="module")
def dlc(service: Client) -> DlcClient:
    return DlcClient(service.info)


def register(dlc: DlcClient, repo: str, **fields: Any) -> str:
    body = {"DisplayName": "project", "CodeRepo": repo, "MountPath": "/mnt/code", "CloneType": 1, **fields}
    answer = dlc.call("POST", "/api/v1/codesources", body, version=WORKSPACE_VERSION).json()
    return str(answer["CodeSourceId"])


def with_code(source_id: str, command: str = "true", **fields: Any) -> dict[str, Any]:
    return dlc_body(command, CodeSource={"CodeSourceId": source_id, **fields})


def log_of(dlc: DlcClient, body: dict[str, Any]) -> list[str]:
    """What a job has printed, which must succeed."""
    job_id = dlc.create(body)
    job = dlc.until(job_id)
    assert job["Status"] == "Succeeded", job
    pod_id = job["Pods"][0]["PodId"]
    logs: list[str] = dlc.do("GetPodLogs", ids={"job_id": job_id, "pod_id": pod_id})["Logs"]
    return logs


def test_the_state_that_the_job_names_is_cloned(dlc: DlcClient, host: GitServer, repository: Repository) -> None:
    one, two = repository.commits["one"], repository.commits["two"]
    plain = register(dlc, url_of(host))
    pinned = register(dlc, url_of(host), CodeBranch="main", CodeCommit=one)
    show = "cat /mnt/code/train.py; echo"
    assert log_of(dlc, with_code(plain, show)) == ["three"]
    assert log_of(dlc, with_code(plain, show, Branch="side")) == ["side"]
    assert log_of(dlc, with_code(plain, show, Branch="side", Commit=two)) == ["two"]
    assert log_of(dlc, with_code(pinned, show)) == ["one"]
    assert log_of(dlc, with_code(pinned, show, Branch="side")) == ["side"]


def test_a_clone_is_a_folder_of_the_job(dlc: DlcClient, host: GitServer) -> None:
    source_id = register(dlc, url_of(host), CloneType=0, MountPath="/mnt/elsewhere")
    command = "cd /opt/code/project && cat train.py && echo && echo new > out.txt && cat out.txt && git status -s"
    body = with_code(source_id, command, MountPath="/opt/code/")
    assert log_of(dlc, body) == ["three", "new", "?? out.txt"]
    assert log_of(dlc, body) == ["three", "new", "?? out.txt"]
    assert log_of(dlc, with_code(source_id, "ls /mnt/elsewhere")) == ["project"]


@pytest.mark.parametrize(
    ("fields", "says"), [({"Branch": "none"}, "no such branch"), ({"Commit": "deadbeef" * 5}, "has no commit")]
)
def test_a_state_that_is_not_there_fails_the_job(
    dlc: DlcClient, host: GitServer, fields: dict[str, str], says: str
) -> None:
    job = dlc.until(dlc.create(with_code(register(dlc, url_of(host)), **fields)))
    assert (job["Status"], job["ReasonCode"]) == ("Failed", "CloneFailed")
    assert says in job["ReasonMessage"]


def test_a_token_is_sent_and_found_nowhere(dlc: DlcClient, repository: Repository, service: Client) -> None:
    with git_server(repository.path.parent, f"ann:{TOKEN}") as host:
        fields = {"CodeRepoUserName": "ann", "CodeRepoAccessToken": TOKEN}
        source_id = register(dlc, url_of(host), **fields)
        job_id = dlc.create(with_code(source_id, "env; cat /mnt/code/.git/config; cat /mnt/code/train.py"))
        job = dlc.until(job_id)
        assert job["Status"] == "Succeeded", job
        assert {login for _, login in host.seen} == {None, host.expected}
        logs = dlc.do("GetPodLogs", ids={"job_id": job_id, "pod_id": job["Pods"][0]["PodId"]})["Logs"]
        wrong = register(dlc, url_of(host), CodeRepoUserName="ann", CodeRepoAccessToken="wrong-" + TOKEN)
        failed = dlc.until(dlc.create(with_code(wrong)))
    assert (failed["Status"], failed["ReasonCode"]) == ("Failed", "CloneFailed")
    assert "login was refused" in failed["ReasonMessage"]
    events = dlc.do("GetJobEvents", ids={"job_id": job_id})
    run = until(lambda: service.find(f"/runs/{job_id}"))
    basic = host.expected.removeprefix("Basic ")
    for text in map(str, (job, logs, failed, events, run)):
        assert TOKEN not in text
        assert basic not in text


@pytest.mark.parametrize("repo", ["FILE", "ext::sh -c true", "git@-oProxyCommand=true:a", "/etc"])
def test_a_repository_that_no_host_serves_is_refused(dlc: DlcClient, repository: Repository, repo: str) -> None:
    source_id = register(dlc, repository.url if repo == "FILE" else repo)
    status, code, message = dlc.refused("CreateJob", with_code(source_id))
    assert (status, code) == (400, "InvalidParameter")
    assert "CodeSource.CodeSourceId" in message


def test_a_repository_is_checked_again_when_it_is_cloned(
    dlc: DlcClient, host: GitServer, repository: Repository, start: Callable[..., Any]
) -> None:
    with start(slots=1) as client:
        own = DlcClient(client.info)
        source_id = register(own, url_of(host))
        path = f"/api/v1/codesources/{source_id}"
        first = own.create(dlc_body("sleep 600"))
        own.until(first, "Running")
        job_id = own.create(with_code(source_id))
        own.call("PUT", path, {"CodeRepo": repository.url}, version=WORKSPACE_VERSION)
        other_id = register(own, url_of(host))
        orphan = own.create(with_code(other_id))
        own.call("DELETE", f"/api/v1/codesources/{other_id}", version=WORKSPACE_VERSION)
        own.do("StopJob", ids={"job_id": first})
        for each in (job_id, orphan):
            job = own.until(each)
            assert (job["Status"], job["ReasonCode"]) == ("Failed", "CloneFailed")


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"Branch": "--upload-pack=true"}, "CodeSource.Branch"),
        ({"Branch": "-x", "Commit": "deadbeef"}, "CodeSource.Branch"),
        ({"Commit": "-deadbeef"}, "CodeSource.Commit"),
        ({"MountPath": "code"}, "CodeSource.MountPath"),
    ],
)
def test_what_is_no_state_is_refused(dlc: DlcClient, host: GitServer, fields: dict[str, str], where: str) -> None:
    status, code, message = dlc.refused("CreateJob", with_code(register(dlc, url_of(host)), **fields))
    assert (status, code) == (400, "InvalidParameter")
    assert where in message


def test_no_training_job_names_a_code_source(dlc: DlcClient, host: GitServer, service: Client) -> None:
    uri = f"code-source://{register(dlc, url_of(host))}/"
    body = dlc_body(DataSources=[{"Uri": uri, "MountPath": "/mnt/code"}])
    assert dlc.refused("CreateJob", body)[:2] == (400, "InvalidParameter")
    mounts = [{"Path": "/mnt/code", "Uri": uri, "Access": "RW"}]
    answer = service.call("POST", "/trainingjobs", body=job_body(Mounts=mounts))
    assert answer.status_code == 400
    assert "oss://" in answer.json()["Message"]


def test_a_hanging_host_holds_up_no_other_job(
    host: GitServer, repository: Repository, start: Callable[..., Any]
) -> None:
    with git_server(repository.path.parent) as slow, start(slots=4, copy_threads=1) as client:
        slow.hangs = True
        dlc = DlcClient(client.info)
        waiting = dlc.create(with_code(register(dlc, url_of(slow))))
        assert slow.asked.wait(PATIENCE_S)
        assert dlc.until(dlc.create(dlc_body()))["Status"] == "Succeeded"
        dlc.do("StopJob", ids={"job_id": waiting})
        assert dlc.until(waiting)["Status"] == "Stopped"


def test_a_restart_begins_the_clone_anew(
    repository: Repository, start: Callable[..., Any], tmp_path: Path
) -> None:
    with git_server(repository.path.parent) as slow:
        slow.hangs = True
        with start() as client:
            dlc = DlcClient(client.info)
            job_id = dlc.create(with_code(register(dlc, url_of(slow)), "cat /mnt/code/train.py"))
            assert slow.asked.wait(PATIENCE_S)
        slow.hangs = False
        with start() as client:
            dlc = DlcClient(client.info)
            assert dlc.until(job_id)["Status"] == "Succeeded"
            folder = next((tmp_path / "data").rglob(job_id))
            assert not any(folder.rglob("train.py"))
            dlc.do("DeleteJob", ids={"job_id": job_id})


def test_a_private_repository_is_that_of_its_owner(host: GitServer, start: Callable[..., Any]) -> None:
    with start() as client:
        users: list[DlcClient] = []
        for name in ("ann", "bob"):
            client.call("POST", "/users", body={"Name": name, "Right": "submit"})
            key = client.call("POST", f"/users/{name}/keys", body={}).json()
            users.append(DlcClient(client.info, (key["AccessKeyId"], key["AccessKeySecret"])))
            member = {"UserId": name, "Roles": ["PAI.AlgoDeveloper"]}
            client.call("POST", "/workspaces/1/members", body={"Members": [member]})
        ann, bob = users
        source_id = register(ann, url_of(host))
        assert bob.refused("CreateJob", with_code(source_id))[:2] == (404, "NotFound")
        assert bob.refused("CreateJob", with_code("code-none"))[:2] == (404, "NotFound")
        assert bob.do("ListJobs")["Jobs"] == []
        path = f"/api/v1/codesources/{source_id}/publish"
        ann.call("PUT", path, version=WORKSPACE_VERSION)
        assert bob.until(bob.create(with_code(source_id)))["Status"] == "Succeeded"
