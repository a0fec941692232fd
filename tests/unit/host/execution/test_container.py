"""What a container of a job is asked for: limits, GPUs, mounts, variables. No engine is needed to see it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pai_sdk._host.agent.distributed import Instance
from pai_sdk._host.agent.sandbox import Sandbox
from pai_sdk._host.execution.contract import instances, parse_bytes
from pai_sdk._host.execution.docker.container import (
    ContainerLimits,
    ContainerMounts,
    create_arguments,
    environment_file,
)
from pai_sdk._host.execution.docker.options import LocalOptions
from pai_sdk._wire.pai.request import TrainingJobRequest
from pai_sdk.errors import InvalidInputError
from tests.support.messages import refused


def request(count: int = 1, *, ecs_spec: str = "local", spec: dict[str, str] | None = None) -> TrainingJobRequest:
    compute = {"EcsSpec": ecs_spec, "EcsCount": count, **({"InstanceSpec": spec} if spec else {})}
    return TrainingJobRequest.model_validate(
        {
            "TrainingJobName": "test",
            "ComputeResource": compute,
            "AlgorithmSpec": {"Image": "img", "Command": ["python", "train.py"]},
        }
    )


def arguments_of(
    tmp_path: Path, wanted: TrainingJobRequest, options: LocalOptions | None = None
) -> list[dict[str, object]]:
    limits = ContainerLimits.of(wanted, options or LocalOptions())
    return [
        create_arguments(
            Sandbox(tmp_path),
            "local-1",
            wanted,
            instance,
            image="img",
            mounts=ContainerMounts(),
            limits=limits,
            user="7:7",
            network=None,
            grace_s=(options or LocalOptions()).grace_s,
        )
        for instance in instances("local-1", wanted)
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("8", 8 << 30), ("512Mi", 512 << 20), ("1.5 GB", 3 << 29), ("64k", 64 << 10), ("2TiB", 2 << 40)],
)
def test_amounts_of_memory(text, expected):
    assert parse_bytes(text) == expected


@pytest.mark.parametrize("text", ["", "much", "-1", "8 X", "1e3"])
def test_what_is_no_amount_of_memory(text):
    with pytest.raises(ValueError, match="is not an amount"):
        parse_bytes(text)


def test_limits_become_the_engines(tmp_path):
    spec = {"CPU": "1.5", "Memory": "2GiB", "SharedMemory": "256MiB"}
    [arguments] = arguments_of(tmp_path, request(spec=spec))
    assert arguments["nano_cpus"] == 1_500_000_000
    assert arguments["mem_limit"] == arguments["memswap_limit"] == 2 << 30
    assert arguments["shm_size"] == 256 << 20
    assert arguments["user"] == "7:7"


def test_an_engine_that_stops_a_container_waits_for_the_whole_grace_period(tmp_path):
    [arguments] = arguments_of(tmp_path, request(), LocalOptions(grace_s=40))
    assert (arguments["stop_signal"], arguments["stop_timeout"]) == ("SIGTERM", 45)
    [arguments] = arguments_of(tmp_path, request())
    assert arguments["stop_timeout"] == 15


def test_shared_memory_is_half_of_the_memory_unless_said(tmp_path):
    [arguments] = arguments_of(tmp_path, request(spec={"Memory": "2"}))
    assert arguments["shm_size"] == 1 << 30


def test_gpus_by_id_are_divided_among_the_instances(tmp_path):
    all_arguments = arguments_of(tmp_path, request(2), LocalOptions(gpu_ids=("0", "1", "2", "3")))
    assert [one["device_requests"][0]["DeviceIDs"] for one in all_arguments] == [["0", "1"], ["2", "3"]]


def test_a_number_of_gpus_means_different_ones_for_each_instance(tmp_path):
    all_arguments = arguments_of(tmp_path, request(2, spec={"GPU": "1"}))
    assert [one["device_requests"][0]["DeviceIDs"] for one in all_arguments] == [["0"], ["1"]]
    [alone] = arguments_of(tmp_path, request(spec={"GPU": "2"}))
    assert alone["device_requests"][0]["Count"] == 2


def test_local_gpu_gives_all_of_them_to_one_instance(tmp_path):
    [arguments] = arguments_of(tmp_path, request(ecs_spec="local_gpu"))
    assert arguments["device_requests"][0]["Count"] == -1
    with refused(InvalidInputError, "instance_type"):
        ContainerLimits.of(request(2, ecs_spec="local_gpu"), LocalOptions())


def test_all_wrong_limits_are_named_at_once():
    wanted = request(2, spec={"CPU": "many", "Memory": "much", "SharedMemory": "some"})
    with pytest.raises(InvalidInputError) as refused:
        ContainerLimits.of(wanted, LocalOptions(gpu_ids=("0", "1", "2")))
    for part in ("'many'", "'much'", "'some'", "3 GPUs cannot be divided among 2"):
        assert part in str(refused.value)


def test_options_go_through_tags_and_back():
    options = LocalOptions(user="root", gpu_ids=("0", "GPU-1a"), preempt_after_s=30, grace_s=2)
    assert LocalOptions.of_tags({**options.settings()["tags"], "team": "vision"}) == options


def test_a_misspelt_option_is_refused_with_the_near_one():
    with refused(InvalidInputError, "settings.tags['pai-sdk.local.grace']"):
        LocalOptions.of_tags({"pai-sdk.local.grace": "3"})
    with refused(InvalidInputError, "settings.tags['pai-sdk.local.preempt_after_s']"):
        LocalOptions.of_tags({"pai-sdk.local.preempt_after_s": "soon"})


def test_a_user_that_is_none_is_refused():
    with refused(InvalidInputError, "settings.tags['pai-sdk.local.user']"):
        LocalOptions.of_tags({"pai-sdk.local.user": "image"})


def test_host_names_of_long_instance_names_are_short_and_differ(tmp_path):
    wanted = request(2)
    names = [f"{'train-with-a-long-id' * 4}-worker-{rank}" for rank in range(2)]
    hosts = {
        create_arguments(
            Sandbox(tmp_path),
            "local-1",
            wanted,
            Instance(name, "worker", rank, rank),
            image="img",
            mounts=ContainerMounts(),
            limits=ContainerLimits(),
            user=None,
            network=None,
            grace_s=10,
        )["hostname"]
        for rank, name in enumerate(names)
    }
    assert sorted(len(host) <= 63 for host in hosts) == [True, True]


_TEXT = st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), max_size=40)


@settings(deadline=None, max_examples=40)
@given(st.lists(_TEXT, min_size=1, max_size=8))
def test_any_value_reaches_the_command_through_the_file(values):
    variables = {f"V{number}": value for number, value in enumerate(values)}
    script = environment_file(variables) + "".join(
        f"printf '%s\\0' \"$V{number}\"\n" for number in range(len(values))
    )
    done = subprocess.run(["sh"], input=script.encode(), capture_output=True, check=True)
    assert done.stdout.decode().split("\0")[:-1] == values


def test_variables_that_a_shell_cannot_set_are_passed_by_env() -> None:
    lines = environment_file({"NOTE": "two words", "a.name": "1"}).splitlines()
    assert lines == ['set -- "$_env" a.name=1 "$@"', "export NOTE='two words'"]
