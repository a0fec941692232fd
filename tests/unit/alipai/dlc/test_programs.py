"""Programs that submit DLC jobs: the program that is shown for them."""

from __future__ import annotations

import ast
from typing import Any

from pai_sdk.alipai.dlc.programs import read_program
from tests.unit.alipai.dlc.support import arguments_of

CLIENT = """
from alibabacloud_pai_dlc20201203 import models as dlc
from alibabacloud_pai_dlc20201203.client import Client
from alibabacloud_pai_dlc20201203.models import CreateJobRequest, JobSpec, ResourceConfig
"""


def only(source: str, **names: Any) -> dict[str, Any]:
    [suggestion] = read_program(ast.parse(source))
    return arguments_of(suggestion.code, **names)


def test_a_request_of_models() -> None:
    arguments = only(
        CLIENT
        + """
client = Client(Config(region_id="cn-beijing"))
COUNT = 2
def submit(name, lr):
    worker = JobSpec(type="Worker", image=IMAGE, pod_count=COUNT, elastic_spot_specs=[],
                     resource_config=ResourceConfig(cpu="8", gputype="A100", memory="32Gi"))
    request = CreateJobRequest(
        display_name=name, job_type="PyTorchJob", job_specs=[worker], user_command=f"python t.py --lr {lr}",
        resource_id="quota1", envs={"A": str(lr)},
        data_sources=[dlc.CreateJobRequestDataSources(uri="oss://a.b/c/", mount_path="/mnt", mount_access="RO")],
        user_vpc=dlc.CreateJobRequestUserVpc(vpc_id="v", extended_cidrs=["10.0.0.0/8"]),
        settings=dlc.JobSettings(tags={"team": "x"}, enable_rdma=True, disable_ecs_stock_check=True))
    request.workspace_id = "12"
    request.job_max_running_time_minutes = minutes
    return client.create_job(request).body.job_id
""",
        IMAGE="i",
        name="n",
        lr=0.1,
        minutes=3,
    )
    assert arguments == {
        "image_uri": "i",
        "command": "python t.py --lr 0.1",
        "instance_spec": {"cpu": "8", "gpu_type": "A100", "memory": "32Gi"},
        "instance_count": 2,
        "resource_id": "quota1",
        "user_vpc_config": {"vpc_id": "v", "extended_cidrs": ["10.0.0.0/8"]},
        "max_run_time": 180,
        "environments": {"A": "0.1"},
        "labels": {"team": "x"},
        "settings": {"enable_rdma": True},
        "dlc": {
            "mounts": [{"uri": "oss://a.b/c/", "path": "/mnt", "access": "RO"}],
            "settings": {"DisableEcsStockCheck": True},
        },
        "api": "dlc",
        "fit": {"job_name": "n", "wait": False},
        "session": {"region_id": "cn-beijing", "workspace_id": "12"},
    }


def test_a_request_from_a_dict_that_is_built_in_steps() -> None:
    arguments = only(
        CLIENT
        + """
common = {"Image": "i", "EcsSpec": "ecs.c6.large"}
specs = []
specs.append({"Type": "Worker", "PodCount": 1, **common})
body = {"DisplayName": "a", "JobType": "TFJob", "UserCommand": "x"}
body["JobSpecs"] = specs
body.update({"CustomEnvs": [{"Key": "B", "Value": "1", "Visible": "public"}], "Priority": None})
client.create_job(CreateJobRequest().from_map(body))
"""
    )
    assert arguments == {
        "image_uri": "i",
        "command": "x",
        "job_type": "TFJob",
        "instance_type": "ecs.c6.large",
        "environments": {"B": "1"},
        "api": "dlc",
        "fit": {"job_name": "a", "wait": False},
    }


def test_the_command_in_texts_and_lists() -> None:
    source = """
import subprocess
for i in range(3):
    subprocess.run(f"dlc submit pytorchjob --name=run_{i} --command='python x.py {i:02d} {d['k']}' "
                   f"--workers={n} --worker_image={IMAGE} --worker_cpu=4", shell=True)
    subprocess.run(["dlc", "submit", "pytorchjob", "--name", name, f"--command=a {i}", "--workers", str(n),
                    "--worker_image=i", "--worker_spec", "s"])
    os.system("dlc submit tfjob --name=third --workers=1 --worker_image=i --worker_spec=s --command='$RANK'")
"""
    names = {"i": 1, "n": 2, "IMAGE": "i", "name": "second", "d": {"k": "v"}}
    jobs = [arguments_of(each.code, **names) for each in read_program(ast.parse(source))]
    assert [(job["fit"]["job_name"], job["command"], job.get("instance_count")) for job in jobs] == [
        ("run_1", "python x.py 01 v", 2),
        ("second", "a 1", 2),
        ("third", "$RANK", None),
    ]


