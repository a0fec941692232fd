"""Plans a job from its parameters: hashes and checks, without network and upload."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from pai_sdk._client.backend.base import Backend, Plan, Upload
from pai_sdk._client.backend.specs import checked_api
from pai_sdk._client.code.contract_use import contract_warnings
from pai_sdk._client.code.git import checkout
from pai_sdk._client.code.job_package import (
    CHANNEL,
    former_paths,
    job_package,
    mentions_pai_sdk,
    ships_package,
    with_job_package,
)
from pai_sdk._client.code.package import package_code
from pai_sdk._client.code.provenance import git_state
from pai_sdk._client.experiment import Experiment
from pai_sdk._client.session import Session
from pai_sdk._client.submission import with_key
from pai_sdk._client.submit import guards, request_fields
from pai_sdk._client.submit.channels import ChannelResolver, InputSource, OutputTarget
from pai_sdk._client.submit.job_names import base_of_command, new_folder
from pai_sdk._client.submit.outputs import default_outputs, resume_point
from pai_sdk._client.submit.parameter_types import check_strings, with_checked_types
from pai_sdk._client.submit.parameters import Description, JobParameters
from pai_sdk._client.submit.problems import Problems
from pai_sdk._core.names.import_paths import FORMER
from pai_sdk._core.reasons import image_unused_message
from pai_sdk._data.run.report.debugger_variables import debugger_variables, has_debugger
from pai_sdk._data.storage.tree import FileTree
from pai_sdk._data.storage.uri import OssUri, is_remote_uri
from pai_sdk._wire.pai.compute import ExperimentConfig, Settings, UserVpcConfig
from pai_sdk._wire.pai.job_retries import JobRetries
from pai_sdk._wire.pai.names import variable_name
from pai_sdk._wire.pai.request import TrainingJobRequest
from pai_sdk._wire.pai.secret_values import Secret
from pai_sdk._wire.pai.spec import AlgorithmSpec, Channel, CodeDir, InputChannel, OutputChannel
from pai_sdk.errors import InvalidInputError

_ANY_TYPE = "ecs.c6.large"

# Parameters that are a model of their own: the user's name, the request's name, the model.
_MODELS = (
    ("experiment_config", "experiment_config", ExperimentConfig),
    ("user_vpc_config", "user_vpc", UserVpcConfig),
)


def make_plan(
    parameters: JobParameters,
    session: Session,
    inputs: Mapping[str, InputSource] | None,
    outputs: Mapping[str, OutputTarget] | None,
    job_name: str | None = None,
) -> Plan:
    """Returns the plan of one job, with the label of its only submission; one error lists all problems."""
    parameters = with_checked_types(parameters, problems := Problems())
    backend = session.backend_for(parameters.instance_type, checked_api(parameters.api))
    description = _describe(parameters, backend, problems)
    algorithm = description.algorithm
    request_fields.check_values(description.image, description.command, problems)
    command = algorithm.command if algorithm else request_fields.command_list(description.command, problems)
    base = parameters.base_job_name or base_of_command(command) or request_fields.base_of(type(parameters))
    name = request_fields.job_name(job_name, base, problems, description.hyperparameters)
    folder = new_folder(name, is_explicit=job_name is not None, key=parameters.idempotency_key)
    code_dir, code_uploads, keep = _resolve_code(description, command, backend, problems)
    if parameters.git_labels and code_uploads:
        parameters.labels = with_git_labels(parameters.labels, code_uploads[0].tree.root)  # of our own copy
    resolver = ChannelResolver(backend, session.settings.region_id, problems)
    input_channels = resolver.resolve_inputs(inputs, description.input_channels)
    user_command = command
    if algorithm is None:
        needs_package = description.debugger is not None or has_debugger(parameters.environments)
        command = _ship_package(command, code_uploads, input_channels, resolver, is_needed=needs_package)
    input_definitions = _definitions(description.input_channels, input_channels)
    output_channels = resolver.resolve_outputs(
        outputs,
        description.output_channels,
        description.placed_outputs,
        default_outputs(parameters, folder, backend, session, resolver, problems),
        may_add=description.takes_more_outputs,
    )
    output_definitions = _definitions(description.output_channels, output_channels)
    fields = {
        **_values(parameters, description, backend, problems),
        "settings": _settings(parameters, backend, problems),
        "training_job_name": name,
        "workspace_id": session.settings.workspace_id,
        "input_channels": input_channels,
        "output_channels": output_channels,
    }
    if algorithm is not None:
        fields |= algorithm.fields(code_dir, input_definitions, output_definitions, problems)
    else:
        with problems.under("algorithm_spec"):
            fields["algorithm_spec"] = AlgorithmSpec.model_validate(
                {
                    "image": description.image,
                    "command": command,
                    "job_type": description.job_type,
                    "code_dir": code_dir,
                    "input_channels": input_definitions,
                    "output_channels": output_definitions,
                    "metric_definitions": request_fields.metrics(description.metric_definitions, problems),
                }
            )
    resume = resume_point(description, outputs, output_channels, session, problems)
    problems.raise_if_any()
    with problems.under("request"):
        request = TrainingJobRequest.model_validate(fields)
        check_strings(request.to_wire(), "")
        plan = Plan(request, (*code_uploads, *resolver.uploads), keep, resume=resume).labelled()
    problems.raise_if_any()
    tree = code_uploads[0].tree if code_uploads else None
    warnings = () if algorithm else _warnings(plan, user_command, tree, description.source_dir)
    return _of_api(replace(_guarded(plan, parameters, session, backend), warnings=warnings), parameters, backend)


def _of_api(plan: Plan, parameters: JobParameters, backend: Backend) -> Plan:
    """Returns the plan as the API of the backend needs it."""
    problems = Problems()
    if backend.capabilities.api != "dlc":
        if parameters.dlc is not None:
            problems.add("dlc", "is for jobs of DLC only", "give api='dlc' too")
        if parameters.api not in (None, backend.capabilities.api):
            problems.add(
                "api", f"{parameters.api!r} is not for jobs on this machine", "give another instance_type"
            )
        problems.raise_if_any()
        return plan
    # For weight: other jobs do without its models.
    from pai_sdk._client.backend.dlc.options import DlcOptions
    from pai_sdk._client.backend.dlc.planning import MountTargets, dlc_plan

    options = DlcOptions()
    with problems.under("dlc"):
        options = DlcOptions() if parameters.dlc is None else DlcOptions.model_validate(parameters.dlc)
    problems.raise_if_any()
    return dlc_plan(plan, options, cast("MountTargets", backend))


def _guarded(plan: Plan, parameters: JobParameters, session: Session, backend: Backend) -> Plan:
    """Adds alternatives, idempotency key and notes to a plan."""
    problems = Problems()
    request = plan.request
    if parameters.idempotency_key is not None:
        with problems.under("idempotency_key"):
            request = with_key(request, parameters.idempotency_key)
    fallbacks = guards.fallbacks(parameters.fallback, request.compute_resource, problems)
    notify = guards.targets(parameters.notify, problems)
    prices = {**session.settings.prices, **(parameters.prices or {})}
    guards.check_cost(parameters.max_cost, prices, request, fallbacks, problems)
    problems.raise_if_any()
    image = "" if request.algorithm_spec is None else request.algorithm_spec.image
    notes = (image_unused_message(image),) if image and not backend.capabilities.uses_images else ()
    return replace(plan, request=request, fallbacks=fallbacks, notify=notify, notes=notes)


def _warnings(plan: Plan, command: Sequence[str], tree: FileTree | None, source_dir: object) -> tuple[str, ...]:
    """Returns the probable mistakes in a request with this command and this code of the user."""
    spec = plan.request.algorithm_spec
    # Other code does not mention pai_sdk.
    moved = former_paths(tree, command) if spec and ships_package(spec.command) else []
    # No error: the code may be right for an image that has an earlier release.
    warnings = [
        f"the code imports {former}, which is {FORMER[former]} now; the job fails there, unless its image has an "
        "earlier pai_sdk"
        for former in moved
    ]
    pipe = request_fields.hiding_pipe(command)
    if pipe:
        warnings.append(
            f"`{pipe}` hides a failure: the job succeeds when the last program of the pipe does. The log is kept "
            "without `tee`, too; or start the pipe by command=['bash', '-o', 'pipefail', '-c', '…']"
        )
    if not plan.request.roles:
        warnings += contract_warnings(plan.request, command, tree, source_dir)
    return tuple(warnings)


def _describe(parameters: JobParameters, backend: Backend, problems: Problems) -> Description:
    """Returns the submitter's description of the job. Its errors become problems, and other checks go on."""
    try:
        description = parameters.describe()
    except InvalidInputError as error:
        problems.entries += error.problems
        # The unknown algorithm may have a default instance type, so a missing one is no second problem.
        if parameters.instance_type is None and parameters.instance_spec is None:
            parameters.instance_type = "-"
        return Description("-", "-")
    if parameters.instance_type is None and parameters.instance_spec is None and parameters.resource_id is None:
        # Processes of a machine run with any type; a cloud rents the instance, so there it must be named.
        any_type = None if backend.capabilities.uses_images else _ANY_TYPE
        algorithm = description.algorithm
        parameters.instance_type = (algorithm.usual_instance_type if algorithm else None) or any_type
    return description


