"""Many jobs, a few of them at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Literal

from pai_sdk._client.backend.base import Plan
from pai_sdk._client.backend.specs import backend_for_type
from pai_sdk._client.display.choice import notebook_cell
from pai_sdk._client.job.follow.polling import FollowPolicy
from pai_sdk._client.job.follow.watch import JobWatch
from pai_sdk._client.job.gather import FailFast, Gathering
from pai_sdk._client.job.result_lists import ResultList
from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk._client.session import Session, session_or_default
from pai_sdk._client.submit.channels import InputSource
from pai_sdk._client.submit.submitter import JobSubmitter
from pai_sdk._core.names.hints import wrong_type, wrong_value
from pai_sdk._core.short_traceback import short_traceback
from pai_sdk.errors import InvalidInputError, PaiError, Problem

_HINT = "to run the same one twice, give it twice"


@short_traceback
def run_all(
    submitters: Iterable[JobSubmitter | Plan],
    inputs: Mapping[str, InputSource] | None = None,
    *,
    max_parallel: int = 8,
    fail_fast: FailFast = False,
    show: bool = True,
    on_interrupt: Literal["detach", "stop"] = "detach",
    session: Session | None = None,
    policy: FollowPolicy | None = None,
) -> ResultList[TrainingJob]:
    """Run many jobs, at most `max_parallel` of them at a time: the next one is submitted when one has ended.

    All plans are made first, so a mistake in the last one is found before the first job is submitted.

    Args:
        submitters: estimators and processors, or plans that were made before.
        inputs: maps each input channel to its data, for all of them that are not plans yet.
        max_parallel: how many jobs may have been submitted and not ended.
        fail_fast: False runs all jobs, and then raises one error with all failures. With True, no job is submitted
            after the first failure, and running jobs continue. `"stop"` stops them, too.
        show: a live table in a terminal or a notebook, a line for each end elsewhere.
        on_interrupt: effect of Ctrl-C on running jobs: they continue, or they are stopped and waited for.
        session: where plans are submitted; submitters use their own.
        policy: the polling intervals.

    Returns:
        The jobs, in the order of `submitters`; the list shows as a table. All of them have succeeded.

    Raises:
        InvalidInputError: something cannot be submitted; `problems` lists the problems of all of them.
        JobsFailed: jobs failed or were stopped, or one could not be submitted; after that, none was submitted.
        KeyboardInterrupt: Ctrl-C; its message has the state of the jobs.

    Example:
        >>> def search(estimators: list[JobSubmitter]) -> list[TrainingJob]:
        ...     return run_all(estimators, {"train": "oss://models/train.csv"}, max_parallel=4)
    """
    if not isinstance(max_parallel, int) or max_parallel < 1:
        raise InvalidInputError([wrong_value("max_parallel", max_parallel, "an integer (minimum 1)")])
    waiting = deque(_planned(submitters, inputs, session))
    gathering = Gathering(
        [], fail_fast=fail_fast, on_interrupt=on_interrupt, show=show, policy=policy, expected=len(waiting)
    )
    jobs = ResultList[TrainingJob](displayed_in_cell=notebook_cell() if show else None)
    with gathering.watching() as watch:
        _submit_next(waiting, gathering, watch, jobs, max_parallel)
        for _ in gathering.completions(watch):
            _submit_next(waiting, gathering, watch, jobs, max_parallel)
    gathering.not_submitted += len(waiting)
    gathering.records(watch)
    return jobs


def _submit_next(
    waiting: deque[tuple[str, Callable[[], TrainingJob]]],
    gathering: Gathering,
    watch: JobWatch[TrainingJob],
    jobs: list[TrainingJob],
    max_parallel: int,
) -> None:
    """Submits until `max_parallel` jobs are unfinished; stops after a failed submission."""
    while waiting and len(watch.unfinished) < max_parallel:
        name, submit = waiting.popleft()
        try:
            job = submit()
        except PaiError as error:
            gathering.failures[name] = error
            gathering.not_submitted = len(waiting)
            waiting.clear()
            return
        jobs.append(job)
        gathering.add(watch, job)


def _planned(
    submitters: Iterable[JobSubmitter | Plan], inputs: Mapping[str, InputSource] | None, session: Session | None
) -> list[tuple[str, Callable[[], TrainingJob]]]:
    """Returns the name of each job, and the function that submits it."""
    items: Sequence[object] = [] if isinstance(submitters, str | Mapping | JobSubmitter | Plan) else [*submitters]
    if not items and not isinstance(submitters, Sequence):
        raise InvalidInputError(
            [wrong_type("submitters", submitters, "a list of estimators, processors or plans", _HINT)]
        )
    planned: list[tuple[str, Callable[[], TrainingJob]]] = []
    problems: list[Problem] = []
    for number, submitter in enumerate(items):
        if isinstance(submitter, Plan):
            planned.append((submitter.request.training_job_name, partial(_submit_plan, submitter, session)))
        elif isinstance(submitter, JobSubmitter):
            try:
                plan = submitter.plan(inputs)
            except InvalidInputError as error:
                problems += [Problem(f"submitters[{number}].{p.where}", p.what, p.hint) for p in error.problems]
                continue
            planned.append((plan.request.training_job_name, partial(submitter.submit, plan, show_logs=False)))
        else:
            problems.append(wrong_type(f"submitters[{number}]", submitter, "an estimator, a processor or a plan"))
    if problems:
        raise InvalidInputError(problems)
    return planned


def _submit_plan(plan: Plan, session: Session | None) -> TrainingJob:
    compute = plan.request.compute_resource
    is_local = compute is not None and backend_for_type(compute.ecs_spec).is_local
    target_session: Session = session_or_default(session, local=is_local)
    return target_session.submit(plan)
