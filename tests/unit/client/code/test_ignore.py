from __future__ import annotations

import errno
import logging
import os
import re
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pai_sdk._client.code.ignore import ALWAYS_PRUNED, IgnoreRules
from pai_sdk._client.code.package import package_code
from pai_sdk._data.storage.walk import list_folder
from pai_sdk.errors import CodeError

# Few letters, so that rules and names meet.
parts = st.text("ab.", min_size=1, max_size=3).filter(lambda part: part not in (".", "..")) | st.sampled_from(
    ["a ", "a\t", " a", "#a", "!a", "a\\"]
)
paths = st.lists(parts, min_size=1, max_size=4).map("/".join)
globs = st.text("ab.*?", min_size=1, max_size=3) | st.sampled_from(
    ["**", "*", "[ab]", "[!a]b", "[^a]", "a\\*", "*.b", "\\a", "b\\ ", "**b", "[a-b]*", "?"]
)
rules = st.builds(
    lambda bang, root, middle, end: bang + root + "/".join(middle) + end,
    st.sampled_from(["", "", "!"]),
    st.sampled_from(["", "", "/"]),
    st.lists(globs, min_size=1, max_size=3),
    st.sampled_from(["", "", "/"]),
    # Against its own manual, git takes the stars of `a**/b` for those of `**/b`, as it cuts off the `a` before.
).filter(lambda rule: not re.search(r"[^/!]\*\*+(/|$)", rule))
odd_rules = [
    "",
    "# a",
    " ",
    "a  ",
    "a\\ ",
    "a\\  ",
    "\\#a",
    "\\!a",
    "!",
    "/",
    "!/",
    "\t",
    "a\t",
    "a\\\t",
    "b\t ",
    "a\r",
    "**/",
    "/**",
    "a/**/b",
    " a",
]
rule_files = st.lists(rules | st.sampled_from(odd_rules), max_size=5)


def fill(root: Path, names: list[str], ignores: dict[str, list[str]]) -> None:
    for name in names:
        try:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).touch(exist_ok=True)
        except (NotADirectoryError, FileExistsError):  # a/b after a file called a
            continue
    for folder, lines in ignores.items():
        if (root / folder).is_dir():
            (root / folder / ".gitignore").write_text("\n".join(lines) + "\n")


def kept_by_git(root: Path) -> set[str]:
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    if not (root / ".git").exists():
        subprocess.run(["git", "init", "-q"], cwd=root, env=environment, check=True)
    command = ["git", "ls-files", "-z", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=root, env=environment, check=True, capture_output=True)
    return {os.fsdecode(name) for name in listed.stdout.split(b"\0") if name}


