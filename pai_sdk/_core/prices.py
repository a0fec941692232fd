"""The price list of a service: what an instance costs per hour."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from pai_sdk._core.names.hints import name_hint, wrong_type, wrong_value
from pai_sdk.errors import InvalidInputError, Problem

SPOT_SUFFIX = " spot"
"""Follows the name of an instance type in the key of the price of its spot instances."""

_KEYS = ("currency", "instance_types", "gpu", "cpu")
_MAX_CURRENCY = 12
_EXAMPLE = "such as {currency: CNY, instance_types: {ecs.gn7i-c8g1.2xlarge: 14.2}, gpu: 9.5, cpu: 0.3}"
_OTHER_GPU = "other"


@dataclass(frozen=True)
class PriceList:
    """Prices per hour. A price of 0 is a price: such instances are free.

    Attributes:
        currency: text behind a cost, such as `CNY`.
        instance_types: of an instance, by its type; `TYPE spot` is the price of a spot instance.
        gpus: of a GPU, by its type; `other` is for all types without a price of their own.
        cpu: of a CPU core; None if cores have no price.
    """

    currency: str = ""
    instance_types: Mapping[str, float] = field(default_factory=dict)
    gpus: Mapping[str, float] = field(default_factory=dict)
    cpu: float | None = None

    @classmethod
    def parse(cls, content: Any, where: Callable[[str], str]) -> PriceList:
        """Parses the content of a file; `where` locates a key. Raises InvalidInputError with all problems."""
        if not isinstance(content, Mapping):
            raise InvalidInputError([wrong_type(where(""), content, "a mapping", _EXAMPLE)])
        problems = [*_problems(content, where)]
        if problems:
            raise InvalidInputError(problems)
        gpu = content.get("gpu", {})
        gpus = gpu if isinstance(gpu, Mapping) else {_OTHER_GPU: gpu}
        types = content.get("instance_types", {})
        return cls(content.get("currency", ""), {**types}, {**gpus}, content.get("cpu"))

    def of_type(self, name: str, *, is_spot: bool, spot_limit: float | None) -> float | None:
        """Returns the price of an instance; `spot_limit` is the maximum part of the full price, 0 for no limit."""
        full = self.instance_types.get(name)
        if not is_spot:
            return full
        spot = self.instance_types.get(f"{name}{SPOT_SUFFIX}")
        if spot is not None or full is None or not spot_limit:
            return full if spot is None else spot
        return full * min(spot_limit, 1.0)

    def of_resources(self, cpus: float, gpus: int, gpu_type: str) -> float | None:
        """Returns the price of an instance by its resources; cores without a price are included in its GPUs."""
        gpu = self.gpus.get(gpu_type, self.gpus.get(_OTHER_GPU))
        if (gpus and gpu is None) or (not gpus and (not cpus or self.cpu is None)):
            return None
        return gpus * (gpu or 0.0) + cpus * (self.cpu or 0.0)


def _problems(content: Mapping[Any, Any], where: Callable[[str], str]) -> Iterator[Problem]:
    for key in content:
        if key not in _KEYS:
            yield Problem(where(str(key)), "is no key of a price list", name_hint(str(key), _KEYS))
    currency = content.get("currency", "")
    if not isinstance(currency, str) or len(currency) > _MAX_CURRENCY or not currency.isprintable():
        expected = f"a printable string of at most {_MAX_CURRENCY} characters"
        yield wrong_value(where("currency"), currency, expected, "such as CNY")
    types = content.get("instance_types", {})
    if isinstance(types, Mapping):
        yield from _price_problems(types, "instance_types", where)
    else:
        yield wrong_type(where("instance_types"), types, "a mapping of instance types to prices", _EXAMPLE)
    amounts = {key: content[key] for key in ("gpu", "cpu") if key in content}
    if isinstance(amounts.get("gpu"), Mapping):
        yield from _price_problems(cast(Mapping[Any, Any], amounts.pop("gpu")), "gpu", where)
    yield from _price_problems(amounts, "", where)
    if not any(content.get(key) not in (None, {}) for key in _KEYS[1:]):
        yield Problem(where(""), "has no price", _EXAMPLE)


def _price_problems(prices: Mapping[Any, Any], key: str, where: Callable[[str], str]) -> Iterator[Problem]:
    for name, price in prices.items():
        location = where(f"{key}[{str(name)!r}]" if key else str(name))
        if not isinstance(name, str) or not name.strip():
            yield wrong_value(location, name, "a name", "a name that is a number needs quotes")
        elif not isinstance(price, (int, float)) or isinstance(price, bool) or not 0 <= price < math.inf:
            yield wrong_value(location, price, "a price per hour", "a number, 0 or more")
