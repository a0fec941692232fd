from __future__ import annotations

import base64
import contextlib
import gc
import os
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

import pytest

from pai_sdk._client.code.git import checkout
from pai_sdk._client.code.package import package_code
from pai_sdk._core.git.clone import clone as clone_source
from pai_sdk._core.git.git_config import parse_git_config
from pai_sdk.errors import CodeError
from tests.support.git_hosts import GitServer, Repository, git, git_server, url_of
from tests.support.messages import refused
from tests.support.programs import write_program
from tests.support.waiting import PATIENCE_S

TOKEN = "gh/tok&en=+secret"


@pytest.fixture(autouse=True)
def git_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@example.com",
        "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@example.com",
    }.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "srv" / "project.git")


def clone(git_config: dict[str, str], into: Path, *, timeout_s: float = 600.0) -> Path:
    clone_source(parse_git_config(git_config), into, timeout_s=timeout_s)
    return into


@contextlib.contextmanager
def cloned(git_config: dict[str, str]) -> Iterator[Path]:
    folder, keeper = checkout(git_config)
    yield folder
    keeper.close()


def content(config: dict[str, str]) -> str:
    with cloned(config) as folder:
        return (folder / "train.py").read_text()


def test_each_state_can_be_had(repository: Repository) -> None:
    repo, commits = repository.url, repository.commits
    assert content({"repo": repo}) == "three"
    assert content({"repo": repo, "branch": "side"}) == "side"
    assert content({"repo": repo, "branch": "v1"}) == "two"
    assert content({"repo": repo, "commit": commits["two"]}) == "two"
    assert content({"repo": repo, "commit": commits["side"][:10]}) == "side"
    assert content({"repo": repo, "branch": "main", "commit": commits["one"]}) == "one"


def test_history_is_left_where_it_is(repository: Repository, tmp_path: Path) -> None:
    folder = clone({"repo": repository.url}, tmp_path / "clone")
    assert git(folder, "rev-list", "--count", "HEAD") == "1"


def test_a_server_that_hands_out_no_single_commits(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "protocol.version")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "0")
    one = repository.commits["one"]
    refused = subprocess.run(["git", "fetch", "-q", repository.url, one], cwd=repository.path.parent, check=False)
    assert refused.returncode != 0
    assert content({"repo": repository.url, "commit": one}) == "one"


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"branch": "nope"}, "no such branch or tag"),
        ({"commit": "deadbeef" * 5}, "has no commit"),
        ({"branch": "main", "commit": "SIDE"}, "is not on 'main'"),
    ],
)
def test_states_that_are_not_there(repository: Repository, more: dict[str, str], says: str) -> None:
    more = {key: repository.commits["side"] if value == "SIDE" else value for key, value in more.items()}
    with pytest.raises(CodeError, match=says):
        content({"repo": repository.url, **more})


def test_no_such_repository(tmp_path: Path) -> None:
    with refused(CodeError, "git_config"):
        content({"repo": (tmp_path / "nothing.git").as_uri()})


def test_the_temporary_folder_goes(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    with pytest.raises(CodeError), cloned({"repo": repository.url, "branch": "nope"}):
        pass
    folder, keeper = checkout({"repo": repository.url})
    assert (folder / "train.py").exists()
    del keeper
    gc.collect()
    with pytest.raises(CodeError):
        checkout({"repo": repository.url}, "missing")
    assert list((tmp_path / "tmp").iterdir()) == []


def test_source_dir_stays_within_the_repository(repository: Repository) -> None:
    config = {"repo": repository.url, "branch": "side"}
    folder, keeper = checkout(config, "src")
    assert [entry.path for entry in package_code(folder).entries] == ["side.py"]
    keeper.close()
    for outside in ("/etc", "../..", "out", "src/../../.."):
        with refused(CodeError, "source_dir"):
            checkout(config, outside)
    with refused(CodeError, "source_dir"):
        checkout(config, "scr")


def test_what_was_committed_goes_along_whatever_gitignore_says(repository: Repository) -> None:
    for name, text in {".gitignore": "*.bin\n", ".paiignore": "notes\n", "tokens.bin": "", "notes": ""}.items():
        (repository.path / name).write_text(text)
    git(repository.path, "add", "-A", "--force")
    git(repository.path, "commit", "-q", "-m", "all of it")
    folder, _keeper = checkout({"repo": repository.url})
    paths = [entry.path for entry in package_code(folder, cloned=True).entries]
    assert paths == [".gitignore", ".paiignore", "tokens.bin", "train.py"]


def test_git_inside_a_hook_clones_all_the_same(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "index"))
    assert content({"repo": repository.url}) == "three"


