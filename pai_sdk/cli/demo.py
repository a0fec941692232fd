"""`pai-sdk demo`: two real jobs. A Processor prepares data, an Estimator trains on it, the model is downloaded."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import pai_sdk
from pai_sdk._client.backend.specs import LOCAL, backend_for_type
from pai_sdk._client.display.commands import commands_with_option, list_command, page_url
from pai_sdk._client.job import Channel
from pai_sdk._core.config.settings import load_settings
from pai_sdk.cli.selection.backend import selected_backend
from pai_sdk.errors import PaiError

if TYPE_CHECKING:
    from pai_sdk._client.job import TrainingJob

_CODE = Path(__file__).with_name("demo_code")
_SHADES = " ░▒▓█"
_SIDE = 8  # pixels of an image, each way
_SAMPLE = 42  # the image that the trained model classifies at the end


def demo(
    instance_type: Annotated[
        str, typer.Option(help="Type of the jobs' instances; `local` runs them in Docker on this machine.")
    ] = "ecs.c6.large",
    image: Annotated[str, typer.Option(help="Image of the jobs; used by Docker only.")] = "python:3.11",
    output: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("pai-sdk-demo"),
) -> None:
    """Train a real model in two jobs, on the embedded service: no account needed.

    Example: pai-sdk demo --output /tmp/demo
    """
    selection = selected_backend()
    if selection.local:
        instance_type = LOCAL.instance_types[0]
    backend_info = backend_for_type(instance_type)
    if backend_info.is_local:
        session = pai_sdk.Session()
        typer.echo("The jobs run in Docker on this machine.")
    elif selection.profile is not None:
        session = pai_sdk.get_default_session()
        typer.echo(f"The jobs run in {selection.describe()}.")
    else:
        session = pai_sdk.Session.embedded()
        typer.echo(f"The embedded service is running: {session.settings.endpoint}")

    # If a region is set, the jobs of the embedded service are listed only with an option.
    needs_option = session.is_embedded and not load_settings().is_empty
    option = backend_info.list_option or selection.option or ("--embedded" if needs_option else "")
    with commands_with_option("" if backend_info.is_local else option):
        _headline("1. Processor: prepare the data (this job also installs scikit-learn; later jobs reuse it)")
        prepared = _prepare(session, instance_type, image)
        _headline("2. Estimator: train on it")
        trained = _train(prepared, session, instance_type, image)
        _headline("3. Results")
        _show_results(prepared, trained, output)
    typer.echo(f"\nThe code of both jobs is in {_CODE}; `{list_command(option)}` lists the jobs.")
    _show_page(session, trained)


def _show_page(session: pai_sdk.Session, job: TrainingJob) -> None:
    """Prints a link to the job's page that signs in; nothing if its service has no page."""
    if page_url(job.record) is None:
        return
    with suppress(PaiError):
        typer.echo(f"Open its page within a minute: {session.new_page_link(job.id)}")


def _prepare(session: pai_sdk.Session, instance_type: str, image: str) -> TrainingJob:
    processor = pai_sdk.Processor(
        image_uri=image,
        command="python prepare.py",
        source_dir=_CODE,
        parameters={"keep": 1500},
        instance_type=instance_type,
        session=session,
    )
    processor.set_output_channels([Channel(name="data")])
    return processor.run()


def _train(prepared: TrainingJob, session: pai_sdk.Session, instance_type: str, image: str) -> TrainingJob:
    estimator = pai_sdk.Estimator(
        image_uri=image,
        command="python train.py $PAI_USER_ARGS",
        source_dir=_CODE,
        hyperparameters={"epochs": 8, "alpha": 0.0005},
        instance_type=instance_type,
        session=session,
    )
    return estimator.fit({"train": prepared.outputs["data"]})


def _show_results(prepared: TrainingJob, trained: TrainingJob, output: Path) -> None:
    typer.echo("accuracy:      " + " ".join(f"{point.value:.3f}" for point in trained.metrics("accuracy")))
    typer.echo(f"model:         {trained.outputs['model']}")
    folder = trained.download("model", output / "model")
    typer.echo(f"downloaded to: {folder.resolve()}")
    model = json.loads((folder / "model.json").read_text(encoding="utf-8"))
    data = json.loads((prepared.download("data", output / "data") / "digits.json").read_text(encoding="utf-8"))
    typer.echo("The model classifies one of the images:")
    _show_digit(data["images"][_SAMPLE], model)


def _show_digit(image: list[float], model: dict[str, Any]) -> None:
    """Draws an image, and prints the prediction of the model."""
    for start in range(0, _SIDE * _SIDE, _SIDE):
        shades = (_SHADES[min(4, int(pixel * 5))] * 2 for pixel in image[start : start + _SIDE])
        typer.echo(f"    {''.join(shades)}")
    scores = [
        sum(weight * pixel for weight, pixel in zip(weights, image, strict=True)) + offset
        for weights, offset in zip(model["coef"], model["intercept"], strict=True)
    ]
    typer.echo(f"    predicted digit: {model['digits'][scores.index(max(scores))]}")


def _headline(text: str) -> None:
    typer.secho(f"\n{text}", bold=True)
