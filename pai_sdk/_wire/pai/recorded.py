"""Restores the request of a job from its record."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from pai_sdk._wire.pai.record import JobRecord
from pai_sdk._wire.pai.request import TrainingJobRequest
from pai_sdk._wire.pai.wire import problems_of
from pai_sdk.errors import InvalidInputError

_ONLY_OF_RECORDS = ("unknown_field", "extra_forbidden")
_OF_A_REGISTERED_ALGORITHM = ("AlgorithmName", "AlgorithmVersion", "AlgorithmProvider")
_MAX_PASSES = 20  # each removes fields that only records have, one level of nesting at a time


def recorded_fields(record: JobRecord) -> dict[str, Any]:
    """Returns the fields of a record that a request has too, by their names on the wire; without empty ones."""
    TrainingJobRequest.model_rebuild()  # before pydantic 2.12, fields of a deferred model have no alias until then
    names = {field.alias or name for name, field in TrainingJobRequest.model_fields.items()}
    recorded = record.model_dump(mode="json", by_alias=True, exclude_none=True)
    fields = {name: value for name, value in recorded.items() if name in names and value not in ([], {})}
    if "AlgorithmSpec" in fields and record.is_temp_algo is not False:
        return {name: value for name, value in fields.items() if name not in _OF_A_REGISTERED_ALGORITHM}
    if "AlgorithmName" in fields:
        fields.pop("AlgorithmSpec", None)
    return fields


def request_of(record: JobRecord) -> TrainingJobRequest:
    """Returns the request of a job, as far as its record has it; fields that a service adds are left out."""
    fields = recorded_fields(record)
    for _ in range(_MAX_PASSES):
        try:
            return TrainingJobRequest.model_validate(fields)
        except ValidationError as error:
            details = error.errors(include_url=False, include_input=False)
            unknown = [detail["loc"] for detail in details if detail["type"] in _ONLY_OF_RECORDS]
            if not unknown:
                raise InvalidInputError(problems_of(error, f"job {record.training_job_id}")) from None
            for location in unknown:
                _remove(fields, location)
    raise AssertionError("unreachable: each pass removes a level of fields")


def described_request(record: JobRecord) -> TrainingJobRequest:
    """Returns what a request can say of a job of another API; values that it cannot have are left out."""
    fields = {"ComputeResource": {}, **recorded_fields(record)}
    for _ in range(_MAX_PASSES):
        try:
            return TrainingJobRequest.model_validate(fields)
        except ValidationError as error:
            locations = [each["loc"][:-1] if each["type"] == "missing" else each["loc"] for each in error.errors()]
            if () in locations:
                raise InvalidInputError(problems_of(error, f"job {record.training_job_id}")) from None
            # From the end, so that the numbers of items before stay right.
            for location in reversed([*dict.fromkeys(each[:2] for each in locations)]):
                _remove(fields, location)
    raise AssertionError("unreachable: each pass removes values")


def _remove(fields: Any, location: tuple[int | str, ...]) -> None:
    for step in location[:-1]:
        fields = fields[step]
    fields.pop(location[-1], None)
