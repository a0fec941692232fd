"""The body of CreateJob as a program with an `Estimator` that does the same."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pai_sdk._wire.dlc.field_names import WIRE_NAMES, by_python_name
from pai_sdk._wire.pai.compute import Settings
from pai_sdk.alipai.dlc.scope import Definition
from pai_sdk.alipai.dlc.values import Computed, Name, as_number, is_set, source_of

__all__ = ["Suggestion", "suggest"]

_OF_SECRET = re.compile(r"(?i)(^|_)(access_?key(_?id)?|api_?key|key|password|passwd|secret|token)(_|$)")
# Of these types the first instance is the master, also where a role has that name.
_MASTER_AND_WORKERS = ("PyTorchJob", "XGBoostJob", "OneFlowJob", "ElasticBatchJob")
_RESOURCES = ("image", "ecs_spec", "resource_config", "spot_spec")
_POLICIES = ("success_policy", "restart_policy", "accessibility")
_OF_MOUNT = {
    "mount_path": "path",
    "uri": "uri",
    "data_source_id": "dataset_id",
    "data_source_version": "version",
    "mount_access": "access",
    "options": "options",
    "enable_cache": "enable_cache",
    "role_arn": "role_arn",
}
_OF_CODE = {
    "code_source_id": "id",
    "branch": "branch",
    "commit": "commit",
    "mount_path": "path",
    "is_shared_mount_path": "is_shared",
}
_OF_NODES = {"node_names": "node_names", "anti_affinity_node_names": "avoid_nodes"}
_OF_SPOT_TYPE = {
    "instance_type": "instance_type",
    "spot_discount_limit": "discount_percent",
    "spot_price_limit": "price_per_hour",
}
_OF_LOGIN = {"docker_registry": "image_registry", "username": "image_username", "password": "image_password"}
_OF_ROLE = ("restart_policy", "is_chief", "consider_in_success_policy", "startup_dependencies", "user_command")
_FIRST = ("image_uri", "command", "job_type")  # of the arguments
_FREE_KEYS = ("advanced_settings", "tags", "envs", "pod_labels", "pod_annotations")


@dataclass
class Suggestion:
    """A program that submits the job of one place in a script or program."""

    line: int
    what: str
    code: str
    notes: list[str] = field(default_factory=list)
    cell: int = 0  # from 1, in a notebook; 0 elsewhere


@dataclass
class _Draft:
    """The arguments of the program, as they are read from the body."""

    arguments: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    imports: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)


def suggest(
    body: Mapping[str, Any],
    *,
    region: object = None,
    waits: bool = False,
    definitions: Mapping[str, Definition] | None = None,
) -> tuple[str, list[str]]:
    """Returns the program for a body, and what it does in another way; values may be `Computed`.

    Fields have the names of the wire or of Python.
    """
    draft = _Draft(imports={"from pai_sdk import Estimator"})
    remaining = {key: value for key, value in by_python_name(body).items() if is_set(value)}
    _roles(remaining, draft)
    _plain_fields(remaining, draft)
    _environment(remaining, draft)
    _settings(remaining, draft)
    name, workspace = remaining.pop("display_name", None), remaining.pop("workspace_id", None)
    _mounts_and_code(remaining, draft)
    draft.options |= {name: remaining.pop(name) for name in _POLICIES if name in remaining}
    draft.notes += [f"{WIRE_NAMES.get(key, key)} has no counterpart, and is left out" for key in remaining]
    session = {"region_id": region, "workspace_id": workspace}
    program = _program(draft, name, session, waits=waits)
    used = _used(program, definitions or {})
    draft.imports |= {each.needs for each in used.values() if each.needs}
    draft.notes[:0] = [each.note for each in used.values() if each.note]
    variables = [f"{variable} = {each.source}" for variable, each in used.items() if each.source]
    head = [*_import_lines(draft.imports), "", *variables, *([""] if variables else [])]
    return "\n".join([*head, program]), draft.notes


def _used(program: str, definitions: Mapping[str, Definition]) -> dict[str, Definition]:
    """Returns the definitions that a program needs, in their order."""
    names, used = _names_in(program), set[str]()
    for name in list(definitions)[::-1]:  # those that a definition needs stand before it
        if name in names:
            used.add(name)
            names |= _names_in(definitions[name].source)
    return {name: definition for name, definition in definitions.items() if name in used}


def _names_in(source: str) -> set[str]:
    return {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}


def _program(draft: _Draft, name: object, session: Mapping[str, object], *, waits: bool) -> str:
    arguments = {key: draft.arguments[key] for key in _FIRST if key in draft.arguments} | draft.arguments
    lines = []
    if any(value is not None for value in session.values()):
        draft.imports.add("from pai_sdk.session import setup_default_session")
        lines = [_call("setup_default_session", session), ""]
    if draft.options:
        draft.imports.add("from pai_sdk.jobs import DlcOptions")
        arguments["dlc"] = Computed((Name(_call("DlcOptions", draft.options, 4), is_text=False),))
    arguments["api"] = "dlc"
    lines += [
        _call("estimator = Estimator", arguments, is_long=True),
        _call("job = estimator.fit", {"job_name": name, "wait": waits}),
        "print(job.training_job_id)",
    ]
    return "\n".join(lines) + "\n"


def _call(function: str, arguments: Mapping[str, object], indent: int = 0, *, is_long: bool = False) -> str:
    items = [f"{key}={source_of(value, indent + 4)}" for key, value in arguments.items() if value is not None]
    line = f"{function}({', '.join(items)})"
    if not is_long and len(line) + indent <= 100 and "\n" not in line:
        return line
    before = "\n" + " " * (indent + 4)
    return f"{function}(" + "".join(f"{before}{item}," for item in items) + f"\n{' ' * indent})"


def _import_lines(imports: Iterable[str]) -> list[str]:
    """Returns the lines of imports, with the names of one module in one line."""
    names: dict[str, set[str]] = {}
    for each in imports:
        module, _, imported = each.removeprefix("from ").partition(" import ")
        names.setdefault(module, set()).update(imported.split(", ") if imported else ())
    lines = [
        f"from {module} import {', '.join(sorted(each))}" if each else module for module, each in names.items()
    ]
    lines.sort(key=lambda line: (line.startswith("from "), line))
    standard = [line for line in lines if "pai_sdk" not in line]
    return [*standard, *([""] if standard else []), *(line for line in lines if "pai_sdk" in line)]


# ---- roles --------------------------------------------------------------------------------------------------


def _roles(body: dict[str, Any], draft: _Draft) -> None:
    specs = body.pop("job_specs", [])
    if not isinstance(specs, list) or not all(isinstance(each, Mapping) for each in specs):
        draft.notes.append("the roles are not written there: give image_uri, instance_type and instance_count")
        return
    specs = [{key: value for key, value in by_python_name(each).items() if is_set(value)} for each in specs]
    specs = [spec for spec in specs if spec.get("pod_count") != 0]
    job_type = body.get("job_type")
    if not specs:
        draft.notes.append("no role has instances: give image_uri, instance_type and instance_count")
        return
    if _are_alike(specs, job_type):
        _like_instances(specs, draft)
    else:
        # What the roles share is that of the job, which has to have a size in any case.
        draft.arguments |= {
            "image_uri": specs[0].get("image"),
            "instance_type": specs[0].get("ecs_spec"),
            "instance_spec": _pythonic(specs[0]["resource_config"]) if "resource_config" in specs[0] else None,
        }
        draft.arguments["roles"] = {_role_name(each): _role(each, specs[0], draft) for each in specs}
        _spec_options(specs, draft)


def _are_alike(specs: Sequence[Mapping[str, Any]], job_type: object) -> bool:
    """Returns whether the instances differ by their number only, as those of an Estimator do."""
    types = [spec.get("type", "Worker") for spec in specs]
    parts = [{key: value for key, value in spec.items() if key not in ("type", "pod_count")} for spec in specs]
    if len(specs) == 1:
        return types[0] == "Worker" or (types[0] == "Master" and job_type in _MASTER_AND_WORKERS)
    return (
        job_type in _MASTER_AND_WORKERS
        and set(types) == {"Master", "Worker"}
        and all(part == parts[0] for part in parts)
    )


def _like_instances(specs: Sequence[Mapping[str, Any]], draft: _Draft) -> None:
    spec = dict(specs[0])
    counts = [as_number(each.get("pod_count", 1)) for each in specs]
    numbers = [each for each in counts if isinstance(each, int)]
    if len(numbers) == len(counts):
        count: Any = sum(numbers)
    else:
        count = Computed((Name(" + ".join(source_of(each) for each in counts), is_text=False),))
    spot = spec.get("spot_spec")
    draft.arguments |= {
        "image_uri": spec.get("image"),
        "instance_type": spec.get("ecs_spec"),
        "instance_spec": _pythonic(spec["resource_config"]) if "resource_config" in spec else None,
        "instance_count": None if count == 1 else count,
        "spot_spec": None if spot is None else _spot_terms(spot, draft),
    }
    if "ecs_spec" not in spec and "resource_config" not in spec:
        draft.notes.append("no size is given: give instance_type, or instance_spec with resource_id")
    if spec.get("use_spot_instance") and spot is None:
        draft.notes.append("UseSpotInstance has no terms: give spot_spec")
    _spec_options(specs, draft)


def _role_name(spec: Mapping[str, Any]) -> Any:
    return spec.get("type", "Worker")


def _role(spec: Mapping[str, Any], first: Mapping[str, Any], draft: _Draft) -> dict[str, Any]:
    if "spot_spec" in spec:
        draft.notes.append(f"SpotSpec of the role {source_of(_role_name(spec))} is left out: give spot_spec")
    differing = {key: spec[key] for key in _RESOURCES if key in spec and spec[key] != first.get(key)}
    values = {
        "instance_count": as_number(spec.get("pod_count", 1)),
        "image_uri": differing.get("image"),
        "command": spec.get("user_command"),
        "instance_type": differing.get("ecs_spec"),
        "instance_spec": _pythonic(differing["resource_config"]) if "resource_config" in differing else None,
        "restart_policy": spec.get("restart_policy"),
        "is_chief": spec.get("is_chief"),
        "counts_for_success": spec.get("consider_in_success_policy"),
        "start_after": [*_roles_before(spec, draft)] or None,
    }
    return {key: value for key, value in values.items() if value is not None}


def _roles_before(spec: Mapping[str, Any], draft: _Draft) -> Iterator[object]:
    for dependency in spec.get("startup_dependencies", []):
        if not isinstance(dependency, Mapping):
            continue
        dependency = by_python_name(dependency)
        yield dependency.get("type")
        if dependency.get("on_phase", "Running") != "Running" or is_set(dependency.get("min_replicas")):
            draft.notes.append("start_after waits until all instances of the other role run")


def _spec_options(specs: Sequence[Mapping[str, Any]], draft: _Draft) -> None:
    """Reads what roles have beside their size; where roles differ in it, that of the first one that has it."""
    is_of_role = "roles" in draft.arguments
    for key in dict.fromkeys(key for spec in specs for key in spec):
        if key in ("type", "pod_count", "use_spot_instance", *_RESOURCES) or (is_of_role and key in _OF_ROLE):
            continue
        value = next(spec[key] for spec in specs if key in spec)
        if key == "user_command":
            draft.arguments["command"] = value
        elif key == "image_config":
            _image_login(value, draft)
        elif key in ("restart_policy", "driver"):
            draft.options[key] = value
        elif key == "assign_node_spec":
            nodes = _renamed(value, _OF_NODES, key, draft, ("enable_assign_node",))
            draft.options |= {
                name: names.split(",") if isinstance(names, str) else names for name, names in nodes.items()
            }
        elif key == "elastic_spot_specs" and isinstance(value, list):
            types = [_renamed(each, _OF_SPOT_TYPE, key, draft, ("spot_strategy",)) for each in value]
            draft.options["elastic_spot"] = types
        elif key not in ("is_chief", "consider_in_success_policy"):
            draft.notes.append(f"{WIRE_NAMES.get(key, key)} of a role has no counterpart, and is left out")


def _image_login(config: object, draft: _Draft) -> None:
    login = _renamed(config, _OF_LOGIN, "image_config", draft)
    if "image_password" in login:
        login["image_password"] = _secret("REGISTRY_PASSWORD", draft)
    draft.options |= login


def _spot_terms(spot: object, draft: _Draft) -> object:
    if not isinstance(spot, Mapping):
        return spot
    terms = by_python_name(spot)
    price = terms.pop("spot_price_limit", None)
    if is_set(price):
        draft.options["spot_price_per_minute"] = price
    return _pythonic(terms)


# ---- other fields -------------------------------------------------------------------------------------------


def _plain_fields(body: dict[str, Any], draft: _Draft) -> None:
    arguments = draft.arguments
    command = body.pop("user_command", None)
    arguments.setdefault("command", command)
    job_type = body.pop("job_type", None)
    arguments["job_type"] = None if job_type == "PyTorchJob" else job_type
    for key, name in (("resource_id", "resource_id"), ("description", "description")):
        arguments[name] = body.pop(key, None)
    arguments["priority"] = as_number(body.pop("priority", None))
    arguments["requirements"] = body.pop("thirdparty_libs", None)
    if "thirdparty_lib_dir" in body:
        folder = source_of(body.pop("thirdparty_lib_dir"))
        draft.notes.append(f"begin the command with: pip install -r {folder.strip(chr(34))}/requirements.txt")
    vpc = body.pop("user_vpc", None)
    arguments["user_vpc_config"] = None if vpc is None else _pythonic(vpc)
    minutes = as_number(body.pop("job_max_running_time_minutes", None))
    if isinstance(minutes, Computed):
        arguments["max_run_time"] = Computed((Name(f"60 * {source_of(minutes)}", is_text=False),))
    elif isinstance(minutes, int) and minutes > 0:
        arguments["max_run_time"] = 60 * minutes


def _mounts_and_code(body: dict[str, Any], draft: _Draft) -> None:
    sources = body.pop("data_sources", None)
    if isinstance(sources, list):
        mounts = [_renamed(each, _OF_MOUNT, "data_sources", draft) for each in sources]
        if any("access" not in each for each in mounts):
            draft.notes.append("a mount without MountAccess is 'RW' here: write 'RO' where the job only reads")
        draft.options["mounts"] = [{**each, "access": each.get("access", "RW")} for each in mounts]
    elif sources is not None:
        draft.notes.append(f"the mounts are not written there: DlcOptions(mounts=…) takes {source_of(sources)}")
    if "code_source" in body:
        code = body.pop("code_source")
        draft.options["code_source"] = _renamed(code, _OF_CODE, "code_source", draft)


def _renamed(
    part: object, names: Mapping[str, str], where: str, draft: _Draft, ignored: Sequence[str] = ()
) -> dict[str, Any]:
    """Returns a part of the body with other names of its fields; notes what has none, or is not written there."""
    if not isinstance(part, Mapping):
        draft.notes.append(f"{WIRE_NAMES[where]} is not written there: see {source_of(part)}")
        return {}
    fields = {key: value for key, value in by_python_name(part).items() if is_set(value) and key not in ignored}
    draft.notes += [
        f"{WIRE_NAMES[where]}.{WIRE_NAMES.get(key, key)} has no counterpart, and is left out"
        for key in fields
        if key not in names
    ]
    return {names[key]: value for key, value in fields.items() if key in names}


def _environment(body: dict[str, Any], draft: _Draft) -> None:
    variables = body.pop("envs", None) or {}
    custom = body.pop("custom_envs", None) or []
    if not isinstance(variables, Mapping) or not isinstance(custom, list):
        draft.arguments["environments"] = variables
        return
    items = [by_python_name(each) for each in custom if isinstance(each, Mapping)]
    pairs = {each["key"]: each.get("value", "") for each in items if "key" in each}
    pairs |= variables
    draft.arguments["environments"] = {key: _variable(key, value, draft) for key, value in pairs.items()} or None


def _variable(name: object, value: Any, draft: _Draft) -> Any:
    if not isinstance(name, str) or not _OF_SECRET.search(name):
        return value if isinstance(value, str | Computed) else str(value)
    return _secret(name, draft)


def _secret(name: str, draft: _Draft) -> Computed:
    """Returns `Secret("NAME")`: the value itself is in none of our outputs."""
    draft.imports.add("from pai_sdk import Secret")
    draft.notes.append(f"{name} is read from the environment of the program that submits the job")
    return Computed((Name(f'Secret("{name}")', is_text=False),))


def _settings(body: dict[str, Any], draft: _Draft) -> None:
    values = body.pop("settings", None)
    if not isinstance(values, Mapping):
        draft.arguments["settings"] = values
        return
    values = {key: value for key, value in by_python_name(values).items() if is_set(value)}
    draft.arguments["labels"] = values.pop("tags", None)
    more = {key: values.pop(key) for key in list(values) if key not in Settings.model_fields}
    draft.arguments["settings"] = _pythonic(values) or None
    if "termination_grace_period_seconds" in more:
        draft.options["grace_period_s"] = more.pop("termination_grace_period_seconds")
    if more:
        draft.options["settings"] = {WIRE_NAMES.get(key, key): value for key, value in more.items()}


def _pythonic(value: Any) -> Any:
    """Returns a part of the body with the names that it has in Python."""
    if isinstance(value, Mapping):
        return {
            key: dict(each) if key in _FREE_KEYS and isinstance(each, Mapping) else _pythonic(each)
            for key, each in by_python_name(value).items()
            if is_set(each)
        }
    return [_pythonic(each) for each in value] if isinstance(value, list) else value
