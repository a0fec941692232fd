"""Pipelines: steps in plain Python, where outputs of one are inputs of the next.

alipai's other names for pipelines are left out: they can be imported, and their use names the replacement.
"""

from pai_sdk.compat.left_out import unsupported_names
from pai_sdk.compat.replacements import instead_of
from pai_sdk.pipeline.pipeline import Pipeline
from pai_sdk.pipeline.pipeline_run import PipelineRun

__all__ = ["Pipeline", "PipelineRun"]

_ALIPAI_NAMES = (
    "ContainerComponent",
    "PipelineArtifact",
    "PipelineParameter",
    "PipelineRunStatus",
    "PipelineStep",
    "PipelineVariable",
    "RegisteredComponent",
)
__getattr__ = unsupported_names(__name__, _ALIPAI_NAMES, instead_of("pai.pipeline"))