def kept_by_us(root: Path) -> set[str]:
    listing = list_folder(root, accept=IgnoreRules(root).accepts)
    assert listing.problems == ()
    return {file.path for file in listing.files}


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    names=st.lists(paths, min_size=1, max_size=12),
    top=rule_files,
    deeper=st.dictionaries(paths, rule_files, max_size=3),
)
@example(names=["foo/x.log", "foo/y"], top=["*.log", "!foo"], deeper={})
@example(names=["foo/keep", "foo/drop"], top=["foo/*", "!foo/keep"], deeper={})
@example(names=["foo/keep", "foo/drop"], top=["foo/**", "!foo/keep"], deeper={})
@example(names=["foo/keep"], top=["foo", "!foo/keep"], deeper={})
@example(names=["a/b/c.py", "a/b/d"], top=["*", "!*/", "!*.py"], deeper={})
@example(names=["a/x.log", "a/foo/x.log"], top=["*.log"], deeper={"a": ["!foo"]})
@example(names=["a/b/x", "b"], top=["**/*/"], deeper={})
@example(names=["a/b/x", "b"], top=["*/"], deeper={})
@example(names=["a/b/x", "a/b/y"], top=["a/**/x"], deeper={"a/b": ["!x"]})
@example(names=["foo", "sub/foo", "sub/foo/x"], top=["/foo", "foo/"], deeper={})
def test_we_keep_what_git_keeps(names: list[str], top: list[str], deeper: dict[str, list[str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        fill(root, names, {"": top, **deeper})
        assert kept_by_us(root) == kept_by_git(root)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    names=st.lists(paths, min_size=1, max_size=8),
    top=rule_files,
    deeper=st.dictionaries(paths, rule_files, max_size=2),
)
@example(names=["a/a", "a/b/c"], top=["?/**/"], deeper={})
def test_we_leave_behind_what_check_ignore_names(
    names: list[str], top: list[str], deeper: dict[str, list[str]]
) -> None:
    """The same question put another way: about each path, not about what is left of all."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        fill(root, names, {"": top, **deeper})
        found = sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())
        assert set(found) - kept_by_us(root) == ignored_by_git(root, found)


def ignored_by_git(root: Path, names: list[str]) -> set[str]:
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(["git", "init", "-q"], cwd=root, env=environment, check=True)
    asked = "".join(f"{name}\0" for name in names).encode()
    command = ["git", "check-ignore", "-z", "--stdin", "--no-index"]
    done = subprocess.run(command, cwd=root, env=environment, input=asked, capture_output=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    return {os.fsdecode(name) for name in done.stdout.split(b"\0") if name}


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    names=st.lists(paths, min_size=1, max_size=8),
    top=rule_files,
    deeper=st.dictionaries(paths, rule_files, max_size=2),
)
@example(names=["b/a"], top=["/src/b/"], deeper={})
@example(names=["b/a", "a"], top=["a", "!/src/a"], deeper={"src": ["!b/a"]})
@example(names=["b/a"], top=["*"], deeper={})
@example(names=["a/aa"], top=["?", "!/"], deeper={})
def test_the_rules_of_a_repository_hold_in_its_folders(
    names: list[str], top: list[str], deeper: dict[str, list[str]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        repository = Path(folder)
        inside = repository / "lib" / "src"
        inside.mkdir(parents=True)
        fill(inside, names, {})
        fill(repository, [], {"": top, "lib": deeper.pop(next(iter(deeper), ""), []), "lib/src": []})
        kept = {name.removeprefix("lib/src/") for name in kept_by_git(repository) if name.startswith("lib/src/")}
        if "lib" not in ignored_by_git(repository, ["lib", "lib/src"]):
            assert not kept or kept_by_us(inside) == kept


def test_a_repository_that_ignores_the_folder_has_no_say(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    fill(tmp_path, ["project/train.py", "project/a.log"], {"": ["*"], "project": ["*.log"]})
    assert kept_by_us(tmp_path / "project") == {".gitignore", "train.py"}


def test_a_repository_of_its_own_has_the_only_say(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    fill(tmp_path, ["inner/.git/x", "inner/a.log", "plain/a.log", "plain/a.py"], {"": ["*.log"]})
    assert kept_by_us(tmp_path / "inner") == {"a.log"}
    assert kept_by_us(tmp_path / "plain") == {"a.py"}


def test_environments_are_known_by_what_is_in_them(tmp_path: Path) -> None:
    names = [
        "env/pyvenv.cfg",
        "env/lib/a.py",
        "my-conda/conda-meta/history",
        "my-conda/a",
        "train.py",
        "venvs/a.py",
    ]
    fill(tmp_path, names, {"": ["!env"]})
    asked: list[str] = []
    rules = IgnoreRules(tmp_path)
    listing = list_folder(tmp_path, accept=lambda path, is_dir: asked.append(path) or rules.accepts(path, is_dir))
    assert {file.path for file in listing.files} == {".gitignore", "train.py", "venvs/a.py"}
    assert not [path for path in asked if path.startswith(("env/", "my-conda/"))]


def test_hostile_names(tmp_path: Path) -> None:
    names = ["line\nbreak", "foo\n", "foo", "a b", "日本.log", "keep.log\n", "#hash", "!bang", "tail "]
    (tmp_path / "dir\nname").mkdir()
    (tmp_path / "dir\nname" / "foo").touch()
    fill(tmp_path, names, {"": ["foo", "*.log", "\\#hash", "\\!bang", "tail\\ "]})
    assert kept_by_us(tmp_path) == kept_by_git(tmp_path)
    assert "foo\n" in kept_by_us(tmp_path)


def test_what_is_always_left_behind_comes_not_back(tmp_path: Path) -> None:
    names = [f"{folder}/x" for folder in sorted(ALWAYS_PRUNED)] + ["sub/.git/x", "pai_sdk.egg-info/x", "sub/ok"]
    fill(tmp_path, names, {"": ["!.git", "!venv/", "!**"]})
    assert kept_by_us(tmp_path) == {".gitignore", "sub/ok"}


def test_paiignore_has_the_last_word_in_its_folder(tmp_path: Path) -> None:
    fill(tmp_path, ["weights.bin", "notes.md", "train.py", "sub/notes.md"], {"": ["*.bin"], "sub": []})
    (tmp_path / ".paiignore").write_text("!weights.bin\n*.md\n")
    (tmp_path / "sub" / ".paiignore").write_text("!notes.md\n")
    kept = kept_by_us(tmp_path)
    assert {name for name in kept if "ignore" not in name} == {"weights.bin", "train.py", "sub/notes.md"}


def test_rules_that_may_not_be_read_are_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> str:
        raise PermissionError(errno.EACCES, "Permission denied")

    (tmp_path / ".gitignore").write_text("data\n")
    monkeypatch.setattr(Path, "read_bytes", refuse)  # root may read everything
    accepts = IgnoreRules(tmp_path).accepts
    assert accepts("data", True)
    assert accepts("train.py", False)
    (message,) = caplog.messages
    assert (
        message
        == f"{tmp_path / '.gitignore'} cannot be read, so the files that it names are uploaded: Permission denied"
    )


def test_rule_files_of_every_kind(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fill(tmp_path, ["a.log", "b.txt", "sub/a.log", "pipe/a", "folder/a"], {})
    (tmp_path / ".gitignore").write_bytes(b"\xef\xbb\xbf*.log\r\n\r\n\xff\xfe\n")
    (tmp_path / "sub" / ".gitignore").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "pipe" / ".paiignore")
    (tmp_path / "folder" / ".gitignore").mkdir()
    rules = IgnoreRules(tmp_path)
    assert [rules.accepts(name, False) for name in ("a.log", "b.txt", "pipe/a", "folder/a", "sub/x")] == [
        False,
        True,
        True,
        True,
        True,
    ]
    (tmp_path / "folder" / ".paiignore").write_text("//\n*.txt\n")
    with caplog.at_level(logging.WARNING):
        assert not IgnoreRules(tmp_path).accepts("folder/b.txt", False)


@pytest.mark.parametrize("name", [".gitignore", ".paiignore"])
@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le with mark", "utf-32"])
def test_ignore_files_in_the_encodings_of_editors_count(tmp_path: Path, name: str, encoding: str) -> None:
    rules = "data/\r\n*.csv\r\n"
    content = b"\xff\xfe" + rules.encode("utf-16-le") if " " in encoding else rules.encode(encoding)
    (tmp_path / name).write_bytes(content)
    accept = IgnoreRules(tmp_path).accepts
    assert (accept("data", True), accept("a.csv", False), accept("a.py", False)) == (False, False, True)


def test_an_ignore_file_that_cannot_be_read_as_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".paiignore").write_bytes("*.csv\n".encode("utf-16-le"))
    (tmp_path / "train.py").touch()
    with pytest.raises(CodeError) as refused:
        package_code(tmp_path)
    assert refused.value.problems[0].where == str(tmp_path / ".paiignore")
