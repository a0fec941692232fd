"""What is left behind: version control, environments, caches, and what .gitignore and .paiignore name."""

from __future__ import annotations

import fnmatch
import logging
import stat
from pathlib import Path
from re import Match, Pattern
from typing import TypeAlias

from pathspec import GitIgnoreSpec
from pathspec.pattern import RegexPattern

__all__ = ["ALWAYS_PRUNED", "IgnoreRules"]

_log = logging.getLogger(__name__)

ALWAYS_PRUNED = frozenset(
    {
        ".git",
        ".hg",
        ".svn",
        ".venv",
        "venv",
        "__pycache__",
        ".ipynb_checkpoints",
        ".mypy_cache",
        ".pytest_cache",
        ".ruff_cache",
        ".tox",
        "node_modules",
        ".DS_Store",
    }
)
"""Names that no rule brings back; nor `*.egg-info`."""

IGNORE_FILES = (".gitignore", ".paiignore")

# Each with whether it leaves behind (True) or brings back (False).
_Rules: TypeAlias = "list[tuple[Pattern[str], bool]]"
# The group with which pathspec marks the slash after a folder that matched.
_FOLDER_SLASH = "ps_d"


class IgnoreRules:
    """Answers whether a path below a folder is taken along; made for a walk that asks from the root downwards.

    The rules are those of git: a file's rules hold for its folder and all below it, deeper files win over higher
    ones, and the last rule that matches decides. In one folder, .paiignore counts as the end of .gitignore. As the
    walk does not enter a folder that is left behind, nothing within one can be brought back, as in git.

    Example:
        >>> accept = IgnoreRules("src").accepts
        >>> accept(".venv", True), accept("train.py", False)
        (False, True)
    """

    def __init__(self, root: str | Path) -> None:
        self._root = Path(root)
        self._rules: dict[str, _Rules] = {}

    def accepts(self, path: str, is_dir: bool) -> bool:
        """Whether to take a path along; all folders around it must have been accepted before."""
        name = path.rpartition("/")[2]
        if name in ALWAYS_PRUNED or fnmatch.fnmatchcase(name, "*.egg-info"):
            return False
        folder, relative = path, ""
        while folder:
            folder, _, part = folder.rpartition("/")
            relative = f"{part}/{relative}" if relative else part
            for pattern, leaves_behind in reversed(self._rules_of(folder)):
                if _matches(pattern, relative, is_dir):
                    return not leaves_behind
        return True

    def _rules_of(self, folder: str) -> _Rules:
        if folder not in self._rules:
            found: _Rules = []
            for name in IGNORE_FILES:
                found += _read_rules(self._root / folder / name)
            self._rules[folder] = found
        return self._rules[folder]


def _read_rules(path: Path) -> _Rules:
    try:
        # Like git, no link is followed here; and a pipe would never end.
        if not stat.S_ISREG(path.lstat().st_mode):
            return []
        text = path.read_text(encoding="utf-8-sig", errors="surrogateescape")
    except (FileNotFoundError, NotADirectoryError):
        return []
    found: _Rules = []
    for number, line in enumerate(text.split("\n"), start=1):
        try:
            spec = GitIgnoreSpec.from_lines([line])
        except ValueError as error:
            _log.warning("%s, line %d means nothing and is passed over: %s", path, number, error)
            continue
        for rule in spec.patterns:
            if isinstance(rule, RegexPattern) and rule.regex is not None and rule.include is not None:
                found.append((rule.regex, rule.include))
    return found


def _matches(pattern: Pattern[str], path: str, is_dir: bool) -> bool:
    """Whether a rule matches this very path.

    pathspec's expressions also match what lies below a folder that matches; with the folder itself decided
    already, that would let a rule for the folder outvote one for the file.
    """
    # No rule has a line end in it, but a name may, and `$` and `.` would stumble over it.
    path = path.replace("\n", "\x01")
    if any(_slash_end(found) is None for found in pattern.finditer(path)):
        return True
    if not is_dir:
        return False
    return any(_slash_end(found) == len(path) + 1 for found in pattern.finditer(f"{path}/"))


def _slash_end(found: Match[str]) -> int | None:
    """Where the slash after a matching folder ends; None when the match did not need one."""
    return found.end(_FOLDER_SLASH) if found.groupdict().get(_FOLDER_SLASH) else None
