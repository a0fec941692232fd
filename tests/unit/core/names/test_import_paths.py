"""Import paths: the doors, paths of former releases, and paths of code written for alipai."""

from __future__ import annotations

import importlib.util
import pickle
import pkgutil
import pydoc
import subprocess
import sys
import zipfile
from importlib import import_module, reload
from pathlib import Path
from unittest import mock

import pytest

import pai_sdk
from pai_sdk._core.names import import_paths
from pai_sdk._core.names.import_paths import FORMER
from pai_sdk.alipai.paths import PATHS
from tests.support.messages import refused

pytestmark = pytest.mark.interpreter

PACKAGE = Path(pai_sdk.__file__).parent
DOORS = sorted(
    path.stem for path in PACKAGE.glob("*.py") if not path.stem.startswith("_") and path.stem != "errors"
)
MAX_DOORS = 17
MAX_DOOR_LINES = 40
# Of each former module, one of its names.
NAMES_OF_FORMER = {
    "pai_sdk.backend.base": "Plan",
    "pai_sdk.base.files": "replace_file",
    "pai_sdk.code.package": "package_code",
    "pai_sdk.display.base": "Display",
    "pai_sdk.execution.base": "Executor",
    "pai_sdk.execution.process.executor": "ProcessExecutor",
    "pai_sdk.job.follow": "FollowPolicy",
    "pai_sdk.job.notifications": "Webhook",
    "pai_sdk.run.binary_columns": "BinaryColumn",
    "pai_sdk.run.buckets": "Comparison",
    "pai_sdk.run.callbacks": "LightningReportCallback",
    "pai_sdk.run.checkpoints": "Checkpoint",
    "pai_sdk.run.event_data": "DataManager",
    "pai_sdk.run.events": "EventWriter",
    "pai_sdk.run.function": "FunctionRun",
    "pai_sdk.run.function_runner": "FunctionRunner",
    "pai_sdk.run.manager": "RunManager",
    "pai_sdk.run.preemption": "get_preemption_info",
    "pai_sdk.run.report": "report",
    "pai_sdk.run.series": "Series",
    "pai_sdk.run.store": "RunStore",
    "pai_sdk.run.stored_checkpoints": "copy_checkpoint",
    "pai_sdk.run.summary_watcher": "SummaryWatcher",
    "pai_sdk.run.watched_run": "WatchedRun",
    "pai_sdk.service.embedded": "ensure_running",
    "pai_sdk.storage.filesystem": "register",
    "pai_sdk.storage.oss": "OssClient",
    "pai_sdk.storage.store": "open_store",
    "pai_sdk.storage.sync": "DirSync",
    "pai_sdk.storage.transfer": "upload",
    "pai_sdk.storage.uri": "OssUri",
    "pai_sdk.submit.job_file": "JobFile",
    "pai_sdk.submit.parameters": "JobParameters",
    "pai_sdk.trace.adapters": "lightning_callback",
}


