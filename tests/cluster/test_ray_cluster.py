"""The Ray cluster of these tests loses nodes and its head as asked, and can be made whole again."""

from __future__ import annotations

import json
import subprocess
import sys
from urllib.request import ProxyHandler, Request, build_opener

import pytest

from tests.cluster.ray_cluster import RayCluster
from tests.support.waiting import until

open_url = build_opener(ProxyHandler({})).open

PLACE = """
import ray
from ray.util.placement_group import placement_group

ray.init("auto", log_to_driver=False)
group = placement_group([{"CPU": 2}] * 3, strategy="STRICT_SPREAD")
ray.get(group.ready(), timeout=60)
input()
"""


@pytest.mark.slow
def test_a_raylet_that_is_killed_takes_its_cpus_along_and_can_be_restarted(ray_cluster: RayCluster) -> None:
    assert ray_cluster.free_cpus() == 3 * ray_cluster.cpus
    ray_cluster.kill_raylet(1)
    until(lambda: len(ray_cluster.living_nodes()) == 2, "the loss of a node")
    assert ray_cluster.free_cpus() == 2 * ray_cluster.cpus
    ray_cluster.restart_worker(1)
    ray_cluster.wait_for(3)
    assert ray_cluster.free_cpus() == 3 * ray_cluster.cpus


def test_cpus_that_a_program_holds_are_not_free(ray_cluster: RayCluster) -> None:
    command = ray_cluster.head.command(sys.executable, "-c", PLACE)
    environment = ray_cluster.head.environment()
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        until(lambda: ray_cluster.free_cpus() == 3 * ray_cluster.cpus - 6, "CPUs that are held")
        program.communicate(b"\n")
    ray_cluster.wait_until_free()


@pytest.mark.slow
def test_a_restarted_head_accepts_jobs(ray_cluster: RayCluster) -> None:
    ray_cluster.restart_head()
    body = json.dumps({"entrypoint": "echo done"}).encode()
    request = Request(f"{ray_cluster.dashboard_url}/api/jobs/", body, {"Content-Type": "application/json"})
    job = json.load(open_url(request))["submission_id"]

    def status() -> str:
        return str(json.load(open_url(f"{ray_cluster.dashboard_url}/api/jobs/{job}"))["status"])

    until(lambda: status() == "SUCCEEDED", "the end of a job")
