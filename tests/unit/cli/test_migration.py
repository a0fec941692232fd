"""`pai-sdk migrate`: programs and notebooks written for alipai."""

from __future__ import annotations

import ast
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import pai_sdk
from pai_sdk._core.extras import install_command
from pai_sdk.alipai.migration import migrate_notebook, migrate_source
from pai_sdk.cli.root import app
from tests.support.messages import refused

CASES = {
    "import": ("import pai\nprint(pai.__version__)\n", "import pai_sdk\nprint(pai_sdk.__version__)\n"),
    "several": ("import os, pai, sys\npai.session\n", "import os, pai_sdk, sys\npai_sdk.session\n"),
    "a module": ("import pai.image\npai.image.retrieve\n", "import pai_sdk.image\npai_sdk.image.retrieve\n"),
    "another name": (
        "import pai as p\nimport pai.job as j\np.job\n",
        "import pai_sdk as p\nimport pai_sdk.job as j\np.job\n",
    ),
    "from": ("from pai.session import Session as S\n", "from pai_sdk.session import Session as S\n"),
    "from the package": ("from pai import session\n", "from pai_sdk import session\n"),
    "in brackets": (
        "from pai.job import (\n    Channel,  # pai\n)\n",
        "from pai_sdk.job import (\n    Channel,  # pai\n)\n",
    ),
    "over two lines": ("from \\\n  pai.job import Channel\n", "from \\\n  pai_sdk.job import Channel\n"),
    "within a function": (
        "def f():\n    import pai\n    return pai.job\n",
        "def f():\n    import pai_sdk\n    return pai_sdk.job\n",
    ),
    "on one line": ("if 1: from pai import job; import pai\n", "if 1: from pai_sdk import job; import pai_sdk\n"),
    "behind signs of several bytes": ("import pai\né = 'ü'; pai.job\n", "import pai_sdk\né = 'ü'; pai_sdk.job\n"),
    "a parameter of that name": (
        "import pai\ndef f(pai): return pai.x\nlambda pai: pai.y\n",
        "import pai_sdk\ndef f(pai): return pai.x\nlambda pai: pai.y\n",
    ),
    "texts and comments": ("import pai\n'pai.job'  # import pai\n", "import pai_sdk\n'pai.job'  # import pai\n"),
    "lines of Windows": ("import pai\r\npai.job\r\n", "import pai_sdk\r\npai_sdk.job\r\n"),
    "other packages": ("import paint\nfrom paint.pai import pai\nfrom . import pai\npai.x\n", None),
    "an attribute of a class": (
        "import pai\nclass A:\n    pai = 1\n    b = 2\n    def f(self): return pai.x, self.pai\nA.pai\npai.y\n",
        "import pai_sdk\nclass A:\n    pai = 1\n    b = 2\n    def f(self): return pai_sdk.x, self.pai\n"
        "A.pai\npai_sdk.y\n",
    ),
    "an annotated attribute": (
        "import pai\nclass A:\n    pai: str\n    class B:\n        c = pai.x\n",
        "import pai_sdk\nclass A:\n    pai: str\n    class B:\n        c = pai_sdk.x\n",
    ),
    "a class without one": (
        "import pai\nclass A:\n    b = pai.x\n",
        "import pai_sdk\nclass A:\n    b = pai_sdk.x\n",
    ),
    "a global": (
        "pai = None\ndef f():\n    global a, pai\n    import pai\n    pai = pai.x\n",
        "pai_sdk = None\ndef f():\n    global a, pai_sdk\n    import pai_sdk\n    pai_sdk = pai_sdk.x\n",
    ),
    "a nonlocal": (
        "def f():\n    import pai\n    def g():\n        nonlocal pai\n        pai = 1\n",
        "def f():\n    import pai_sdk\n    def g():\n        nonlocal pai_sdk\n        pai_sdk = 1\n",
    ),
    "a parameter of an inner function": (
        "import pai\ndef f():\n    g = lambda pai: pai\n    return pai.x\n",
        "import pai_sdk\ndef f():\n    g = lambda pai: pai\n    return pai_sdk.x\n",
    ),
    "an exception of that name": (
        "import pai\ndef f():\n    try: pass\n    except OSError as pai: print(pai.errno)\n",
        "import pai_sdk\ndef f():\n    try: pass\n    except OSError as pai: print(pai.errno)\n",
    ),
    "a variable": ("pai = 3\nprint(pai)\n", None),
    "already": ("from pai_sdk import Estimator\n", None),
}


