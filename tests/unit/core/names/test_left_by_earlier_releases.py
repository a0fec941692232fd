"""Modules of earlier releases by the names that jobs have stored: in queues, in batch scripts, in pickles."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import pai_sdk
from pai_sdk._core.function_pickle import dumps
from pai_sdk._core.names.import_paths import FORMER, STORED
from pai_sdk._host.agent import supervising
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.interpreter

PARENT = Path(pai_sdk.__file__).parents[1]
# As a pickled call has them: the module that defined the name.
PICKLED_REPORT = b"cpai_sdk.run.report.session\nreport\n."
PICKLED_CHECKPOINT = b"cpai_sdk.run.report.checkpoints\nCheckpoint\n."


def in_new_process(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def earlier_job(tmp_path: Path) -> dict[str, str]:
    """The variables of a job that an earlier release has submitted: the package in its channel has that layout."""
    (tmp_path / "channel" / "pai_sdk" / "run" / "report").mkdir(parents=True)
    return {"PAI_INPUT_PAI_SDK": str(tmp_path / "channel")}


def test_a_finder_imports_nothing(earlier_job: dict[str, str]) -> None:
    """Python calls it with the lock of all imports: threads that import at once waited for ever."""
    program = (
        "import pai_sdk, sys; from pai_sdk._core.names import import_paths\n"
        "names = [*import_paths.FORMER, *import_paths.STORED, 'pai_sdk.estimator', 'pai_sdk.run.no']\n"
        "ours = [finder for finder in sys.meta_path if type(finder).__module__ == import_paths.__name__]\n"
        "before = {*sys.modules}\n"
        "for finder in ours:\n"
        "    for name in names:\n"
        "        try: finder.find_spec(name)\n"
        "        except ImportError: pass\n"
        "print(len(ours), sorted({*sys.modules} - before))"
    )
    for variables in ({}, earlier_job):
        done = in_new_process("-c", program, **variables)
        assert (done.stdout.strip(), done.stderr) == ("2 []", "")


@pytest.mark.parametrize("path", STORED)
def test_a_stored_module_is_the_one_of_this_release(path: str) -> None:
    if "ray" in path:
        pytest.importorskip("ray")  # an extra, which has no wheel for each Python
    done = in_new_process("-c", f"import {path}, sys; print(sys.modules[{path!r}].__name__)")
    assert (done.stdout.strip(), done.stderr) == (STORED[path], "")


def test_a_program_of_a_batch_script_runs_without_site_packages(tmp_path: Path) -> None:
    """Its command line was written when the job was submitted; here its folder is gone, so it runs nothing."""
    program = (
        "import sys; sys.path.append(sys.argv[1]); from pai_sdk.agent.slurm.batch import main; "
        "sys.exit(main(*sys.argv[1:]))"
    )
    done = in_new_process("-I", "-S", "-c", program, str(PARENT), str(tmp_path / "removed"))
    assert (done.returncode, done.stderr.count("Traceback")) == (0, 0)
    assert "the job was withdrawn or removed" in done.stdout + done.stderr


def test_a_pickled_call_finds_what_it_reports_with() -> None:
    assert pickle.loads(PICKLED_REPORT) is pai_sdk.report
    assert pickle.loads(PICKLED_CHECKPOINT) is pai_sdk.Checkpoint


def test_the_package_of_stored_modules_raises_the_error_for_its_names() -> None:
    done = in_new_process("-c", "import pai_sdk.run.report.session; from pai_sdk.run.report import report")
    assert done.stderr.strip().splitlines()[-1].startswith("ImportError: pai_sdk.run.report has moved")
    done = in_new_process("-c", "from pai_sdk.run.report import *")
    assert done.stderr.strip().splitlines()[-1].startswith("ImportError: pai_sdk.run.report has moved")


@pytest.mark.parametrize(
    "statement",
    [
        "from pai_sdk.run.report import report",
        "from pai_sdk.run.report import *; report",
        "import pai_sdk.run.checkpoints as c; c.Checkpoint",
        "from pai_sdk.run import report; report.get_checkpoint",
        "from pai_sdk.run.preemption import get_preemption_info",
        "from pai_sdk.storage.uri import OssUri",
        f"import pickle; from pai_sdk.run.report import report; assert pickle.loads({PICKLED_REPORT!r}) is report",
        "from pai_sdk.run.store.run_store import LocalRunStore; from pai_sdk.runs import LocalRunStore",
        "from pai_sdk.submit.estimator import Estimator; import pai_sdk; assert Estimator is pai_sdk.Estimator",
        "from pai_sdk.job.training_job import TrainingJob as t; import pai_sdk; assert t is pai_sdk.TrainingJob",
    ],
)
def test_a_job_that_waited_in_a_queue_has_its_former_paths(statement: str, earlier_job: dict[str, str]) -> None:
    assert in_new_process("-c", statement, **earlier_job).stderr == ""


def test_such_a_job_has_no_names_that_never_were(earlier_job: dict[str, str]) -> None:
    done = in_new_process("-c", "from pai_sdk.run.report import no_such_name", **earlier_job)
    assert "no_such_name" in done.stderr.splitlines()[-1]
    assert in_new_process("-c", "import pai_sdk.run.no_such_module", **earlier_job).returncode == 1


def test_other_jobs_have_the_error(tmp_path: Path) -> None:
    (tmp_path / "pai_sdk" / "_data").mkdir(parents=True)
    for path in ("pai_sdk.run.report", "pai_sdk.run.checkpoints"):
        done = in_new_process("-c", f"from {path} import report", PAI_INPUT_PAI_SDK=str(tmp_path))
        assert f"{path} has moved: import its names from {FORMER[path]}" in done.stderr


def test_a_pickled_function_names_pai_sdk_by_its_public_path() -> None:
    """The image of the job may have another release, with other internal modules."""
    content = dumps([pai_sdk.report, pai_sdk.Checkpoint, pai_sdk.Estimator])
    assert b"pai_sdk._" not in content
    assert pickle.loads(content) == [pai_sdk.report, pai_sdk.Checkpoint, pai_sdk.Estimator]
    inner = import_module("pai_sdk._data.run.report.session").Context
    assert pickle.loads(dumps(inner)) is inner


def test_functions_report_by_the_public_path() -> None:
    """A job runs a copy of this module beside the pai_sdk of its image."""
    calling = (PARENT / "pai_sdk" / "_data" / "run" / "functions" / "calling.py").read_text()
    imports = [
        line.strip() for line in calling.splitlines() if line.strip().startswith(("from pai_sdk", "import pai"))
    ]
    assert imports == ["from pai_sdk.errors import FunctionError, RemoteTraceback"]


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="supervisors are recognised in /proc")
@pytest.mark.parametrize("module", ["pai_sdk.agent.supervisor", "pai_sdk._host.agent.supervisor"])
def test_supervisors_of_earlier_releases_are_recognised(module: str, tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; sys.path.append(sys.argv[1]); "
        f"from {module} import main; sys.exit(main(Path(sys.argv[2]), *map(int, sys.argv[3:])))"
    )
    root = tmp_path / "job-1"
    arguments = ["-c", "import time; print(flush=True); time.sleep(60)", "-c", program, "/package", str(root)]
    supervisor = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert supervisor.stdout is not None
        supervisor.stdout.readline()
        assert supervising.kill_supervisors(lambda _, folder: folder == tmp_path / "other") == []
        assert supervising.kill_supervisors(lambda _, folder: folder == root) == ["job-1"]
        assert supervisor.wait(PATIENCE_S) == -9
    finally:
        supervisor.kill()
        supervisor.communicate()
