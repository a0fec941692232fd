"""Scripts in the shapes that public scripts have run when `dlc` is `pai-sdk dlc`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.dlc_scripts import RunScript, script_runner
from tests.support.fake_dlc import FakeDlc
from tests.support.peer_environment import python_with
from tests.unit.client.api.scripted_server import ScriptedServer

SECOND_TRY = [("Running", "Running", "Succeeded")]


@pytest.fixture
def service() -> Iterator[FakeDlc]:
    server = ScriptedServer()
    yield FakeDlc(server)
    server.close()


@pytest.fixture
def run(service: FakeDlc, tmp_path: Path, clean_home: Path) -> RunScript:
    return script_runner(tmp_path, clean_home, service.server.endpoint, "LTAI-example", "a-secret")


def test_a_quoted_command(run: RunScript, service: FakeDlc) -> None:
    assert run("01_quoted_command.sh", "sft").returncode == 0
    (body,) = service.bodies
    assert body["UserCommand"].endswith('cd /mnt/user/code && bash run.sh "sft"')
    assert body["DataSources"] == [
        {"DataSourceId": "d-k8tu6brdfsyi2wj470"},
        {"DataSourceId": "d-ceg1efkflyg23vzhev"},
    ]
    assert (body["Priority"], body["ResourceId"], body["WorkspaceId"]) == (5, "quota6grhfqhj13o", "28250")
    (spec,) = body["JobSpecs"]
    assert (spec["Type"], spec["PodCount"]) == ("Worker", 1)
    assert spec["ResourceConfig"] == {"CPU": "12", "GPU": "1", "Memory": "200Gi", "SharedMemory": "200Gi"}


def test_a_here_document(run: RunScript, service: FakeDlc) -> None:
    assert run("02_here_document.sh").returncode == 0
    (body,) = service.bodies
    assert body["UserCommand"].splitlines() == [
        "bash <<-EOF",
        "source /mnt/user/.bashrc",
        "cd /mnt/user/code",
        'bash infer.sh "/mnt/user/configs/plan 0.yaml" $RANK',
        "EOF",
    ]
    assert body["Settings"]["Tags"] == {"CloneFromJobID": "dlcu7odtzd6ykta9"}


def test_mounts_a_network_and_ports(run: RunScript, service: FakeDlc) -> None:
    assert run("03_mounts_and_ports.sh").returncode == 0
    (body,) = service.bodies
    assert body["DataSources"] == [
        {"Uri": "cpfs://cpfs-298fffb5.cn-wulanchabu/ptc-29f47d93/exp-29f2869e/", "MountPath": "/mnt/cpfs"},
        {"Uri": "oss://ai-data.oss-cn-wulanchabu-internal.aliyuncs.com/", "MountPath": "/mnt/oss"},
    ]
    assert body["UserVpc"]["ExtendedCIDRs"] == ["10.1.255.0/29", "10.1.255.8/29", "10.1.16.0/20"]
    assert body["Settings"]["AdvancedSettings"]["customPortList"] == "6379;8265;20000-25000"
    assert body["Envs"].items() >= {"NCCL_IB_HCA": "mlx5_0,mlx5_1", "NCCL_DEBUG": "INFO"}.items()


def test_a_recommender_with_torchrun(run: RunScript, service: FakeDlc) -> None:
    assert run("04_torchrun.sh").returncode == 0
    (body,) = service.bodies
    assert "dt=20261127" in body["UserCommand"]
    assert "--nnodes=$WORLD_SIZE --node_rank=$RANK" in body["UserCommand"]
    assert body["UserCommand"].endswith("""'{"train_config.num_steps": 1000}'""")
    assert [(each["PodCount"], each["EcsSpec"]) for each in body["JobSpecs"]] == [(2, "ecs.gn6v-c8g1.2xlarge")]


def test_tensorflow_with_all_roles(run: RunScript, service: FakeDlc) -> None:
    assert run("05_tfjob_console.sh").returncode == 0
    (body,) = service.bodies
    assert body["JobType"] == "TFJob"
    counts = {spec["Type"]: spec["PodCount"] for spec in body["JobSpecs"]}
    assert counts == {"Chief": 1, "PS": 1, "Worker": 3, "Evaluator": 1}
    assert body["UserCommand"].endswith("""'{"train_config.fine_tune_checkpoint": ""}'""")
    data_set = {"DataSourceId": "d-9f2xk3wq", "DataSourceVersion": "v3", "MountPath": "/mnt/data"}
    assert body["DataSources"] == [data_set]


def test_a_job_file(run: RunScript, service: FakeDlc) -> None:
    assert run("06_job_file.sh").returncode == 0
    (body,) = service.bodies
    assert body["DisplayName"] == "easy_rec_mmoe_eval"
    assert body["UserCommand"] == """echo good && sleep 1 && python -c "print('=')\""""


