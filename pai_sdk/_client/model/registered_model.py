"""RegisteredModel: a handle on a version of a registered model."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pai_sdk._client.model.recipe import (
    ModelRecipe,
    ModelRecipeType,
    ModelTrainingRecipe,
    recipe_spec,
)
from pai_sdk._client.session.default import session_or_default
from pai_sdk._client.submit.algorithm_estimator import AlgorithmEstimator
from pai_sdk._core.names.aliases import Aliased
from pai_sdk._core.names.hints import wrong_type
from pai_sdk._core.names.keywords import checks_keywords
from pai_sdk._core.short_traceback import short_tracebacks
from pai_sdk._wire.models import ModelRecord, ModelVersionRecord
from pai_sdk._wire.pai.recipes import ModelRecipeSpec
from pai_sdk.errors import InvalidInputError

if TYPE_CHECKING:
    from pai_sdk._client.session import Session
    from pai_sdk._client.submit.channels import InputSource


@short_tracebacks
class RegisteredModel(Aliased):
    """A version of a registered model: where its files are, and how it is trained further.

    Attributes:
        session: where it is registered.
        model_id: the id of the model.
        model_name: its name.
        model_provider: whose it is; None for one of the workspace.
        model_version: the name of the version; None for a model without one.
        uri: where the files are.
        task: what the model is for.
        domain: what kind of data it is for.
        framework_type: what it was made with.
        format_type: the format of its files.
        source_type: where it comes from.
        source_id: which one there.
        training_spec: its training recipes, as they were registered.
        evaluation_spec: its evaluation recipes.
        compression_spec: its compression recipes.
        inference_spec: how it is deployed, as it was registered.
        model_labels: the labels of the model.
        version_labels: the labels of the version.

    Example:
        >>> model = RegisteredModel("digits")  # doctest: +SKIP
        >>> job = model.training_recipe().train({"train": "digits.csv"})  # doctest: +SKIP
    """

    @checks_keywords
    def __init__(
        self,
        model_name: str,
        model_version: str | None = None,
        model_provider: str | None = None,
        session: Session | None = None,
    ) -> None:
        """Look the model up.

        Args:
            model_name: its exact name.
            model_version: the newest one when None.
            model_provider: whose it is: `pai` or `huggingface`; None for the workspace's.
            session: where it is registered; the default session otherwise.

        Raises:
            InvalidInputError: there is no such model or version.
        """
        if not isinstance(model_name, str) or not model_name:
            raise InvalidInputError([wrong_type("model_name", model_name, "a string that is not empty")])
        session = session_or_default(session, local=False)
        self._set(session, *session.models.find_version(model_name, model_version, model_provider))

    @classmethod
    def _of(cls, session: Session, model: ModelRecord, version: ModelVersionRecord | None) -> RegisteredModel:
        model_handle = cls.__new__(cls)
        model_handle._set(session, model, version or ModelVersionRecord())
        return model_handle

    def _set(self, session: Session, model: ModelRecord, version: ModelVersionRecord) -> None:
        self.session = session
        self._model, self._version = model, version
        self.model_id = model.model_id
        self.model_name = model.model_name or ""
        self.model_provider = model.provider
        self.task, self.domain = model.task, model.domain
        self.model_labels = {label.key: label.value for label in model.labels}
        self.model_version = version.version_name
        self.uri = self.model_data = version.uri
        self.framework_type, self.format_type = version.framework_type, version.format_type
        self.source_type, self.source_id = version.source_type, version.source_id
        self.training_spec = version.training_spec
        self.evaluation_spec = version.evaluation_spec
        self.compression_spec = version.compression_spec
        self.inference_spec = version.inference_spec
        self.version_labels = {label.key: label.value for label in version.labels}

    def __eq__(self, other: object) -> bool:
        """True for the same version of the same model."""
        return isinstance(other, RegisteredModel) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        provider = f", model_provider={self.model_provider!r}" if self.model_provider else ""
        return f"RegisteredModel({self.model_name!r}, {self.model_version!r}{provider})"

    def _key(self) -> tuple[str, str | None]:
        return self.model_id, self.model_version

    @classmethod
    @checks_keywords
    def list(
        cls,
        model_name: str | None = None,
        model_provider: str | None = None,
        task: str | None = None,
        session: Session | None = None,
    ) -> Iterator[RegisteredModel]:
        """The registered models, each in its newest version.

        Args:
            model_name: only models with this text in their name.
            model_provider: only models of this provider; those of the workspace otherwise.
            task: only models for this task.
            session: where to look; the default session otherwise.
        """
        session = session_or_default(session, local=False)
        for model in session.models.list(name=model_name, provider=model_provider, task=task):
            yield cls._of(session, model, model.latest_version)

    def list_versions(self, model_version: str | None = None) -> Iterator[RegisteredModel]:
        """The versions of the model, the newest first.

        Args:
            model_version: only this one.
        """
        for version in self.session.models.list_versions(self.model_id):
            if model_version in (None, version.version_name):
                yield self._of(self.session, self._model, version)

    def delete(self, delete_all_version: bool = False) -> None:
        """Forget the version; its files stay.

        Args:
            delete_all_version: the whole model, with all its versions.
        """
        if delete_all_version:
            self.session.models.delete(self.model_id)
        elif self.model_version is not None:
            self.session.models.delete_version(self.model_id, self.model_version)

    def download(self, target_dir: str | os.PathLike[str]) -> str:
        """Fetch the files of the version.

        Args:
            target_dir: the local folder.

        Returns:
            The folder.

        Raises:
            InvalidInputError: the files are not in OSS.
        """
        return str(self.session.download(self.uri or "", os.fspath(target_dir)))

    # ---- recipes

    def training_recipe(self, method: str | None = None, **parameters: Any) -> ModelTrainingRecipe:
        """The recipe that trains the model further.

        Args:
            method: which one of several, such as `LoRA`; the first one when None.
            parameters: those of `ModelTrainingRecipe`, by name.

        Raises:
            InvalidInputError: the version has no training recipe, or none of that name.
        """
        return ModelTrainingRecipe(**self._with_model(parameters), method=method)

    get_model_training_recipe = training_recipe

    def model_recipe(
        self, recipe_type: ModelRecipeType | str, method: str | None = None, **parameters: Any
    ) -> ModelRecipe:
        """The recipe that trains, evaluates or compresses the model.

        Args:
            recipe_type: `training`, `evaluation` or `compression`.
            method: which one of several; the first one when None.
            parameters: those of `ModelRecipe`, by name.

        Raises:
            InvalidInputError: the version has no such recipe.
        """
        return ModelRecipe(**self._with_model(parameters), recipe_type=recipe_type, method=method)

    def _with_model(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        names = (self.model_name, self.model_version, self.model_provider)
        fixed = dict(zip(("model_name", "model_version", "model_provider"), names, strict=True))
        return {**fixed, "session": self.session, **parameters}

    @checks_keywords
    def get_recipe_spec(self, recipe_type: ModelRecipeType | str, method: str | None = None) -> ModelRecipeSpec:
        """A recipe of the version as it was registered."""
        return recipe_spec(self._version, recipe_type, method, self.model_name)

    def get_estimator(self, training_method: str | None = None, **parameters: Any) -> AlgorithmEstimator:
        """An estimator of the training recipe's algorithm, with the recipe's hyperparameters and hardware.

        Args:
            training_method: which one of several recipes; the first one when None.
            parameters: those of `AlgorithmEstimator`, by name.

        Raises:
            InvalidInputError: the version has no training recipe.
        """
        return self.training_recipe(training_method, **parameters).as_estimator()

    def get_estimator_inputs(self, training_method: str | None = None) -> dict[str, InputSource]:
        """The default inputs of the training recipe: channel to source."""
        return dict(self.training_recipe(training_method).default_inputs or {})
