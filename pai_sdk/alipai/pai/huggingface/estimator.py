"""HuggingFaceEstimator: an `Estimator` whose image is found by the version of Transformers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pai_sdk._client.image import ImageScope, image_of_version
from pai_sdk._client.submit.estimator import Estimator
from pai_sdk._client.submit.parameters import Description
from pai_sdk._core.names.keywords import init_checks_keywords
from pai_sdk._core.short_traceback import short_tracebacks

__all__ = ["HuggingFaceEstimator"]


@short_tracebacks
@init_checks_keywords
@dataclass(repr=False, eq=False)
class HuggingFaceEstimator(Estimator):
    """Trains with your own code, in an official image of Transformers.

    All other parameters are those of `Estimator`. The image is looked up with each `plan()` and `fit()`, which
    needs the network.

    Attributes:
        image_uri: an image of your own, in place of the official one.
        transformers_version: such as `4.41`; `latest` for the newest.

    Example:
        >>> estimator = HuggingFaceEstimator("python train.py", transformers_version="latest")
        >>> estimator.training_image_uri()  # doctest: +SKIP
        'docker.io/huggingface/transformers-pytorch-gpu:4.41.3'
    """

    # alipai has other parameters after the third one by position, so these are given by name.
    job_type: str = field(default="PyTorchJob", kw_only=True)
    hyperparameters: Mapping[str, Any] | None = field(default=None, kw_only=True)
    image_uri: str | None = field(default=None, kw_only=True)  # type: ignore[assignment]
    transformers_version: str | None = field(default=None, kw_only=True)

    def training_image_uri(self) -> str:
        """The image that jobs run in: `image_uri`, or the official one of the version, for GPUs.

        Raises:
            InvalidInputError: neither of them is given.
            ImageLookupError: there is no image of that version; the versions that there are are listed.
        """
        if self.image_uri:
            return self.image_uri
        return image_of_version(
            "Transformers", "transformers_version", self.transformers_version, ImageScope.TRAINING, self.session
        )

    def describe(self) -> Description:
        """The description of the estimator's jobs."""
        return replace(super().describe(), image=self.training_image_uri())