def test_the_address_of_a_ray_head(run: RunScript, service: FakeDlc) -> None:
    service.walks["ray-head"] = [("Creating", "Queuing", "Running")]
    done = run("07_ray_head.sh")
    assert done.returncode == 0, done.stderr
    head, worker = service.bodies
    assert [spec["Type"] for spec in head["JobSpecs"]] == ["Master"]
    assert worker["Envs"].items() >= {"ROLE": "worker", "HEAD_IP": "10.0.0.1"}.items()
    assert worker["UserCommand"] == "bash /vePFS/share/ray_entrypoint.sh --address=$HEAD_IP:6379"


@pytest.mark.parametrize(("end", "code"), [("Succeeded", 0), ("Failed", 1)])
def test_a_program_that_follows_its_job(end: str, code: int, run: RunScript, service: FakeDlc) -> None:
    service.walks["eval_task_7"] = [("Creating", "EnvPreparing", "Running", end)]
    done = run("08_follow.py")
    assert (done.returncode, done.stdout) == (code, "log of dlc0000000000000-master-0\n"), done.stderr
    assert f"[FAILED] code: 400, Job can't be stopped, because it is {end} request id: R" in done.stderr


@pytest.mark.timeout(300)
def test_chunks_in_bulk(run: RunScript, service: FakeDlc) -> None:
    failing = ("Queuing", "Running", "Failed")
    service.walks |= {"render_chunk1": [failing, *SECOND_TRY], "render_chunk3": [failing, *SECOND_TRY]}
    done = run("09_bulk.py", "5")
    assert done.returncode == 0, done.stderr
    assert "failed: render_chunk1 render_chunk3\n" in done.stdout
    names = [body["DisplayName"] for body in service.bodies]
    assert names == [*(f"render_chunk{n}" for n in range(5)), "render_chunk1", "render_chunk3"]
    assert {body["JobMaxRunningTimeMinutes"] for body in service.bodies} == {240}


def test_the_older_generation(run: RunScript, service: FakeDlc) -> None:
    service.walks["filter_lines_node1"] = [("Queuing", "Succeeded")]
    done = run("10_create_job.sh")
    assert (done.returncode, done.stdout.endswith("Job dlc0000000000000 is [Succeeded]\n")) == (0, True)
    (spec,) = service.bodies[0]["JobSpecs"]
    assert (spec["PodCount"], spec["ResourceConfig"]["Memory"]) == (1, "1024Gi")
    assert "submit pytorchjob" in done.stderr


@pytest.fixture(scope="module")
def official() -> Path:
    """Made before the tests' own HOME is set, so that it is kept from run to run."""
    return python_with("alibabacloud_pai_dlc20201203==1.11.6")


@pytest.mark.timeout(1800)  # the first run installs it
def test_the_official_client(official: Path, run: RunScript, service: FakeDlc) -> None:
    uri = "oss://data.oss-cn-hangzhou-internal.aliyuncs.com/train/"
    done = run("11_sdk.py", python=official, WORKSPACE_ID="101", RESOURCE_ID="quota1", DATA_URI=uri)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("listed: sdk-dict sdk-models\n")


def test_a_body_in_a_file(run: RunScript, service: FakeDlc) -> None:
    done = run("12_body_file.sh")
    assert (done.returncode, done.stdout) == (0, "submitted dlc0000000000000\n"), done.stderr
    (body,) = service.bodies
    assert body["JobSpecs"][0]["PodCount"] == 2
    assert body["UserCommand"].count("\n") == 4
    assert run("12_body_file.sh").returncode == 3
