from pai_sdk._client.pipeline import Pipeline as Pipeline
from pai_sdk._client.pipeline import PipelineRun as PipelineRun