def in_new_process(program: str) -> str:
    """Returns what a program prints, or the last line of its error."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    return (done.stdout or done.stderr).strip().splitlines()[-1]


@pytest.mark.parametrize("door", DOORS)
def test_a_door_is_short_and_has_all_its_names(door: str) -> None:
    module = import_module(f"pai_sdk.{door}")
    assert len(Path(str(module.__file__)).read_text().splitlines()) <= MAX_DOOR_LINES
    assert module.__all__
    assert {*module.__all__} <= {*dir(module)}
    for name in module.__all__:
        assert getattr(module, name) is not None


def test_there_are_few_doors() -> None:
    assert len(DOORS) <= MAX_DOORS


def test_everything_else_at_the_top_is_internal_or_for_other_code() -> None:
    others = {path.name for path in PACKAGE.iterdir() if path.is_dir() and not path.name.startswith("_")}
    assert others == {"alipai", "cli"}


def test_each_former_module_is_checked() -> None:
    assert NAMES_OF_FORMER.keys() == FORMER.keys()


@pytest.mark.parametrize("former", FORMER)
def test_a_former_module_names_the_one_that_has_its_names(former: str) -> None:
    with pytest.raises(ImportError) as caught:
        exec(f"from {former} import {NAMES_OF_FORMER[former]}")
    assert type(caught.value) is ImportError  # code that catches ModuleNotFoundError would take it for absent
    assert caught.value.name == former
    (target,) = [word for word in str(caught.value).split() if word == FORMER[former]]
    assert hasattr(import_module(target), NAMES_OF_FORMER[former])


@pytest.mark.parametrize(
    "statement",
    ["from pai_sdk.run.store import RunStore", "from pai_sdk.run import store", "import pai_sdk.run.store as s"],
)
def test_each_kind_of_import_of_a_former_module_names_the_new_one(statement: str) -> None:
    last = in_new_process(statement)
    assert last.startswith("ImportError: pai_sdk.run.store ")
    assert "pai_sdk.runs" in last.split()


def test_a_former_module_below_a_door_has_the_same_error_after_the_door_was_used() -> None:
    last = in_new_process("import pai_sdk.storage; pai_sdk.storage.OssUri; import pai_sdk.storage.uri")
    assert last.startswith("ImportError: pai_sdk.storage.uri ")


@pytest.mark.parametrize(
    "module", ["pai_sdk.no_such_module", "pai_sdk.run.no_such_module", "pai_sdk.storage.none"]
)
def test_a_module_that_never_was_is_not_found(module: str) -> None:
    with pytest.raises(ModuleNotFoundError):
        import_module(module)
    assert importlib.util.find_spec("pai_sdk.no_such_module") is None


@pytest.mark.parametrize("path", PATHS)
def test_a_path_of_alipai_is_the_module_behind_it(path: str) -> None:
    module = import_module(path)
    assert module is import_module(PATHS[path])
    assert module.__spec__ is not None
    assert module.__spec__.name == PATHS[path]


def test_classes_of_an_alias_are_pickled_by_the_module_behind_it() -> None:
    estimator = import_module("pai_sdk.estimator").Estimator
    assert estimator is pai_sdk.Estimator
    assert pickle.loads(pickle.dumps(estimator)) is estimator


def test_an_alias_is_loaded_once_whichever_path_comes_first() -> None:
    program = (
        "import {0}, {1}; import sys; a, b = sys.modules[{0!r}], sys.modules[{1!r}];"
        "print(a is b, len({{id(m) for n, m in sys.modules.items() if n.endswith('common.oss_utils')}}))"
    )
    paths = ("pai_sdk.common.oss_utils", PATHS["pai_sdk.common.oss_utils"])
    assert [in_new_process(program.format(*order)) for order in (paths, paths[::-1])] == ["True 1"] * 2


def test_a_module_of_alipai_runs_as_a_program() -> None:
    command = [sys.executable, "-m", "pai_sdk.toolkit.config"]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False
    )
    assert "cn-hangzhou" in done.stdout  # in its first question


def test_finders_of_other_packages_stay_and_ours_are_there_once() -> None:
    class _Finder:  # of another package, with the name of ours
        def find_spec(self, *_: object) -> None:
            return None

    before, other = list(sys.meta_path), _Finder()
    try:
        sys.meta_path.append(other)  # type: ignore[arg-type]
        import_paths.install("pai_sdk.alipai.paths")
        import_paths.install("pai_sdk.alipai.paths")
        ours = [finder for finder in sys.meta_path if type(finder).__module__ == import_paths.__name__]
        assert len(ours) == 2
        assert other in sys.meta_path
    finally:
        sys.meta_path[:] = before


def test_an_alias_can_be_loaded_again() -> None:
    module = import_module("pai_sdk.common.consts")
    assert reload(module) is module


@pytest.mark.parametrize("package", [*map("pai_sdk.{}".format, DOORS)])
def test_an_unknown_name_is_an_error(package: str) -> None:
    with refused(AttributeError):
        import_module(package).no_such_name  # noqa: B018


def test_threads_import_doors_and_former_paths_at_once() -> None:
    program = (
        "import importlib, pai_sdk, sys, threading\n"
        "names = ['pai_sdk.runs', 'pai_sdk.estimator', 'pai_sdk.common.oss_utils', 'pai_sdk._client.image']\n"
        "names += ['pai_sdk.image', 'pai_sdk.run.report.session', 'pai_sdk.agent.supervisor', 'pai_sdk.model']\n"
        "names *= 4\n"
        "modules, barrier = [], threading.Barrier(len(names))\n"
        "sys.setswitchinterval(1e-5)\n"
        "def load(name):\n"
        "    barrier.wait()\n"
        "    modules.append((name, id(importlib.import_module(name))))\n"
        "threads = [threading.Thread(target=load, args=(name,)) for name in names]\n"
        "[thread.start() for thread in threads]; [thread.join() for thread in threads]\n"
        "print(len(modules), len({*modules}))"
    )
    assert in_new_process(program) == "32 8"


def test_the_package_imports_again_after_it_was_removed_from_the_modules() -> None:
    program = (
        "import sys, pai_sdk.estimator, pai_sdk.runs; first = pai_sdk.runs.RunStore\n"
        "for name in [*sys.modules]: name.partition('.')[0] != 'pai_sdk' or sys.modules.pop(name)\n"
        "import pai_sdk.estimator, pai_sdk.runs; from pai_sdk.runs import RunStore\n"
        "print(RunStore is first, pai_sdk.estimator.Estimator is pai_sdk.Estimator)"
    )
    assert in_new_process(program) == "False True"


def test_tools_that_walk_and_replace_find_the_doors() -> None:
    names = {module.name for module in pkgutil.walk_packages(pai_sdk.__path__, "pai_sdk.", onerror=print)}
    assert {f"pai_sdk.{door}" for door in DOORS} <= names
    assert not names & {*FORMER, *PATHS}
    with mock.patch("pai_sdk.runs.RunStore") as replaced:
        assert import_module("pai_sdk.runs").RunStore is replaced
    assert import_module("pai_sdk.runs").RunStore is not replaced
    assert "RunStore" in pydoc.render_doc("pai_sdk.runs")


def test_the_package_works_from_a_zip_archive(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "archive.zip", "w") as archive:
        for path in PACKAGE.rglob("*.py*"):
            if path.suffix in (".py", ".pyi"):
                archive.write(path, path.relative_to(PACKAGE.parent))
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path / 'archive.zip')!r}); import pai_sdk\n"
        "from pai_sdk.runs import RunStore; import pai_sdk.agent.supervisor, pai_sdk.common.oss_utils\n"
        "print('archive.zip' in pai_sdk.__file__, 'archive.zip' in pai_sdk.agent.supervisor.__file__)\n"
    )
    assert in_new_process(program) == "True True"


def test_threads_that_import_doors_first_wait_for_the_package() -> None:
    """They held locks of inner modules, for which the thread that was importing the package waited: a deadlock."""
    program = (
        "import importlib, threading\n"
        "names = ['pai_sdk.runs', 'pai_sdk.jobs', 'pai_sdk.storage', 'pai_sdk.reports'] * 3\n"
        "modules, barrier = [], threading.Barrier(len(names))\n"
        "def load(name):\n"
        "    barrier.wait()\n"
        "    modules.append(importlib.import_module(name))\n"
        "threads = [threading.Thread(target=load, args=(name,)) for name in names]\n"
        "[thread.start() for thread in threads]; [thread.join() for thread in threads]\n"
        "print(len(modules), len({*map(id, modules)}))"
    )
    assert [in_new_process(program) for _ in range(3)] == ["12 4"] * 3
