#!/usr/bin/env bash
# debugpy 1.8.22: from `listen()` on, `breakpoint()` ignores PYTHONBREAKPOINT.
#
# PYTHONBREAKPOINT names what `breakpoint()` calls; with 0 it does nothing (docs.python.org, sys.breakpointhook). A
# program prints what its breakpoints do, before and after `debugpy.listen()`.
# Behaviour: loading the debugger sets `sys.breakpointhook` to a function that takes no arguments and does not look at
#   the variable. So the hook that the variable names, such as one that waits for a client or writes to a log, is
#   called before, and not after. While no editor has joined, `breakpoint()` passes in silence, with arguments it is
#   a TypeError. pydevd, which is inside debugpy, has a hook of its own that respects the variable.
# Expected: that of pydevd, or that `listen()` leaves a hook alone that the variable names. Keep `sys.breakpointhook`
#   before, and put it back after `listen()`.
# Source: debugpy/_vendored/force_pydevd.py, `debugpy_breakpointhook`.
#
# Output:
#   before listen(): hook called with {'reason': 'nan'}
#   after listen(): TypeError; without arguments: hook not called
#   sys.breakpointhook put back: hook called with {'reason': 'nan'}
# Exit status: 0 while debugpy behaves like this, 1 when it does not.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export HOME=$folder PYDEVD_DISABLE_FILE_VALIDATION=1
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check debugpy==1.8.22
cat > "$folder/hooks.py" <<'PYTHON'
calls = []


def note(**arguments):
    calls.append(arguments)
PYTHON
cat > "$folder/show.py" <<'PYTHON'
import sys

import hooks

import debugpy


def stop(**arguments):
    hooks.calls.clear()
    try:
        breakpoint(**arguments)
    except TypeError:
        return "TypeError"
    return f"hook called with {hooks.calls[0]}" if hooks.calls else "hook not called"


hook = sys.breakpointhook
before = stop(reason="nan")
debugpy.listen(("127.0.0.1", 0))
after, plain = stop(reason="nan"), stop()
sys.breakpointhook = hook
restored = stop(reason="nan")
print(f"before listen(): {before}")
print(f"after listen(): {after}; without arguments: {plain}")
print(f"sys.breakpointhook put back: {restored}")
called = "hook called with {'reason': 'nan'}"
sys.exit((before, after, plain, restored) != (called, "TypeError", "hook not called", called))
PYTHON
cd "$folder"
PYTHONBREAKPOINT=hooks.note timeout 60 "$folder/venv/bin/python" "$folder/show.py"
