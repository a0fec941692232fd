"""Pipelines: steps in plain Python, where outputs of one are inputs of the next."""

from pai_sdk._client.pipeline.pipeline import Pipeline
from pai_sdk._client.pipeline.pipeline_run import PipelineRun

__all__ = ["Pipeline", "PipelineRun"]
