"""Recipes: jobs that train, evaluate or compress a registered model, as its version describes them."""

from __future__ import annotations

import logging
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from pai_sdk._client.session.default import session_or_default
from pai_sdk._client.submit.algorithm_estimator import AlgorithmEstimator, describe_algorithm
from pai_sdk._client.submit.parameters import Description, JobParameters
from pai_sdk._client.submit.registered import AlgorithmChoice, explicit_algorithm, registered_algorithm
from pai_sdk._client.submit.submitter import EstimatorBase, training_outputs
from pai_sdk._core.names.hints import name_hint
from pai_sdk._core.names.keywords import checks_keywords, init_checks_keywords
from pai_sdk._core.paths import parse_path
from pai_sdk._core.short_traceback import short_tracebacks
from pai_sdk._data.storage.transfer import unpack
from pai_sdk._data.storage.uri import OssUri, is_remote_uri
from pai_sdk._wire.base import wire_name, wire_names
from pai_sdk._wire.models import ModelVersionRecord
from pai_sdk._wire.pai.definitions import AlgorithmDefinition, ChannelDefinition, ParameterDefinition
from pai_sdk._wire.pai.recipes import ModelRecipeSpec, RecipeCompute, RecipeScheduler, recipes_by_method
from pai_sdk._wire.pai.spec import Channel
from pai_sdk._wire.pai.wire import problems_of
from pai_sdk._wire.requests import RecordedCode
from pai_sdk.errors import InvalidInputError, Problem

if TYPE_CHECKING:
    from pai_sdk._client.backend.base import Plan
    from pai_sdk._client.job.training_job import TrainingJob
    from pai_sdk._client.session import Session
    from pai_sdk._client.submit.channels import InputSource, OutputTarget

logger = logging.getLogger(__name__)

_MAX_BASE_LENGTH = 40
_ChannelLike = Channel | ChannelDefinition | Mapping[str, Any]


class ModelRecipeType(str, Enum):
    """The kinds of recipes that a model version may have."""

    TRAINING = "training"
    EVALUATION = "evaluation"
    COMPRESSION = "compression"

    @classmethod
    def supported_types(cls) -> list[ModelRecipeType]:
        """All of them."""
        return list(cls)


