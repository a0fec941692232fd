"""The algorithm of a job: registered under a name, or a complete spec."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from pai_sdk._client.api.algorithms import Algorithms
from pai_sdk._client.backend.specs import backend_for_type
from pai_sdk._client.submit.problems import Problems
from pai_sdk._core.names.hints import name_hint
from pai_sdk._wire.algorithms import AlgorithmVersionRecord
from pai_sdk._wire.pai.definitions import (
    AlgorithmDefinition,
    hyperparameter_problems,
    instance_problems,
    with_defaults,
)
from pai_sdk._wire.pai.spec import AlgorithmSpec, Channel, CodeDir, HyperParameter
from pai_sdk._wire.pai.wire import problems_of
from pai_sdk.errors import InvalidInputError, NotFoundError, Problem


@dataclass(frozen=True)
class AlgorithmChoice:
    """The algorithm that a job runs, and its checks of the job."""

    definition: AlgorithmDefinition  # the spec as it is read, by which a job is checked
    spec: AlgorithmSpec | None = None  # as it is sent; None for a registered algorithm: only its name is sent
    name: str | None = None
    version: str | None = None  # of a registered one always set, so that the same plan is the same job
    provider: str | None = None  # owner of the algorithm

    @property
    def command(self) -> Sequence[str]:
        """Returns the command."""
        return self.definition.command

    @property
    def usual_instance_type(self) -> str | None:
        """Returns the first supported instance type."""
        return next(iter(self.definition.supported_instance_types), None)

    def with_full_spec(self) -> AlgorithmChoice:
        """Returns the choice with its full spec, for local jobs, which have no registered algorithms."""
        if self.spec is not None:
            return self
        try:
            spec = AlgorithmSpec.model_validate(self.definition.model_dump(by_alias=True, exclude_none=True))
        except ValidationError as error:
            # The service does not return all of it, or it has parts that this release does not support.
            raise InvalidInputError(problems_of(error, f"the spec of {self.name!r}")) from None
        return replace(self, spec=spec)

    def hyperparameters(
        self, explicit: Sequence[HyperParameter], where: str, problems: Problems
    ) -> list[HyperParameter]:
        """Returns the explicit values and the defaults of the others, checked against the definitions."""
        definitions = self.definition.hyperparameter_definitions
        values = with_defaults(definitions, explicit)
        problems.entries += hyperparameter_problems(definitions, values, where)
        return values

    def check_instances(self, instance_type: str | None, instance_count: int, problems: Problems) -> None:
        """Checks that the algorithm supports the instances."""
        names = ("instance_type", "instance_count")
        rented = None if backend_for_type(instance_type).is_local else instance_type
        problems.entries += instance_problems(self.definition, rented, instance_count, names)

    def fields(
        self,
        code_dir: CodeDir | None,
        inputs: Sequence[Channel],
        outputs: Sequence[Channel],
        problems: Problems,
    ) -> Mapping[str, Any]:
        """Returns the fields of the request that define the algorithm."""
        has_code = self.definition.code_dir is not None or self.spec is None
        if code_dir is not None and has_code and not self.definition.takes_code:
            problems.add("source_dir", "the algorithm has code of its own, and takes no other", "leave it out")
        if self.spec is None:
            return {
                "algorithm_name": self.name,
                "algorithm_version": self.version,
                "algorithm_provider": self.provider,
                "code_dir": code_dir,
            }
        complete = {
            "code_dir": self.spec.code_dir if has_code else code_dir,
            "input_channels": self.spec.input_channels or list(inputs),
            "output_channels": self.spec.output_channels or list(outputs),
        }
        return {
            "algorithm_spec": self.spec.model_copy(update=complete),
            "code_dir": code_dir if has_code else None,
        }


def explicit_algorithm(spec: AlgorithmSpec | Mapping[str, Any]) -> AlgorithmChoice:
    """Returns the algorithm of a complete spec; reports what is wrong with the spec."""
    try:
        checked = AlgorithmSpec.model_validate(spec)
    except ValidationError as error:
        raise InvalidInputError(problems_of(error, "algorithm_spec")) from None
    return AlgorithmChoice(AlgorithmDefinition.of(checked), spec=checked)


def registered_algorithm(
    algorithms: Algorithms, name: str | None, version: str | None, provider: str | None
) -> AlgorithmChoice:
    """Requests a registered algorithm; without a version, the one that was created last."""
    algorithm = algorithms.find(str(name), provider)
    record = _version(algorithms, algorithm.algorithm_id, name, version)
    if record.algorithm_spec is None:
        raise InvalidInputError(
            [Problem("algorithm_name", f"the service does not show the spec of {name!r}", "ask its provider")]
        )
    provider = algorithm.algorithm_provider or provider
    return AlgorithmChoice(record.algorithm_spec, name=name, version=record.algorithm_version, provider=provider)


def _version(
    algorithms: Algorithms, algorithm_id: str, name: str | None, number: str | None
) -> AlgorithmVersionRecord:
    if number is None:
        latest = algorithms.latest_version(algorithm_id)
        if latest is None:
            raise InvalidInputError([Problem("algorithm_name", f"the algorithm {name!r} has no version yet")])
        number = latest.algorithm_version
    try:
        return algorithms.get_version(algorithm_id, number)
    except NotFoundError:
        available = [record.algorithm_version for record in algorithms.list_versions(algorithm_id)]
        message = f"the algorithm {name!r} has no version {number!r}"
        raise InvalidInputError([Problem("algorithm_version", message, name_hint(number, available))]) from None
