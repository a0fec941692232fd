"""pai_sdk: describe a training job once, run it on Alibaba Cloud PAI, in Docker, or on a service of your own.

from pai_sdk import Estimator

estimator = Estimator("python:3.11", "python train.py $PAI_USER_ARGS", source_dir="src",
                      hyperparameters={"lr": 0.1}, instance_type="ecs.c6.large")
estimator.fit({"train": "data/train.csv"}).download("model", "model/")
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from pai_sdk._core import default_session
from pai_sdk._core.names import aliases, import_paths
from pai_sdk._core.names.lazy_names import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__)


def _default_sessions() -> Any:
    from pai_sdk._client.session import default  # for weight: loaded when a session is first needed

    return default


# Packages below the session take the default one where they are given none. They know nothing above them, so it is
# passed to them here, in the one module above all of them that always runs.
default_session.register(_default_sessions)
# Attributes by the names of other SDKs; no class imports this module.
aliases.register("pai_sdk.alipai.member_aliases")
import_paths.install("pai_sdk.alipai.paths")


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext pai_sdk` in a notebook: the cell magic `%%pai_job`."""
    import_module("pai_sdk.cli.cell_magic").load(shell)  # by name: nothing below the command line imports it
