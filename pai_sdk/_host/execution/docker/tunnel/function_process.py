"""A function of a tunnel in a container: `python -m …docker.tunnel.function_process PROCESS REQUEST EVENTS`.

REQUEST is a descriptor to read the request from, EVENTS one to write events to. The program has no threads, and
has loaded all that it needs before it enters: the files of this machine's Python are not visible in the container.
"""

from __future__ import annotations

import errno
import grp
import json
import os
import pwd
import signal
import stat
import sys
import tarfile
from contextlib import suppress
from importlib import import_module

from pai_sdk._host.agent.tunnel.children import EVENTS, FUNCTIONS, refuse
from pai_sdk._host.execution.docker.tunnel import namespaces

_HUNG_UP = 129
_LOADED = (errno, grp, pwd, stat, tarfile)


def main(process: int, descriptor: int, events: int) -> int:
    """Runs the requested function in the container with this first process; returns its exit code."""
    os.dup2(events, EVENTS)
    with os.fdopen(descriptor, "rb") as file:
        request = json.loads(file.readline())
    name = str(request["function"])
    module = import_module(FUNCTIONS[name])
    for encoding in ("utf-8", "ascii", "latin-1", "idna"):
        "".encode(encoding)
    try:
        namespaces.enter(process, str(request["instance"]))
    except OSError as error:
        return refuse("NotSupported", f"the files of the container cannot be reached from the host: {error}")
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    # The client has left: a function removes its temporary files.
    signal.signal(signal.SIGHUP, _hang_up)
    # A module that is loaded now would be one of the container.
    sys.path.clear()
    sys.path_importer_cache.clear()
    os.umask(int(request["umask"]))
    os.environ.clear()
    os.environ.update(request["variables"])
    for folder in (os.environ.get("PAI_WORKING_DIR", "/ml/usercode"), "/"):
        with suppress(OSError):
            os.chdir(folder)
            break
    code: int = getattr(module, name)(request["parameters"])
    return code


def _hang_up(*_: object) -> None:
    raise SystemExit(_HUNG_UP)


if __name__ == "__main__":
    os._exit(main(*map(int, sys.argv[1:4])))
