"""Paths that code written for alipai imports, each with the module that has its names."""

from __future__ import annotations

from pai_sdk._core.names.peer_modules import MODULES
from pai_sdk.alipai.replacements import ABSENT, INSTEAD

_CLIENT = ("experiment", "image", "tensorboard")
_MODULES = (
    "common",
    "common.consts",
    "common.docker_utils",
    "common.git_utils",
    "common.logging",
    "common.oss_utils",
    "common.utils",
    "common.yaml_utils",
    "dataset",
    "dsw",
    "estimator",
    "exception",
    "huggingface",
    "huggingface.estimator",
    "huggingface.model",
    "job",
    "job._training_job",
    "libs",
    "model",
    "modelscope",
    "modelscope.estimator",
    "modelscope.model",
    "predictor",
    "processor",
    "serializers",
    "toolkit",
    "toolkit.config",
    "tracking",
    "version",
)

PATHS = {
    **{f"pai_sdk.{name}": f"pai_sdk._client.{name}" for name in _CLIENT},
    **{f"pai_sdk.{name}": f"pai_sdk.alipai.pai.{name}" for name in _MODULES},
}
"""Former path to module."""

REPLACED = {
    **{f"pai_sdk.{name}": text for name, text in MODULES.items()},
    # No removeprefix: jobs import this module in images with Python 3.8.
    **{f"pai_sdk{name[len('pai') :]}": text for name, text in {**INSTEAD, **ABSENT}.items()},
}
"""Paths of modules that are left out, each with its replacement; paths of their names too, which does no harm."""
