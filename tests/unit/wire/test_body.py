"""Bodies that are read tolerantly and written exactly."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from pai_sdk._wire.body import comma_list, read_body, read_query, received, unknown_fields, unknown_problems
from pai_sdk._wire.dlc.jobs import JobQuery, JobUpdate, NewJob
from pai_sdk._wire.dlc.records import JobDetail, JobItem, JobList
from pai_sdk._wire.dlc.resources.access import TokenQuery
from pai_sdk._wire.dlc.resources.tags import UntagQuery

pytestmark = pytest.mark.interpreter

UNSET: list[Any] = [None, "", [], {}]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@pytest.mark.parametrize("unset", UNSET, ids=repr)
@pytest.mark.parametrize(
    "field", ["EcsSpec", "PodCount", "ElasticSpotSpecs", "ResourceConfig", "UseSpotInstance", "NoSuchField"]
)
def test_unset_fields_are_absent(field: str, unset: Any) -> None:
    job = NewJob.model_validate({"JobSpecs": [{"Type": "Worker", field: unset}]})
    assert job.to_wire() == {"JobSpecs": [{"Type": "Worker"}]}
    assert unknown_fields(job) == []


def test_objects_of_unset_fields_are_absent() -> None:
    job = JobDetail.model_validate({"JobId": "dlc1", "CodeSource": {"CodeSourceId": "", "MountPath": ""}})
    assert job.code_source is None
    assert job.to_wire() == {"JobId": "dlc1"}


def test_bodies_of_both_generations_of_clients_are_equal() -> None:
    older = {"JobSpecs": [{"Type": "Worker"}]}
    newer = {"JobSpecs": [{"Type": "Worker", "ElasticSpotSpecs": [], "LocalMountSpecs": []}], "CustomEnvs": []}
    assert NewJob.model_validate(older) == NewJob.model_validate(newer)


def test_empty_values_that_mean_something_stay() -> None:
    job = {"Envs": {"A": ""}, "CustomEnvs": [{"Key": "B", "Value": ""}]}
    assert NewJob.model_validate(job).to_wire() == job
    assert JobUpdate(description="").to_wire() == {"Description": ""}
    assert JobList(jobs=[], total_count=0).to_wire() == {"Jobs": [], "TotalCount": 0}


def test_numbers_and_their_strings_are_the_same() -> None:
    detail, item = ({"RequestGPU": value, "Priority": "3"} for value in (8, "8"))
    assert (JobDetail.model_validate(detail).request_gpu, JobDetail.model_validate(item).request_gpu) == (8, 8)
    assert (JobItem.model_validate(detail).request_gpu, JobItem.model_validate(item).request_gpu) == ("8", "8")
    assert JobItem.model_validate(item).priority == 3


def test_variables_are_text() -> None:
    assert NewJob.model_validate({"Envs": {"A": 1, "B": True, "C": None}}).envs == {"A": "1", "B": "true"}


@pytest.mark.parametrize("field", ["data_sources", "envs", "thirdparty_libs"])
def test_absent_collections_are_empty_and_no_job_shares_them(field: str) -> None:
    first, second = NewJob(), NewJob()
    assert not getattr(first, field)
    assert getattr(first, field) is not getattr(second, field)
    assert first.to_wire() == {}


def test_fields_that_are_not_known_are_kept_and_named() -> None:
    body = {"JobSpecs": [{"Type": "Worker", "Imagee": "x"}], "DisplayNam": "n", "Settings": {"Tags": {"Any": "t"}}}
    job = NewJob.model_validate(body)
    assert job.to_wire() == body
    assert unknown_fields(job) == ["DisplayNam", "JobSpecs[0].Imagee"]
    assert ["did you mean" in problem.hint for problem in unknown_problems(job)] == [True, True]


def test_values_of_wrong_types_are_left_out_and_named() -> None:
    specs = [{"Type": "Worker", "PodCount": "many"}, "Worker", {"Type": "PS"}, 7]
    job, problems = read_body(NewJob, {"JobSpecs": specs, "Priority": {"a": 1}, "UserCommand": "x", "Envs": "{"})
    assert job.to_wire() == {"JobSpecs": [{"Type": "Worker"}, {"Type": "PS"}], "UserCommand": "x"}
    assert sorted(problem.where for problem in problems) == [
        "Envs",
        "JobSpecs[0].PodCount",
        "JobSpecs[1]",
        "JobSpecs[3]",
        "Priority",
    ]


@pytest.mark.parametrize("body", [None, [], "text", 3])
def test_what_is_no_object_is_empty(body: Any) -> None:
    job, problems = read_body(NewJob, body)
    assert (job.to_wire(), [problem.where for problem in problems]) == ({}, ["body"])


@settings(max_examples=100, deadline=None)
@given(body=st.dictionaries(st.sampled_from(["JobId", "Pods", "JobSpecs", "Envs", "Duration", "Settings"]), JSON))
def test_no_body_makes_a_reader_fail(body: dict[str, Any]) -> None:
    job = received(JobDetail, body)
    assert received(JobDetail, job.to_wire()) == job


def test_queries_are_read_as_the_public_client_writes_them() -> None:
    query = JobQuery.from_query({"Tags": '{"k":"v w"}', "ShowOwn": "True", "PageSize": "50", "Status": ""})
    assert (query.tags, query.show_own, query.page_size, query.status) == ({"k": "v w"}, True, 50, None)
    assert query.to_query() == {"Tags": '{"k":"v w"}', "ShowOwn": "true", "PageSize": "50"}
    token = TokenQuery.from_query({"TargetId": "dlc1", "TokenSettings.EnableLogDownloadJob": "True"})
    assert token.token_settings is not None
    assert token.token_settings.enable_log_download_job
    assert token.to_query() == {"TargetId": "dlc1", "TokenSettings.EnableLogDownloadJob": "true"}


@pytest.mark.parametrize("text", ['["a", "b"]', "a,b", " a , b "])
def test_lists_in_queries_are_json_or_between_commas(text: str) -> None:
    query = UntagQuery.from_query({"ResourceId": text})
    assert query.resource_id == ["a", "b"]
    assert query.to_query() == {"ResourceId": '["a","b"]'}


@pytest.mark.parametrize(
    "parameters", [{"Tags": "{"}, {"Tags": "[]"}, {"PageSize": "ten"}, {"ShowOwn": "perhaps"}]
)
def test_wrong_queries_are_errors(parameters: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        JobQuery.from_query(parameters)
    query, problems = read_query(JobQuery, {"Order": "asc", **parameters})
    assert query.to_query() == {"Order": "asc"}
    assert [problem.where for problem in problems] == [*parameters]


@pytest.mark.parametrize(("text", "items"), [(None, []), ("", []), ("a", ["a"]), ("a, b,,c", ["a", "b", "c"])])
def test_lists_between_commas(text: str | None, items: list[str]) -> None:
    assert comma_list(text) == items


def test_secrets_are_in_no_repr() -> None:
    body = {
        "Envs": {"A": "hush"},
        "CustomEnvs": [{"Key": "B", "Value": "hush"}],
        "JobSpecs": [{"ImageConfig": {"Password": "hush", "Auth": "hush"}}],
    }
    assert "hush" not in repr(NewJob.model_validate(body))
