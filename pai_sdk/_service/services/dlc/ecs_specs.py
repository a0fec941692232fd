"""The instance types of a service: the machine that it runs jobs on."""

from __future__ import annotations

import os

import psutil

from pai_sdk._service.services.context import ServiceContext
from pai_sdk._service.services.dlc.problems import refuse_problems
from pai_sdk._service.services.jobs.host_resources import Capacity
from pai_sdk._wire.body import comma_list
from pai_sdk._wire.dlc.limits import DEFAULT_PAGE_SIZE
from pai_sdk._wire.dlc.resources.checks import page_problems
from pai_sdk._wire.dlc.resources.ecs_specs import EcsSpec, EcsSpecList, EcsSpecQuery

LOCAL_TYPE = "local"
"""The name of the one instance type."""

_GIB = 1 << 30


def find_specs(context: ServiceContext, query: EcsSpecQuery) -> EcsSpecList:
    """Returns a page of the instance types that a query selects."""
    refuse_problems(page_problems(query.page_number, query.page_size, query.order))
    names = comma_list(query.instance_types)
    specs = [
        spec
        for spec in [_machine(context)]
        if query.accelerator_type in (None, spec.accelerator_type)
        and query.resource_type in (None, spec.resource_type)
        and (not names or spec.instance_type in names)
    ]
    size = query.page_size or DEFAULT_PAGE_SIZE
    start = ((query.page_number or 1) - 1) * size
    return EcsSpecList(ecs_specs=specs[start : start + size], total_count=len(specs))


def _machine(context: ServiceContext) -> EcsSpec:
    capacity = Capacity.of(context.settings, context.executor)
    memory_gib = capacity.memory_gib or psutil.virtual_memory().total / _GIB
    return EcsSpec(
        instance_type=LOCAL_TYPE,
        accelerator_type="GPU" if capacity.gpus else "CPU",
        cpu=int(capacity.cpus or os.cpu_count() or 1),
        memory=int(memory_gib),
        gpu=capacity.gpus or 0,
        is_available=True,
        payment_types=["PostPaid"],
        resource_type="ECS",
    )
