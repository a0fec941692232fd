#!/usr/bin/env bash
# cloudpickle sends an open file as its content: the loaded object is a StringIO.
#
# Version: cloudpickle 3.1.3; Python 3.11.
# Behaviour: `cloudpickle.dumps` of a file that is open for reading reads all of it as text, and the loaded object is an
#   io.StringIO at the same position; later changes of the file are not seen. A file in a value that a remote function
#   returns arrives like that, without an error or a warning. `pickle` refuses it: "cannot pickle '_io.TextIOWrapper'".
# Expected: the TypeError of `pickle`.
#
# Output:
#   pickle: TypeError: cannot pickle '_io.TextIOWrapper' object
#   cloudpickle: StringIO at 2, then 'ne'
#   its file has changed meanwhile: 'other'
# Exit status: 0 while cloudpickle behaves like this, 1 when it does not.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check cloudpickle==3.1.3
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import io
import pickle
import sys
from pathlib import Path

import cloudpickle

Path("data.txt").write_text("o\nne")
with open("data.txt") as file:
    file.readline()
    try:
        pickle.dumps(file)
        refused = "nothing"
    except TypeError as error:
        refused = f"TypeError: {error}"
    sent = cloudpickle.dumps({"file": file})
Path("data.txt").write_text("other")
loaded = pickle.loads(sent)["file"]
position, rest = loaded.tell(), loaded.read()
print("pickle:", refused)
print(f"cloudpickle: {type(loaded).__name__} at {position}, then {rest!r}")
print("its file has changed meanwhile:", repr(Path("data.txt").read_text()))
sys.exit(not ("TextIOWrapper" in refused and type(loaded) is io.StringIO and rest == "ne"))
PYTHON
