"""AlgorithmEstimator: a training job of an algorithm that is registered, or given as a whole spec."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pai_sdk._client.backend.specs import backend_for_type
from pai_sdk._client.submit.parameters import Description
from pai_sdk._client.submit.submitter import EstimatorBase
from pai_sdk._core.names.hints import wrong_type
from pai_sdk._core.names.keywords import init_checks_keywords
from pai_sdk._core.short_traceback import short_tracebacks
from pai_sdk.errors import InvalidInputError, Problem

if TYPE_CHECKING:
    from pai_sdk._client.submit.registered import AlgorithmChoice
    from pai_sdk._wire.pai.definitions import ChannelDefinition, ParameterDefinition
    from pai_sdk._wire.pai.spec import AlgorithmSpec


@short_tracebacks
@init_checks_keywords
@dataclass(repr=False, eq=False)
class AlgorithmEstimator(EstimatorBase):
    """Trains with a predefined algorithm: image, command, channels, hyperparameters.

    What the algorithm says of hyperparameters, inputs and instance types is checked before anything is sent.
    Without an `instance_type`, the first one that the algorithm supports is taken.

    All parameters of `JobParameters` are taken too, by name: `instance_type`, `instance_count`, `environments`,
    `requirements`, `max_run_time`, `output_path`, `labels`, `session` and more. All of them are shown by
    `help(pai_sdk.jobs.JobParameters)`.

    An algorithm given by name is asked for once, with the first `plan()` or `fit()` or when its definitions are
    looked at, and kept on this object: that needs the network, but uploads nothing. An `algorithm_spec` needs no
    network.

    Attributes:
        algorithm_name: the exact name of a registered algorithm.
        algorithm_version: of it; the version that was created last, when None.
        algorithm_provider: whose it is: `pai` for the algorithms that PAI itself offers; None for the workspace's.
        algorithm_spec: the whole algorithm, instead of the three above.
        hyperparameters: values by name; those left out take the algorithm's defaults, which `plan()` shows.
        source_dir: folder with code of your own, for an algorithm that has none or lets it be replaced.
        allow_secrets: upload files that look like keys, too (`.env`, `*.pem`).

    Example:
        >>> estimator = AlgorithmEstimator("digits", "v1", hyperparameters={"epochs": 3})
        >>> estimator.set_hyperparameters(lr=0.1)
        >>> estimator.hyperparameters
        {'epochs': 3, 'lr': 0.1}
    """

    algorithm_name: str | None = None
    algorithm_version: str | None = None
    algorithm_provider: str | None = None
    algorithm_spec: AlgorithmSpec | Mapping[str, Any] | None = None
    hyperparameters: Mapping[str, Any] | None = None
    source_dir: str | os.PathLike[str] | None = field(default=None, kw_only=True)
    allow_secrets: bool = field(default=False, kw_only=True)
    _fetched: dict[tuple[str | None, ...], AlgorithmChoice] = field(default_factory=dict, init=False)

    # ---- what the algorithm says

    @property
    def hyperparameter_definitions(self) -> Sequence[ParameterDefinition]:
        """The hyperparameters the algorithm takes: type, default, range."""
        return self._algorithm().definition.hyperparameter_definitions

    @property
    def input_channel_definitions(self) -> Sequence[ChannelDefinition]:
        """The inputs it takes."""
        return self._algorithm().definition.input_channels

    @property
    def output_channel_definitions(self) -> Sequence[ChannelDefinition]:
        """The outputs it has."""
        return self._algorithm().definition.output_channels

    @property
    def supported_instance_types(self) -> Sequence[str]:
        """The types of public instances it runs on, the usual one first; empty for any."""
        return self._algorithm().definition.supported_instance_types

    def describe(self) -> Description:
        """The description of the algorithm's jobs."""
        return describe_algorithm(
            self._algorithm(),
            self.instance_type,
            self.hyperparameters,
            self.source_dir,
            allow_secrets=self.allow_secrets,
        )

    def _algorithm(self) -> AlgorithmChoice:
        """Returns the algorithm; requested at the first call."""
        self._check_which()
        from pai_sdk._client.submit import registered  # for weight: it needs pydantic

        if self.algorithm_spec is not None:
            return registered.explicit_algorithm(self.algorithm_spec)
        key = (self.algorithm_name, self.algorithm_version, self.algorithm_provider)
        if key not in self._fetched:
            self._fetched[key] = registered.registered_algorithm(self.resolved_session().algorithms, *key)
        return self._fetched[key]

    def _check_which(self) -> None:
        names = ("algorithm_name", "algorithm_version", "algorithm_provider")
        explicit = {name: value for name in names if (value := getattr(self, name)) is not None}
        problems = [
            wrong_type(name, value, "a string that is not empty")
            for name, value in explicit.items()
            if not isinstance(value, str) or not value.strip()
        ]
        if self.algorithm_spec is not None:
            problems += [
                Problem(name, "conflicts with algorithm_spec", "give only one of them") for name in explicit
            ]
        elif self.algorithm_name is None:
            hint = "the name of a registered algorithm, or algorithm_spec with a whole one"
            problems.append(Problem("algorithm_name", "is required", hint))
        if problems:
            raise InvalidInputError(problems)


def describe_algorithm(
    algorithm: AlgorithmChoice,
    instance_type: str | None,
    hyperparameters: Mapping[str, Any] | None,
    source_dir: str | os.PathLike[str] | None,
    *,
    allow_secrets: bool,
) -> Description:
    """Returns the description of jobs that run an algorithm; `source_dir` is code that is not part of it."""
    if backend_for_type(instance_type).is_local:
        algorithm = algorithm.with_full_spec()
    definition = algorithm.definition
    return Description(
        hyperparameters=hyperparameters,
        input_channels=[channel.as_channel() for channel in definition.input_channels],
        output_channels=[channel.as_channel() for channel in definition.output_channels],
        source_dir=source_dir,
        allow_secrets=allow_secrets,
        algorithm=algorithm,
    )
