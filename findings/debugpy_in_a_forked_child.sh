#!/usr/bin/env bash
# debugpy 1.8.22: a forked child of a process that listens believes that an editor has joined, and cannot listen itself.
#
# A training calls `debugpy.listen()` and forks: ranks of `torch.multiprocessing`, workers of a data loader. No editor
# has joined. Parent and child ask the same three questions.
# Behaviour: in the child `is_client_connected()` is true, so `wait_for_client()` returns at once, and a breakpoint
#   behind it passes without an editor. `listen()` is refused: the child counts as listening, though the port is the
#   parent's. What is called connected is the child's own connection to the adapter, which pydevd opens after a fork
#   so that an editor with `subProcess` can follow.
# Expected: false and a wait, as in the parent, or a port of its own.
# Source: debugpy/server/api.py: `listen.called`, a flag that a child inherits, and `is_client_connected`.
#
# Output:
#   parent: connected False, wait_for_client still waits after 3 s, listen: RuntimeError
#   forked child: connected True, wait_for_client returns at once, listen: RuntimeError
# Exit status: 0 while debugpy behaves like this, 1 when it does not.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export HOME=$folder PYDEVD_DISABLE_FILE_VALIDATION=1
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check debugpy==1.8.22
cat > "$folder/show.py" <<'PYTHON'
import os
import sys
import threading
import time

import debugpy

WAIT_S = 3


def look():
    connected = debugpy.is_client_connected()
    timer = threading.Timer(WAIT_S, lambda: debugpy.wait_for_client.cancel())
    timer.daemon = True
    timer.start()
    start = time.monotonic()
    debugpy.wait_for_client()
    waited = time.monotonic() - start
    timer.cancel()
    try:
        debugpy.listen(("127.0.0.1", 0))
        refusal = "a port"
    except Exception as error:
        refusal = type(error).__name__
    wait = f"still waits after {WAIT_S} s" if waited > WAIT_S - 0.5 else "returns at once"
    return f"connected {connected}, wait_for_client {wait}, listen: {refusal}"


debugpy.listen(("127.0.0.1", 0))
reader, writer = os.pipe()
child = os.fork()
if child == 0:
    os.write(writer, look().encode())
    os._exit(0)
os.close(writer)
with os.fdopen(reader) as answer:
    in_child = answer.read()
os.waitpid(child, 0)
in_parent = look()
print(f"parent: {in_parent}")
print(f"forked child: {in_child}")
expected = (
    "connected False, wait_for_client still waits after 3 s, listen: RuntimeError",
    "connected True, wait_for_client returns at once, listen: RuntimeError",
)
sys.exit((in_parent, in_child) != expected)
PYTHON
timeout 60 "$folder/venv/bin/python" "$folder/show.py"
