"""The actions on registered algorithms, as they go over the wire, and what is found among them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl

import pytest

from pai_sdk._client.api.algorithms import Algorithms
from pai_sdk._client.api.transport import Transport
from pai_sdk.errors import InvalidInputError, InvalidResponseError
from tests.support.messages import refused
from tests.unit.client.api.scripted_server import Asked, Reply, ScriptedServer
from tests.unit.client.api.test_training_jobs import paged

SPEC = {"Image": "python:3.11", "Command": ["python", "train.py"], "JobType": "PyTorchJob"}
ONE = "/api/v1/algorithms/algo-1"


@pytest.fixture
def algorithms(transport: Transport) -> Algorithms:
    return Algorithms(transport, workspace_id="7")


def form(asked: Asked) -> dict[str, str]:
    assert asked.headers["content-type"] == "application/x-www-form-urlencoded"
    return dict(parse_qsl(asked.body.decode(), strict_parsing=True))


def named(*names: str, provider: str = "me") -> list[dict[str, str]]:
    return [
        {"AlgorithmId": f"algo-{number}", "AlgorithmName": name, "AlgorithmProvider": provider}
        for number, name in enumerate(names)
    ]


@pytest.mark.parametrize(
    ("call", "method", "path", "body"),
    [
        (
            lambda a: a.create("digits", description="d", display_name="D"),
            "POST",
            "/api/v1/algorithms",
            {"AlgorithmName": "digits", "AlgorithmDescription": "d", "DisplayName": "D", "WorkspaceId": "7"},
        ),
        (lambda a: a.get("algo-1"), "GET", ONE, None),
        (lambda a: a.update("algo-1", description="new"), "PUT", ONE, {"AlgorithmDescription": "new"}),
        (lambda a: a.delete("algo-1"), "DELETE", ONE, None),
        (lambda a: a.get_version("algo-1", "v/1"), "GET", ONE + "/versions/v%2F1", None),
        (lambda a: a.delete_version("algo-1", "v1"), "DELETE", ONE + "/versions/v1", None),
    ],
)
def test_each_action_is_on_the_wire_as_the_service_wants_it(
    algorithms: Algorithms,
    server: ScriptedServer,
    call: Callable[[Algorithms], object],
    method: str,
    path: str,
    body: Any,
) -> None:
    server.script = [Reply({"AlgorithmId": "algo-1"})]
    call(algorithms)
    (asked,) = server.asked
    assert (asked.method, asked.path) == (method, path)
    assert (form(asked) if asked.body else None) == body


@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_the_spec_of_a_version_is_json_text_inside_a_form(
    algorithms: Algorithms, server: ScriptedServer, method: str
) -> None:
    server.script = [Reply({"AlgorithmId": "algo-1", "AlgorithmVersion": "v1"})]
    if method == "POST":
        assert algorithms.create_version("algo-1", "v1", SPEC) == ("algo-1", "v1")
    else:
        algorithms.update_version("algo-1", "v1", SPEC)
    (asked,) = server.asked
    assert (asked.method, asked.path) == (method, ONE + "/versions/v1")
    assert SPEC.items() <= json.loads(form(asked)["AlgorithmSpec"]).items()


def test_a_wrong_spec_is_not_sent(algorithms: Algorithms, server: ScriptedServer) -> None:
    with pytest.raises(InvalidInputError) as caught:
        algorithms.create_version("algo-1", "v1", {"Imgae": "x"})
    assert {p.where for p in caught.value.problems} == {
        f"algorithm_spec.{n}" for n in ("Imgae", "Command", "Image")
    }
    assert server.asked == []


def test_a_spec_is_read_whatever_is_in_it(algorithms: Algorithms, server: ScriptedServer) -> None:
    spec = {"Image": None, "HyperParameters": [{"Name": "lr", "New": 1, "Range": {"Odd": 2}}], "Later": {}}
    for wire in (spec, json.dumps(spec)):
        server.script = [Reply({"AlgorithmSpec": wire})]
        found = algorithms.get_version("algo-1", "v1").algorithm_spec
        assert found is not None
        assert [definition.name for definition in found.hyperparameter_definitions] == ["lr"]


def test_lists_go_over_all_pages(algorithms: Algorithms, server: ScriptedServer) -> None:
    server.answer = paged("Algorithms", named(*(f"a{number}" for number in range(7))), largest=3)
    assert [a.algorithm_name for a in algorithms.list(page_size=3)] == [f"a{number}" for number in range(7)]
    server.answer = paged("AlgorithmVersions", [{"AlgorithmVersion": f"v{n}"} for n in range(7)], largest=3)
    assert [v.algorithm_version for v in algorithms.list_versions("algo-1", page_size=3)] == [
        f"v{number}" for number in range(7)
    ]


def test_the_exact_name_is_found_on_whatever_page_it_is(algorithms: Algorithms, server: ScriptedServer) -> None:
    everything = named(*(f"digits-{number}" for number in range(150)), "digits")
    server.answer = paged("Algorithms", everything, largest=100)
    assert algorithms.find("digits").algorithm_id == "algo-150"
    assert [asked.query.get("WorkspaceId") for asked in server.asked] == ["7", "7"]


def test_a_name_that_is_only_part_of_others_ends_and_offers_them(
    algorithms: Algorithms, server: ScriptedServer
) -> None:
    """Not page after page for ever."""
    server.answer = paged("Algorithms", named("digits-large", "digits-small"))
    with refused(InvalidInputError, "algorithm_name"):
        algorithms.find("digits-smal")
    assert len(server.asked) == 1


def test_a_name_that_is_nowhere_offers_what_there_is(algorithms: Algorithms, server: ScriptedServer) -> None:
    def answer(asked: Asked) -> Reply:
        return Reply({"Algorithms": [] if "AlgorithmName" in asked.query else named("digits"), "TotalCount": 1})

    server.answer = answer
    with refused(InvalidInputError, "algorithm_name"):
        algorithms.find("xgboost")


def test_two_of_a_name_need_the_provider(algorithms: Algorithms, server: ScriptedServer) -> None:
    both = [*named("digits", provider="me"), *named("digits", provider="you")]
    server.answer = paged("Algorithms", both)
    with refused(InvalidInputError, "algorithm_provider"):
        algorithms.find("digits")


def test_algorithms_of_a_provider_are_of_no_workspace_of_ours(
    algorithms: Algorithms, server: ScriptedServer
) -> None:
    server.answer = paged("Algorithms", named("xgboost", provider="pai"))
    assert algorithms.find("xgboost", "pai").algorithm_provider == "pai"
    assert server.asked[0].query["AlgorithmProvider"] == "pai"
    assert "WorkspaceId" not in server.asked[0].query


@pytest.mark.parametrize(
    ("versions", "latest"),
    [
        ([("v1", "2026-01-01T00:00:00Z"), ("v3", "2026-03-01T00:00:00Z"), ("v2", "2026-02-01T00:00:00Z")], "v3"),
        ([("v9", None), ("v10", None), ("v1", None)], "v10"),
        ([("0.9.0", "2026-01-01T00:00:00.5Z"), ("0.10.0", "2026-01-01T00:00:00Z")], "0.10.0"),
        ([("v2", "2026-01-01T00:00:00Z"), ("v1", "2026-02-01T00:00:00Z")], "v1"),
        ([], None),
    ],
)
def test_the_latest_version_is_the_newest_of_all_pages(
    algorithms: Algorithms, server: ScriptedServer, versions: list[tuple[str, str | None]], latest: str | None
) -> None:
    """Not the last one of the first page."""
    shown = [{"AlgorithmVersion": version, "GmtCreateTime": created} for version, created in versions]
    server.answer = paged("AlgorithmVersions", shown, largest=1)
    found = algorithms.latest_version("algo-1")
    assert (found.algorithm_version if found else None) == latest


def test_one_unreadable_item_does_not_hide_the_others(
    algorithms: Algorithms, server: ScriptedServer, caplog: pytest.LogCaptureFixture
) -> None:
    odd = [{"AlgorithmName": "digits"}, "text", None, {"AlgorithmId": ["?"]}]
    server.answer = paged("Algorithms", [*odd, *named("digits", "other")])
    assert [found.algorithm_name for found in algorithms.list()] == ["digits", "other"]
    assert algorithms.find("digits").algorithm_id == "algo-0"
    versions = [{}, "text", {"AlgorithmVersion": None}, {"AlgorithmVersion": "v2"}, {"AlgorithmVersion": "v1"}]
    server.answer = paged("AlgorithmVersions", versions)
    latest = algorithms.latest_version("algo-1")
    assert latest is not None
    assert (latest.algorithm_id, latest.algorithm_version) == ("algo-1", "v2")
    assert "ListAlgorithmVersions: skipping an item that cannot be read" in caplog.text


@pytest.mark.parametrize("spec", ["{cut", {"HyperParameters": 7}, [1]])
def test_a_spec_that_cannot_be_read_is_reported(algorithms: Algorithms, server: ScriptedServer, spec: Any) -> None:
    server.script = [Reply({"AlgorithmSpec": spec, "RequestId": "r-7"})]
    with refused(InvalidResponseError) as caught:
        algorithms.get_version("algo-1", "v1")
    assert caught.value.request_id == "r-7"
