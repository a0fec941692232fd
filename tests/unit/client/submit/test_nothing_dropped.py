"""Whatever parameters are given together: each one's value is in the request, or the error names it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pai_sdk import Estimator, Processor
from pai_sdk._client.backend.base import Plan
from pai_sdk._client.submit.algorithm_estimator import AlgorithmEstimator
from pai_sdk._wire.pai import compute
from pai_sdk.errors import InvalidInputError
from tests.support.wire_samples import models
from tests.unit.client.submit.test_submitting import FakeSession

pytestmark = pytest.mark.interpreter

Check = Callable[[Any, dict[str, Any], Plan], bool]

# Some of these values can be sent and some cannot, alone or with others; the test says which must hold for both.
WORDS = st.text("abz019-_.", min_size=1, max_size=8)
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,5}", fullmatch=True)
URIS = st.sampled_from(["oss://bkt/x", "oss://bkt/x/", "nas://f.cn-x/d/", "/tmp/x", "s3://bkt/x"])
SPEC = {"Command": ["true"], "Image": "img"}

# Every parameter: what it may be given, and how its value shows in the request.
SHOWN: dict[str, tuple[st.SearchStrategy[Any], Check]] = {
    "image_uri": (TEXT, lambda v, w, _: w["AlgorithmSpec"]["Image"] == v),
    "command": (
        st.one_of(TEXT, st.lists(TEXT, max_size=3)),
        lambda v, w, _: w["AlgorithmSpec"]["Command"] == (["sh", "-c", v] if isinstance(v, str) else v),
    ),
    "source_dir": (
        st.sampled_from(["SOURCE", "oss://bkt/code", "oss://bkt/a.zip", "/no/such", "odps://p/tables/t"]),
        lambda v, w, plan: (
            "CodeDir" in w["AlgorithmSpec"] and (v.startswith("oss://") or str(plan.uploads[0].tree.root) == v)
        ),
    ),
    "git_config": (
        st.sampled_from([{}, {"repo": "not a repository"}, {"branch": "main"}]),
        lambda v, w, _: (
            False
        ),  # these are all refused; what a repository becomes is tested in tests/unit/client/code
    ),
    **dict.fromkeys(
        ("max_cost", "prices", "fallback", "notify", "idempotency_key"),
        (st.none(), lambda v, w, _: True),  # guards: tests/unit/client/submit/test_guards.py
    ),
    **dict.fromkeys(
        ("api", "dlc"),
        (st.none(), lambda v, w, _: True),  # jobs of DLC: tests/unit/client/backend/dlc
    ),
    "debugger": (st.none(), lambda v, w, _: True),  # tests/unit/client/submit/test_debugger.py
    "git_labels": (
        st.booleans(),
        lambda v, w, _: True,
    ),  # of code in git: tests/unit/client/code/test_provenance.py
    "allow_secrets": (st.booleans(), lambda v, w, _: True),  # decides what may be uploaded: tests/unit/client/code
    "job_type": (WORDS, lambda v, w, _: w["AlgorithmSpec"]["JobType"] == v),
    "hyperparameters": (
        st.dictionaries(NAMES, st.one_of(TEXT, st.integers(), st.floats(), st.booleans()), max_size=3),
        lambda v, w, _: (
            [*v] == [given["Name"] for given in w["HyperParameters"]]
            and all(_same(v[given["Name"]], given["Value"]) for given in w["HyperParameters"])
        ),
    ),
    "metric_definitions": (
        st.lists(st.fixed_dictionaries({"name": WORDS, "regex": st.sampled_from(["(.)", "x", "("])}), max_size=2),
        lambda v, w, _: [m["Regex"] for m in w["AlgorithmSpec"]["MetricDefinitions"]] == [m["regex"] for m in v],
    ),
    "checkpoints_path": (URIS, lambda v, w, _: _output(w, "checkpoints") == v.rstrip("/") + "/"),
    "resume": (st.sampled_from([False, True, "/no/such", "train1"]), lambda v, w, plan: not v or plan.resume),
    "environments": (
        st.dictionaries(st.one_of(NAMES, st.just("PAI_HPS"), TEXT), TEXT, max_size=2),
        lambda v, w, _: w.get("Environments", {}) == v,
    ),
    "requirements": (st.lists(TEXT, max_size=2), lambda v, w, _: w.get("PythonRequirements", []) == v),
    "max_run_time": (st.integers(-1, 2**33), lambda v, w, _: w["Scheduler"]["MaxRunningTimeInSeconds"] == v),
    "max_retries": (
        st.integers(-1, 3),
        lambda v, w, _: _tags(w).get("pai-sdk.max_retries") == (str(v) if v else None),
    ),
    "retry_on": (
        st.lists(st.sampled_from(["NodeLost", "Preempted", "Other"]), max_size=2, unique=True),
        lambda v, w, _: _tags(w).get("pai-sdk.retry_on") == ",".join(v),
    ),
    # Rules become a variable: tests/unit/client/submit/test_watch.py
    "watch": (st.sampled_from([None, [], [{"rule": "Other"}]]), lambda v, w, _: not v),
    "base_job_name": (TEXT | WORDS, lambda v, w, _: w["TrainingJobName"].startswith(v.rstrip("-_.") or v)),
    "output_path": (
        URIS,
        lambda v, w, _: all(
            channel["OutputUri"].startswith(v)
            for channel in w["OutputChannels"]
            if channel["Name"] != "checkpoints"
        ),
    ),
    "instance_type": (WORDS, lambda v, w, _: w["ComputeResource"]["EcsSpec"] == v),
    "instance_count": (
        st.integers(-1, 3),
        lambda v, w, _: v in (w["ComputeResource"].get("EcsCount"), w["ComputeResource"].get("InstanceCount")),
    ),
    "roles": (
        st.dictionaries(
            st.sampled_from(["Worker", "PS", "worker", "a b"]),
            st.sampled_from([{}, {"instance_count": 2}, {"instance_count": 0}, {"count": 2}, "Worker"]),
            max_size=2,
        ),
        lambda v, w, _: (
            [*v] == [role["Name"] for role in w["Roles"]]
            and [each.get("instance_count", 1) for each in v.values()] == [role["Count"] for role in w["Roles"]]
        ),
    ),
    "instance_spec": (
        models(compute.InstanceSpec),
        lambda v, w, _: w["ComputeResource"]["InstanceSpec"] == v.to_wire(),
    ),
    "resource_id": (WORDS, lambda v, w, _: w["ComputeResource"]["ResourceId"] == v),
    # Nothing on the wire says it: the instance type or the quota is what it is.
    "resource_type": (
        st.sampled_from([*compute.ResourceType, "General", "Lingjun", "Other"]),
        lambda v, w, _: (
            "ResourceId" in w["ComputeResource"]
            or v == "General"
            or w["ComputeResource"]["EcsSpec"].startswith("ml.")
        ),
    ),
    "spot_spec": (
        models(compute.SpotSpec),
        lambda v, w, _: w["ComputeResource"]["SpotSpec"] == v.to_wire(),
    ),
    "user_vpc_config": (models(compute.UserVpcConfig), lambda v, w, _: w["UserVpc"] == v.to_wire()),
    "experiment_config": (
        models(compute.ExperimentConfig),
        lambda v, w, _: w["ExperimentConfig"] == v.to_wire(),
    ),
    "settings": (
        models(compute.Settings),
        lambda v, w, _: _without_retries(w["Settings"]) == _without_retries(v.to_wire()),
    ),
    "priority": (st.integers(1, 9), lambda v, w, _: w["Priority"] == v),
    "role_arn": (WORDS, lambda v, w, _: w["RoleArn"] == v),
    "description": (TEXT, lambda v, w, _: w["TrainingJobDescription"] == v),
    "labels": (
        st.dictionaries(TEXT, TEXT, max_size=2),
        lambda v, w, _: v.items() <= {label["Key"]: label["Value"] for label in w["Labels"]}.items(),
    ),
    "algorithm_spec": (st.just(SPEC), lambda v, w, _: v.items() <= w["AlgorithmSpec"].items()),
    # With a spec beside it, a name is refused; alone it needs a service: tests of AlgorithmEstimator.
    **dict.fromkeys(("algorithm_name", "algorithm_version", "algorithm_provider"), (WORDS, lambda v, w, _: False)),
}
SHOWN["parameters"] = SHOWN["hyperparameters"]
GIVEN_ANYWAY = {"session"}

USUAL = {
    Estimator: {"image_uri": "img", "command": "true"},
    Processor: {"image_uri": "img", "command": "true"},
    AlgorithmEstimator: {"algorithm_spec": SPEC},
}


def _same(value: Any, text: str) -> bool:
    """Whether a text is what a user would type for a value, with all its digits."""
    if isinstance(value, bool):
        return text == str(value).lower()
    return text == value if isinstance(value, str) else type(value)(text) == value


def _without_retries(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings without the tags by which retries are sent."""
    tags = {name: tag for name, tag in (settings.get("Tags") or {}).items() if "pai-sdk." not in name}
    return {**settings, "Tags": tags}