@pytest.mark.parametrize(("before", "after"), CASES.values(), ids=CASES.keys())
def test_programs(before: str, after: str | None) -> None:
    migrated = migrate_source(before)
    assert migrated.text == (before if after is None else after)
    assert bool(migrated.changes) is (after is not None)
    assert migrate_source(migrated.text).text == migrated.text, "a second time changes nothing"


def test_a_use_in_a_formatted_text_is_changed_or_named() -> None:
    migrated = migrate_source("import pai\nx = f'{pai.__version__} pai'\n")
    assert migrated.text.endswith("x = f'{pai_sdk.__version__} pai'\n") or migrated.findings[0].line == 2


@pytest.mark.parametrize(
    ("line", "what", "instead"),
    [
        ("from pai.pipeline import Pipeline", "pai.pipeline.Pipeline", "pipeline.step("),
        ("import pai.dsw", "pai.dsw", "DSW"),
        ("from pai.toolkit.config import main", "pai.toolkit.config.main", "pai-sdk config"),
        ("from pai.model import InferenceSpec", "pai.model.InferenceSpec", "PAI-EAS"),
        ("from pai.huggingface.model import HuggingFaceModel", "HuggingFaceModel", "PAI-EAS"),
        (
            "from pai.common.configs import UserVpcConfig",
            "UserVpcConfig",
            "from pai_sdk.estimator import UserVpcConfig",
        ),
        ("from pai.experiment import ExperimentConf", "ExperimentConf", "Coming from alipai"),
        ("from pai.libs.alibabacloud_eas20210701.models import X", "models.X", "its own package"),
        ("import pai; pai.estimator.Unknown", "pai.estimator.Unknown", "Coming from alipai"),
        ("import pai; session.training_job_api.list()", ".training_job_api", "session.list_jobs()"),
        ("import pai; estimator.deploy()", ".deploy()", "PAI-EAS"),
        ("import pai; session.training_job_api.list_logs(i)", ".training_job_api", "job.logs()"),
        ("import pai; session.workspace_api.list()", ".workspace_api", "session.workspaces.list()"),
        ("@patch('pai.estimator.Estimator.fit')\ndef f(): ...", "'pai.estimator.Estimator.fit'", "pai_sdk"),
        ("m = import_module('pai.session')", "'pai.session'", "pai_sdk"),
        ("setattr('jobs.pai.session.Session', x)", "'jobs.pai.session.Session'", "pai_sdk"),
        ("def f(a: 'list[pai.job.Channel]'): ...", "'list[pai.job.Channel]'", "pai_sdk"),
        ("run(['python', '-m', 'pai.toolkit.config'])", "'pai.toolkit.config'", "pai_sdk"),
        ("import pai; setup_default_session('id', 'secret')", "setup_default_session(…)", "access_key_id=…"),
        ("import pai; pai.session.setup_default_session(key)", "setup_default_session(…)", "access_key_id=…"),
        ("import pai; job = est.fit(); job.wait(5)", "job.wait(5)", "interval=5"),
        ("import pai; train_job.wait(seconds, False)", "train_job.wait(seconds, …)", "interval=seconds"),
        ("import pai; est.fit(wait=False).wait(9)", "est.fit(wait=False).wait(9)", "interval=9"),
        ("import pai; est = Processor(); est.latest_job.wait(5)", "est.latest_job.wait(5)", "interval=5"),
    ],
)
def test_what_has_no_counterpart_is_named_with_its_replacement(line: str, what: str, instead: str) -> None:
    (found,) = migrate_source(f"x = 1\n{line}\n").findings
    assert found.line == 2
    assert found.what.endswith(what)
    assert instead in found.instead


