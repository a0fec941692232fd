"""The commands about registered algorithms: create, list, show."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pai_sdk.cli.where.place import placed
from pai_sdk.errors import InvalidInputError, Problem
from pai_sdk.schemas.spec import AlgorithmSpec
from pai_sdk.schemas.wire import problems_of
from pai_sdk.session import get_default_session

if TYPE_CHECKING:
    from pai_sdk.schemas.spec import AlgorithmSpec

__all__ = ["app"]

_placed = partial(placed, with_local=False)
app = typer.Typer(help="Registered algorithms: create, list, show.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="The algorithm's exact name.")]
Provider = Annotated[
    str | None, typer.Option(help="The provider: 'pai' for PAI's own algorithms; yours by default.")
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object a line, for scripts.")]


@app.command()
@_placed
def create(
    name: Name,
    version: Annotated[str, typer.Argument(help="The new version, such as v1.")],
    spec: Annotated[Path, typer.Option(help="A JSON file with the AlgorithmSpec: Image, Command, …")],
    description: Annotated[str | None, typer.Option(help="What it does, for people.")] = None,
) -> None:
    """Register a version of an algorithm, and the algorithm if none has that name.

    Example: pai-sdk algorithm create digits v1 --spec algorithm.json
    """
    content = _read(spec)
    algorithms = get_default_session().algorithms
    known = [algorithm for algorithm in algorithms.list(name=name) if algorithm.algorithm_name == name]
    algorithm_id = known[0].algorithm_id if known else algorithms.create(name, description=description)
    algorithms.create_version(algorithm_id, version, content)
    typer.echo(f"{name} {version} is registered; run it with AlgorithmEstimator({name!r}, {version!r})")


@app.command("list")
@_placed
def list_(provider: Provider = None, as_json: Json = False) -> None:
    """List algorithms, as the service orders them.

    Example: pai-sdk algorithm list --provider pai
    """
    found = list(get_default_session().algorithms.list(provider=provider))
    if not found and not as_json:
        typer.echo("no algorithms")
    for algorithm in found:
        if as_json:
            typer.echo(json.dumps(algorithm.model_dump(by_alias=True), ensure_ascii=False))
        else:
            typer.echo(f"{algorithm.algorithm_name}  {algorithm.algorithm_description or ''}".rstrip())


@app.command()
@_placed
def show(
    name: Name,
    version: Annotated[str | None, typer.Argument(help="The newest version otherwise.")] = None,
    provider: Provider = None,
) -> None:
    """Show what a version of an algorithm takes and does, as JSON.

    Example: pai-sdk algorithm show digits v1
    """
    algorithms = get_default_session().algorithms
    found = algorithms.find(name, provider)
    wanted = version or getattr(algorithms.latest_version(found.algorithm_id), "algorithm_version", None)
    if wanted is None:
        raise InvalidInputError([Problem("name", f"the algorithm {name!r} has no version yet")])
    shown = algorithms.get_version(found.algorithm_id, wanted).model_dump(by_alias=True, exclude_none=True)
    typer.echo(json.dumps(shown, ensure_ascii=False, indent=2))


def _read(path: Path) -> AlgorithmSpec:
    """The spec of a file, checked before anything is registered."""
    from pydantic import ValidationError

    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInputError([Problem("--spec", f"{path} cannot be read: {error.strerror}")]) from None
    except ValueError as error:
        raise InvalidInputError([Problem("--spec", f"{path} is not JSON: {error}")]) from None
    if not isinstance(content, dict):
        raise InvalidInputError([Problem("--spec", f"{path} does not contain a JSON object")])
    try:
        return AlgorithmSpec.model_validate(content)
    except ValidationError as error:
        raise InvalidInputError(problems_of(error, "--spec")) from None