def test_no_git_at_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with refused(CodeError, "git_config"):
        content({"repo": "https://example.com/x.git"})


@pytest.mark.parametrize(
    ("config", "where"),
    [
        ({}, ["git_config['repo']"]),
        ({"repo": "https://h/x", "brunch": "a", "token": 7}, ["git_config['brunch']", "git_config['token']"]),
        ({"repo": "--upload-pack=touch /tmp/x"}, ["git_config['repo']"]),
        ({"repo": "ext::sh -c touch"}, ["git_config['repo']"]),
        ({"repo": "ext::sh"}, ["git_config['repo']"]),
        ({"repo": "-oProxyCommand=x:y"}, ["git_config['repo']"]),
        ({"repo": "ssh://-oProxyCommand=x/y"}, ["git_config['repo']"]),
        ({"repo": "https://h/a b"}, ["git_config['repo']"]),
        ({"repo": "project"}, ["git_config['repo']"]),
        (
            {"repo": "https://h/x", "branch": "--output=x", "commit": "-1"},
            ["git_config['branch']", "git_config['commit']"],
        ),
        ({"repo": "https://h/x", "commit": "HEAD~1"}, ["git_config['commit']"]),
        ({"repo": "https://h/x", "token": "a", "password": "b"}, ["git_config"]),
        ({"repo": "https://u:p@h/x", "token": "a"}, ["git_config"]),
        ({"repo": "https://h/x", "username": "me"}, ["git_config['username']"]),
        ({"repo": "git@h:x.git", "token": "a"}, ["git_config"]),
        ({"repo": "http://h/x", "token": "a"}, ["git_config['repo']"]),
        (
            {"repo": "https://h/x", "token": "a\n", "username": "me\0"},
            ["git_config['username']", "git_config['token']"],
        ),
        ({"repo": "https://me:a%0Ahost=b@h/x"}, ["git_config['repo']"]),
    ],
)
def test_bad_configurations(config: dict[str, str], where: list[str]) -> None:
    with pytest.raises(CodeError) as caught:
        parse_git_config(config)
    assert [problem.where for problem in caught.value.problems] == where
    with pytest.raises(CodeError):
        checkout(config)


@pytest.mark.parametrize(
    ("repo", "url", "authorization"),
    [
        ("https://git.example.com:8443/t/p.git", "https://git.example.com:8443/t/p.git", None),
        ("git@codeup.example.com:t/p.git", "git@codeup.example.com:t/p.git", None),
        ("ssh://git@h:22/p", "ssh://git@h:22/p", None),
        ("https://me:a%2Fb@h/p", "https://h/p", "me:a/b"),
        ("https://tok@h/p", "https://h/p", "x-access-token:tok"),
    ],
)
def test_urls_lose_their_login(repo: str, url: str, authorization: str | None) -> None:
    source = parse_git_config({"repo": repo})
    assert source.url == url
    expected = authorization and "Basic " + base64.b64encode(authorization.encode()).decode()
    assert source.authorization == expected


# ---- over ssh ---------------------------------------------------------------------------------------------

_SSH = """#!/bin/sh
# Stands for ssh and the host behind it: what the host would run, is run here.
echo "$@" >>"{folder}/arguments"
while [ $# -gt 2 ]; do shift; done
cd "{root}" && exec sh -c "$2"
"""


