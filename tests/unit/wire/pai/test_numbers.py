"""Numbers in strings: what JSON refuses as a number is refused as a string, too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

import pytest
from pydantic import BeforeValidator

import pai_sdk._wire.pai.request  # noqa: F401 - all models that are sent
from pai_sdk._service.services.jobs.reading import read_model
from pai_sdk._service.wire_errors import WireError
from pai_sdk._wire.pai.compute import ComputeResource, SchedulerConfig, SpotSpec
from pai_sdk._wire.pai.numbers import checked_number
from pai_sdk._wire.pai.spec import RangeFields
from pai_sdk._wire.pai.wire import Sent
from pai_sdk.errors import InvalidInputError

NO_NUMBERS = ["nan", "NaN", "Infinity", "-inf", "1_0", "1e999", "٣", "0x10", "9" * 40, "9" * 500, "", True]


@pytest.mark.parametrize("value", [*NO_NUMBERS, float("nan"), float("inf"), 2**63, -1, "-1"])
def test_a_limit_is_a_finite_number(value: object) -> None:
    with pytest.raises(InvalidInputError) as refused:
        SpotSpec(spot_strategy="SpotWithPriceLimit", spot_discount_limit=value)
    assert [problem.where for problem in refused.value.problems] == ["SpotSpec.spot_discount_limit"]


@pytest.mark.parametrize("value", [*NO_NUMBERS, 2**63, "1.5"])
def test_a_count_is_a_whole_number_of_64_bits(value: object) -> None:
    with pytest.raises(InvalidInputError):
        ComputeResource(ecs_spec="ecs.a", ecs_count=value)
    with pytest.raises(InvalidInputError):
        SchedulerConfig(max_running_time_in_seconds=value)


@pytest.mark.parametrize(("value", "number"), [("0.5", 0.5), (" 1e-1 ", 0.1), (1, 1.0), (None, None)])
def test_numbers_in_strings_are_numbers(value: object, number: float | None) -> None:
    assert SpotSpec(spot_strategy="SpotWithPriceLimit", spot_discount_limit=value).spot_discount_limit == number


@pytest.mark.parametrize("value", [text for text in NO_NUMBERS if text != ""])
def test_the_service_refuses_them(value: object) -> None:
    body = {"SpotSpec": {"SpotStrategy": "SpotWithPriceLimit", "SpotDiscountLimit": value}}
    for wrong in (body, {"EcsCount": value}):
        with pytest.raises(WireError) as refused:
            read_model(ComputeResource, wrong)
        assert refused.value.status_code == 400


def models_of(model: type[Sent]) -> Iterator[type[Sent]]:
    for each in model.__subclasses__():
        yield each
        yield from models_of(each)


def numbers_in(annotation: Any) -> bool:
    return annotation in (int, float) or any(map(numbers_in, get_args(annotation)))


def checks_in(annotation: Any) -> Iterator[object]:
    for part in (annotation, *getattr(annotation, "__metadata__", ())):
        if isinstance(part, BeforeValidator):
            yield part.func
    for part in get_args(annotation):
        yield from checks_in(part)


def test_every_number_that_is_sent_is_checked() -> None:
    """A new field with `int` or `float` alone would read `nan` and `1_0` from a string."""
    unchecked = [
        f"{model.__name__}.{name}"
        for model in models_of(Sent)
        for name, field in model.model_fields.items()
        if name not in RangeFields.model_fields  # shared with what is received
        and numbers_in(field.annotation)
        and checked_number
        not in {*checks_in(field.annotation), *(getattr(m, "func", None) for m in field.metadata)}
    ]
    assert unchecked == []


def test_numbers_and_their_strings_are_returned_unchanged() -> None:
    values = ("10", 0.5, None)
    assert tuple(map(checked_number, values)) == values
