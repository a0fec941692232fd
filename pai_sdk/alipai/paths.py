"""Paths that code written for alipai imports, each with the module that has its names."""

from __future__ import annotations

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
