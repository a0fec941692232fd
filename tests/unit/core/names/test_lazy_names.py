"""Names that are loaded on first use: each line of a stub is one of them, and each can be loaded."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import pai_sdk
from pai_sdk._core.names.lazy_names import lazy_names
from tests.support.messages import refused

pytestmark = pytest.mark.interpreter

ROOT = Path(pai_sdk.__file__).parents[1]
STUBS = sorted((ROOT / "pai_sdk").rglob("*.pyi"))
LINE = re.compile(
    r"from (\S+) import (\w+) as \2(  # imports \w+|  # until 0.2|  # type: ignore\[attr-defined\])?"
)


@pytest.mark.filterwarnings("ignore:.* is now:DeprecationWarning")  # former names
@pytest.mark.parametrize("stub", STUBS, ids=lambda stub: stub.parent.name)
def test_every_name_of_a_stub_can_be_loaded(stub: Path) -> None:
    place = stub.parent if stub.stem == "__init__" else stub.with_suffix("")
    package = importlib.import_module(".".join(place.relative_to(ROOT).parts))
    lines = [line for line in stub.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    assert [line for line in lines if not LINE.fullmatch(line)] == []
    found = [LINE.findall(line)[0] for line in lines]
    assert [name for _, name, _ in found if getattr(package, name, None) is None] == []
    light = [name for home, name, heavy in found if home != package.__name__ and not heavy]
    assert sorted(package.__all__) == sorted(light)


def test_another_name_is_an_attribute_error() -> None:
    with refused(AttributeError):
        _ = pai_sdk.Estimater


def test_names_are_found_in_an_archive(tmp_path: Path) -> None:
    archive = tmp_path / "packages.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        for path in (ROOT / "pai_sdk").rglob("*.py*"):
            if path.suffix in (".py", ".pyi"):
                packed.write(path, path.relative_to(ROOT))
    code = "import sys; sys.path.insert(0, sys.argv[1]); import pai_sdk; print(pai_sdk.__file__, pai_sdk.report)"
    done = subprocess.run(
        [sys.executable, "-c", code, str(archive)], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.startswith(str(archive))


def test_the_names_of_a_package_come_from_its_stub() -> None:
    names, load, _ = lazy_names("pai_sdk")
    assert "Estimator" in names
    assert load("Estimator").__module__ == "pai_sdk._client.submit.estimator"