def _values(
    parameters: JobParameters, description: Description, backend: Backend, problems: Problems
) -> dict[str, Any]:
    """Returns the fields that depend on one parameter each."""
    roles = request_fields.wire_roles(parameters.roles, parameters.instance_count, problems)
    if roles and not backend.capabilities.roles:
        problems.add("roles", "training jobs of Alibaba Cloud have none", "give api='dlc' too; DLC has roles")
    values: dict[str, Any] = {
        "roles": roles,
        "training_job_description": parameters.description,
        "compute_resource": request_fields.compute_resource(
            instance_type=parameters.instance_type,
            instance_count=sum(role.count for role in roles) if roles else parameters.instance_count,
            instance_spec=parameters.instance_spec,
            resource_id=parameters.resource_id,
            resource_type=parameters.resource_type,
            spot_spec=parameters.spot_spec,
            problems=problems,
        ),
        "hyperparameters": request_fields.hyperparameters(
            description.hyperparameters, description.hyperparameters_name, problems
        ),
        "environments": request_fields.with_rules(
            request_fields.environment(_environment(parameters, description), problems), parameters.watch, problems
        ),
        "python_requirements": request_fields.requirement_list(parameters.requirements, problems),
        "labels": request_fields.labels(parameters.labels, problems),
        "scheduler": request_fields.scheduler(parameters.max_run_time, problems),
        "priority": parameters.priority,
        "role_arn": parameters.role_arn,
    }
    if description.algorithm is not None:
        values["hyperparameters"] = description.algorithm.hyperparameters(
            values["hyperparameters"], description.hyperparameters_name, problems
        )
        description.algorithm.check_instances(parameters.instance_type, parameters.instance_count, problems)
    for where, wire_name, model in _MODELS:
        with problems.under(where):
            value = getattr(parameters, where)
            if isinstance(value, Experiment):
                value = value.config
            values[wire_name] = None if value is None else model.model_validate(value)
    return values


