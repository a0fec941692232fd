"""Annotations of jobs: stars of each user; tags, notes and the archive of all who see a job; saved views."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from pai_sdk._service.identity.principal import Principal
from pai_sdk._service.services.jobs import annotations
from pai_sdk._service.services.jobs.job_table import Jobs
from pai_sdk._service.services.runs.page_filter import page_filter
from pai_sdk._service.wire_errors import WireError
from pai_sdk._wire.annotations import AnnotationChanges, JobAnnotations
from pai_sdk._wire.pai.request import ACCESSIBILITY_LABEL
from tests.service.fakes import ScriptedExecutor
from tests.service.identity.test_two_users import user, with_new_key
from tests.service.services import Client, job_body
from tests.support.waiting import until

PUBLIC = [{"Key": ACCESSIBILITY_LABEL, "Value": "PUBLIC"}]


def annotate(client: Client, job_id: str, **changes: Any) -> dict[str, Any]:
    answer = client.call("PATCH", f"/runs/{job_id}/annotations", body=changes)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def refused(client: Client, job_id: str, **changes: Any) -> tuple[int, str]:
    answer = client.call("PATCH", f"/runs/{job_id}/annotations", body=changes)
    return answer.status_code, answer.json()["Code"]


def listed(client: Client, filter: str = "") -> dict[str, dict[str, Any]]:
    rows = client.get("/runs", filter=filter, fields="star,tags,note,archived")["runs"]
    return {row["id"]: {name: value for name, value in row.items() if name not in ("id", "v")} for row in rows}


def is_starred(client: Client, job_id: str) -> bool:
    return bool(listed(client).get(job_id, {}).get("star"))


@pytest.fixture
def service(start: Callable[..., Any]) -> Any:
    with start(ScriptedExecutor(), slots=1) as client:
        yield client


def test_what_was_not_annotated_has_nothing_and_fields_that_are_left_out_stay(service: Client) -> None:
    job_id = service.create(job_body())
    empty = {"star": False, "tags": [], "note": "", "archived": False, "v": 0}
    assert annotate(service, job_id) == empty
    assert annotate(service, job_id, tags=["best", "paper"]) == {**empty, "tags": ["best", "paper"]}
    assert annotate(service, job_id, note="a\nb") == {**empty, "tags": ["best", "paper"], "note": "a\nb", "v": 1}
    assert annotate(service, job_id, note="a\nb")["v"] == 1
    found = annotate(service, job_id, star=True, archived=True, add_tags=["best", " new "], remove_tags=["paper"])
    assert found == {"star": True, "tags": ["best", "new"], "note": "a\nb", "archived": True, "v": 1}
    assert service.get(f"/runs/{job_id}/job")["annotations"] == found
    assert annotate(service, job_id, star=True)["star"] is True
    assert annotate(service, job_id, star=False, archived=False, note="", tags=[]) == {**empty, "v": 2}


@pytest.mark.parametrize(
    "changes",
    [
        {"note": "x" * 10_001},
        {"tags": ["x" * 65]},
        {"tags": [f"t{n}" for n in range(21)]},
        {"tags": [""]},
        {"add_tags": ["a,b"]},
        {"add_tags": ["a\nb"]},
        {"note": 5},
        {"note": "a\x00b"},
        {"note": "\ud800"},
        {"colour": "red"},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_limits(service: Client, changes: dict[str, Any]) -> None:
    job_id = service.create(job_body())
    assert refused(service, job_id, **changes) == (400, "InvalidParameter")
    assert annotate(service, job_id)["tags"] == []


def test_a_job_has_at_most_20_tags(service: Client) -> None:
    job_id = service.create(job_body())
    annotate(service, job_id, tags=[f"t{n}" for n in range(19)], note="x" * 10_000)
    assert len(annotate(service, job_id, add_tags=["t0", "last"])["tags"]) == 20
    assert refused(service, job_id, add_tags=["more"], note="lost?") == (400, "InvalidParameter")
    assert annotate(service, job_id)["note"] == "x" * 10_000
    assert len(annotate(service, job_id, add_tags=["more"], remove_tags=["last"])["tags"]) == 20


def test_the_second_of_two_notes_is_refused_and_tags_of_both_stay(service: Client) -> None:
    job_id = service.create(job_body())
    before = annotate(service, job_id)["v"]
    annotate(service, job_id, note="of the first", v=before, add_tags=["one"])
    assert refused(service, job_id, note="of the second", v=before) == (409, "NOTE_CHANGED")
    found = annotate(service, job_id, v=before, add_tags=["two"])
    assert (found["note"], found["tags"]) == ("of the first", ["one", "two"])
    assert annotate(service, job_id, note="of both", v=found["v"])["note"] == "of both"


def test_the_response_has_no_later_note(service: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    job_id = service.create(job_body())
    read = annotations.annotations_of

    def read_later(jobs: Jobs, principal: Principal, job_id: str) -> JobAnnotations:
        monkeypatch.setattr(annotations, "annotations_of", read)
        annotations.change_annotations(jobs, principal, job_id, AnnotationChanges(note="of another user"))
        return read(jobs, principal, job_id)

    monkeypatch.setattr(annotations, "annotations_of", read_later)
    saved = annotate(service, job_id, note="mine", v=0)
    assert (saved["note"], saved["v"]) == ("mine", 1)
    assert refused(service, job_id, note="mine, corrected", v=saved["v"])[0] == 409


def test_a_star_is_the_users_own_and_the_rest_is_for_all_who_see_the_job(service: Client) -> None:
    alice, bob, reader = user(service, "alice"), user(service, "bob"), user(service, "carol", "read")
    job_id, private = alice.create(job_body(Labels=PUBLIC)), alice.create(job_body())
    annotate(alice, job_id, note="by alice", add_tags=["ours"])
    for client in (bob, reader):
        assert annotate(client, job_id, star=True) == {
            **{"star": True, "tags": ["ours"], "note": "by alice", "archived": False, "v": 1}
        }
        for changes in ({"note": "mine"}, {"add_tags": ["mine"]}, {"archived": True}, {"tags": [], "star": False}):
            assert refused(client, job_id, **changes) == (403, "Forbidden.NoPermission")
        assert refused(client, private, star=True)[0] == 404
        until(partial(is_starred, client, job_id), "the star")
    assert annotate(alice, job_id)["star"] is False
    assert annotate(service, job_id)["star"] is False
    found = annotate(service, job_id, star=True, note="by the operator")
    assert (found["star"], found["v"]) == (True, 2)
    root = user(service, "root", "admin")  # shares the manager of runs with the operator, and not the stars
    until(lambda: listed(service, "star=true").keys() == {job_id}, "the star")
    assert listed(root, "star=true") == {}
    assert listed(root, "star=false").keys() == {job_id, private}
    assert "star" not in listed(root)[job_id]


def test_jobs_that_do_not_exist_have_no_annotations(service: Client) -> None:
    for client in (service, user(service, "alice")):
        for changes in ({}, {"star": True}, {"note": "x"}):
            assert refused(client, "train00000000", **changes) == (404, "TRAINING_JOB_NOT_FOUND")


def test_they_are_of_one_job_and_are_deleted_with_it(service: Client) -> None:
    job_id = service.create(job_body())
    assert service.call("POST", f"/runs/{job_id}/stop", body={}).status_code == 200
    service.until(job_id)
    annotate(service, job_id, star=True, note="n", add_tags=["t"])
    again = service.call("POST", f"/runs/{job_id}/rerun", body={"changes": {}, "token": "a-long-token"}).json()[
        "id"
    ]
    assert annotate(service, again) == {"star": False, "tags": [], "note": "", "archived": False, "v": 0}
    assert service.call("DELETE", f"/runs/{job_id}").status_code == 200
    assert refused(service, job_id, star=True)[0] == 404


def test_changes_are_in_the_audit_log(service: Client) -> None:
    alice = user(service, "alice")
    job_id = alice.create(job_body())
    annotate(alice, job_id, note="n")
    newest = service.get("/audit", PageSize="1")["Entries"][0]
    assert (newest["User"], newest["Method"], newest["Path"]) == (
        *("alice", "PATCH"),
        f"/api/v1/runs/{job_id}/annotations",
    )


def test_the_list_has_annotations_and_leaves_archived_jobs_out(service: Client) -> None:
    plain, archived = service.create(job_body()), service.create(job_body())
    until(lambda: listed(service).keys() == {plain, archived}, "both")
    annotate(service, plain, star=True, add_tags=["best of", "paper"], note="Much better\nthan before")
    annotate(service, archived, archived=True, add_tags=["bad"])
    until(lambda: listed(service).keys() == {plain}, "the archive")
    until(lambda: "star" in listed(service)[plain], "the star")
    assert listed(service)[plain] == {
        **{"star": True, "tags": ["best of", "paper"], "note": "Much better\nthan before"}
    }
    for filter, expected in (
        ("archived=true", {archived}),
        ("archived=true,false", {plain, archived}),
        ("archived!=true", {plain}),
        (f"id={archived}", {archived}),
        ("tags=bad", set()),
        ("tags=bad archived=true", {archived}),
        ("tags=paper", {plain}),
        ('tags="best of"', {plain}),
        ("tags~PAP", {plain}),
        ("tags!=paper", set()),
        ("note~better", {plain}),
        ("note!~better", set()),
        ("star=true", {plain}),
        ("star = true tags=paper", {plain}),
        ("star!=true", set()),
        ('name~"star=true"', set()),
    ):
        assert listed(service, filter).keys() == expected, filter
    assert service.get("/runs")["total"] == 1
    assert service.get("/trainingjobs")["TotalCount"] == 2
    body = {"filter": "", "metric": None}
    assert service.call("POST", "/hparams/diff", body=body).json()["runs"] == [plain]
    assert "tags" in service.get(f"/runs/{plain}")  # those of event files


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", " archived=false"),
        ("star=true", 'starred_by="bob" archived=false'),
        ("a star == false", 'a starred_by!="bob" archived=false'),
        ("star!=true archived=true", 'starred_by!="bob" archived=true'),
        ("star!=false id=x", 'starred_by="bob" id=x'),
        ('name="star=true" star=truer', 'name="star=true" star=truer archived=false'),
        ("note~'archived=true' grid=3", "note~'archived=true' grid=3 archived=false"),
        (r'note~"a\" star=true"', r'note~"a\" star=true" archived=false'),
    ],
)
def test_the_filter_of_a_user(text: str, expected: str) -> None:
    assert page_filter(text, "bob") == expected


@pytest.mark.parametrize(
    "text",
    ["starred_by=alice", '"starred_by"="alice"', "starred_by!=alice", "starred_by~bob", "starred_by=bob,alice"],
)
def test_no_filter_finds_the_stars_of_others(service: Client, text: str) -> None:
    # `m~bert` and `optimizer=adam` are no conditions about metrics, but hyperparameters may have these names.
    for before in ("a star=true", "optimizer=adam", "m~bert"):
        with pytest.raises(WireError, match="stars are shown to their users only"):
            page_filter(f"{before} {text}", "bob")
    for body in ({"filter": text}, {"filter": "a", "group_by": ["starred_by"]}):
        answer = service.call("POST", "/compare", body={"tags": ["loss"], **body})
        assert (answer.status_code, answer.json()["Code"]) == (400, "InvalidParameter")
        assert "stars are shown" in answer.text
    for query in ({"filter": text}, {"sort": "starred_by"}, {"sort": "-starred_by"}):
        answer = service.call("GET", "/runs", **query)
        assert (answer.status_code, "stars are shown" in answer.text) == (400, True)
    assert page_filter("starred_by=bob", "bob") == "starred_by=bob archived=false"


def test_a_long_note_is_cut_in_the_list(service: Client) -> None:
    job_id = service.create(job_body())
    annotate(service, job_id, note="x" * 10_000)
    until(lambda: "note" in listed(service).get(job_id, {}), "the note")
    assert len(listed(service)[job_id]["note"]) < 300
    assert len(annotate(service, job_id)["note"]) == 10_000


# ---- views


def views(client: Client) -> dict[str, tuple[str, bool, bool]]:
    return {view["name"]: (view["fields"], view["shared"], view["mine"]) for view in client.get("/views")["views"]}


def test_views_are_saved_replaced_and_deleted(service: Client) -> None:
    assert views(service) == {}
    for fields in ("q=a", "q=b&sort=-loss"):
        saved = service.call("PUT", "/views/morning 早", body={"fields": fields}).json()
        assert saved == {"name": "morning 早", "fields": fields, "shared": False, "owner": "", "mine": True}
    assert views(service) == {"morning 早": ("q=b&sort=-loss", False, True)}
    assert service.call("DELETE", "/views/morning 早").status_code == 200
    assert service.call("DELETE", "/views/morning 早").json()["Code"] == "VIEW_NOT_FOUND"
    assert views(service) == {}


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("x" * 101, {"fields": ""}),
        ("a\tb", {"fields": ""}),
        (" ", {"fields": ""}),
        ("v", {"fields": "x" * 16_385}),
        ("v", {}),
        ("v", {"fields": "\x00"}),
        ("v", {"fields": "", "owner": "bob"}),
    ],
)
def test_limits_of_views(service: Client, name: str, body: dict[str, Any]) -> None:
    answer = service.call("PUT", f"/views/{name}", body=body)
    assert (answer.status_code, answer.json()["Code"]) == (400, "InvalidParameter")
    assert views(service) == {}


def test_a_user_has_at_most_100_views(service: Client) -> None:
    for number in range(100):
        assert service.call("PUT", f"/views/v{number}", body={"fields": ""}).status_code == 200
    assert service.call("PUT", "/views/v0", body={"fields": "q=a"}).status_code == 200
    assert service.call("PUT", "/views/more", body={"fields": ""}).json()["Code"] == "InvalidParameter"


def test_a_view_is_shared_with_the_members_of_ones_workspaces(service: Client) -> None:
    alice, bob, reader = user(service, "alice"), user(service, "bob"), user(service, "carol", "read")
    other = service.call("POST", "/workspaces", body={"WorkspaceName": "elsewhere"}).json()["WorkspaceId"]
    answer = service.call("POST", "/users", body={"Name": "dave", "Right": "submit", "WorkspaceId": other})
    assert answer.status_code == 200, answer.text
    dave = with_new_key(service, "dave")
    for name, shared in (("private", False), ("ours", True)):
        assert alice.call("PUT", f"/views/{name}", body={"fields": "q=a", "shared": shared}).status_code == 200
    assert views(alice) == {"private": ("q=a", False, True), "ours": ("q=a", True, True)}
    for client in (bob, reader, service):
        assert views(client) == {"ours": ("q=a", True, False)}
        assert client.call("DELETE", "/views/ours").status_code == 404
    assert views(dave) == {}
    assert reader.call("PUT", "/views/mine", body={"fields": ""}).status_code == 200
    refusal = reader.call("PUT", "/views/mine", body={"fields": "", "shared": True})
    assert (refusal.status_code, refusal.json()["Code"]) == (403, "Forbidden.NoPermission")
    assert service.call("PUT", "/views/all", body={"fields": "", "shared": True}).status_code == 200
    assert "all" in views(dave)
    assert service.call("DELETE", "/users/alice").status_code == 200
    assert "ours" not in views(service)
