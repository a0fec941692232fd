"""Converts the parameters of a submitter to fields of a request, and collects problems."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from types import MethodType
from typing import Any

from pai_sdk._client.backend.specs import BACKENDS, backend_for_type
from pai_sdk._client.code.script_text import (
    PROGRAM,
    RUNNERS,
    SHELLS,
    WINDOWS_LINE_END,
    file_problems,
    first_script,
    is_shell,
    is_windows_line,
    script_as_program,
    unix_text,
)
from pai_sdk._client.submit.parameters import Role
from pai_sdk._client.submit.problems import Problems
from pai_sdk._core.names.hints import name_hint, nearest, type_problem, wrong_value
from pai_sdk._core.names.peer_names import value_hint
from pai_sdk._data.rules.codec import WATCH_VARIABLE, parse_rule, rules_text
from pai_sdk._data.rules.rules import Rule
from pai_sdk._data.storage.tree import FileTree
from pai_sdk._wire.pai import roles as roles_wire
from pai_sdk._wire.pai.compute import ComputeResource, InstanceSpec, SchedulerConfig, SpotSpec
from pai_sdk._wire.pai.job_names import new_name
from pai_sdk._wire.pai.names import is_contract_variable, name_problems
from pai_sdk._wire.pai.request import SUBMISSION_LABEL
from pai_sdk._wire.pai.secret_values import Secret
from pai_sdk._wire.pai.spec import HyperParameter, Label, MetricDefinition
from pai_sdk._wire.pai.values import hyperparameter_text
from pai_sdk.errors import InvalidInputError, Problem

_JOB_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_MAX_BASE_LENGTH = 75  # hyperparameters and a random ending come behind it
_MAX_INT32 = 2**31 - 1  # the numbers of the wire have 32 bits
# Their failure matters little, or cannot happen: they only feed the program behind the pipe.
_FEEDERS = frozenset(("echo", "printf", "yes", "cat", "seq", "ls", "find", "true", ":", "zcat", "gunzip"))
_NOT_SHELL = re.compile(r"""\\.|'[^']*'|"(?:[^"\\]|\\.)*"|(?:(?<=[\s;&|(])|^)#[^\n]*""", re.DOTALL)
_NOT_EXAMINED = re.compile(r"['\"`]|\$\(|<<|[<>]\(|\bcase\b|PIPESTATUS")
_PIPELINE = re.compile(r"(?:[<>]&|&>|>\||\|&|[^;&\n|]|(?<!\|)\|(?!\|))+")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def job_name(
    name: str | None, base: str, problems: Problems, hyperparameters: Mapping[str, Any] | None = None
) -> str:
    """Returns the explicit name, or a readable one that no other job has."""
    if name is not None:
        if not isinstance(name, str) or not _JOB_NAME.fullmatch(name):
            problems.add(
                "job_name", f"{name!r} is not a valid name", "letters, digits, '-', '_', '.', maximum 100"
            )
        return name
    if not isinstance(base, str) or not _JOB_NAME.fullmatch(base) or len(base) > _MAX_BASE_LENGTH:
        hint = f"letters, digits, '-', '_', '.', maximum {_MAX_BASE_LENGTH}"
        problems.add("base_job_name", f"{base!r} is not a valid name", hint)
        return "job"  # the problem keeps the job from being sent
    return new_name(base, hyperparameters)


def folder_of(job_folder: str) -> str:
    """Returns the folder of a job within that of its experiment: letters and digits, as PAI uses the job's id."""
    return re.sub(r"[^a-z0-9]", "", job_folder.lower())


def base_of(kind: type) -> str:
    """Returns the default prefix of job names: the name of the class."""
    usable = re.sub(r"[^a-z0-9_.-]+", "-", kind.__name__.lower()).strip("-._")
    return usable[:_MAX_BASE_LENGTH] or "job"


def compute_resource(
    *,
    instance_type: str | None,
    instance_count: int,
    instance_spec: InstanceSpec | Mapping[str, Any] | None,
    resource_id: str | None,
    resource_type: str | None,
    spot_spec: SpotSpec | Mapping[str, Any] | None,
    problems: Problems,
) -> ComputeResource | None:
    """Returns public instances, or instances of a quota; a mixture of both is a problem."""
    count = _instance_count(instance_count, problems)
    if resource_type not in (None, "General", "Lingjun"):
        problems.add("resource_type", f"unknown value {resource_type!r}", "General or Lingjun")
    _check_lingjun(resource_type, resource_id, instance_type, problems)
    spot = None
    with problems.under("spot_spec"):
        spot = None if spot_spec is None else SpotSpec.model_validate(spot_spec)
    if instance_type is not None:
        return _public_instances(instance_type, count, instance_spec, resource_id, spot, problems)
    if instance_spec is None:
        hint = "such as instance_type='ecs.c6.large', or instance_spec with resource_id"
        problems.add("instance_type", "is required", hint)
        return None
    if resource_id is None:
        problems.add("resource_id", "is required", "instance_spec needs the id of a quota")
    if spot_spec is not None:
        problems.add("spot_spec", "works only with instance_type", "a quota has no spot instances")
    with problems.under("instance_spec"):
        spec = InstanceSpec.model_validate(instance_spec)
        return ComputeResource(resource_id=resource_id, instance_spec=spec, instance_count=count)
    return None