def _tags(wire: dict[str, Any]) -> dict[str, str]:
    tags: dict[str, str] = wire.get("Settings", {}).get("Tags", {})
    return tags


def _output(wire: dict[str, Any], name: str) -> str | None:
    return next((c["OutputUri"] for c in wire["OutputChannels"] if c["Name"] == name), None)


def parameters(kind: type) -> list[str]:
    return [field.name for field in fields(kind) if field.init and field.name not in GIVEN_ANYWAY]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("src")
    (folder / "a.py").write_text("1")
    return str(folder)


def planned(submitter: Any) -> tuple[Plan | None, list[str]]:
    """The plan, or the parameters that are refused."""
    try:
        return submitter.plan(), []
    except InvalidInputError as error:
        return None, [problem.where for problem in error.problems]


def test_no_parameter_is_missing_above() -> None:
    assert {name for kind in USUAL for name in parameters(kind)} == {*SHOWN}


@pytest.mark.parametrize("kind", [*USUAL])
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_each_value_is_sent_or_refused_by_its_name(kind: Any, source: str, data: st.DataObject) -> None:
    chosen = data.draw(st.sets(st.sampled_from(parameters(kind)), max_size=6), label="parameters")
    given = {name: data.draw(SHOWN[name][0], label=name) for name in sorted(chosen)}
    if given.get("source_dir") == "SOURCE":
        given["source_dir"] = source
    if chosen.isdisjoint({"instance_type", "instance_spec", "resource_id"}):
        given["instance_type"] = "ecs.x"
    submitter = kind(**{**USUAL[kind], **given}, session=FakeSession())
    plan, refused = planned(submitter)
    # What is missing for the others may be named too.
    assert all(where.startswith((*given, "instance_type", "resource_id")) for where in refused)
    if plan is None:
        assert refused
        return
    wire = plan.request.to_wire()
    assert [name for name, value in given.items() if not SHOWN[name][1](value, wire, plan)] == []


