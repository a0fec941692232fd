"""The command `tune`: a search for hyperparameters over a job file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pai_sdk.cli import exit_codes
from pai_sdk.cli.tables import print_error
from pai_sdk.errors import TuningFailed

if TYPE_CHECKING:
    from pai_sdk._client.tune import Trial

_HOW, _THEN = "How it searches", "What happens"


def tune(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A job file in YAML, of an Estimator.")],
    search: Annotated[
        Path, typer.Option("--search", metavar="FILE", help="A YAML file with the range of each hyperparameter.")
    ],
    trials: Annotated[int | None, typer.Option(help="How many trials; 20 by default.")] = None,
    parallel: Annotated[int | None, typer.Option(help="How many jobs run at once; 4 by default.")] = None,
    objective: Annotated[
        str | None, typer.Option(metavar="METRIC", help="The metric; loss by default.", rich_help_panel=_HOW)
    ] = None,
    direction: Annotated[str | None, typer.Option(help="minimize or maximize.", rich_help_panel=_HOW)] = None,
    sampler: Annotated[
        str | None,
        typer.Option(
            help="tpe, random, grid, cmaes, gp, nsga2, qmc or pbt; tpe by default.", rich_help_panel=_HOW
        ),
    ] = None,
    pruner: Annotated[
        str | None,
        typer.Option(help="Ends poor trials early: asha, median or hyperband.", rich_help_panel=_HOW),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Decides which values are tried.", rich_help_panel=_HOW)] = None,
    warm_start: Annotated[
        str | None,
        typer.Option(
            metavar="URI", help="Begin with the trials of this study or run store.", rich_help_panel=_HOW
        ),
    ] = None,
    study: Annotated[
        str | None,
        typer.Option(
            metavar="URI", help="The folder of the study; one that is there is continued.", rich_help_panel=_THEN
        ),
    ] = None,
    max_failures: Annotated[
        int | None, typer.Option(help="End when more trials have failed; 5 by default.", rich_help_panel=_THEN)
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            help="End after this time, in seconds; jobs that run are stopped.", min=0, rich_help_panel=_THEN
        ),
    ] = None,
    values: Annotated[
        list[str] | None,
        typer.Option("--set", "-s", metavar="KEY=VALUE", help="A fixed hyperparameter; may be repeated."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan of a trial.", rich_help_panel=_THEN)
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print each trial as a JSON object.", rich_help_panel=_THEN)
    ] = False,
) -> None:
    """Search for the hyperparameters with which a metric is best; each trial is a job.

    Example: pai-sdk tune job.yaml --search space.yaml --trials 50 --parallel 8
    """
    options = {
        "trials": trials,
        "parallel": parallel,
        "objective": objective,
        "direction": direction,
        "sampler": sampler,
        "pruner": pruner,
        "seed": seed,
        "warm_start": warm_start,
        "study": study,
        "max_failures": max_failures,
        "timeout": timeout,
    }
    from pai_sdk.cli.tune.described import described_search  # for weight

    tuner, inputs = described_search(file, search, values, options)
    if dry_run:
        typer.echo(str(tuner.plan(inputs)))
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