def _instance_count(value: Any, problems: Problems) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _MAX_INT32:
        return value
    problems.entries.append(wrong_value("instance_count", value, "an integer (minimum 1)"))
    return 1


def _public_instances(
    instance_type: str,
    count: int,
    instance_spec: InstanceSpec | Mapping[str, Any] | None,
    resource_id: str | None,
    spot: SpotSpec | None,
    problems: Problems,
) -> ComputeResource | None:
    """Returns public or local instances of a type; what belongs to a quota is a problem."""
    is_local = backend_for_type(instance_type).is_local
    if not is_local and _is_nearly_local(instance_type):
        hint = "containers on this machine are 'local' and 'local_gpu'"
        problems.add("instance_type", f"unknown value {instance_type!r}", hint)
    spec = None
    if instance_spec is not None and is_local:
        with problems.under("instance_spec"):
            spec = InstanceSpec.model_validate(instance_spec)  # the limits of each container
        instance_spec = None
    for name, other in (("instance_spec", instance_spec), ("resource_id", resource_id)):
        if other is not None:
            problems.add(name, "conflicts with instance_type", "public instances or a quota of your own, not both")
    with problems.under("instance_type"):
        return ComputeResource(
            ecs_spec=instance_type,
            ecs_count=count,
            instance_spec=spec,
            spot_spec=spot,
            use_spot_instance=True if spot else None,
        )
    return None


def _check_lingjun(
    resource_type: str | None, resource_id: str | None, instance_type: str | None, problems: Problems
) -> None:
    """Checks that `resource_type`, which is not sent, agrees with the instance type or the quota."""
    is_other = instance_type is not None and not str(instance_type).startswith("ml.")
    if resource_type == "Lingjun" and is_other and not backend_for_type(instance_type).is_local:
        hint = "Lingjun types start with 'ml.', such as ml.gu7ef.8xlarge-gu100"
        problems.add("resource_type", f"{instance_type!r} is not a Lingjun type", hint)
    elif resource_type == "Lingjun" and instance_type is None and resource_id is None:
        problems.add("resource_type", "Lingjun needs an `instance_type` or a quota", "give its `resource_id`")


def _is_nearly_local(instance_type: object) -> bool:
    """Returns True for a misspelt local type; a service would run it, and may charge for it."""
    meant = str(instance_type).lower().replace("-", "_")
    return bool(
        nearest(meant, [name for backend in BACKENDS.values() for name in backend.instance_types], cutoff=0.75)
    )


def hyperparameters(values: Mapping[str, Any] | None, where: str, problems: Problems) -> list[HyperParameter]:
    """Returns the values as strings; None is left out, so that the code uses its own default."""
    values = {name: value for name, value in (values or {}).items() if value is not None}
    problems.entries += name_problems(values, where)
    checked: list[HyperParameter] = []
    for name, value in values.items():
        if not isinstance(name, str):
            continue  # reported by name_problems
        with problems.under(f"{where}[{name!r}]"):
            if _is_uncalled(f"{where}[{name!r}]", value, problems):
                continue
            text = hyperparameter_text(value)
            if is_windows_line(text):
                problems.add(f"{where}[{name!r}]", WINDOWS_LINE_END, "remove it: value.rstrip('\\r')")
            checked.append(HyperParameter.model_validate({"name": name, "value": text}))
    return checked


def _is_uncalled(where: str, value: object, problems: Problems) -> bool:
    """Adds a problem for a method that was not called, or a string that contains one."""
    if isinstance(value, MethodType):
        problems.add(where, type_problem("a value", value))
        return True
    hint = value_hint(value) if isinstance(value, str) and "<bound method " in value else None
    if hint:
        problems.add(where, *hint)
    return hint is not None


def environment(variables: Mapping[str, str | Secret] | None, problems: Problems) -> dict[str, str] | None:
    """Returns valid environment variables; a secret is a placeholder."""
    values: dict[str, str] = {}
    for name, value in (variables or {}).items():
        if not isinstance(name, str) or not _VARIABLE.fullmatch(name):
            problems.add(f"environments[{name!r}]", "is not the name of a variable")
        elif is_contract_variable(name):
            problems.add(f"environments[{name!r}]", "is set by the job contract itself", "choose another name")
        elif _is_uncalled(f"environments[{name!r}]", value, problems):
            continue
        elif not isinstance(value, str | Secret):
            problems.add(f"environments[{name!r}]", type_problem("a string", value))
        elif isinstance(value, str) and is_windows_line(value):
            problems.add(f"environments[{name!r}]", WINDOWS_LINE_END, "remove it: value.rstrip('\\r')")
        else:
            values[name] = value.placeholder if isinstance(value, Secret) else value
    return values or None