def test_what_is_left_to_the_reader_is_noted() -> None:
    [suggestion] = read_program(
        ast.parse(CLIENT + "CreateJobRequest(job_specs=build(), user_command=c, template_id='t')")
    )
    assert [note.split()[0] for note in suggestion.notes] == ["the", "TemplateId"]
    assert arguments_of(suggestion.code, c="x") == {"command": "x", "api": "dlc", "fit": {"wait": False}}


def test_other_programs() -> None:
    assert read_program(ast.parse("CreateJobRequest(display_name='of another package')")) == []
    assert read_program(ast.parse("'we used dlc submit before'\nprint('dlc get job')")) == []


def test_options_of_roles() -> None:
    arguments = only(
        CLIENT
        + """
spec = JobSpec(type="Worker", pod_count=1, image="i", ecs_spec="s", restart_policy="Never", driver="550",
               assign_node_spec=dlc.AssignNodeSpec(enable_assign_node=True, node_names="a,b"),
               elastic_spot_specs=[dlc.ElasticSpotSpec(instance_type="t", spot_discount_limit=90)],
               spot_spec=dlc.SpotSpec(spot_strategy="SpotWithPriceLimit", spot_price_limit=0.1))
CreateJobRequest(job_specs=[spec], user_command="x", accessibility="PUBLIC",
                 settings={"TerminationGracePeriodSeconds": 60})
"""
    )
    assert arguments["spot_spec"] == {"spot_strategy": "SpotWithPriceLimit"}
    assert arguments["dlc"] == {
        "spot_price_per_minute": 0.1,
        "restart_policy": "Never",
        "driver": "550",
        "node_names": ["a", "b"],
        "elastic_spot": [{"instance_type": "t", "discount_percent": 90}],
        "accessibility": "PUBLIC",
        "grace_period_s": 60,
    }


def test_a_template_for_format() -> None:
    source = """
TEMPLATE = "dlc submit pytorchjob --name={name}_{i} --command='echo {{}} ${HOME}' --workers=1 --worker_image=i"
subprocess.run(TEMPLATE.format(name="n", i=1), shell=True)
"""
    arguments = only(source, name="n", i=1)
    assert (arguments["fit"]["job_name"], arguments["command"]) == ("n_1", "echo {} ${HOME}")


def test_what_is_set_under_a_condition_is_noted() -> None:
    source = """
request = CreateJobRequest(display_name="a", job_specs=[JobSpec(image="i", pod_count=1, ecs_spec="s")])
if URI:
    request.data_sources = [dlc.CreateJobRequestDataSources(uri=URI, mount_path="/m", mount_access="RO")]
again = CreateJobRequest().from_map({**request.to_map(), "DisplayName": "b"})
"""
    first, second = read_program(ast.parse(CLIENT + source))
    assert ["condition" in note for note in first.notes] == [True]
    arguments = arguments_of(second.code, URI="oss://b/")
    assert arguments["fit"]["job_name"] == "b"
    assert arguments["dlc"]["mounts"] == [{"uri": "oss://b/", "path": "/m", "access": "RO"}]


def test_roles_that_wait_for_each_other() -> None:
    arguments = only(
        CLIENT
        + """
common = {"Image": "i", "EcsSpec": "s"}
CreateJobRequest.from_map({"JobType": "TFJob", "UserCommand": "x", "JobSpecs": [
    {"Type": "Chief", "PodCount": 1, "IsChief": True, **common},
    {"Type": "Worker", "PodCount": 2, "UserCommand": "y", "RestartPolicy": "Never", **common,
     "StartupDependencies": [{"Type": "Chief", "OnPhase": "Running"}], "ConsiderInSuccessPolicy": False}]})
"""
    )
    assert arguments["roles"] == {
        "Chief": {"instance_count": 1, "is_chief": True},
        "Worker": {
            "instance_count": 2,
            "command": "y",
            "restart_policy": "Never",
            "counts_for_success": False,
            "start_after": ["Chief"],
        },
    }
    assert arguments["command"] == "x"