def test_what_is_there_is_no_finding() -> None:
    source = (
        "import pai\nfrom pai.estimator import Estimator, FileSystemInput\npai.session.setup_default_session\n"
    )
    assert migrate_source(source).findings == []


@pytest.mark.parametrize(
    "source",
    [
        "x = 'pai.aliyuncs.com'; y = 'see pai.session'; z = 'paint.session'",
        '"""pai.session"""\ndef f():\n    "pai.estimator"',
        "import pai; job.wait(); job.wait(interval=5); event.wait(5); process.wait(5)",
        "import pai; setup_default_session(region_id='cn-hangzhou')",
        "setup_default_session('cn-hangzhou', '1'); job.wait(5)",
    ],
)
def test_other_texts_and_calls_are_no_finding(source: str) -> None:
    assert migrate_source(f"{source}\n").findings == []


def test_requirements_and_commands_that_name_alipai_are_listed_and_kept(tmp_path: Path) -> None:
    files = {
        "requirements-dev.txt": "numpy\nalipai>=0.4.0\npai==0.4.7\npaint\nmy-alipai\n",
        "pyproject.toml": 'dependencies = [\n  "alipai~=0.4.13",\n]\n',
        "environment.yml": "dependencies:\n  - pip:\n      - alipai\n",
        "Dockerfile": "FROM python\nRUN pip install --upgrade pai && pip install paint\n",
        "run.sh": "python submit.py\npython -m pai.toolkit.config\n",
        "notes.txt": "alipai\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    result = CliRunner().invoke(app, ["migrate", str(tmp_path), "--write", "--json"])
    found = {
        (Path(line["path"]).name, finding["line"]): finding["instead"]
        for line in map(json.loads, result.stdout.splitlines())
        for finding in line["findings"]
    }
    assert {place for place, instead in found.items() if "wheel" in instead} == {
        ("requirements-dev.txt", 2),
        ("requirements-dev.txt", 3),
        ("pyproject.toml", 2),
        ("environment.yml", 3),
        ("Dockerfile", 2),
    }
    assert found["run.sh", 2] == "python -m pai_sdk.toolkit.config"
    assert len(found) == 6
    assert {name: (tmp_path / name).read_text() for name in files} == files


def test_requirements_named_alone_are_no_program(tmp_path: Path) -> None:
    (tmp_path / "needed.txt").write_text("alipai>=0.4.0\n")
    result = CliRunner().invoke(app, ["migrate", str(tmp_path / "needed.txt")])
    assert result.exit_code == 0
    assert "needed.txt, line 1: alipai>=0.4.0: " in result.stdout


def test_modules_are_reached_through_the_package() -> None:
    assert pai_sdk.session.get_default_session is pai_sdk.get_default_session
    assert pai_sdk.estimator.Estimator is pai_sdk.Estimator


def notebook(*cells: str, indent: int | str | None = 1) -> str:
    made: dict[str, Any] = {
        "cells": [{"cell_type": "markdown", "metadata": {}, "source": ["import pai\n", "é"]}],
        "metadata": {"kernelspec": {"name": "python3"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    for source in cells:
        made["cells"].append(
            {
                "cell_type": "code",
                "execution_count": 1,
                "metadata": {},
                "outputs": [{"output_type": "stream", "name": "stdout", "text": ["pai.job\n"]}],
                "source": source.splitlines(keepends=True),
            }
        )
    return json.dumps(made, indent=indent, ensure_ascii=False) + "\n"


@pytest.mark.parametrize("indent", [1, 2, 3, "\t", None])
def test_a_notebook_keeps_all_but_the_changed_lines(indent: int | str | None) -> None:
    before = notebook("!pip install -q x\nimport pai\n", "%%time\nprint(pai.__version__)", "1 + 1", indent=indent)
    migrated = migrate_notebook(before)
    assert migrated.text == before.replace('"import pai\\n"', '"import pai_sdk\\n"', 2).replace(
        '"import pai_sdk\\n"', '"import pai\\n"', 1
    ).replace("print(pai.", "print(pai_sdk.")
    assert [label for label, _, _ in migrated.changes] == ["cell 2", "cell 3"]
    windows = migrate_notebook(before.replace("\n", "\r\n"))
    assert windows.text == migrated.text.replace("\n", "\r\n")


def test_magics_and_cells_that_are_no_python_are_named() -> None:
    migrated = migrate_notebook(
        notebook(
            "%pip install alipai\nimport pai\n", "%%bash\npython -m pai.toolkit.config\n", "this is no Python"
        )
    )
    assert [(one.cell, one.line) for one in migrated.findings] == [(2, 1), (3, 2), (4, 1)]
    advice = [one.instead for one in migrated.findings[:2]]
    assert advice == [install_command(), "python -m pai_sdk.toolkit.config"]


def test_a_shell_command_of_several_lines_and_a_request_for_help_keep_no_cell_back() -> None:
    migrated = migrate_notebook(
        notebook("!pip install \\\n    -q x\nimport pai\n", "pai?\npai.session??\nprint(pai.__version__)\n")
    )
    assert [label for label, _, _ in migrated.changes] == ["cell 2", "cell 3"]
    assert not migrated.findings


def test_python_within_magics_is_named() -> None:
    migrated = migrate_notebook(
        notebook(
            "import pai\n%time s = pai.session.get_default_session()\n",
            "%%writefile train.py\nx = 1\nfrom pai.session import Session\n",
            "%%writefile train.py\nimport paint\n",
            "%%bash\ncd pai.folder\n",
        )
    )
    assert [(one.cell, one.line, one.instead) for one in migrated.findings] == [
        (2, 2, "write pai_sdk there"),
        (3, 3, "write pai_sdk there"),
    ]


@pytest.mark.parametrize("source", [None, "import pai\0"])
def test_a_cell_that_is_empty_or_binary_keeps_no_other_back(source: str | None) -> None:
    made = json.loads(notebook("import pai\n", "x = 1"))
    made["cells"][2]["source"] = source
    assert "import pai_sdk" in migrate_notebook(json.dumps(made)).text


def pai(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["migrate", *arguments])
    return result.exit_code, result.output


def test_a_file_that_is_named_twice_is_one_file(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text("import pai\n")
    assert "1 file to change" in pai(str(program), str(tmp_path), str(program))[1]


def test_files_are_changed_only_when_asked_and_keep_their_mode(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_bytes("# coding: latin-1\nimport pai  # é\n".encode("latin-1"))
    program.chmod(0o755)
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "other.py").write_text("import pai\n")
    (tmp_path / "data.txt").write_text("import pai\n")
    status, said = pai(str(tmp_path))
    assert (status, program.read_bytes()) == (0, "# coding: latin-1\nimport pai  # é\n".encode("latin-1"))
    assert "+import pai_sdk  # é" in said
    assert "1 file to change; --write changes them" in said
    status, said = pai(str(tmp_path), "--write")
    assert (status, program.read_bytes()) == (0, "# coding: latin-1\nimport pai_sdk  # é\n".encode("latin-1"))
    assert os.access(program, os.X_OK)
    assert (tmp_path / ".venv" / "other.py").read_text() == (tmp_path / "data.txt").read_text() == "import pai\n"
    assert "0 files changed" in pai(str(tmp_path), "--write")[1]


def test_a_file_that_cannot_be_read_does_not_keep_the_others_back(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("def (:\n")
    (tmp_path / "b.ipynb").write_text("{}")
    (tmp_path / "bb.py").write_text(f"x = {'+'.join('1' * 20_000)}\n")
    (tmp_path / "c.py").write_text("import pai\n")
    status, said = pai(str(tmp_path), "--write", "--json")
    objects = [json.loads(line) for line in said.splitlines()]
    assert status == 1
    assert [sorted(one) for one in objects] == [
        ["error", "path"],
        ["error", "path"],
        ["error", "path"],
        ["changed", "findings", "jobs", "path"],
    ]
    assert objects[0]["error"].startswith("not valid Python: line 1: ")
    assert objects[1]["error"] == "not a notebook of format 4: it has no list of cells"
    assert (tmp_path / "c.py").read_text() == "import pai_sdk\n"
    assert CliRunner().invoke(app, ["migrate", str(tmp_path / "typo.py")]).exit_code != 0


@pytest.mark.parametrize("text", ["[]", "3", "null", '{"cells": 3}', '{"cells": [3]}', '{"cells": [{}]}'])
def test_json_that_is_no_notebook_is_refused_in_words(text: str) -> None:
    with refused(ValueError):
        migrate_notebook(text)


def test_a_notebook_that_is_no_json_is_refused_with_the_place() -> None:
    with pytest.raises(ValueError, match=r"^not a notebook: it is not JSON: .*line 2 column 1"):
        migrate_notebook('{"cells":\n')


@given(st.text(alphabet="pai._ \n()=:#'\"ü\r\t1,f{}", max_size=60))
def test_any_text_stays_what_it_was_but_for_the_name(text: str) -> None:
    source = f"import pai\n{text}\n"
    try:
        before = ast.dump(ast.parse(source))
    except (SyntaxError, ValueError):
        return
    after = ast.dump(ast.parse(migrate_source(source).text))
    assert after.replace("'pai_sdk", "'pai") == before.replace("'pai_sdk", "'pai")


def test_recipes_and_estimators_of_frameworks_need_no_manual_change() -> None:
    program = (
        "from pai.model import ModelTrainingRecipe, RegisteredModel\n"
        "from pai.huggingface.estimator import HuggingFaceEstimator\n"
        "from pai.modelscope import ModelScopeEstimator\n"
        "recipe = RegisteredModel('digits').training_recipe()\n"
    )
    migrated = migrate_source(program)
    assert migrated.findings == []
    assert migrated.text == program.replace("from pai.", "from pai_sdk.")


def test_a_name_that_may_be_the_attribute_of_its_class_is_listed() -> None:
    migrated = migrate_source("import pai\nclass A:\n    pai = pai.job\n")
    assert [found.line for found in migrated.findings if "attribute" in found.what] == [3]
    assert migrated.text.endswith("    pai = pai.job\n")


def test_a_global_on_a_later_line_is_listed() -> None:
    migrated = migrate_source("import pai\ndef f():\n    global a, \\\n        pai\n    pai = 1\n")
    assert [found.line for found in migrated.findings] == [3]


SUBMISSION = "dlc submit pytorchjob --name=n --workers=1 --worker_image=i --worker_spec=s --command=x\n"


def test_jobs_of_shell_scripts_are_shown_and_nothing_is_written(tmp_path: Path) -> None:
    script, other = tmp_path / "train.sh", tmp_path / "other.sh"
    script.write_text(f"#!/bin/bash\n{SUBMISSION}")
    other.write_text("echo 'not closed\n")  # no job of DLC, so it does not matter
    (tmp_path / "submit").write_text(f"#!/usr/bin/env bash\n{SUBMISSION}")
    status, output = pai(str(tmp_path), str(tmp_path / "submit"), "--write")
    assert (status, output.count("estimator = Estimator(")) == (0, 2)
    assert script.read_text().endswith(SUBMISSION)
    status, output = pai(str(script), "--json")
    [job] = json.loads(output)["jobs"]
    assert (job["line"], job["what"], job["notes"]) == (2, "dlc submit pytorchjob", [])
    ast.parse(job["code"])


def test_a_script_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    script.write_text("dlc submit 'x\n")
    status, output = pai(str(script))
    assert (status, "line 1" in output) == (1, True)


def test_jobs_of_a_notebook_have_cell_and_line() -> None:
    migrated = migrate_notebook(
        notebook(
            "from alibabacloud_pai_dlc20201203.models import CreateJobRequest, JobSpec\nspec = JobSpec(image='i')",
            "%time\n\nrequest = CreateJobRequest(job_specs=[spec])",
            "x = 1\n!ls \\\n  /tmp\n!dlc submit tfjob \\\n   --workers=1",
            f"%%bash\n{SUBMISSION}",
        )
    )
    places = [(each.cell, each.line, each.what) for each in migrated.suggestions]
    assert places == [
        (3, 3, "CreateJobRequest"),
        (4, 4, "dlc submit tfjob"),
        (5, 2, "dlc submit pytorchjob"),
    ]
    assert 'image_uri="i"' in migrated.suggestions[0].code
