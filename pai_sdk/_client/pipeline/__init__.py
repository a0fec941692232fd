"""Pipelines: steps in plain Python, where outputs of one are inputs of the next.

alipai's other names for pipelines are left out: they can be imported, and their use names the replacement.
"""

from pai_sdk._client.pipeline.pipeline import Pipeline
from pai_sdk._client.pipeline.pipeline_run import PipelineRun
from pai_sdk.alipai.replacements import instead_of
from pai_sdk.alipai.unsupported import unsupported_names

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
