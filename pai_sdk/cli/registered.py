"""The commands about registered algorithms and models: create, list, show."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pai_sdk._client.session import get_default_session
from pai_sdk._wire.pai.recipes import check_model_uri, check_recipes
from pai_sdk._wire.pai.spec import AlgorithmSpec
from pai_sdk._wire.pai.wire import problems_of
from pai_sdk.cli.options import Json
from pai_sdk.cli.selection.backend import with_backend_options
from pai_sdk.cli.usage.help import Commands
from pai_sdk.errors import InvalidInputError, Problem

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pai_sdk._wire.models import ModelRecord
    from pai_sdk._wire.pai.wire import Received

_with_backend_options = partial(with_backend_options, with_local=False)
algorithms = Commands(help="Registered algorithms: create, list, show.", example="pai-sdk algorithm list")
models = Commands(help="Registered models: create, list, show.", example="pai-sdk model list --provider pai")

Name = Annotated[str, typer.Argument(help="The exact name.")]
Version = Annotated[str | None, typer.Argument(help="The version; the newest one by default.")]
Provider = Annotated[str | None, typer.Option(help="The provider: 'pai' for PAI's own; yours by default.")]


@algorithms.command("create")
@_with_backend_options
def create_algorithm(
    name: Name,
    version: Annotated[str, typer.Argument(help="The new version, such as v1.")],
    spec: Annotated[Path, typer.Option(help="A JSON file with the AlgorithmSpec: Image, Command, …")],
    description: Annotated[str | None, typer.Option(help="A description.")] = None,
) -> None:
    """Register a version of an algorithm; creates the algorithm if it does not exist.

    Example: pai-sdk algorithm create digits v1 --spec algorithm.json
    """
    from pydantic import ValidationError

    try:
        content = AlgorithmSpec.model_validate(_read(spec, "--spec"))
    except ValidationError as error:
        raise InvalidInputError(problems_of(error, "--spec")) from None
    registered = get_default_session().algorithms
    matches = [algorithm for algorithm in registered.list(name=name) if algorithm.algorithm_name == name]
    algorithm_id = matches[0].algorithm_id if matches else registered.create(name, description=description)
    registered.create_version(algorithm_id, version, content)
    typer.echo(f"{name} {version} is registered; run it with AlgorithmEstimator({name!r}, {version!r})")


@algorithms.command("list")
@_with_backend_options
def list_algorithms(provider: Provider = None, as_json: Json = False) -> None:
    """List algorithms, in the order of the service.

    Example: pai-sdk algorithm list --provider pai
    """
    provider_algorithms = get_default_session().algorithms.list(provider=provider)
    _print_all(
        ((record, (record.algorithm_name, record.algorithm_description)) for record in provider_algorithms),
        "algorithms",
        as_json,
    )


@algorithms.command("show")
@_with_backend_options
def show_algorithm(name: Name, version: Version = None, provider: Provider = None) -> None:
    """Show a version of an algorithm as JSON: image, command, channels, hyperparameters.

    Example: pai-sdk algorithm show digits v1
    """
    registered = get_default_session().algorithms
    algorithm = registered.find(name, provider)
    selected = version or getattr(registered.latest_version(algorithm.algorithm_id), "algorithm_version", None)
    if selected is None:
        raise InvalidInputError([Problem("name", f"the algorithm {name!r} has no version yet")])
    _print_record(registered.get_version(algorithm.algorithm_id, selected))


@models.command("create")
@_with_backend_options
def create_model(
    name: Name,
    uri: Annotated[str, typer.Argument(help="Where the files of the model are: oss://bucket/folder/.")],
    version: Annotated[
        str | None, typer.Option(help="The new version, such as 1.0.0; by default, the service numbers it.")
    ] = None,
    training_spec: Annotated[
        Path | None, typer.Option(help="A JSON file with the TrainingSpec: AlgorithmSpec or AlgorithmName, …")
    ] = None,
    task: Annotated[str | None, typer.Option(help="What the model is for.")] = None,
    description: Annotated[str | None, typer.Option(help="A description.")] = None,
) -> None:
    """Register a version of a model; creates the model if it does not exist.

    Example: pai-sdk model create digits oss://models/digits/ --training-spec recipe.json
    """
    spec = None if training_spec is None else _read(training_spec, "--training-spec")
    if spec is not None:
        check_recipes(spec, "--training-spec")
    check_model_uri(uri, "URI")
    registered = get_default_session().models
    matches = [model for model in registered.list(name=name, exact=True) if model.model_name == name]
    model_id = matches[0].model_id if matches else registered.create(name, description=description, task=task)
    created = registered.create_version(model_id, uri, version, training_spec=spec, description=description)
    use = "" if spec is None else f"; train it with ModelTrainingRecipe({name!r}, {created!r})"
    typer.echo(f"{name} {created} is registered{use}")


@models.command("list")
@_with_backend_options
def list_models(provider: Provider = None, as_json: Json = False) -> None:
    """List models, the newest first, each with its newest version.

    Example: pai-sdk model list --provider pai
    """
    provider_models = get_default_session().models.list(provider=provider)
    _print_all(
        ((record, (record.model_name, _newest(record), record.model_description)) for record in provider_models),
        "models",
        as_json,
    )


@models.command("show")
@_with_backend_options
def show_model(name: Name, version: Version = None, provider: Provider = None) -> None:
    """Show a version of a model with its recipes, as JSON.

    Example: pai-sdk model show digits
    """
    _print_record(get_default_session().models.find_version(name, version, provider)[1])


def _print_all(rows: Iterable[tuple[Received, tuple[str | None, ...]]], title: str, as_json: bool) -> None:
    has_rows = False
    for record, cells in rows:
        has_rows = True
        if as_json:
            typer.echo(json.dumps(record.model_dump(by_alias=True), ensure_ascii=False))
        else:
            typer.echo("  ".join(cell for cell in cells if cell))
    if not has_rows and not as_json:
        typer.echo(f"no {title}")


def _newest(model: ModelRecord) -> str | None:
    return model.latest_version.version_name if model.latest_version else None


def _print_record(record: Received) -> None:
    typer.echo(json.dumps(record.model_dump(by_alias=True, exclude_none=True), ensure_ascii=False, indent=2))


def _read(path: Path, option: str) -> dict[str, Any]:
    """Reads a JSON object from a file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInputError([Problem(option, f"{path} cannot be read: {error.strerror}")]) from None
    except ValueError as error:
        raise InvalidInputError([Problem(option, f"{path} is not JSON: {error}")]) from None
    if not isinstance(content, dict):
        raise InvalidInputError([Problem(option, f"{path} does not contain a JSON object")])
    return content
