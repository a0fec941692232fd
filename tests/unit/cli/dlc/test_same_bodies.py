"""`pai-sdk migrate` reads a submission as `pai-sdk dlc` does."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from pai_sdk._wire.body import received
from pai_sdk._wire.dlc.flags import SUBMIT_FLAGS
from pai_sdk._wire.dlc.jobs import NewJob
from pai_sdk._wire.dlc.names import job_type_for
from pai_sdk.alipai.dlc.flags import read_submission
from pai_sdk.alipai.dlc.scope import Scope
from pai_sdk.alipai.dlc.shell import parse as parse_shell
from pai_sdk.cli.dlc.body import new_job
from pai_sdk.cli.dlc.flags import parse

SCRIPTS = Path(__file__).parents[3] / "e2e" / "dlc_scripts"
WORKER = "--workers=2 --worker_image=i --worker_spec=s --command=x --workspace_id 1 --name n "
QUOTA = "--workers 1 --worker_image=i --worker_cpu 4 --command 'a  b' -w 1 -n n --resource_id=q --worker_memory=8 "
LINES = [
    f"pytorchjob {WORKER}",
    f"PyTorchJob {QUOTA} --priority 3 --worker_gpu=1 --worker_gpu_type=A --worker_shared_memory=2.5",
    f"tfjob {WORKER} --chief --chief_image=i --chief_spec=s --ps=2 --ps_image=j --ps_spec=t --evaluators=0",
    f"tfjob {WORKER} --chief=false --graphlearns=1 --graphlearn_image=i --graphlearn_spec=s",
    f"pytorch {WORKER} --masters 1 --master_image=i --master_spec=s",
    f"rayjob {WORKER} --heads=1 --head_image=i --head_spec=s",
    f"pytorchjob {WORKER} --envs=A=1,B=x,y,C= --envs D=4 --tags a=b --advanced_settings='p=1;2-3,q=4'",
    f"pytorchjob {WORKER} --data_sources=d-a,d-b:v1,d-c:/mnt/c,d-d:v2:/mnt/d",
    f"pytorchjob {WORKER} --data_source_uris='oss://b.e/x,y/::/mnt/a, nas://f.r/::/mnt/b' --data_sources d-a",
    f"pytorchjob {WORKER} --thirdparty_libs='numpy>=1,<3,pandas' --success_policy=AllWorkers",
    f"pytorchjob {WORKER} --vpc_id=v --switch_id=w --security_group_id=g --extended_cidrs=1,2",
    f"pytorchjob {WORKER} --job_max_running_time_minutes=5 --running_timeout=90 --job_reserved_minutes 3",
    f"pytorchjob {WORKER} --running_timeout=90 --job_reserved_policy=Always --oversold_type=t --driver=550",
    f"pytorchjob {WORKER} --job_max_running_time_minutes=0",
    f"pytorchjob {WORKER} --aimaster_enable=true --aimaster_args='--a b' --code_source=c --code_branch=b",
    f"pytorchjob {WORKER} --aimaster_enable --code_source=c --code_commit=d --thirdparty_lib_dir=/mnt/l",
    f"pytorchjob {WORKER} --image_repo_username=u --image_repo_password=p --interactive",
]


def check(words: list[str]) -> None:
    submission = read_submission(["submit", *words], {})
    assert submission is not None
    arguments = parse(words[1:], SUBMIT_FLAGS)
    job_type = job_type_for(words[0])
    assert job_type is not None
    expected, _ = new_job(arguments, job_type, workspace_id=None)
    assert received(NewJob, submission.body).to_wire() == expected


@pytest.mark.parametrize("line", LINES)
def test_flags(line: str) -> None:
    check(shlex.split(line))


@pytest.mark.parametrize("script", sorted(SCRIPTS.glob("0[2345]*.sh")), ids=lambda path: path.stem)
def test_scripts(script: Path) -> None:
    scope = Scope()
    num_checked = 0
    for command in parse_shell(script.read_text(encoding="utf-8")):
        words = [
            value if isinstance(value, str) else "1" for word in command.tokens for value in scope.tokens(word)
        ]
        if words[:2] == ["dlc", "submit"]:
            check(words[2:])
            num_checked += 1
        scope.run(command)
    assert num_checked == 1
