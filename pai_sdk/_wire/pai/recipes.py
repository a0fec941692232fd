"""The recipe of a registered model: how a version of it is trained, evaluated or compressed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import Field, ValidationError

from pai_sdk._core.names.hints import wrong_type
from pai_sdk._wire.pai.definitions import AlgorithmDefinition, hyperparameter_problems
from pai_sdk._wire.pai.spec import AlgorithmSpec, HyperParameter
from pai_sdk._wire.pai.wire import NullableList, Received, problems_of
from pai_sdk.errors import InvalidInputError, Problem

_ALGORITHM = ("AlgorithmSpec", "AlgorithmName")


class RecipeInput(Received):
    """The default source of an input channel."""

    name: str
    input_uri: str | None = None
    dataset_id: str | None = None
    version_name: str | None = None

    @property
    def source(self) -> str | None:
        """The source, as an estimator takes it: a URI, or a data set with its version."""
        if self.dataset_id is not None and self.version_name is not None:
            return f"{self.dataset_id}/{self.version_name}"
        return self.input_uri or self.dataset_id


class RecipeValue(Received):
    """The value of a hyperparameter that fits the model."""

    name: str
    value: Any = None


class RecipeCompute(Received):
    """The hardware that fits the model."""

    ecs_spec: str | None = None
    ecs_count: int | None = None
    instance_spec: dict[str, Any] | None = None
    instance_count: int | None = None


class RecipeScheduler(Received):
    """The limits of a job."""

    max_running_time_in_seconds: int | None = None


class ModelRecipeSpec(Received):
    """The `TrainingSpec` of a model version, as it is read: an algorithm, and the values that fit the model.

    Example:
        >>> spec = ModelRecipeSpec.model_validate(
        ...     {"AlgorithmName": "digits", "HyperParameters": [{"Name": "lr", "Value": "0.1"}]})
        >>> spec.algorithm_name, spec.hyperparameters[0].value
        ('digits', '0.1')
    """

    algorithm_name: str | None = None
    algorithm_version: str | None = None
    algorithm_provider: str | None = None
    algorithm_spec: AlgorithmDefinition | None = None
    hyperparameters: NullableList[RecipeValue] = Field(default_factory=list, alias="HyperParameters")
    inputs: NullableList[RecipeInput] = Field(default_factory=list, alias="InputChannels")
    compute_resource: RecipeCompute | None = None
    scheduler: RecipeScheduler | None = None
    supported_instance_types: NullableList[str] = Field(default_factory=list)
    environments: dict[str, str] | None = None
    requirements: NullableList[str] = Field(default_factory=list)


def recipes_by_method(spec: Mapping[str, Any]) -> dict[str | None, Any]:
    """Returns the recipes of a model version, by their names; a single recipe has none."""
    return {None: spec} if any(name in spec for name in _ALGORITHM) else dict(spec.items())


def check_recipes(spec: Mapping[str, Any], where: str) -> None:
    """Checks recipes before they are registered; `where` is the author's name for them."""
    if not isinstance(spec, Mapping):
        raise InvalidInputError([wrong_type(where, spec, "a mapping")])
    problems = [
        problem
        for method, recipe in recipes_by_method(spec).items()
        for problem in _problems(recipe, where if method is None else f"{where}[{method!r}]")
    ]
    if problems:
        raise InvalidInputError(problems)


def check_model_uri(uri: str, where: str) -> None:
    """Checks the location of the files of a version before it is registered."""
    if "://" not in uri:
        raise InvalidInputError([Problem(where, f"{uri!r} is not a URI", "such as oss://bucket/folder/")])


def _problems(recipe: Any, where: str) -> Iterator[Problem]:
    if not isinstance(recipe, Mapping) or not any(recipe.get(name) for name in _ALGORITHM):
        yield Problem(where, "names no algorithm", "it needs an AlgorithmSpec or an AlgorithmName")
        return
    try:
        spec = ModelRecipeSpec.model_validate(recipe)
        if recipe.get("AlgorithmSpec"):
            AlgorithmSpec.model_validate(recipe["AlgorithmSpec"])
            yield from _wrong_values(spec, f"{where}.HyperParameters")
    except ValidationError as error:
        yield from problems_of(error, where)


def _wrong_values(spec: ModelRecipeSpec, where: str) -> Iterator[Problem]:
    """Yields the problems of values that no job can have; a missing required one can be a value of the job."""
    definitions = spec.algorithm_spec.hyperparameter_definitions if spec.algorithm_spec else []
    optional = [definition.model_copy(update={"required": False}) for definition in definitions]
    values = [
        HyperParameter(
            name=value.name, value=value.value if isinstance(value.value, str) else json.dumps(value.value)
        )
        for value in spec.hyperparameters
        if value.value is not None
    ]
    yield from hyperparameter_problems(optional, values, where)