@short_tracebacks
@init_checks_keywords
@dataclass(repr=False, eq=False)
class ModelRecipe(EstimatorBase):
    """Trains, evaluates or compresses a registered model; `ModelTrainingRecipe` is the one for training.

    The recipe is read from the model version when the object is made. Parameters that are not given have its
    values afterwards, and can be read and changed: `hyperparameters`, `default_inputs`, `instance_type` and more.

    All parameters of `JobParameters` are taken too, by name: `instance_type`, `environments`, `requirements`,
    `max_run_time`, `output_path`, `labels`, `session` and more. All of them are shown by
    `help(pai_sdk.jobs.JobParameters)`.

    Attributes:
        model_name: the exact name of a registered model; None for a recipe of your own, which then needs
            `image_uri` and `command`.
        model_version: of it; the newest one when None.
        model_provider: whose it is: `pai` for the models that PAI itself offers; None for the workspace's.
        model_uri: the files that the job starts from; those of the version when None.
        method: which of several recipes, such as `LoRA`; the first one when None.
        source_dir: folder with the code, here or in OSS; the recipe's when None.
        model_channel_name: the input channel that gets `model_uri`.
        hyperparameters: maps names to values; they replace the recipe's, one by one.
        job_type: `PyTorchJob`, `TFJob`, …; the recipe's when None.
        image_uri: the image the command runs in; the recipe's when None.
        command: what runs; the recipe's when None.
        recipe_type: `training`, `evaluation` or `compression`.
        input_channels: the defined inputs; the recipe's when None.
        output_channels: the defined outputs; the recipe's when None.
        default_inputs: channel to source, for jobs that are given no data; the recipe's when None.
        supported_instance_types: the types of instances it runs on; the recipe's when None.
        instance_count: how many instances work on a job; the recipe's when 0.
        allow_secrets: take files along that look like keys (`.env`, `*.pem`).

    Example:
        >>> recipe = ModelRecipe("digits", recipe_type="evaluation")  # doctest: +SKIP
        >>> job = recipe.run({"test": "test.csv"})  # doctest: +SKIP
    """

    model_name: str | None = None
    model_version: str | None = None
    model_provider: str | None = None
    model_uri: str | None = None
    method: str | None = None
    source_dir: str | os.PathLike[str] | None = None
    model_channel_name: str = "model"
    hyperparameters: Mapping[str, Any] | None = None
    job_type: str | None = None
    image_uri: str | None = None
    command: str | Sequence[str] | None = None
    recipe_type: ModelRecipeType | str = field(default=ModelRecipeType.TRAINING, kw_only=True)
    input_channels: Sequence[_ChannelLike] | None = field(default=None, kw_only=True)
    output_channels: Sequence[_ChannelLike] | None = field(default=None, kw_only=True)
    default_inputs: Mapping[str, InputSource] | None = field(default=None, kw_only=True)
    supported_instance_types: Sequence[str] | None = field(default=None, kw_only=True)
    instance_count: int = field(default=0, kw_only=True)
    allow_secrets: bool = field(default=False, kw_only=True)
    _algorithm: AlgorithmChoice | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if self.method in list(ModelRecipeType):  # alipai has it at this position
            raise InvalidInputError([Problem("method", "is a type of recipes", f"recipe_type={self.method!r}")])
        if self.model_name is not None:
            self._apply_version()
        self.instance_count = self.instance_count or 1

    @property
    def hyperparameter_definitions(self) -> Sequence[ParameterDefinition]:
        """The hyperparameters that the recipe takes: type, default, range."""
        return [] if self._algorithm is None else self._algorithm.definition.hyperparameter_definitions

    @property
    def customization(self) -> dict[str, Any] | None:
        """What of the algorithm may be replaced."""
        return None if self._algorithm is None else self._algorithm.definition.customization

    @checks_keywords
    def plan(
        self,
        inputs: Mapping[str, InputSource] | None = None,
        outputs: Mapping[str, OutputTarget] | None = None,
        *,
        job_name: str | None = None,
    ) -> Plan:
        """The exact request of a job, as `JobSubmitter.plan` describes it.

        The model is an input of it. Without other inputs, the job gets `default_inputs`.
        """
        return super().plan(self._with_defaults(inputs), outputs, job_name=job_name)

    @checks_keywords
    def run(
        self,
        inputs: Mapping[str, InputSource] | None = None,
        outputs: Mapping[str, OutputTarget] | None = None,
        wait: bool = True,
        job_name: str | None = None,
        show_logs: bool = True,
    ) -> TrainingJob:
        """Submit a job; parameters, result and errors are those of `fit`."""
        return self.fit(inputs, outputs, wait=wait, job_name=job_name, show_logs=show_logs)

    def retrieve_scripts(self, local_path: str | os.PathLike[str]) -> str:
        """Fetch the recipe's code into a local folder; an archive is unpacked.

        Args:
            local_path: the folder, made when missing.

        Returns:
            The folder.

        Raises:
            InvalidInputError: the recipe has no code of its own, or it is a local folder already.
            StorageError: the code is not where the recipe says.
        """
        if not (isinstance(self.source_dir, str) and is_remote_uri(self.source_dir)):
            message = (
                "has no code in OSS"
                if self.source_dir is None
                else f"has its code on this machine: {self.source_dir}"
            )
            raise InvalidInputError([Problem("source_dir", f"the recipe {message}", "")])
        folder = parse_path(local_path, "local_path")
        session = session_or_default(self.session, local=False)
        if not self.source_dir.endswith(".tar.gz"):
            folder.mkdir(parents=True, exist_ok=True)
            session.download(self.source_dir, folder)
            return str(folder)
        with tempfile.TemporaryDirectory(prefix="pai-recipe-") as fetched:
            unpack(session.download(self.source_dir, Path(fetched)), folder)
        return str(folder)

    def as_estimator(self) -> AlgorithmEstimator:
        """An estimator of the recipe's algorithm, with the hyperparameters and the hardware of this recipe.

        Raises:
            InvalidInputError: the recipe is one of your own, without image or command.
        """
        algorithm = self._choice()
        shared = {parameter.name: getattr(self, parameter.name) for parameter in fields(JobParameters)}
        if algorithm.spec is not None:
            algorithm_arguments: dict[str, Any] = {"algorithm_spec": algorithm.spec}
        else:
            names = ("algorithm_name", "algorithm_version", "algorithm_provider")
            values = (algorithm.name, algorithm.version, algorithm.provider)
            algorithm_arguments = dict(zip(names, values, strict=True))
        return AlgorithmEstimator(
            **algorithm_arguments,
            **shared,
            hyperparameters=self.hyperparameters,
            source_dir=self.source_dir if self._replaces_code() else None,
            allow_secrets=self.allow_secrets,
        )

    def describe(self) -> Description:
        """The description of the recipe's jobs."""
        source_dir = self.source_dir if self._replaces_code() else None
        return describe_algorithm(
            self._choice(), self.instance_type, self.hyperparameters, source_dir, allow_secrets=self.allow_secrets
        )

    # ---- what the model version says

    def _apply_version(self) -> None:
        """Sets the parameters without a value from the model version."""
        session = session_or_default(self.session, local=False)
        which = (str(self.model_name), self.model_version, self.model_provider)
        model, version = session.models.find_version(*which)
        self.model_version, self.model_provider = version.version_name, model.provider
        self.recipe_type = _type_of(self.recipe_type)
        spec = recipe_spec(version, self.recipe_type, self.method, str(self.model_name))
        self._algorithm = _algorithm_of(spec, session, str(self.model_name))
        sources = {channel.name: source for channel in spec.inputs if (source := channel.source) is not None}
        self.model_uri = self.model_uri or version.uri or sources.get(self.model_channel_name)
        if self.default_inputs is None:
            self.default_inputs = sources
        self._apply_values(spec)
        self._apply_definition(self._algorithm.definition)
        base = re.sub(r"[^A-Za-z0-9]+", "-", f"{self.model_name}").strip("-")[:_MAX_BASE_LENGTH]
        self.base_job_name = self.base_job_name or f"{base or 'model'}-{self.recipe_type.value}"

    def _apply_values(self, spec: ModelRecipeSpec) -> None:
        compute, scheduler = spec.compute_resource or RecipeCompute(), spec.scheduler or RecipeScheduler()
        if self.resource_id is not None:
            self.instance_spec = self.instance_spec or compute.instance_spec
        elif self.instance_type is None and self.instance_spec is None:
            self.instance_type = compute.ecs_spec or next(iter(spec.supported_instance_types), None)
        count = compute.instance_count if self.resource_id else compute.ecs_count
        self.instance_count = self.instance_count or count or 1
        self.max_run_time = self.max_run_time or scheduler.max_running_time_in_seconds
        self.requirements = self.requirements or spec.requirements or None
        self.environments = self.environments or spec.environments
        self.supported_instance_types = self.supported_instance_types or spec.supported_instance_types
        values = {value.name: value.value for value in spec.hyperparameters}
        self.hyperparameters = {**values, **(self.hyperparameters or {})}

    def _apply_definition(self, definition: AlgorithmDefinition) -> None:
        self.image_uri = self.image_uri or definition.image
        self.command = self.command or definition.command
        self.job_type = self.job_type or definition.job_type
        self.source_dir = self.source_dir or _uri_of(definition.code_dir)
        if self.input_channels is None:
            self.input_channels = definition.input_channels
        if self.output_channels is None:
            self.output_channels = definition.output_channels or training_outputs()
        self.supported_instance_types = self.supported_instance_types or definition.supported_instance_types
        defaults = {
            parameter.name: parameter.default_value
            for parameter in definition.hyperparameter_definitions
            if parameter.default_value not in (None, "")
        }
        self.hyperparameters = {**defaults, **(self.hyperparameters or {})}

    # ---- what a job gets

    def _with_defaults(self, inputs: Mapping[str, InputSource] | None) -> dict[str, InputSource]:
        sources = dict(inputs or {})
        channel, names = (
            self.model_channel_name,
            {_name_of(definition) for definition in self.input_channels or ()},
        )
        if self.model_uri is not None and (not names or channel in names):
            sources.setdefault(channel, self.model_uri)
        return sources if sources.keys() - {channel} else {**(self.default_inputs or {}), **sources}

    def _choice(self) -> AlgorithmChoice:
        algorithm = self._algorithm
        if algorithm is None or self._differs_from(algorithm.definition):
            return self._merged_algorithm(algorithm)
        return algorithm

    def _replaces_code(self) -> bool:
        """Returns whether the user has replaced the recipe's code."""
        recipes = None if self._algorithm is None else _uri_of(self._algorithm.definition.code_dir)
        return self.source_dir is not None and self.source_dir != recipes

    def _differs_from(self, definition: AlgorithmDefinition) -> bool:
        """Returns whether the user has replaced a part of the recipe's algorithm."""
        return self._replaces_code() or any(
            value != default
            for value, default in (
                (self.image_uri, definition.image),
                (self.command, definition.command),
                (self.job_type, definition.job_type),
                (self.input_channels, definition.input_channels),
                (self.output_channels, definition.output_channels),
            )
        )

    def _merged_algorithm(self, algorithm: AlgorithmChoice | None) -> AlgorithmChoice:
        """Returns the algorithm with the parts that the user has replaced."""
        missing = [name for name in ("image_uri", "command") if not getattr(self, name)]
        if missing:
            hint = "give it, or the model_name of a registered model with a recipe"
            raise InvalidInputError([Problem(name, "is required", hint) for name in missing])
        base_spec = None if algorithm is None else algorithm.with_full_spec().spec
        if base_spec is not None and self._replaces_code():
            base_spec = base_spec.model_copy(update={"code_dir": None})
        changes = wire_names(
            image=self.image_uri,
            command=["sh", "-c", self.command] if isinstance(self.command, str) else self.command,
            job_type=self.job_type or "PyTorchJob",
            input_channels=[_wire_channel(channel) for channel in self.input_channels or ()],
            output_channels=[_wire_channel(channel) for channel in self.output_channels or training_outputs()],
        )
        return explicit_algorithm({**(base_spec.to_wire() if base_spec else {}), **changes})