# What contradicts what, and which parameters are reported; all of it in one error.
CONFLICTS: list[tuple[dict[str, Any], set[str]]] = [
    (
        {"instance_type": "t", "instance_spec": {"cpu": 1}, "resource_id": "q"},
        {"instance_spec", "resource_id"},
    ),
    ({"instance_type": "t", "resource_type": "Lingjun", "resource_id": "q"}, {"resource_id", "resource_type"}),
    ({"instance_spec": {"cpu": 1}, "resource_type": "Lingjun"}, {"resource_id", "resource_type"}),
    ({"instance_type": "t", "resource_type": "Lingjun"}, {"resource_type"}),
    (
        {"instance_spec": {"cpu": 1}, "resource_id": "q", "spot_spec": {"spot_strategy": "SpotAsPriceGo"}},
        {"spot_spec"},
    ),
    ({"instance_spec": {"cpu": 1}}, {"resource_id"}),
    ({"resource_id": "q"}, {"instance_type"}),
    ({"instance_type": "t", "priority": 3, "settings": {"priority": 4}}, {"priority"}),
    ({"instance_type": "t", "labels": {"pai-sdk-submission": "mine"}}, {"labels['pai-sdk-submission']"}),
    ({"instance_type": "t", "environments": {"PAI_HPS_LR": "1"}}, {"environments['PAI_HPS_LR']"}),
]


@pytest.mark.parametrize(("given", "reported"), CONFLICTS)
def test_contradictions_are_refused_all_at_once(given: dict[str, Any], reported: set[str]) -> None:
    session = FakeSession()
    with pytest.raises(InvalidInputError) as caught:
        Processor("img", "true", **given, session=session).run()
    assert {problem.where for problem in caught.value.problems} == reported
    assert session.backend.calls == []


def test_none_stands_for_the_default() -> None:
    nothing = {
        name: None for name in parameters(Estimator) if name not in ("image_uri", "command", "instance_type")
    }
    wire = Estimator("img", "true", instance_type="t", session=FakeSession(), **nothing).plan().request.to_wire()
    assert wire["ComputeResource"] == {"EcsSpec": "t", "EcsCount": 1}
    assert wire["AlgorithmSpec"]["JobType"] == "PyTorchJob"


def test_a_folder_and_a_file_are_both_kept(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    plan = Processor("img", "true", instance_type="t", session=FakeSession(), source_dir=tmp_path).plan()
    assert [entry.path for entry in plan.uploads[0].tree.entries] == ["a"]