def with_rules(
    variables: dict[str, str] | None, watch: Sequence[Rule | Mapping[str, Any]] | bool | None, problems: Problems
) -> dict[str, str] | None:
    """Returns the variables with the rules of the job among them; every API accepts variables."""
    if watch is None or watch is True or watch == []:
        return variables
    rules: list[Rule] = []
    for number, row in enumerate([] if watch is False else watch):
        if isinstance(row, Rule):
            rules.append(row)
            continue
        try:
            rules.append(parse_rule(row, f"watch[{number}]"))
        except InvalidInputError as error:
            problems.entries += error.problems
    return {**(variables or {}), WATCH_VARIABLE: rules_text(False if watch is False else rules)}


# The name as pip reads it; with an address behind "@" it is what the address has.
_FOREIGN_PACKAGE = re.compile(r"\s*pai[-_.]+(training[-_.]+)?sdk\s*($|[\[=<>!~;#,(])(?!.*@)", re.IGNORECASE)


def requirement_list(requirements: Sequence[str] | None, problems: Problems) -> list[str] | None:
    """Returns the requirements. An invalid one is not displayed: an index URL may contain a password."""
    for number, requirement in enumerate(requirements or ()):
        if not isinstance(requirement, str):
            message = type_problem("a string", requirement)
        elif not requirement.strip():
            message = "is empty"
        elif "\n" in requirement or "\r" in requirement:
            message = "contains a newline"
        elif _FOREIGN_PACKAGE.match(requirement):
            message = "is not the name of pai_sdk on PyPI, where it is another company's, or may become one"
            hint = "leave it out: jobs get `pai_sdk.report` without it; `pai-sdk wheel` makes a wheel for images"
            problems.add(f"requirements[{number}]", message, hint)
            continue
        else:
            continue
        problems.add(f"requirements[{number}]", message, "give one requirement, such as 'numpy==2.1'")
    return list(requirements) if requirements else None


def labels(values_by_key: Mapping[str, str] | None, problems: Problems) -> list[Label]:
    """Returns the labels."""
    checked: list[Label] = []
    for key, value in (values_by_key or {}).items():
        if key == SUBMISSION_LABEL:
            problems.add(f"labels[{key!r}]", "is set for each submission", "choose another name")
        with problems.under(f"labels[{key!r}]"):
            checked.append(Label.model_validate({"key": key, "value": value}))
    return checked


def scheduler(max_run_time: int | None, problems: Problems) -> SchedulerConfig | None:
    """Returns the time limit."""
    if max_run_time is None:
        return None
    if isinstance(max_run_time, bool) or not isinstance(max_run_time, int) or not 1 <= max_run_time <= _MAX_INT32:
        expected = "an integer (minimum 1), or None for no limit"
        problems.entries.append(wrong_value("max_run_time", max_run_time, expected))
        return None
    return SchedulerConfig(max_running_time_in_seconds=max_run_time)


def metrics(
    definitions: Sequence[MetricDefinition | Mapping[str, Any]] | None, problems: Problems
) -> list[MetricDefinition]:
    """Returns the metric definitions whose regular expressions compile and have a group."""
    checked: list[MetricDefinition] = []
    for number, definition in enumerate(definitions or ()):
        with problems.under(f"metric_definitions[{number}]"):
            metric = MetricDefinition.model_validate(definition)
            checked.append(metric)
            try:
                groups = re.compile(metric.regex).groups
            except re.error as error:
                problems.add(f"metric_definitions[{number}].regex", f"{metric.regex!r} does not compile: {error}")
                continue
            if groups < 1:
                hint = "put the number into parentheses: 'loss=([0-9.]+)'"
                problems.add(f"metric_definitions[{number}].regex", f"{metric.regex!r} has no group", hint)
    return checked


# ---- the command


def check_values(image: str, command: str | Sequence[str], problems: Problems) -> None:
    """Adds a problem for a value of another SDK, such as a role in place of the command."""
    for name, value in (("image_uri", image), ("command", command)):
        if hint := value_hint(value):
            problems.add(name, *hint)


