"""Parses and checks `git_config`: the repository, the state of it, and the login."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from pai_sdk._core.endpoint import is_loopback
from pai_sdk._core.names.hints import wrong_type
from pai_sdk.errors import CodeError, Problem

_KEYS = ("repo", "branch", "commit", "username", "password", "token")
_SCP_LIKE = re.compile(r"(?:[A-Za-z0-9_.][A-Za-z0-9_.-]*@)?[A-Za-z0-9][A-Za-z0-9.-]*:(?!//)[^:].*")
_COMMIT = re.compile(r"[0-9a-fA-F]{7,64}")
_NOT_IN_LOGINS = re.compile(r"[\x00-\x1f\x7f]")
_NOT_IN_NAMES = re.compile(r"[\x00-\x20\x7f]")
# The user name for a token without one; hosts that check only the token accept any.
TOKEN_USER = "x-access-token"  # noqa: S105 - a name, not a secret


@dataclass(frozen=True)
class GitSource:
    """A repository and a state of it."""

    url: str  # without any secret
    branch: str | None = None  # a branch or tag
    commit: str | None = None  # a hash, full or abbreviated
    username: str | None = None  # for https
    secret: str | None = field(default=None, repr=False)  # the password or token; never displayed

    @property
    def base_url(self) -> str:
        """Returns scheme and host; the secret is sent only there."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}/"

    @property
    def authorization(self) -> str | None:
        """Returns the value of the header that git builds from the login, or None."""
        if self.secret is None:
            return None
        pair = f"{self.username or TOKEN_USER}:{self.secret}"
        return f"Basic {base64.b64encode(pair.encode()).decode()}"

    def scrub(self, text: str) -> str:
        """Returns the text without the secret in any of its encodings."""
        if self.secret:
            shapes = (self.authorization or "", (self.authorization or "").removeprefix("Basic "))
            for shape in (*shapes, quote(self.secret, safe=""), quote(self.secret), self.secret):
                text = text.replace(shape, "***")
        return re.sub(r"://[^/@\s]+@", "://***@", text)


def parse_git_config(git_config: Mapping[str, str]) -> GitSource:
    """Parses a `git_config`; lists all problems."""
    problems = list(_key_problems(git_config))
    if problems:
        raise CodeError(problems)
    url, login, password = _split_login(git_config["repo"])
    problems += _repo_problems(url)
    problems += _name_problems(git_config)
    secrets = [text for text in (git_config.get("token"), git_config.get("password"), password) if text]
    if len(secrets) > 1:
        problems.append(Problem("git_config", "has more than one secret", "give either a token or a password"))
    username = git_config.get("username") or login
    login_parts = {key: git_config.get(key) for key in ("username", "password", "token")}
    problems += _control_character_problems({"repo": f"{login or ''}{password or ''}", **login_parts})
    if secrets or git_config.get("username"):
        problems += _login_problems(url, has_secret=bool(secrets))
    if problems:
        raise CodeError(problems)
    secret = secrets[0] if secrets else None
    return GitSource(url, git_config.get("branch") or None, git_config.get("commit") or None, username, secret)


def _key_problems(git_config: Mapping[str, str]) -> Iterator[Problem]:
    if not isinstance(git_config, Mapping):
        yield wrong_type("git_config", git_config, "a mapping")
        return
    for key, value in git_config.items():
        if key not in _KEYS:
            yield Problem(f"git_config[{key!r}]", "is unknown", f"available: {', '.join(_KEYS)}")
        elif not isinstance(value, str) and value is not None:
            yield wrong_type(f"git_config[{key!r}]", value, "a string")
    if not git_config.get("repo"):
        yield Problem("git_config['repo']", "is required", "give the URL of the repository")


def _split_login(repo: str) -> tuple[str, str | None, str | None]:
    """Returns the URL without name and password, and those two."""
    if not repo.startswith(("https://", "http://")) or "@" not in urlsplit(repo).netloc:
        return repo, None, None
    parts = urlsplit(repo)
    login, _, host = parts.netloc.rpartition("@")
    name, colon, password = login.partition(":")
    url = urlunsplit(parts._replace(netloc=host))
    return (url, unquote(name), unquote(password)) if colon else (url, None, unquote(name))


def _repo_problems(url: str) -> Iterator[Problem]:
    is_supported = url.startswith(("https://", "http://", "ssh://", "file:///")) or _SCP_LIKE.fullmatch(url)
    host_is_option = urlsplit(url).netloc.rpartition("@")[2].startswith("-") if "://" in url else False
    if url.startswith("-") or host_is_option or _NOT_IN_NAMES.search(url) or "::" in url.partition("/")[0]:
        yield Problem("git_config['repo']", "is not the URL of a repository")
    elif not is_supported:
        hint = "write https://host/path, ssh://host/path, git@host:path or file:///path"
        yield Problem("git_config['repo']", "is not the URL of a repository", hint)


def _name_problems(git_config: Mapping[str, str]) -> Iterator[Problem]:
    branch, commit = git_config.get("branch"), git_config.get("commit")
    if branch and (branch.startswith("-") or _NOT_IN_NAMES.search(branch)):
        yield Problem("git_config['branch']", f"{branch!r} is not the name of a branch or tag")
    if commit and not _COMMIT.fullmatch(commit):
        yield Problem("git_config['commit']", f"{commit!r} is not a commit's hash", "7 to 64 hexadecimal digits")


def _control_character_problems(logins: Mapping[str, str | None]) -> Iterator[Problem]:
    """Yields the problems of a login, which git reads line by line."""
    for key, text in logins.items():
        if text and _NOT_IN_LOGINS.search(text):
            yield Problem(f"git_config[{key!r}]", "holds a line end or a control character", "copy it again")


def _login_problems(url: str, *, has_secret: bool) -> Iterator[Problem]:
    if not url.startswith(("https://", "http://")):
        hint = "leave username, password and token out; ssh takes the keys of this machine"
        yield Problem("git_config", "has a login that only https can use", hint)
    elif not has_secret:
        yield Problem("git_config['username']", "comes without a secret", "give a token or a password too")
    elif url.startswith("http://") and not is_loopback(urlsplit(url).netloc):
        yield Problem("git_config['repo']", "would send the secret unencrypted", "write https://")
