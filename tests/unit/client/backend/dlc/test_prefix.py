"""The prefix of a command, as several shells run it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from pai_sdk._client.backend.dlc.job_folder import write_job_folder
from pai_sdk._client.backend.dlc.prefix import END, EXIT_CODE, command_of, with_prefix
from pai_sdk._wire.pai.request import TrainingJobRequest

SHELLS = [shell for shell in (["dash"], ["busybox", "sh"], ["bash"], ["sh"]) if shutil.which(shell[0])]


def request(command: list[str]) -> TrainingJobRequest:
    spec = {
        "Image": "i",
        "Command": command,
        "CodeDir": {"LocationType": "oss", "LocationValue": {"Bucket": "b", "Key": "code/"}},
    }
    return TrainingJobRequest.model_validate(
        {
            "TrainingJobName": "j",
            "AlgorithmSpec": spec,
            "ComputeResource": {"EcsSpec": "ecs.c6.large"},
            "HyperParameters": [{"Name": "title", "Value": 'it\'s a "test" of $HOME\n* `x`'}],
            "InputChannels": [{"Name": "data", "InputUri": "oss://b/d/a.csv"}],
            "OutputChannels": [{"Name": "model", "OutputUri": "oss://b/m/"}],
        }
    )


@pytest.fixture
def ml(tmp_path: Path) -> Path:
    """What the mounts of a job are, in a folder of the test."""
    root = tmp_path / "ml"
    for name in ("code/sub", "input/data/data", "output/model"):
        (root / name).mkdir(parents=True)
    (root / "code/sub/run.sh").write_text("#!/bin/sh\necho program ran\n")
    (root / "code/sub/run.sh").chmod(0o755)
    described = request(["sh", "-c", "true"])
    tree, folder = write_job_folder(
        described,
        variables={"EXTRA": "a 'b'"},
        file_names={"data": "a.csv"},
        more_files={"executables": "sub/run.sh\n"},
    )
    shutil.copytree(tree.root, root / "job")
    for path in root.rglob("*"):
        if path.is_file():
            text = path.read_text().replace("/ml/", f"{root}/") if path.name == "env.sh" else path.read_text()
            path.write_text(text)
            path.chmod(0o644)  # a mounted bucket keeps no modes
    del folder
    return root


def run(shell: list[str], ml: Path, command: list[str], **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*shell, "-c", with_prefix(command, ml=str(ml))],
        capture_output=True,
        text=True,
        env={"PATH": os.environ["PATH"], "HOME": str(ml), **variables},
        cwd="/",
        check=False,
    )


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
class TestShells:
    def test_the_contract(self, shell: list[str], ml: Path) -> None:
        script = 'printf "%s|" "$PWD" "$PAI_HPS_TITLE" "$PAI_INPUT_DATA" "$PAI_OUTPUT_MODEL" "$EXTRA"; sub/run.sh'
        done = run(shell, ml, ["sh", "-c", script])
        assert done.stdout == (
            f"{ml}/usercode|it's a \"test\" of $HOME\n* `x`|{ml}/input/data/data/a.csv|{ml}/output/model|a 'b'|"
            "program ran\n"
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert list((ml / "output/model").iterdir()) == []  # nothing of the check is left

    def test_user_args_are_the_values(self, shell: list[str], ml: Path) -> None:
        done = run(shell, ml, ["sh", "-c", 'eval "set -- $PAI_USER_ARGS"; printf "%s|" "$@"'])
        assert done.stdout == '--title|it\'s a "test" of $HOME\n* `x`|'

    @pytest.mark.parametrize("code", [0, 1, 7, 137])
    def test_the_exit_code_is_that_of_the_command(self, shell: list[str], ml: Path, code: int) -> None:
        assert run(shell, ml, ["sh", "-c", f"exit {code}"]).returncode == code
        assert run(shell, ml, ["sh", "-c", f"(exit {code})"]).returncode == code
        assert run(shell, ml, [*shell, "-c", f"exit {code}"]).returncode == code

    def test_a_list_is_taken_as_it_is(self, shell: list[str], ml: Path) -> None:
        done = run(shell, ml, ["printf", "%s|", "a b", "$HOME", "it's"])
        assert done.stdout == "a b|$HOME|it's|"

    @pytest.mark.parametrize("missing", ["job", "code", "input/data/data", "output/model"])
    def test_a_mount_that_is_missing(self, shell: list[str], ml: Path, missing: str) -> None:
        shutil.rmtree(ml / missing)
        done = run(shell, ml, ["sh", "-c", "echo started"])
        assert (done.returncode, done.stdout) == (EXIT_CODE, "")
        assert f"{ml}/{missing}" in done.stderr

    def test_an_output_that_cannot_be_written(self, shell: list[str], ml: Path) -> None:
        (ml / "output/model").rmdir()
        (ml / "output/model").symlink_to("/proc/self/fdinfo")
        done = run(shell, ml, ["sh", "-c", "echo started"])
        assert (done.returncode, done.stdout) == (EXIT_CODE, "")

    def test_a_folder_for_code_that_cannot_be_made(self, shell: list[str], ml: Path, tmp_path: Path) -> None:
        (ml / "usercode").write_text("in the way")
        done = run(shell, ml, ["sh", "-c", "pwd; ls"], TMPDIR=str(tmp_path))
        assert done.stdout == f"{tmp_path}/pai_sdk-usercode\nsub\n"

    def test_ids_of_the_service_or_of_the_machine(self, shell: list[str], ml: Path) -> None:
        script = 'echo "$PAI_TRAINING_JOB_ID"'
        assert run(shell, ml, ["sh", "-c", script], DLC_JOB_ID="dlc1").stdout == "dlc1\n"
        both = {"PAI_TRAINING_JOB_ID": "dlc2", "DLC_JOB_ID": "dlc1"}
        assert run(shell, ml, ["sh", "-c", script], **both).stdout == "dlc2\n"

    def test_instances_that_share_the_folder(self, shell: list[str], ml: Path) -> None:
        # The second one neither copies over files that the first one reads, nor starts before they are there.
        assert run(shell, ml, ["sh", "-c", "echo changed >sub/run.sh"]).returncode == 0
        assert run(shell, ml, ["sh", "-c", "cat sub/run.sh"]).stdout == "changed\n"

    def test_requirements_are_installed_in_the_code_folder(
        self, shell: list[str], ml: Path, tmp_path: Path
    ) -> None:
        programs = tmp_path / "programs"
        programs.mkdir()
        (programs / "python3").write_text('#!/bin/sh\necho "$PWD" "$@"\n')
        (programs / "python3").chmod(0o755)
        path = f"{programs}:{os.environ['PATH']}"
        (ml / "job/requirements.txt").write_text("")
        started = f"{ml}/usercode {ml}/job/install.py -r {ml}/job/requirements.txt"
        done = run(shell, ml, ["sh", "-c", 'echo "$#"'], PATH=path)
        assert done.stdout == f"{started}\n0\n"
        (ml / "usercode/requirements.txt").write_text("")
        done = run(shell, ml, ["sh", "-c", 'echo "$#"'], PATH=path)
        assert done.stdout == f"{started} -r requirements.txt\n0\n"
        (programs / "python3").write_text("#!/bin/sh\nexit 3\n")
        assert run(shell, ml, ["sh", "-c", "echo started"], PATH=path).returncode == EXIT_CODE


def test_it_is_short_and_has_no_values() -> None:
    assert len(with_prefix(["sh", "-c", ""])) < 2048
    assert with_prefix(["sh", "-c", "x"]).endswith(f"{END}x")


def test_the_command_is_read_back() -> None:
    assert command_of(with_prefix(["python", "a b"]), '["python","a b"]') == ["python", "a b"]
    assert command_of(with_prefix(["sh", "-c", "echo\na"]), None) == ["sh", "-c", "echo\na"]
    assert command_of("by hand", "no json") == ["sh", "-c", "by hand"]
