"""Members of alipai's estimators and models that are left out: serving is not part of pai_sdk."""

from __future__ import annotations

from typing import Any, NoReturn

from pai_sdk.alipai.unsupported import DEPLOYING, SERVING
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