@short_tracebacks
@init_checks_keywords
@dataclass(repr=False, eq=False)
class ModelTrainingRecipe(ModelRecipe):
    """Trains a registered model further, by the training recipe of its version.

    The parameters are those of `ModelRecipe`. The job is like every other: log, metrics, outputs, `job.stop()`.

    Example:
        >>> recipe = ModelTrainingRecipe("digits", hyperparameters={"epochs": 3})  # doctest: +SKIP
        >>> job = recipe.train({"train": "digits.csv"})  # doctest: +SKIP
        >>> recipe.model_data()  # doctest: +SKIP
        'oss://models/pai/training_job/digits-training-x7k2/model/'
    """

    @checks_keywords
    def train(
        self,
        inputs: Mapping[str, InputSource] | None = None,
        outputs: Mapping[str, OutputTarget] | None = None,
        wait: bool = True,
        job_name: str | None = None,
        show_logs: bool = True,
    ) -> TrainingJob:
        """Submit a training job.

        Args:
            inputs: maps each input channel to its data: a URI, a local file or folder, a dataset. Without any,
                `default_inputs`. The model is an input in both cases.
            outputs: maps each output channel to its destination, for those without the default target.
            wait: return when the job has ended, not when it is submitted.
            job_name: the job's name; otherwise a readable one that begins with `base_job_name`.
            show_logs: show status and log while waiting.

        Returns:
            The job; it has succeeded when it was waited for.

        Raises:
            PaiError: as `plan` and `submit`.
        """
        return self.run(inputs, outputs, wait=wait, job_name=job_name, show_logs=show_logs)