def _environment(parameters: JobParameters, description: Description) -> dict[str, str | Secret]:
    """Returns the variables of the user, and before them those of the debugger."""
    return {**debugger_variables(description.debugger), **(parameters.environments or {})}


def _settings(parameters: JobParameters, backend: Backend, problems: Problems) -> Settings | None:
    """Returns the settings, with the retries of the job among their tags."""
    settings = None
    with problems.under("settings"):
        settings = None if parameters.settings is None else Settings.model_validate(parameters.settings)
    if settings is not None and settings.priority not in (None, parameters.priority or settings.priority):
        problems.add(
            "priority", f"conflicts with settings.priority, which is {settings.priority}", "give only one of them"
        )
    try:
        tags = JobRetries.checked(parameters.max_retries, parameters.retry_on).tags()
    except InvalidInputError as error:
        problems.entries += error.problems
        return settings
    if tags and not backend.capabilities.retries:
        hint = "leave it out; resume='<id of the earlier job>' continues from its newest checkpoint"
        problems.add("max_retries", "jobs are not restarted there", hint)
    if not tags:
        return settings
    settings = settings or Settings()
    return settings.model_copy(update={"tags": {**(settings.tags or {}), **tags}})


def _resolve_code(
    description: Description, command: Sequence[str], backend: Backend, problems: Problems
) -> tuple[CodeDir | None, list[Upload], object]:
    """Returns the code folder, the files to upload to it, and an object that must live until they are uploaded."""
    source_dir = description.source_dir
    git_config = description.git_config
    keep: object = None
    with problems.under("source_dir" if git_config is None else "git_config"):
        if git_config is not None:
            source_dir, keep = checkout(git_config, source_dir)
        elif source_dir is None:
            return None, [], None
        elif isinstance(source_dir, str) and is_remote_uri(source_dir):
            code = OssUri.parse(source_dir)  # nothing else can hold code
            # Code is a folder, unless its name has a suffix, as that of an archive.
            return backend.code_dir(str(code if "." in code.name else code.as_dir())), [], None
        tree = package_code(source_dir, allow_secrets=description.allow_secrets, cloned=keep is not None)
        with problems.under("command"):
            request_fields.check_entry(command, tree, description.source_dir)
        uri = backend.tree_uri(tree, "code")
        return backend.code_dir(uri), [Upload(tree, uri, _origin(git_config, tree))], keep
    return None, [], None