@pytest.fixture
def ssh_host(repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose `ssh` reaches a host with `repository` in its home; what it is called with is kept there."""
    folder = tmp_path / "bin"
    folder.mkdir()
    write_program(folder / "ssh", _SSH.format(folder=folder, root=repository.path.parent))
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder


@pytest.mark.parametrize("form", ["git@git.example.com:project.git", "ssh://git@git.example.com:2222{path}"])
def test_each_state_can_be_had_over_ssh(repository: Repository, ssh_host: Path, form: str) -> None:
    repo = form.format(path=quote(str(repository.path)))
    assert content({"repo": repo}) == "three"
    assert content({"repo": repo, "branch": "side"}) == "side"
    assert content({"repo": repo, "commit": repository.commits["two"]}) == "two"
    assert content({"repo": repo, "branch": "main", "commit": repository.commits["one"]}) == "one"
    assert "git@git.example.com" in (ssh_host / "arguments").read_text()


def test_a_host_that_does_not_know_our_ssh_key(ssh_host: Path) -> None:
    write_program(ssh_host / "ssh", "#!/bin/sh\necho 'git@h: Permission denied (publickey).' >&2\nexit 255\n")
    with refused(CodeError, "git_config"):
        content({"repo": "git@git.example.com:project.git"})


# ---- over HTTP, with a login ------------------------------------------------------------------------------


@pytest.fixture
def server(repository: Repository) -> Iterator[GitServer]:
    with git_server(repository.path.parent, f"x-access-token:{TOKEN}") as made:
        yield made


@contextlib.contextmanager
def _another(server: GitServer) -> Iterator[GitServer]:
    """Another host, with the same repositories, that accepts no login."""
    with git_server(server.root) as other:
        other.expected = "no login"
        yield other


def test_a_token_opens_the_door_and_is_found_nowhere(
    server: GitServer, repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments: list[object] = []
    popen = subprocess.Popen
    monkeypatch.setattr(
        subprocess, "Popen", lambda *args, **kwargs: (arguments.append(args), popen(*args, **kwargs))[1]
    )
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "advice.detachedHead")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "false")
    folder = clone(
        {"repo": url_of(server), "token": TOKEN, "commit": repository.commits["two"]}, tmp_path / "clone"
    )
    assert (folder / "train.py").read_text() == "two"
    header = server.expected.removeprefix("Basic ")
    written = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    for shape in (TOKEN, header, "gh%2Ftok"):
        assert shape not in repr(arguments)
        assert shape.encode() not in written


@pytest.mark.parametrize("trace", [False, True])
def test_a_wrong_token_is_reported_without_its_text(
    server: GitServer, monkeypatch: pytest.MonkeyPatch, trace: bool
) -> None:
    if trace:
        monkeypatch.setenv("GIT_TRACE_CURL", "1")
        monkeypatch.setenv("GIT_TRACE_REDACT", "0")
        monkeypatch.setenv("GIT_CURL_VERBOSE", "1")
    for repo in (url_of(server), url_of(server).replace("//", f"//me:{'w' * 20}@")):
        config = {"repo": repo} | ({} if "@" in repo else {"token": "wrong" + TOKEN})
        with pytest.raises(CodeError, match="login") as caught:
            content(config)
        text = str(caught.value)
        assert url_of(server) in text
        assert TOKEN not in text
        assert "w" * 20 not in text
        assert "Authorization" not in text


def test_without_a_token_git_does_not_prompt(server: GitServer) -> None:
    with pytest.raises(CodeError, match="give a token"):
        content({"repo": url_of(server)})


def test_a_host_that_hangs(server: GitServer, tmp_path: Path) -> None:
    server.hangs = True
    with refused(CodeError, "git_config"):
        clone({"repo": url_of(server), "token": TOKEN}, tmp_path / "clone", timeout_s=0.5)


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="needs /proc")
def test_the_process_list_shows_no_token_while_git_runs(server: GitServer, tmp_path: Path) -> None:
    server.hangs = True
    config = {"repo": url_of(server), "token": TOKEN}
    with ThreadPoolExecutor(1) as pool:
        cloning = pool.submit(clone, config, tmp_path / "clone", timeout_s=2 * PATIENCE_S)
        assert server.asked.wait(PATIENCE_S)
        lines = b"\n".join(filter(None, map(_command_line, Path("/proc").glob("[0-9]*/cmdline"))))
        server.released.set()
        with pytest.raises(CodeError):
            cloning.result()
    assert f"127.0.0.1:{server.server_port}".encode() in lines
    for shape in (TOKEN, server.expected.removeprefix("Basic "), "gh%2Ftok"):
        assert shape.encode() not in lines


def _command_line(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # it has ended
        return b""


# ---- submodules and large files -----------------------------------------------------------------------------


def with_submodule(repository: Repository, url: str, name: str = "lib") -> None:
    git(repository.path, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", "--", url, name)
    git(repository.path, "commit", "-q", "-m", "submodule")


@pytest.fixture
def library(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "srv" / "library.git")


def test_submodules_come_along(repository: Repository, library: Repository) -> None:
    with_submodule(library, repository.url, "deep")
    git(library.path, "commit", "-q", "--allow-empty", "-m", "newer")
    with_submodule(repository, library.url)
    git(library.path, "commit", "-q", "--allow-empty", "-m", "newest, of which the submodule does not know")
    with cloned({"repo": repository.url}) as folder:
        assert (folder / "lib" / "train.py").read_text() == "three"
        assert (folder / "lib" / "deep" / "train.py").read_text() == "three"
        assert "lib/deep/train.py" in {entry.path for entry in package_code(folder).entries}


def test_a_submodule_beside_the_repository_gets_the_token_too(
    server: GitServer, repository: Repository, library: Repository
) -> None:
    with_submodule(repository, library.url)
    git(repository.path, "config", "-f", ".gitmodules", "submodule.lib.url", "../library.git")
    git(repository.path, "commit", "-q", "-a", "-m", "relative")
    with cloned({"repo": url_of(server), "token": TOKEN}) as folder:
        assert (folder / "lib" / "train.py").read_text() == "three"


def test_no_other_host_is_sent_the_token(
    server: GitServer, repository: Repository, library: Repository, tmp_path: Path
) -> None:
    with _another(server) as other:
        with_submodule(repository, library.url)
        url = url_of(other).replace("project", "library")
        git(repository.path, "config", "-f", ".gitmodules", "submodule.lib.url", url)
        git(repository.path, "commit", "-q", "-a", "-m", "elsewhere")
        with pytest.raises(
            CodeError, match=r"its submodules cannot be cloned: (.*\n)+.*host of repo only"
        ) as caught:
            clone({"repo": url_of(server), "token": TOKEN}, tmp_path / "clone")
    assert TOKEN not in str(caught.value)
    assert other.seen
    assert {authorization for _, authorization in other.seen} == {None}


@pytest.mark.parametrize("asks_first", [False, True])
def test_a_host_to_which_the_repository_has_moved_is_not_sent_the_token(
    server: GitServer, tmp_path: Path, asks_first: bool
) -> None:
    with _another(server) as other:
        server.moved, server.asks_first = f"http://localhost:{other.server_port}{{}}".format, asks_first
        with pytest.raises(CodeError, match="login"):
            clone({"repo": url_of(server), "token": TOKEN}, tmp_path / "clone")
        if not asks_first:  # git has followed; it does not when the redirection comes after the login
            other.expected = ""  # open to everybody
            assert content({"repo": url_of(server), "token": TOKEN}) == "three"
            assert other.seen
        assert {authorization for _, authorization in other.seen} <= {None}


def test_a_repository_that_has_moved_on_its_host_is_found(server: GitServer) -> None:
    """GitLab, for one, leads from `project` to `project.git`."""
    server.moved = lambda path: path.replace("project/", "project.git/") if "project/" in path else ""
    assert content({"repo": url_of(server).removesuffix(".git"), "token": TOKEN}) == "three"


def test_a_submodule_reaches_for_no_file_of_this_machine(
    server: GitServer, repository: Repository, library: Repository
) -> None:
    with_submodule(repository, library.url)
    with pytest.raises(CodeError, match="its submodules cannot be cloned"):
        content({"repo": url_of(server), "token": TOKEN})


def test_large_files_that_stayed_behind_are_reported(
    repository: Repository, caplog: pytest.LogCaptureFixture
) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 12345\n"
    (repository.path / "weights.bin").write_text(pointer)
    git(repository.path, "add", "-A")
    git(repository.path, "commit", "-q", "-m", "large")
    with cloned({"repo": repository.url}):
        pass
    (message,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "1 file(s) came as Git LFS pointers, without their content: weights.bin" in message


def test_a_clone_for_others_has_no_login_of_this_user(
    server: GitServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".netrc").write_text(f"machine 127.0.0.1 login x-access-token password {TOKEN}")
    monkeypatch.setenv("HOME", str(tmp_path))
    source = parse_git_config({"repo": url_of(server)})
    clone_source(source, tmp_path / "own")
    with pytest.raises(CodeError):
        clone_source(source, tmp_path / "of-others", is_isolated=True)


def test_a_clone_for_others_is_without_submodules(
    repository: Repository, library: Repository, tmp_path: Path
) -> None:
    with_submodule(repository, library.url)
    clone_source(parse_git_config({"repo": repository.url}), tmp_path / "clone", is_isolated=True)
    assert not any((tmp_path / "clone" / "lib").iterdir())
