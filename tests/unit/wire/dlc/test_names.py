"""Names of jobs, roles and pods."""

from __future__ import annotations

import re

import pytest

from pai_sdk._wire.dlc import names

PODS = [
    ("PyTorchJob", [("Worker", 1)], ["master-0"]),
    ("PyTorchJob", [("Worker", 3)], ["master-0", "worker-0", "worker-1"]),
    ("PyTorchJob", [("Worker", 2), ("Master", 1)], ["master-0", "worker-0", "worker-1"]),
    ("PyTorchJob", [("Master", 1), ("Worker", 0)], ["master-0"]),
    ("PyTorchJob", [("Master", 0), ("Worker", 2)], ["master-0", "worker-0"]),
    ("PyTorchJob", [("worker", 2)], ["master-0", "worker-0"]),
    ("XGBoostJob", [("Worker", 2)], ["master-0", "worker-0"]),
    ("ElasticBatchJob", [("Worker", 2)], ["master-0", "worker-0"]),
    ("TFJob", [("Worker", 1)], ["worker-0"]),
    ("TFJob", [("Worker", 2), ("PS", 1), ("Chief", 1)], ["chief-0", "ps-0", "worker-0", "worker-1"]),
    ("TFJob", [("Evaluator", 1), ("Worker", 1)], ["worker-0", "evaluator-0"]),
    ("RayJob", [("Worker-gpu", 1), ("Worker", 1), ("Head", 1)], ["head-0", "worker-0", "worker-gpu-0"]),
    ("MPIJob", [("Worker", 1), ("Launcher", 1)], ["worker-0", "launcher-0"]),
    ("PyTorchJob", [], []),
]


@pytest.mark.parametrize(("job_type", "roles", "expected"), PODS)
def test_names_of_pods(job_type: str, roles: list[tuple[str, int]], expected: list[str]) -> None:
    pods = names.pods_of("dlc1xjcumbfm7aai", job_type, roles)
    assert [pod.name for pod in pods] == [f"dlc1xjcumbfm7aai-{name}" for name in expected]
    assert [pod.rank for pod in pods] == [*range(len(pods))]
    for pod in pods:
        assert names.parse_pod(pod.name) == ("dlc1xjcumbfm7aai", pod.type, pod.index)


def test_a_pod_names_its_role() -> None:
    pods = names.pods_of("dlc1", "PyTorchJob", [("Worker", 2), ("Master", 1)])
    assert [pod.spec for pod in pods] == [1, 0, 0]


@pytest.mark.parametrize("text", ["", "dlc1", "dlc1-master", "train1-master-0", "dlc1-master-x", "dlc1-Master-0"])
def test_what_is_no_pod(text: str) -> None:
    assert names.parse_pod(text) is None


@pytest.mark.parametrize("text", ["dlc1xjcumbfm7aai", "dlc-20210126170216-mzkqlq1hyhsb", "dlcabcdefgh"])
def test_ids_of_jobs(text: str) -> None:
    assert names.is_job_id(text)


@pytest.mark.parametrize(
    "text", ["", "dlc", "dlc1", "train1xjcumbfm7aai", "dlc1xjcumbfm7aai/..", "DLC1XJCUMBFM7AAI", "dlc-x"]
)
def test_what_is_no_job(text: str) -> None:
    assert not names.is_job_id(text)


def test_new_ids() -> None:
    assert re.fullmatch("dlc[a-z0-9]{13}", made := names.new_job_id())
    assert names.is_job_id(made)
    assert names.is_dataset_id(names.new_dataset_id())
    assert names.is_code_source_id(names.new_code_source_id())
    assert re.fullmatch("[0-9A-F]{8}(-[0-9A-F]{4}){3}-[0-9A-F]{12}", names.new_request_id())
    assert re.fullmatch("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", names.new_pod_uid())
    assert names.new_job_id() != names.new_job_id()


@pytest.mark.parametrize("name", ["a", "My_job-1.2", "9", "a" * 256])
def test_names_of_jobs(name: str) -> None:
    assert names.display_name_problem(name) is None


@pytest.mark.parametrize(
    ("name", "part"),
    [("", "empty"), ("a b", "' '"), ("a/b", "'/'"), ("作业", "'作'"), ("a" * 257, "257"), ("a\n", "n'")],
)
def test_wrong_names_of_jobs(name: str, part: str) -> None:
    assert part in str(names.display_name_problem(name))


@pytest.mark.parametrize(
    ("text", "job_type"),
    [
        ("pytorchjob", "PyTorchJob"),
        ("PyTorch", "PyTorchJob"),
        ("TFJOB", "TFJob"),
        ("mpi", "MPIJob"),
        ("batch", None),
        ("", None),
    ],
)
def test_types_of_jobs_in_other_spellings(text: str, job_type: str | None) -> None:
    assert names.job_type_for(text) == job_type


@pytest.mark.parametrize(
    ("job_type", "role", "expected"),
    [
        ("PyTorchJob", "worker", "Worker"),
        ("PyTorchJob", "PS", None),
        ("TFJob", "ps", "PS"),
        ("RayJob", "worker-GPU", "Worker-GPU"),
        ("RayJob", "Workers", None),
        ("MPIJob", "Launcher", "Launcher"),
        ("MPIJob", "", None),
    ],
)
def test_roles(job_type: str, role: str, expected: str | None) -> None:
    assert names.canonical_role(job_type, role) == expected
