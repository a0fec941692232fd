#!/usr/bin/env bash
# pathspec's GitIgnoreSpec, which is to behave as git does, ignores other files than git for two kinds of lines.
#
# Versions: pathspec 1.1.1, git 2.39 and later; Python 3.11.
# Behaviour: `a/**/` ignores all of the folder `a`, also the file `a/x`; for git it names the folders below `a` only, so
#   `a/x` is tracked. A tab at the end of a line is cut off, so `name<tab>` ignores the file `name`; git cuts blanks
#   only, and ignores the file whose name ends with the tab.
# Expected: the answers of `git check-ignore`.
#
# Output:
#   git: ['a/b/y', 'name\t']
#   pathspec: ['a/b/y', 'a/x', 'name']
# Exit status: 0 while pathspec behaves like this, 1 when it does not.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export HOME=$folder
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pathspec==1.1.1
mkdir -p "$folder/repository/a/b"
cd "$folder/repository"
git init --quiet .
cat > "$folder/show.py" <<'PYTHON'
import subprocess
import sys
from pathlib import Path

from pathspec import GitIgnoreSpec

FILES = ["a/b/y", "a/x", "name", "name\t"]
LINES = ["a/**/", "name\t"]
for file in FILES:
    Path(file).touch()
Path(".gitignore").write_text("".join(f"{line}\n" for line in LINES))
asked = subprocess.run(
    ["git", "check-ignore", "--stdin", "-z"], input="\0".join(FILES), stdout=subprocess.PIPE, text=True, check=False
)
by_git = [file for file in asked.stdout.split("\0") if file]
by_pathspec = [file for file in FILES if GitIgnoreSpec.from_lines(LINES).match_file(file)]
print("git:", by_git)
print("pathspec:", by_pathspec)
sys.exit(not (by_git == ["a/b/y", "name\t"] and by_pathspec == ["a/b/y", "a/x", "name"]))
PYTHON
"$folder/venv/bin/python" "$folder/show.py"