def _origin(git_config: Mapping[str, str] | None, tree: FileTree) -> str:
    """Returns the name of a clone for users; its folder is temporary."""
    if git_config is None:
        return ""
    state = git_state(tree.root)
    return f"{state.repository}@{state.commit[:12]}" if state else "the repository"


def with_git_labels(labels: Mapping[str, str] | None, folder: Path) -> dict[str, str]:
    """Returns labels with those of the state of the folder's repository; explicit labels take precedence."""
    state = git_state(folder)
    return {**(state.labels() if state else {}), **(labels or {})}


def _ship_package(
    command: Sequence[str],
    code: Sequence[Upload],
    input_channels: list[InputChannel],
    resolver: ChannelResolver,
    *,
    is_needed: bool,
) -> Sequence[str]:
    """Adds an input channel and a command with which code that mentions pai_sdk can import it in every image."""
    tree = code[0].tree if code else None
    is_used = any(variable_name(channel.name) == variable_name(CHANNEL) for channel in input_channels)
    if is_used or not command or not (is_needed or mentions_pai_sdk(tree, command)):
        return command
    before = len(resolver.uploads)
    input_channels += resolver.resolve_inputs({CHANNEL: job_package()}, ())
    resolver.uploads[before:] = [replace(upload, origin="pai_sdk") for upload in resolver.uploads[before:]]
    return with_job_package(command)


def _definitions(defined: Sequence[Channel], channels: Sequence[InputChannel | OutputChannel]) -> list[Channel]:
    """Returns the defined channels, and a definition for each additional channel of this job."""
    names = {channel.name for channel in defined}
    return [
        *defined,
        *(Channel(name=channel.name, required=False) for channel in channels if channel.name not in names),
    ]
