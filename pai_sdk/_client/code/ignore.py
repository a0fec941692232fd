"""Ignored files, which are not uploaded: version control, environments, caches, and matches of ignore files."""

from __future__ import annotations

import logging
import os
import re
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from re import Pattern
from typing import NamedTuple

from pai_sdk._client.code.script_text import decoded
from pai_sdk.errors import CodeError, Problem

_log = logging.getLogger(__name__)

ALWAYS_PRUNED = frozenset(
    {
        ".git",
        ".hg",
        ".svn",
        ".jj",
        ".venv",
        "venv",
        "__pycache__",
        ".ipynb_checkpoints",
        ".mypy_cache",
        ".pytest_cache",
        ".ruff_cache",
        ".tox",
        ".nox",
        ".eggs",
        ".hypothesis",
        "__pypackages__",
        "node_modules",
        ".DS_Store",
    }
)
"""Names that no rule brings back; nor `*.egg-info`, nor virtual environments under any name."""

_ENVIRONMENT_SIGNS = ("pyvenv.cfg", "conda-meta")

IGNORE_FILES = (".gitignore", ".paiignore")
"""The files with rules; the second one wins."""

# The group with which pathspec marks the slash after a folder that matched.
_FOLDER_SLASH = "ps_d"


class _Rule(NamedTuple):
    pattern: Pattern[str]
    excludes: bool  # or else brings back
    origin: str


class _Rules:
    """The rules of one folder, in their order."""

    def __init__(self, rules: Sequence[_Rule]) -> None:
        self._last_first = tuple(reversed(rules))
        # Most paths match no rule, and one expression finds that faster than many.
        either = "|".join(rule.pattern.pattern.replace(f"(?P<{_FOLDER_SLASH}>/)", "/") for rule in rules)
        self._some = re.compile(either) if rules else None

    def last_for(self, path: str, is_dir: bool) -> _Rule | None:
        """Returns the last rule that matches a path below the folder."""
        if self._some is None or not self._some.search(f"{path}/" if is_dir else path):
            return None
        return next((rule for rule in self._last_first if _matches(rule.pattern, path, is_dir)), None)


class IgnoreRules:
    """Decides which paths below a folder are uploaded; for a walk from the root downwards.

    The rules are those of git: the rules of a file apply to its folder and all folders below, deeper files win
    over higher ones, and the last matching rule decides. In one folder, .paiignore counts as the end of
    .gitignore. The walk does not enter an ignored folder, so nothing within it can be re-included, as in git. If
    the root is in a git repository, the rules of the folders above it, up to the top of the repository, apply as
    well.
    """

    def __init__(
        self,
        source_dir: str | Path,
        *,
        names: Sequence[str] = IGNORE_FILES,
        left_behind: Callable[[str, str], None] | None = None,
    ) -> None:
        source_dir = Path(source_dir)
        # Later names win over earlier ones in their folder.
        self._names = names
        # Called with each ignored path and the reason; a folder's path ends with a slash.
        self._left_behind = left_behind
        self._rules: dict[str, _Rules] = {}
        self._top, self._root = source_dir, ""
        top = _repository_around(source_dir.resolve())
        if top is not None:
            self._top, relative_dir = top, source_dir.resolve().relative_to(top).as_posix()
            if not any(self._rule_against(folder, is_dir=True) for folder in _with_parents(relative_dir)):
                self._root = f"{relative_dir}/"
            else:
                # The repository ignores the folder, so its rules were not written for it.
                self._top = source_dir
            self._rules.clear()

    def accepts(self, path: str, is_dir: bool) -> bool:
        """Returns True if a path is uploaded; all folders around it must have been accepted before."""
        reason = self.reason_against(path, is_dir)
        if reason and self._left_behind is not None:
            self._left_behind(f"{path}/" if is_dir else path, reason)
        return not reason

    def reason_against(self, path: str, is_dir: bool) -> str:
        """Returns why a path is ignored; empty if it is not."""
        name = path.rpartition("/")[2]
        if name in ALWAYS_PRUNED or name.endswith(".egg-info"):
            return "never goes along"
        path = self._root + path
        if is_dir and any(os.path.exists(f"{self._top}/{path}/{sign}") for sign in _ENVIRONMENT_SIGNS):  # noqa: PTH110
            return "a virtual environment"
        return self._rule_against(path, is_dir)

    def _rule_against(self, path: str, is_dir: bool) -> str:
        """Returns file and line of the rule that ignores a path below the top; empty if none does."""
        folder, relative = path, ""
        while folder:
            folder, _, part = folder.rpartition("/")
            # No rule has a line end in it, but a name may, and `$` and `.` would stumble over it.
            part = part.replace("\n", "\x01")
            relative = f"{part}/{relative}" if relative else part
            rule = self._rules_of(folder).last_for(relative, is_dir)
            if rule is not None:
                return f"{folder}/{rule.origin}".lstrip("/") if rule.excludes else ""
        return ""

    def _rules_of(self, folder: str) -> _Rules:
        if folder not in self._rules:
            files = (self._top / folder / name for name in self._names)
            self._rules[folder] = _Rules([rule for file in files for rule in _read_rules(file)])
        return self._rules[folder]


