"""Instance types."""

from __future__ import annotations

from pydantic import Field

from pai_sdk._wire.body import Body, Boolean, Integer, Number, Query, String, Strings

__all__ = ["EcsSpec", "EcsSpecList", "EcsSpecQuery"]


class EcsSpecQuery(Query):
    """The parameters of ListEcsSpecs."""

    accelerator_type: String = None
    instance_types: String = None
    order: String = None
    page_number: Integer = None
    page_size: Integer = None
    resource_type: String = None
    sort_by: String = None


class EcsSpec(Body):
    """An instance type. The unit of its memory is not stated; programs read GiB."""

    instance_type: String = None
    cpu: Integer = None
    memory: Integer = None
    gpu: Integer = None
    accelerator_type: String = None
    default_gpu_driver: String = Field(default=None, alias="DefaultGPUDriver")
    gpu_memory: Integer = None
    gpu_type: String = None
    is_available: Boolean = None
    non_protect_spot_discount: Number = None
    payment_types: Strings = Field(default_factory=list)
    resource_type: String = None
    spot_stock_status: String = None
    supported_gpu_drivers: Strings = Field(default_factory=list, alias="SupportedGPUDrivers")


class EcsSpecList(Body):
    """A page of ListEcsSpecs."""

    keeps_empty = frozenset({"EcsSpecs", "ecs_specs"})

    ecs_specs: list[EcsSpec] = Field(default_factory=list)
    total_count: Integer = None
    request_id: String = None
