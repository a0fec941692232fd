"""What a training job can say and a job of DLC cannot, with what to use instead."""

from __future__ import annotations

from collections.abc import Iterator

from pai_sdk._client.backend.dlc.options import DlcOptions
from pai_sdk._wire.dlc.uris import MOUNTABLE, parse_oss
from pai_sdk._wire.pai.compute import SpotStrategy
from pai_sdk._wire.pai.request import TrainingJobRequest
from pai_sdk._wire.pai.spec import OssLocation
from pai_sdk.errors import Problem

_TRAINING_JOB = "leave out api='dlc': training jobs have it"


def request_problems(request: TrainingJobRequest, options: DlcOptions) -> list[Problem]:
    """Returns all reasons why a request cannot become a job of DLC."""
    return [
        *_field_problems(request, options),
        *_code_problems(request, options),
        *_channel_problems(request),
        *_spot_problems(request, options),
    ]


def _field_problems(request: TrainingJobRequest, options: DlcOptions) -> Iterator[Problem]:
    if request.algorithm_spec is None:
        yield Problem("algorithm", "a registered algorithm needs a training job", _TRAINING_JOB)
    if request.experiment_config is not None:
        yield Problem("experiment_config", "DLC jobs have no experiment", "use a label")
    if request.role_arn is not None:
        yield Problem("role_arn", "how DLC jobs take a role is not documented", _TRAINING_JOB)
    if request.credential_config is not None:
        yield Problem("credential_config", "how DLC jobs take keys is not documented", _TRAINING_JOB)
    settings = request.settings
    if settings is not None and settings.aimaster_type is not None:
        hint = "settings={'enable_error_monitoring_in_aimaster': True} starts an AIMaster"
        yield Problem("settings.aimaster_type", "has no effect in DLC jobs", hint)
    if settings is not None and settings.driver is not None and options.driver not in (None, settings.driver):
        yield Problem(
            "dlc.driver", f"conflicts with settings.driver, which is {settings.driver!r}", "give only one of them"
        )
    if request.assign_node_spec is not None and (options.node_names or options.avoid_nodes):
        yield Problem("dlc.node_names", "conflicts with assign_node_spec", "give only one of them")
    compute = request.compute_resource
    if compute.resource_id is None and compute.instance_spec is not None:
        yield Problem("resource_id", "is required", "instance_spec needs the id of a quota")
    if compute.resource_id is not None and compute.instance_spec is None and not request.roles:
        yield Problem("instance_spec", "is required", "a quota needs the size of its instances")


def _code_problems(request: TrainingJobRequest, options: DlcOptions) -> Iterator[Problem]:
    code = request.effective_code_dir
    if code is None:
        return
    if not isinstance(code.location_value, OssLocation):
        yield Problem("source_dir", f"code in {code.location_type!r} cannot be mounted", "give a folder")
    elif not code.location_value.key.endswith("/"):
        yield Problem("source_dir", "is a file, which is not unpacked for a DLC job", "give a folder")
    if options.code_source is not None and options.code_source.path in (None, "/ml/code"):
        hint = "give it a path of its own, such as '/mnt/code', or leave one of them out"
        yield Problem("dlc.code_source", "conflicts with source_dir", hint)


def _channel_problems(request: TrainingJobRequest) -> Iterator[Problem]:
    uris = [(f"inputs[{each.name!r}]", each.input_uri) for each in request.input_channels]
    uris += [(f"outputs[{each.name!r}]", each.output_uri) for each in request.output_channels]
    uris += [(f"mounts[{each.path!r}]", each.uri) for each in request.mounts or ()]
    for where, uri in uris:
        scheme = (uri or "oss:").partition(":")[0]
        if scheme == "odps":
            hint = "pass its URI in a variable, and read it with a client of MaxCompute; or use a training job"
            yield Problem(where, "a table of MaxCompute cannot be mounted", hint)
        elif scheme not in MOUNTABLE:
            yield Problem(where, f"{scheme}:// cannot be mounted", f"these can: {', '.join(MOUNTABLE)}")
        elif uri is not None and scheme == "oss" and parse_oss(uri) is None:
            yield Problem(where, "names no bucket", "such as oss://bucket/folder/")


def _spot_problems(request: TrainingJobRequest, options: DlcOptions) -> Iterator[Problem]:
    spot = request.compute_resource.spot_spec
    if spot is None:
        if options.spot_price_per_minute is not None:
            hint = "give spot_spec={'spot_strategy': 'SpotWithPriceLimit'} with it"
            yield Problem("dlc.spot_price_per_minute", "requires spot_spec", hint)
        return
    if spot.spot_strategy is SpotStrategy.SpotAsPriceGo:
        yield Problem(
            "spot_spec.spot_strategy", "SpotAsPriceGo is not available for DLC jobs", "use SpotWithPriceLimit"
        )
    instance_type = request.compute_resource.ecs_spec or ""
    if spot.spot_discount_limit is not None and not instance_type.startswith("ml."):
        hint = "dlc=DlcOptions(spot_price_per_minute=…) limits the price of other types"
        yield Problem("spot_spec.spot_discount_limit", "applies only to Lingjun types (`ml.…`)", hint)