def _repository_around(source_dir: Path) -> Path | None:
    """Returns the top of the git repository around a folder; None without one, or if the folder is the top."""
    # A Path would raise for a folder that may not be read.
    folders = [folder for folder in (source_dir, *source_dir.parents) if os.path.exists(folder / ".git")]  # noqa: PTH110
    return folders[0] if folders and folders[0] != source_dir else None


def _with_parents(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]


def _read_rules(path: Path) -> list[_Rule]:
    try:
        # Like git, no link is followed here; and a pipe would never end.
        if not stat.S_ISREG(path.lstat().st_mode):
            return []
        text = decoded(path.read_bytes(), errors="surrogateescape")
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        # A file that belongs to the code is also reported as unreadable.
        _log.warning(
            "%s cannot be read, so the files that it names are uploaded: %s", path, error.strerror or error
        )
        return []
    except ValueError as error:
        # An error: without its rules, files would be uploaded that the user has excluded.
        raise CodeError([Problem(str(path), f"cannot be read as text: {error}", "save it as UTF-8")]) from error
    # For weight: most folders have no rules.
    from pathspec import GitIgnoreSpec
    from pathspec.pattern import RegexPattern

    rules: list[_Rule] = []
    for number, line in enumerate(text.split("\n"), start=1):
        try:
            spec = GitIgnoreSpec.from_lines([_as_git_reads(line)])
        except ValueError as error:
            _log.warning("%s, line %d is not a valid pattern, and is ignored: %s", path, number, error)
            continue
        rules += [
            _Rule(rule.regex, rule.include, f"{path.name}, line {number}: {line.strip()}")
            for rule in spec.patterns
            if isinstance(rule, RegexPattern) and rule.regex is not None and rule.include is not None
        ]
    return rules


def _as_git_reads(line: str) -> str:
    """Returns a line rewritten so that pathspec interprets it as git does."""
    line = line.removesuffix("\r")
    rule = line.rstrip(" ")
    if rule == "!/":
        # In git no path matches it; in pathspec every folder would.
        return ""
    if rule.endswith("/**/"):
        # In git it matches folders below; in pathspec also the folder itself.
        return f"{rule}*/"
    is_escaped = (len(rule) - len(rule.rstrip("\\"))) % 2 == 1
    if is_escaped and rule != line:
        return f"{rule} "
    last = rule[-1:]
    if not last.isspace():
        return rule
    # Other white space than blanks belongs to the name; pathspec would cut it off.
    body = rule[:-1]
    is_escaped = (len(body) - len(body.rstrip("\\"))) % 2 == 1
    return f"{body[:-1] if is_escaped else body}[{last}]"


def _matches(pattern: Pattern[str], path: str, is_dir: bool) -> bool:
    """Returns True if a rule matches exactly this path."""
    # pathspec's expressions also match paths below a matching folder; since the folder itself is already decided,
    # that would let a rule for the folder override one for the file.
    has_slash = _FOLDER_SLASH in pattern.groupindex
    for match in pattern.finditer(path):
        if not has_slash or match[_FOLDER_SLASH] is None:
            return True
    if not is_dir or not has_slash:
        return False
    return any(match.end(_FOLDER_SLASH) == len(path) + 1 for match in pattern.finditer(f"{path}/"))
