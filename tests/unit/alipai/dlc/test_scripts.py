"""Scripts with `dlc submit`: the program that is shown for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pai_sdk.alipai.dlc.scripts import read_script
from tests.unit.alipai.dlc.support import arguments_of

START = "dlc submit pytorchjob --worker_image=reg/a:1 --worker_spec=ecs.c6.large "


def only(script: str, folder: Path | None = None, **names: Any) -> tuple[dict[str, Any], list[str]]:
    [suggestion] = read_script(script, folder)
    return arguments_of(suggestion.code, **names), suggestion.notes


def test_a_job_in_a_quota_with_data_sets() -> None:
    arguments, notes = only("""
    dlc submit pytorchjob \\
        --name=train-7b \\
        --command='source ~/.bashrc && cd /mnt/data && torchrun --nnodes $WORLD_SIZE t.py' \\
        --data_sources=d-a,d-b:v2,d-c:/mnt/c,d-d:v1:/mnt/d \\
        --resource_id quota1 --workspace_id 123 --priority 7 \\
        --worker_image reg/pytorch:2.1 --workers=2 --worker_cpu=8 --worker_gpu=1 --worker_gpu_type=A100 \\
        --worker_memory=32 --worker_shared_memory=16Gi --success_policy AllWorkers
    """)
    assert arguments == {
        "image_uri": "reg/pytorch:2.1",
        "command": "source ~/.bashrc && cd /mnt/data && torchrun --nnodes $WORLD_SIZE t.py",
        "instance_count": 2,
        "instance_spec": {
            "cpu": "8",
            "gpu": "1",
            "gpu_type": "A100",
            "memory": "32Gi",
            "shared_memory": "16Gi",
        },
        "resource_id": "quota1",
        "priority": 7,
        "dlc": {
            "mounts": [
                {"dataset_id": "d-a", "access": "RW"},
                {"dataset_id": "d-b", "version": "v2", "access": "RW"},
                {"dataset_id": "d-c", "path": "/mnt/c", "access": "RW"},
                {"dataset_id": "d-d", "version": "v1", "path": "/mnt/d", "access": "RW"},
            ],
            "success_policy": "AllWorkers",
        },
        "api": "dlc",
        "fit": {"job_name": "train-7b", "wait": False},
        "session": {"workspace_id": "123"},
    }
    assert [note.split()[0] for note in notes] == ["a"]


def test_mounts_network_and_ports() -> None:
    arguments, _ = only(
        START + "--data_source_uris=oss://b.oss-cn-x.aliyuncs.com/a,b/::/mnt/o,nas://f.cn-x/p::/mnt/n "
        "--vpc_id vpc-1 --switch_id vsw-1 --security_group_id sg-1 --extended_cidrs 10.0.0.0/8,11.0.0.0/8 "
        "--advanced_settings='createSvcForAllWorkers=true,customPortList=6379;20000-25000' --driver 550 "
        "--tags a=b --code_source code-1 --code_branch main --job_max_running_time_minutes 5 "
        "--image_repo_username u --image_repo_password p"
    )
    assert arguments["dlc"] == {
        "image_username": "u",
        "image_password": ("secret", "REGISTRY_PASSWORD"),
        "mounts": [
            {"uri": "oss://b.oss-cn-x.aliyuncs.com/a,b/", "path": "/mnt/o", "access": "RW"},
            {"uri": "nas://f.cn-x/p", "path": "/mnt/n", "access": "RW"},
        ],
        "code_source": {"id": "code-1", "branch": "main"},
    }
    assert arguments["user_vpc_config"] == {
        "vpc_id": "vpc-1",
        "switch_id": "vsw-1",
        "security_group_id": "sg-1",
        "extended_cidrs": ["10.0.0.0/8", "11.0.0.0/8"],
    }
    assert arguments["settings"] == {
        "advanced_settings": {"createSvcForAllWorkers": "true", "customPortList": "6379;20000-25000"},
        "driver": "550",
    }
    assert (arguments["labels"], arguments["max_run_time"]) == ({"a": "b"}, 300)


def test_roles() -> None:
    arguments, _ = only(
        "dlc submit tfjob --chief=true --chief_image=i --chief_spec=s --ps=2 --ps_image=i --ps_spec=t --workers=0 "
        "--evaluators=1 --evaluator_image=j --evaluator_spec=s --command='python t.py'"
    )
    assert arguments["roles"] == {
        "Chief": {"instance_count": 1},
        "PS": {"instance_count": 2, "instance_type": "t"},
        "Evaluator": {"instance_count": 1, "image_uri": "j"},
    }
    assert (arguments["image_uri"], arguments["job_type"]) == ("i", "TFJob")
    assert arguments["instance_type"] == "s"


def test_a_master_that_is_like_the_workers_is_the_first_of_them() -> None:
    alike = "--masters=1 --master_image=i --master_cpu=4 --workers=3 --worker_image=i --worker_cpu=4"
    arguments, _ = only(f"dlc submit pytorchjob --command=x {alike}")
    assert (arguments["instance_count"], "roles" in arguments) == (4, False)
    arguments, _ = only(f"dlc submit pytorchjob --command=x {alike} --worker_gpu=1")
    assert [*arguments["roles"]] == ["Master", "Worker"]


def test_variables_are_values_names_or_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LR", "0.1")
    monkeypatch.setenv("COUNT", "3")
    monkeypatch.delenv("SEED", raising=False)
    arguments, notes = only(
        f"BASE=/mnt\nfor model in a b; do\n{START} --name=$model-lr${{LR}} --workers=$COUNT "
        '--command="cd $BASE; python t.py --seed ${SEED:-7} --rank \\$RANK"\ndone\n',
        model="a",
    )
    assert arguments["command"] == "cd /mnt; python t.py --seed 7 --rank $RANK"
    assert arguments["fit"]["job_name"] == "a-lr0.1"
    assert arguments["instance_count"] == 3
    assert ["loop" in note for note in notes] == [True, True]


def test_definitions_are_those_that_the_job_needs() -> None:
    first, second = read_script(f'A=$(date +%s)\n{START} --name="a-$A" --command=x\n{START} --command="$B"\n')
    assert ("a = " in first.code, "a = " in second.code) == (True, False)
    assert ("os.environ" in first.code, "os.environ" in second.code) == (False, True)


def test_secrets_are_read_where_the_job_is_submitted() -> None:
    [suggestion] = read_script(START + "--command=x --envs=WANDB_API_KEY=s3cret,MODE=a,b")
    assert "s3cret" not in suggestion.code + "".join(suggestion.notes)
    environments = arguments_of(suggestion.code)["environments"]
    assert environments == {"WANDB_API_KEY": ("secret", "WANDB_API_KEY"), "MODE": "a,b"}


@pytest.mark.parametrize("is_written", [True, False])
def test_a_job_file_wins_over_flags(is_written: bool, tmp_path: Path) -> None:
    content = "name=b\ncommand=echo good && sleep 120\nworker_image='i'\nworkers=2\n"
    script = "dlc submit tfjob --name=a --worker_spec=s --job_file=x.params"
    if is_written:
        script = f"cat > x.params <<'EOF'\n{content}EOF\n{script}"
    else:
        (tmp_path / "x.params").write_text(content)
    arguments, _ = only(script, tmp_path)
    assert (arguments["fit"]["job_name"], arguments["command"]) == ("b", "echo good && sleep 120")
    assert (arguments["image_uri"], arguments["instance_count"]) == ("'i'", 2)


def test_a_job_file_that_is_not_there_is_named() -> None:
    _, notes = only(START + "--command=x --job_file=missing.params")
    assert "missing.params" in notes[0]


def test_global_flags() -> None:
    arguments, notes = only(f"dlc -r cn-beijing -k key {START[4:]} --command=x --interactive -w 1")
    assert arguments["session"] == {"region_id": "cn-beijing", "workspace_id": "1"}
    assert arguments["fit"] == {"wait": True}
    assert "key" in notes[0]
    assert only(f"{START} --command=x -e pai-dlc.cn-wulanchabu.aliyuncs.com")[0]["session"] == {
        "region_id": "cn-wulanchabu"
    }


def test_the_older_form_of_the_command() -> None:
    arguments, notes = only("dlc create job --kind BatchJob --worker_count 2 --worker_memory 8 --command=x")
    assert (arguments["instance_count"], arguments["instance_spec"]) == (2, {"memory": "8Gi"})
    assert "older" in notes[0]


def test_unknown_flags_are_named_with_the_nearest_one() -> None:
    _, notes = only(START + "--command=x --data_sourcs=d-a --enable_priority_preemption=false")
    assert [note.split()[0] for note in notes] == ["--data_sourcs"]
    assert "--data_sources" in notes[0]


@pytest.mark.parametrize(
    "script",
    [
        "id=$(" + START + "--command=x --name=n | grep -o dlc)",
        "nohup ./bin/" + START + "--command=x --name=n &",
        "A=1 " + START + "--command=x --name=n",
        "if true; then " + START + "--command=x --name=n; fi",
        "run() {\n  local id\n  id=`" + START + "--command=x --name=n`\n}",
        "DLC=/opt/dlc\n$DLC" + START[3:] + "--command=x --name=n",
    ],
)
def test_where_the_command_may_stand(script: str) -> None:
    assert only(script)[0]["fit"]["job_name"] == "n"


@pytest.mark.parametrize(
    "script", ["echo dlc submit pytorchjob", "dlc get job", "# dlc submit tfjob --name=x", ""]
)
def test_what_is_no_submission(script: str) -> None:
    assert read_script(script) == []


def test_arguments_of_the_script_and_their_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["train"])
    arguments, _ = only(f"NAME=${{1:-first}}\n{START} --name=$NAME --command=x")
    assert arguments["fit"]["job_name"] == "first"


def test_a_job_file_whose_name_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments, _ = only("f=$(mktemp)\ncat > $f <<'E'\nname=n\nworkers=1\nE\ndlc submit tfjob --job_file $f")
    assert (arguments["fit"]["job_name"], arguments["job_type"]) == ("n", "TFJob")


def test_lines_of_a_command_with_variables() -> None:
    arguments, _ = only(f'for i in 1 2; do\n{START} --command="cd /a\n\necho {{}} \'$i\' \\"q\\"\n"; done', i="1")
    assert arguments["command"] == "cd /a\n\necho {} '1' \"q\"\n"


BODY = (
    '{"DisplayName": "n", "JobType": "TFJob", "UserCommand": "x", "JobSpecs": [{"Type": "Worker", "Image": "i"}]}'
)


@pytest.mark.parametrize(
    "script",
    [
        "pai dlc job submit --name n --job-type TFJob --command x --image i --worker-count=1",
        f"pai dlc job submit --body-json '{BODY}'",
        f"cat > b.json <<'E'\n{BODY}\nE\npai --profile p dlc job submit --body-json @b.json --dry-run",
        f"aliyun pai-dlc create-job --region cn-x --body '{BODY}'",
        "pai-sdk dlc submit tfjob --name n --workers 1 --worker_image i --command x",
    ],
)
def test_other_commands(script: str) -> None:
    arguments, _ = only(script)
    assert (arguments["fit"]["job_name"], arguments["job_type"], arguments["image_uri"]) == ("n", "TFJob", "i")
    assert (arguments["command"], arguments.get("instance_count")) == ("x", None)


def test_roles_of_the_newer_command() -> None:
    arguments, notes = only(
        "pai dlc job submit --command x --image i --role A:count=2,gpu=8 --role=B:spec=s,image=j --foo=1"
    )
    assert arguments["roles"] == {
        "A": {"instance_count": 2},
        "B": {"instance_count": 1, "image_uri": "j", "instance_type": "s"},
    }
    assert [note.split()[0] for note in notes] == ["--foo"]