def recipe_spec(
    version: ModelVersionRecord, recipe_type: ModelRecipeType | str, method: str | None, name: str
) -> ModelRecipeSpec:
    """Returns the recipe of a version of the model `name`; without `method`, the first of several."""
    kind = _type_of(recipe_type).value
    specs = {
        "training": version.training_spec,
        "evaluation": version.evaluation_spec,
        "compression": version.compression_spec,
    }
    spec = specs[kind]
    version_title = f"version {version.version_name} of the model {name!r}"
    if not spec:
        hint = f"register a version with one: session.models.create_version(…, {kind}_spec=…)"
        raise InvalidInputError([Problem("model_name", f"{version_title} has no {kind} recipe", hint)])
    recipes = recipes_by_method(spec)
    if None in recipes and method is not None:
        raise InvalidInputError(
            [Problem("method", f"{version_title} has one {kind} recipe, without a name", "leave it out")]
        )
    chosen = method or next(iter(recipes))
    if chosen not in recipes:
        message = f"{version_title} has no {kind} recipe {method!r}"
        raise InvalidInputError([Problem("method", message, name_hint(str(chosen), [*spec], max_names=len(spec)))])
    if method is None and len(recipes) > 1:
        logger.warning("%s has several %s recipes: %s; %r is used", version_title, kind, ", ".join(spec), chosen)
    try:
        return ModelRecipeSpec.model_validate(recipes[chosen])
    except ValidationError as error:
        raise InvalidInputError(problems_of(error, f"the {kind} recipe of {name!r}")) from None


