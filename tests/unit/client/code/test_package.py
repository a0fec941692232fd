from __future__ import annotations

import os
from pathlib import Path

import pytest

from pai_sdk._client.code.package import package_code
from pai_sdk._client.code.secrets import is_secret_path
from pai_sdk._data.storage.tree import FileTree
from pai_sdk.errors import CodeError
from tests.support.messages import refused
from tests.unit.data.storage.test_tree import deny

pytestmark = pytest.mark.interpreter


def write(root: Path, *names: str, size: int = 1) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"x" * size)
    return root


def test_code_is_taken_and_the_rest_left(tmp_path: Path) -> None:
    write(tmp_path, "train.py", "lib/a.py", "lib/__pycache__/a.pyc", ".venv/bin/python", ".git/config", "out/big")
    write(tmp_path, ".dockerignore")
    (tmp_path / ".gitignore").write_text("out/\n")
    tree = package_code(tmp_path)
    assert [entry.path for entry in tree.entries] == [".dockerignore", ".gitignore", "lib/a.py", "train.py"]
    assert tree.digest == package_code(str(tmp_path)).digest


def test_a_single_file(tmp_path: Path) -> None:
    write(tmp_path, "train.py", "other.py")
    (tmp_path / ".gitignore").write_text("train.py\n")
    assert [entry.path for entry in package_code(tmp_path / "train.py").entries] == ["train.py"]


def test_home_is_understood(clean_home: Path) -> None:
    write(clean_home, "code/train.py")
    assert len(package_code("~/code").entries) == 1


def test_near_names_are_suggested(tmp_path: Path) -> None:
    write(tmp_path, "source/a.py", "data/b")
    with refused(CodeError, "source_dir"):
        package_code(tmp_path / "sorce")
    with pytest.raises(CodeError, match="does not exist \\(looked from"):
        package_code(tmp_path / "qqqqqq")
    with refused(CodeError, "source_dir"):
        package_code(tmp_path / "no" / "such")


def test_what_cannot_be_there_is_reported_as_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    for name in ("loop", "n" * 256):
        with refused(CodeError, "source_dir"):
            package_code(tmp_path / name)


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    write(tmp_path, ".git/config")
    with refused(CodeError):
        package_code(tmp_path)


def test_all_problems_come_at_once(tmp_path: Path) -> None:
    root = write(tmp_path / "src", "train.py", ".env", "keys/id_rsa")
    write(root, "big.bin", size=3000)
    (root / "out").symlink_to("/etc")
    (root / "notes.txt").symlink_to(".env")
    with pytest.raises(CodeError) as caught:
        package_code(root, size_limit_bytes=2000)
    where = [problem.where for problem in caught.value.problems]
    assert sorted(where) == sorted(["out", str(root), ".env", "keys/id_rsa", "notes.txt"])


def test_the_ten_largest_are_named(tmp_path: Path) -> None:
    for number in range(12):
        write(tmp_path, f"f{number:02}", size=1000 * (number + 1))
    with pytest.raises(CodeError) as caught:
        package_code(tmp_path, size_limit_bytes=50_000)
    text = str(caught.value)
    assert "more than the 0.1 MB allowed" in text
    assert [f"f{number:02}" in text for number in range(12)] == [False, False] + [True] * 10
    assert text.index("f11") < text.index("f02")
    package_code(tmp_path, size_limit_bytes=78_000)


def test_too_much_is_reported_before_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    monkeypatch.setattr(FileTree, "of", lambda listing: pytest.fail("it is being read"))
    with refused(CodeError):
        package_code(tmp_path)


@pytest.mark.parametrize(
    "path",
    [
        ".env",
        "conf/.env.production",
        "prod.env",
        "id_rsa",
        "deep/ID_ED25519",
        "server.pem",
        "tls/private.KEY",
        "credentials.ini",
        ".alibabacloud/credentials",
        ".netrc",
        ".pypirc",
        ".docker/config.json",
        "x/.kube/config",
        "client_secret_1.json",
        "AccessKey.csv",
        ".aws/credentials",
        "home/.kaggle/kaggle.json",
        ".cache/huggingface/token",
        ".config/gcloud/application_default_credentials.json",
    ],
)
def test_keys_are_refused_unless_allowed(tmp_path: Path, path: str) -> None:
    write(tmp_path, path, "train.py")
    with refused(CodeError) as caught:
        package_code(tmp_path)
    assert [problem.where for problem in caught.value.problems] == [path]
    assert len(package_code(tmp_path, allow_secrets=True).entries) == 2
    (tmp_path / ".paiignore").write_text(f"/{path}\n")
    assert len(package_code(tmp_path).entries) == 2


@pytest.mark.parametrize(
    "path", [".env.example", "id_rsa.pub", "train.py", "keys.py", "environment.yml", "tokenizer.json"]
)
def test_harmless_names(path: str) -> None:
    assert not is_secret_path(path)


KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk\n-----END OPENSSH PRIVATE KEY-----\n"


@pytest.mark.parametrize(
    "text",
    [
        KEY,
        KEY.replace("OPENSSH ", ""),
        KEY.replace("OPENSSH", "RSA"),
        KEY.replace("OPENSSH", "ENCRYPTED"),
        "-----BEGIN PGP PRIVATE KEY BLOCK-----\n",
        "PuTTY-User-Key-File-3: ssh-ed25519\n",
        "Bag Attributes\n    localKeyID: 01\n" + KEY,
    ],
)
def test_a_private_key_is_known_whatever_it_is_called(tmp_path: Path, text: str) -> None:
    write(tmp_path, "train.py")
    (tmp_path / "deploy.txt").write_text(text)
    with refused(CodeError, "deploy.txt") as caught:
        package_code(tmp_path)
    assert [problem.where for problem in caught.value.problems] == ["deploy.txt"]
    assert "b3Blb" not in str(caught.value)
    assert len(package_code(tmp_path, allow_secrets=True).entries) == 2


@pytest.mark.parametrize(
    "text", ["PEM = '-----BEGIN RSA PRIVATE KEY-----'", "-----BEGIN PUBLIC KEY-----\n", "# a PRIVATE KEY\n", ""]
)
def test_code_about_keys_is_no_key(tmp_path: Path, text: str) -> None:
    (tmp_path / "keys.py").write_text(text)
    assert len(package_code(tmp_path).entries) == 1


def test_what_is_pruned_is_never_entered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "src/m.py", ".venv/lib/p/m.py", ".git/objects/1", "env/pyvenv.cfg", "env/lib/m.py", "out/a/b")
    (tmp_path / ".gitignore").write_text("out/\n")
    entered: list[str] = []
    scan = os.scandir

    def enter(path: str) -> object:
        entered.append(str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", enter)
    package_code(tmp_path)
    assert entered == [str(tmp_path), str(tmp_path / "src")]


def test_files_that_cannot_be_read_are_reported_with_all_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "train.py", "locked", "id_rsa")
    deny(monkeypatch, "locked")
    with pytest.raises(CodeError) as caught:
        package_code(tmp_path)
    assert sorted(problem.where for problem in caught.value.problems) == ["id_rsa", "locked"]
