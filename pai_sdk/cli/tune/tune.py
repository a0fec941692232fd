"""The command `tune`: a search for hyperparameters over a job file."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pai_sdk.cli import exit_codes
from pai_sdk.cli.tables import print_error, print_plan
from pai_sdk.errors import TuningFailed

if TYPE_CHECKING:
    from pai_sdk._client.tune import Trial

_how = partial(typer.Option, rich_help_panel="How it searches")
_then = partial(typer.Option, rich_help_panel="What happens")


def tune(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A job file in YAML, of an Estimator.")],
    search: Annotated[
        Path, typer.Option("--search", metavar="FILE", help="A YAML file with the range of each hyperparameter.")
    ],
    trials: Annotated[int | None, typer.Option(help="The number of trials; 20 by default.")] = None,
    parallel: Annotated[int | None, typer.Option(help="Maximum number of jobs at once; 4 by default.")] = None,
    objective: Annotated[str | None, _how(metavar="METRIC", help="The metric; loss by default.")] = None,
    direction: Annotated[str | None, _how(help="minimize or maximize.")] = None,
    sampler: Annotated[
        str | None, _how(help="tpe, random, grid, cmaes, gp, nsga2, qmc or pbt; tpe by default.")
    ] = None,
    pruner: Annotated[str | None, _how(help="Stops poor trials early: asha, median or hyperband.")] = None,
    seed: Annotated[int | None, _how(help="The random seed of the search.")] = None,
    warm_start: Annotated[
        str | None, _how(metavar="URI", help="Start from the trials of this study or run store.")
    ] = None,
    study: Annotated[
        str | None, _then(metavar="URI", help="The folder of the study; an existing study is continued.")
    ] = None,
    max_failures: Annotated[int | None, _then(help="Stop when more trials have failed; 5 by default.")] = None,
    timeout: Annotated[
        float | None, _then(help="Maximum duration in seconds; then running jobs are stopped.", min=0)
    ] = None,
    values: Annotated[
        list[str] | None,
        typer.Option("--set", "-s", metavar="KEY=VALUE", help="A fixed hyperparameter; may be repeated."),
    ] = None,
    dry_run: Annotated[bool, _then("--dry-run", help="Print the request of a trial as JSON.")] = False,
    as_json: Annotated[bool, _then("--json", help="Print one JSON object per trial.")] = False,
) -> None:
    """Search for the best hyperparameters for a metric; each trial is a job.

    Example: pai-sdk tune job.yaml --search space.yaml --trials 50 --parallel 8
    """
    from pai_sdk.cli.tune.described import described_search  # for weight

    tuner, inputs = described_search(file, search, values, context.params)
    if dry_run:
        print_plan(tuner.plan(inputs))
        return
    typer.echo(f"study: {tuner.study}", err=True)
    try:
        finished_trials = tuner.run(inputs, show=not as_json)
    except TuningFailed as error:
        print_error(str(error))
        raise typer.Exit(exit_codes.FAILED) from None
    if as_json:
        for trial in finished_trials:
            typer.echo(json.dumps(_json_of(trial), ensure_ascii=False))
        return
    typer.echo(repr(finished_trials))
    if finished_trials.best is not None:
        best = finished_trials.best
        typer.echo(f"best: trial {best.number}; to download its model: pai-sdk download {best.job_id} model")


def _json_of(trial: Trial) -> dict[str, Any]:
    return {
        "number": trial.number,
        "state": trial.state,
        "parent": trial.parent,
        "params": trial.params,
        "values": trial.values,
        "job": trial.job_id,
        "reason": trial.reason,
        "seconds": trial.seconds,
    }