def _type_of(value: ModelRecipeType | str) -> ModelRecipeType:
    names = [member.value for member in ModelRecipeType]
    if value not in names:
        raise InvalidInputError([Problem("recipe_type", f"unknown value {value!r}", name_hint(str(value), names))])
    return ModelRecipeType(value)


def _algorithm_of(spec: ModelRecipeSpec, session: Session, model: str) -> AlgorithmChoice:
    """Returns the algorithm of a recipe."""
    if spec.algorithm_spec is not None:
        return AlgorithmChoice(spec.algorithm_spec, name=f"recipe of {model}").with_full_spec()
    if spec.algorithm_name is None:
        message = f"the recipe of {model!r} names no algorithm"
        raise InvalidInputError([Problem("model_name", message, "it needs an AlgorithmName or an AlgorithmSpec")])
    key = (spec.algorithm_name, spec.algorithm_version, spec.algorithm_provider)
    return registered_algorithm(session.algorithms, *key)


def _uri_of(code_dir: Mapping[str, Any] | None) -> str | None:
    """Returns the URI of a code folder in OSS."""
    location = RecordedCode.model_validate(code_dir or {}).location_value
    if location is None or not location.bucket:
        return None
    return str(OssUri(location.bucket, (location.key or "").lstrip("/"), location.endpoint))


def _wire_channel(channel: _ChannelLike) -> Any:
    if isinstance(channel, Channel):
        return channel.to_wire()
    return dict(channel) if isinstance(channel, Mapping) else channel.model_dump(by_alias=True, exclude_none=True)


def _name_of(channel: _ChannelLike) -> str:
    if isinstance(channel, Mapping):
        return str(channel.get(wire_name("name")) or channel.get("name"))
    return channel.name
