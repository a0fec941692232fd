"""A function whose calls are jobs: `@remote(…)`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import update_wrapper
from inspect import signature
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from pai_sdk._client.code.function_package import FunctionCall
from pai_sdk._client.submit.estimator import FunctionEstimator
from pai_sdk._core.short_traceback import short_tracebacks
from pai_sdk._data.run.functions.calling import suspends
from pai_sdk.errors import InvalidInputError, Problem, RemoteTraceback

if TYPE_CHECKING:
    from pai_sdk._client.job.training_job import TrainingJob

P = ParamSpec("P")
R = TypeVar("R")

_MAX_SUBMISSIONS = 8


@short_tracebacks
class RemoteFunction(Generic[P, R]):
    """A function whose calls are jobs; created by `remote`.

    Attributes:
        function: the function itself; a call of it runs in this process.
        estimator: submits the jobs; its `jobs` are those submitted so far.
    """

    def __init__(self, function: Callable[P, R], estimator: FunctionEstimator, *, show_logs: bool) -> None:
        update_wrapper(self, function)
        self.function = function
        self.estimator = estimator
        self._show_logs = show_logs

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Runs the call as a job, waits for it, and returns its value.

        Raises:
            Exception: raised by the function; its cause is the traceback in the job.
            JobFailed: the job ended without a result.
        """
        value: R = self._submit(args, kwargs, show_logs=self._show_logs).result(show_logs=self._show_logs)
        return value

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> TrainingJob:
        """Submits the call as a job, and returns at once; `job.result()` waits for its value."""
        return self._submit(args, kwargs)

    def map(self, items: Iterable[Any], *, return_exceptions: bool = False) -> list[Any]:
        """Runs a job for each item, all at once, and returns their values in the order of the items.

        Args:
            items: a dict has keyword arguments, a tuple positional ones, anything else is the one argument.
            return_exceptions: return the error of a job in place of its value, whatever the function raised.

        Raises:
            Exception: the error of the first item that failed, after all jobs have finished.
        """
        calls = [_arguments(item) for item in items]
        for args, kwargs in calls:  # wrong ones, before anything is sent
            self._check(args, kwargs)
        # Submissions mostly wait for uploads and the service, so threads shorten them. `pool.map` keeps the order.
        with ThreadPoolExecutor(_MAX_SUBMISSIONS) as pool:
            jobs = list(pool.map(lambda call: self._submit(*call), calls))
        # All of them, before the first error is raised: no job is left without its outcome.
        results = [_result_or_error(job) for job in jobs]
        errors = [error for _, error in results if error is not None]
        if errors and not return_exceptions:
            raise errors[0]
        return [value if error is None else error for value, error in results]

    def _check(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        try:
            signature(self.function).bind(*args, **kwargs)
        except TypeError as error:
            hint = "in map(), a dict gives keyword arguments and a tuple positional ones"
            raise InvalidInputError([Problem("arguments", str(error), hint)]) from None

    def _submit(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, show_logs: bool = False) -> TrainingJob:
        self._check(args, kwargs)
        plan = self.estimator.plan_call(FunctionCall(self.function, args, kwargs))
        return self.estimator.submit(plan, show_logs=show_logs)

    def __repr__(self) -> str:
        return f"<RemoteFunction {getattr(self.function, '__qualname__', self.function)}>"


def _arguments(item: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(item, dict):
        return (), item
    return (item if isinstance(item, tuple) else (item,)), {}


def _result_or_error(job: TrainingJob) -> tuple[Any, BaseException | None]:
    try:
        return job.result(), None
    except BaseException as error:  # of the function, or of its job
        if isinstance(error, Exception) or _is_remote(error):
            return None, error
        raise  # Ctrl-C here


def _is_remote(error: BaseException) -> bool:
    """Returns True for an error that was raised in a job: its last cause is the traceback there."""
    cause, visited = error.__cause__, {id(error)}
    # A chain of causes can have a cycle.
    while cause is not None and id(cause) not in visited:
        if isinstance(cause, RemoteTraceback):
            return True
        visited.add(id(cause))
        cause = cause.__cause__
    return False


def _check_returns(function: Callable[..., Any]) -> None:
    """Refuses a generator function or an async one: a call of it returns no value."""
    name = getattr(function, "__name__", type(function).__name__)
    if suspends(function) == "async":
        hint = "call asyncio.run() in a plain function"
        raise InvalidInputError(
            [Problem("function", f"{name} is an async function: a job does not run an event loop", hint)]
        )
    if suspends(function) == "generator":
        hint = "return a list; for a training whose yields are reported, use Estimator.from_function"
        raise InvalidInputError(
            [Problem("function", f"{name} is a generator function: its call has no value", hint)]
        )


def remote(
    *, image_uri: str, show_logs: bool = True, **parameters: Any
) -> Callable[[Callable[P, R]], RemoteFunction[P, R]]:
    """Make the calls of a function jobs.

    Args:
        image_uri: the image; it needs the Python that runs here, and the packages that the function uses.
        show_logs: whether a call shows status and log of its job while it waits.
        parameters: all others of an `Estimator`: `instance_type`, `requirements`, `source_dir`, `session`, ….

    Raises:
        WrongCallError: there is no such parameter.
        InvalidInputError: the function is a generator function or an async one.

    Example:
        >>> @remote(instance_type="ecs.c6.large", image_uri="python:3.11")
        ... def train(lr):
        ...     return 1 - lr
        >>> train.function(lr=0.25)
        0.75
    """

    def decorate(function: Callable[P, R]) -> RemoteFunction[P, R]:
        _check_returns(function)
        estimator = FunctionEstimator(function=function, image_uri=image_uri, **parameters)
        return RemoteFunction(function, estimator, show_logs=show_logs)

    return decorate