def command_list(command: str | Sequence[str], problems: Problems) -> list[str]:
    """Returns the command as it is sent: a string runs by `sh -c`, with Unix line ends; a list is unchanged."""
    if isinstance(command, str):
        if not command.strip():
            problems.add("command", "is empty", "give the program to run")
        return ["sh", "-c", unix_text(command)]
    parts = list(command) if isinstance(command, Sequence) and not isinstance(command, bytes) else []
    if not parts or not all(isinstance(part, str) for part in parts):
        problems.add(
            "command", type_problem("a string or a list of strings", command), "such as 'python train.py'"
        )
        return parts
    for number, part in enumerate(parts):
        if is_windows_line(part):
            problems.add(f"command[{number}]", WINDOWS_LINE_END, "remove it: part.rstrip('\\r')")
    if is_shell(parts) and "\r\n" in parts[-1]:
        message = "has Windows line endings (CRLF), which a shell reads as part of names and values"
        problems.add(
            f"command[{len(parts) - 1}]", message, "give the script as one text, or replace them by '\\n'"
        )
    return parts


def check_entry(command: Sequence[str], tree: FileTree, source_dir: object) -> None:
    """Checks that the first script of the command is in the code folder, and that the job can read the scripts."""
    if problems := [*file_problems(command, tree)]:
        raise InvalidInputError(problems)
    # Only what is certain: an interpreter as the first word, and a plain relative path. Other scripts may come
    # from the image or from an earlier step.
    script = first_script(command)
    names = [entry.path for entry in tree.entries]
    if (program := script_as_program(command)) in names:
        runner = RUNNERS[f".{str(program).rpartition('.')[2]}"]
        problem = f"{program!r} is a file in source_dir {str(source_dir)!r}, not a program"
        raise InvalidInputError([Problem("command", problem, f"{runner} {program}")])
    if script is None or script.startswith("/") or script in names:
        return
    message = f"entry {script!r} not found in source_dir {str(source_dir)!r}"
    raise InvalidInputError([Problem("", message, name_hint(script, names, intro="it has"))])


def hiding_pipe(command: Sequence[str]) -> str:
    """Returns the pipe of a shell command that hides the failure of a program; empty if none certainly does."""
    # A shell returns the exit code of the last program of a pipe. Scripts with `pipefail`, here-documents, `case`
    # or substitutions outside quotes are not examined.
    *shell, script = command or [""]
    is_shell = len(shell) > 1 and shell[0].rpartition("/")[2] in SHELLS and shell[-1].startswith("-")
    # Characters that are quoted or in a comment are replaced, so that places in both texts are the same.
    plain = _NOT_SHELL.sub(lambda quoted: "_" * len(quoted[0]), script)
    if not is_shell or "pipefail" in f"{shell}{plain}" or _NOT_EXAMINED.search(plain):
        return ""
    for match in _PIPELINE.finditer(plain):
        *first, _ = re.split(r"(?<!>)\|&?", match[0])
        if any((program := PROGRAM.match(part)) and program[1] not in _FEEDERS for part in first):
            return script[match.start() : match.end()].strip(" \t()")
    return ""


# ---- roles -------------------------------------------------------------------------------------------------


def wire_roles(
    roles: Mapping[str, Role | Mapping[str, Any]] | None, instance_count: int, problems: Problems
) -> list[roles_wire.Role] | None:
    """Returns the roles of a request; None for a job of like instances."""
    if roles is None:
        return None
    if instance_count != 1:
        problems.add("instance_count", "conflicts with roles", "give each role its instance_count instead")
    converted = [_wire_role(name, value, problems) for name, value in roles.items()]
    correct = [role for role in converted if role is not None]
    if len(correct) == len(converted):
        for problem in roles_wire.role_problems(correct):
            problems.add("roles", problem)
    return correct


def _wire_role(name: Any, value: Any, problems: Problems) -> roles_wire.Role | None:
    where = f"roles[{name!r}]"
    names = [field.name for field in fields(Role)]
    if not isinstance(value, Role):
        if not isinstance(value, Mapping):
            problems.add(where, type_problem("a Role, or a mapping", value), f"of {', '.join(names)}")
            return None
        unknown = [str(key) for key in value if key not in names]
        for key in unknown:
            problems.add(f"{where}.{key}", "is unknown", name_hint(key, names))
        if unknown:
            return None
        value = Role(**value)
    count = value.instance_count
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        problems.entries.append(wrong_value(f"{where}.instance_count", count, "an integer (minimum 1)"))
        return None
    after = [value.start_after] if isinstance(value.start_after, str) else value.start_after
    values = {
        "name": name,
        "count": count,
        "image": value.image_uri,
        "command": None if value.command is None else command_list(value.command, problems),
        "ecs_spec": value.instance_type,
        "instance_spec": value.instance_spec,
        "restart_policy": value.restart_policy,
        "is_chief": value.is_chief,
        "counts_for_success": value.counts_for_success,
        "start_after": None if after is None else [{"role": role} for role in after],
    }
    with problems.under(where):
        return roles_wire.Role.model_validate({name: each for name, each in values.items() if each is not None})
    return None
