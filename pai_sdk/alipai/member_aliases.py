"""The names of alipai for members of our classes, by the class, for `pai_sdk._core.names.aliases`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from pai_sdk.alipai.job_names import JobAliases
from pai_sdk.alipai.replacements import instead_of
from pai_sdk.alipai.session_names import SESSION_REPLACEMENTS, SessionAliases
from pai_sdk.alipai.unsupported import DEPLOYING, SERVING, unsupported
from pai_sdk.errors import NotOfferedError


class SubmitterAliases:
    """Members of alipai's `EstimatorBase`."""

    def deploy(self, *_: Any, **__: Any) -> NoReturn:
        """Raises NotOfferedError, which names the replacement."""
        raise NotOfferedError("Estimator.deploy", SERVING)

    def create_model(self, *_: Any, **__: Any) -> NoReturn:
        """Raises NotOfferedError, which names the replacement."""
        raise NotOfferedError("Estimator.create_model", SERVING)


class ModelAliases:
    """Members of alipai's `RegisteredModel`."""

    uri: str | None

    def deploy(self, *_: Any, **__: Any) -> NoReturn:
        """Raises NotOfferedError, which names the replacement."""
        instead = f"pai_sdk does not serve models. The model is at {self.uri}; {DEPLOYING}"
        raise NotOfferedError("RegisteredModel.deploy", instead)


ALIASES: Mapping[str, type] = {
    "JobSubmitter": SubmitterAliases,
    "RegisteredModel": ModelAliases,
    "Session": SessionAliases,
    "TrainingJob": JobAliases,
}
"""The classes whose members stand in for missing ones."""

REPLACEMENTS: Mapping[str, Mapping[str, str]] = {"Session": SESSION_REPLACEMENTS}
"""What replaces an attribute, for its error."""

_PIPELINE_NAMES = (
    "ContainerComponent",
    "PipelineArtifact",
    "PipelineParameter",
    "PipelineRunStatus",
    "PipelineStep",
    "PipelineVariable",
    "RegisteredComponent",
)

MODULE_MEMBERS: Mapping[str, Mapping[str, type]] = {
    "pai_sdk.pipeline": {
        name: unsupported(f"pai_sdk.pipeline.{name}", instead_of("pai.pipeline")) for name in _PIPELINE_NAMES
    },
    "pai_sdk.session": {
        name: unsupported(f"pai_sdk.session.{name}", instead_of(f"pai.session.{name}"))
        for name in ("load_default_config_file",)
    },
}
"""Names of alipai's modules that are left out, in modules of ours."""
