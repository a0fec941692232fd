"""`python -m pai_sdk._service`: the process of the embedded service. Users start `pai-sdk serve`."""

from __future__ import annotations

import argparse
import gc
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from pai_sdk._service.settings import DEFAULT_DATA_DIR, ServiceInfo, ServiceSettings
from pai_sdk.errors import PaiError


def main(arguments: Sequence[str] | None = None) -> int:
    """Serves a data folder; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m pai_sdk._service")
    parser.add_argument("--data", type=Path, default=Path(DEFAULT_DATA_DIR))
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int)
    parser.add_argument("--slots", type=int, default=16)
    parser.add_argument("--executor", default="process")
    parser.add_argument("--executor-option", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--idle-timeout", type=float, metavar="SECONDS")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    # Collections take a tenth of the time of the imports.
    gc.disable()
    from pai_sdk._service.server import serve

    settings = ServiceSettings(
        data_dir=options.data,
        host=options.host,
        port=options.port,
        slots=options.slots,
        executor=options.executor,
        executor_options=dict(option.split("=", 1) for option in options.executor_option),
        embedded=True,
        idle_timeout_s=options.idle_timeout,
    )
    try:
        serve(settings, on_ready=_collect_garbage)
    except PaiError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    # Without the freeze, Python would search all objects for cycles at the exit, which takes a second or two.
    gc.freeze()
    return 0


def _collect_garbage(info: ServiceInfo) -> None:
    # Imported modules are never freed, so later collections can skip them.
    gc.freeze()
    gc.enable()


if __name__ == "__main__":
    sys.exit(main())
