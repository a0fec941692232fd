"""`pai-sdk wheel`: what a build makes, from the installed files; and how the user gets an extra."""

from __future__ import annotations

import hashlib
import io
import subprocess
import sys
import zipfile
from importlib.metadata import Distribution
from pathlib import Path

import pytest

from pai_sdk import __version__
from pai_sdk._core import extras
from pai_sdk._core.extras import DISTRIBUTION, install_command
from pai_sdk.cli.service import wheel_command
from pai_sdk.errors import PaiError
from tests.support.waiting import PATIENCE_S
from tests.unit.cli.conftest import Pai

ROOT = Path(__file__).resolve().parents[3]
LONGEST_S = 2 * PATIENCE_S
NAME = f"pai_training_sdk-{__version__}-py3-none-any.whl"


def pip_installed(wheel: Path, folder: Path) -> Distribution:
    """Returns what pip records of a wheel."""
    options = ["-qq", "--no-deps", "--no-index", "--target", str(folder)]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, str(wheel)], check=True, timeout=LONGEST_S)
    (about,) = folder.glob("*.dist-info")
    return Distribution.at(about)


def test_the_wheel_is_the_one_that_a_build_makes(
    pai: Pai, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True, timeout=LONGEST_S)
    # Not what pip has recorded for this environment: that may have been before the last change of the metadata.
    installed = pip_installed(tmp_path / NAME, tmp_path / "at")
    monkeypatch.setattr(wheel_command, "installed_distribution", lambda: installed)
    told = pai("wheel", str(tmp_path / "new"))
    assert told.exit_code == 0, told.output
    assert told.stdout.strip() == str(tmp_path / "new" / NAME)
    with zipfile.ZipFile(tmp_path / "new" / NAME) as packed, zipfile.ZipFile(tmp_path / NAME) as built:
        ours, theirs = (
            {name: (hashlib.sha256(each.read(name)).digest(), each.getinfo(name).external_attr >> 16 & 0o100)
             for name in each.namelist() if not name.endswith((".dist-info/WHEEL", ".dist-info/RECORD"))}
            for each in (packed, built)
        )  # fmt: skip
        assert ours == theirs
        assert sorted(packed.namelist()) == sorted(built.namelist())


def test_pip_installs_the_wheel_and_the_command_starts(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(wheel_command.packed_wheel())
    pip_installed(tmp_path / NAME, tmp_path / "at")
    assert (tmp_path / "at" / "bin" / "pai-sdk").exists()
    assert (tmp_path / "at" / "pai_sdk" / "cli" / "service" / "team" / ".dockerignore").exists()


def test_the_same_files_give_the_same_bytes() -> None:
    assert wheel_command.packed_wheel() == wheel_command.packed_wheel()


@pytest.mark.parametrize("version", [None, "0.0.7"])
def test_a_release_that_pip_has_not_installed_is_not_packed(
    pai: Pai, tmp_path: Path, version: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = None if version is None else Installed("", {"METADATA": f"Name: {DISTRIBUTION}\nVersion: {version}\n"})
    monkeypatch.setattr(wheel_command, "installed_distribution", lambda: found)
    monkeypatch.setattr(extras, "installed_distribution", lambda: found)
    with pytest.raises(PaiError, match="pip install"):
        wheel_command.packed_wheel()
    with pytest.raises(PaiError):
        pai("service", "compose", str(tmp_path / "team"))
    assert not (tmp_path / "team").exists()


class Installed(Distribution):
    """A distribution as pip has recorded it."""

    def __init__(self, direct_url: str, files: dict[str, str] | None = None) -> None:
        metadata = f"Metadata-Version: 2.1\nName: {DISTRIBUTION}\nVersion: 1\nProvides-Extra: tune\n"
        metadata += "Requires-Dist: requests>=2.31\nRequires-Dist: optuna>=4.4; extra == 'tune'\n"
        metadata += "Requires-Dist: numpy<9,>=1.26; extra == 'tune'\n"
        self.texts = {"METADATA": metadata, "direct_url.json": direct_url, **(files or {})}

    def read_text(self, filename: str) -> str | None:
        return self.texts.get(filename)

    def locate_file(self, path: object) -> Path:
        return Path(str(path))


@pytest.mark.parametrize(
    ("record", "command"),
    [
        ('{{"url": "file://{at}", "dir_info": {{"editable": true}}}}', "pip install -e '{at}[tune]'"),
        ('{{"url": "file://{at}", "dir_info": {{}}}}', "pip install '{at}[tune]'"),
        ('{{"url": "file://{at}/gone.whl", "archive_info": {{}}}}', "pip install 'optuna>=4.4' 'numpy<9,>=1.26'"),
        ('{{"url": "https://git.example/x", "vcs_info": {{}}}}', "pip install 'optuna>=4.4' 'numpy<9,>=1.26'"),
        ("", "pip install 'optuna>=4.4' 'numpy<9,>=1.26'"),
        ("[]", "pip install 'optuna>=4.4' 'numpy<9,>=1.26'"),
        ("{{", "pip install 'optuna>=4.4' 'numpy<9,>=1.26'"),
    ],
)
def test_an_extra_comes_from_where_the_package_came_from(
    record: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extras, "installed_distribution", lambda: Installed(record.format(at=tmp_path)))
    assert install_command("tune") == command.format(at=tmp_path)


def test_a_folder_on_the_path_is_installed_as_a_clone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "installed_distribution", lambda: None)
    assert install_command("tune") == "pip install '.[tune]' (in a clone of pai_sdk)"


def test_a_wheel_is_a_valid_archive() -> None:
    with zipfile.ZipFile(io.BytesIO(wheel_command.packed_wheel())) as packed:
        assert packed.testzip() is None
