"""A function as a job: `Estimator.from_function(train)` and `@remote(…)`."""

from __future__ import annotations

import copy
import os
import re
import shutil
import sys
import tempfile
import weakref
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import update_wrapper
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from pai_sdk.base.keywords import checks_keywords, init_checks_keywords
from pai_sdk.base.short_traceback import short_tracebacks
from pai_sdk.errors import InvalidInputError, Problem, RemoteTraceback
from pai_sdk.run.calling import KEY_VARIABLE, RESULT_CHANNEL, suspends
from pai_sdk.schemas.names import LOCAL_TYPES
from pai_sdk.submit.estimator import Estimator
from pai_sdk.submit.submitter import Description

if TYPE_CHECKING:
    from pai_sdk.backend.base import Plan
    from pai_sdk.code.function_package import FunctionCall
    from pai_sdk.job.training_job import TrainingJob
    from pai_sdk.submit.channels import InputSource, OutputTarget

__all__ = ["FunctionEstimator", "RemoteFunction", "remote"]

P = ParamSpec("P")
R = TypeVar("R")

_AT_ONCE = 8
# Of an image such as `python:3.11-slim`, or `…/pytorch:2.1-gpu-py310-cu121`.
_PYTHON_OF_IMAGE = re.compile(r"(?:\bpython:|\bpy(?:thon)?)(3)\.?(\d{1,2})(?![\d])")
_COMMAND = 'python=$(command -v python || command -v python3) && exec "$python" '


def _no_function(*_: object) -> None:
    raise NotImplementedError


@short_tracebacks
@init_checks_keywords
@dataclass(repr=False, eq=False)
class FunctionEstimator(Estimator):
    """Trains with a function; made by `Estimator.from_function`.

    Attributes:
        function: `f(config)`, `f(config, checkpoint_dir=None)` or `f(config, reporter)`; `config` is a dict of the
            hyperparameters, with the values as they were given.
    """

    command: str = ""
    function: Callable[..., Any] = field(default=_no_function, kw_only=True)

    @checks_keywords
    def plan(
        self,
        inputs: Mapping[str, InputSource] | None = None,
        outputs: Mapping[str, OutputTarget] | None = None,
        *,
        job_name: str | None = None,
    ) -> Plan:
        """The exact request of a job that calls the function, as `JobSubmitter.plan` describes it."""
        from pai_sdk.code.function_package import FunctionCall

        config = dict(self.hyperparameters or {})
        call = FunctionCall(self.function, (config,), is_training=True)
        return self.plan_call(call, inputs, outputs, job_name=job_name)

    def plan_call(
        self,
        call: FunctionCall,
        inputs: Mapping[str, InputSource] | None = None,
        outputs: Mapping[str, OutputTarget] | None = None,
        *,
        job_name: str | None = None,
    ) -> Plan:
        """The exact request of a job that makes one call, which is pickled now.

        Raises:
            InvalidInputError: the function or an argument cannot be pickled, or needs another version of Python or
                of a package than the job would have.
        """
        from pai_sdk.code.function_package import LABEL, job_key, write_package
        from pai_sdk.code.package import package_code
        from pai_sdk.submit.planning import make_plan, with_git_labels

        self._check_image(call.name)
        nonce = os.urandom(16).hex()
        key = job_key(nonce)
        folder = _TemporaryFolder()
        if self.source_dir is not None:
            tree = package_code(self.source_dir, allow_secrets=self.allow_secrets)
            for entry in tree.entries:
                target = folder.path / entry.path
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(tree.root / entry.path, target)
        write_package(
            call,
            folder.path,
            key=key,
            nonce=nonce,
            source_dir=None if self.source_dir is None else tree.root,
            requirements=self.requirements or (),
        )
        described = copy.copy(self)
        described.source_dir = folder.path
        described.environments = {**(self.environments or {}), KEY_VARIABLE: key.hex()}
        labels = self.labels or {}
        if self.git_labels and self.source_dir is not None:
            labels = with_git_labels(labels, tree.root)
        described.labels = {**labels, LABEL: nonce}
        described.base_job_name = self.base_job_name or re.sub(r"[^A-Za-z0-9]+", "-", call.name).strip("-") or None
        # The folder must live until its files are uploaded.
        plan = make_plan(described, self._session(), inputs, outputs, job_name)
        uploads = [replace(upload, origin=f"function {call.name}") for upload in plan.uploads[:1]]
        return replace(plan, uploads=(*uploads, *plan.uploads[1:]), keep=folder)

    def describe(self) -> Description:
        """The description of the jobs: the program that makes the call, and an output for its result."""
        from pai_sdk.code.function_package import PROGRAM
        from pai_sdk.schemas.spec import Channel

        described = super().describe()
        result = Channel(name=RESULT_CHANNEL, required=False)
        return replace(described, command=_COMMAND + PROGRAM, output_channels=[*described.output_channels, result])

    def _check_image(self, name: str) -> None:
        """Refuse what is certain to fail: an image whose name says that its Python is another one."""
        problems = []
        if self.git_config is not None:
            problems.append(Problem("git_config", "does not go with a function", "give its code as source_dir"))
        if isinstance(self.source_dir, str) and "://" in self.source_dir:
            problems.append(Problem("source_dir", "is in OSS; that of a function is a local folder"))
        found = _PYTHON_OF_IMAGE.search(self.image_uri) if isinstance(self.image_uri, str) else None
        here = sys.version_info[:2]
        # The processes of an embedded service have its Python, whatever image is named.
        is_image_used = self.instance_type in LOCAL_TYPES or not self._session().is_embedded
        if found and is_image_used and (int(found[1]), int(found[2])) != here:
            what = f"its Python is {found[1]}.{found[2]}, and {name} is pickled by Python {here[0]}.{here[1]}"
            problems.append(Problem("image_uri", f"{self.image_uri}: {what}", "both must be the same"))
        if problems:
            raise InvalidInputError(problems)


class _TemporaryFolder:
    """A folder that is removed with this object, or at the end of the program."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="pai-function-"))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


@short_tracebacks
class RemoteFunction(Generic[P, R]):
    """A function whose calls are jobs; made by `remote`.

    Attributes:
        function: the function itself; a call of it runs here.
        estimator: what submits the jobs; its `jobs` are those submitted so far.
    """

    def __init__(self, function: Callable[P, R], estimator: FunctionEstimator, *, show_logs: bool) -> None:
        update_wrapper(self, function)
        self.function = function
        self.estimator = estimator
        self._show_logs = show_logs

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the call as a job, wait for it, and return its value.

        Raises:
            Exception: what the function raised; its cause is the traceback in the job.
            JobFailed: the job ended without a result.
            PaiError: as for `submit` of an estimator.
        """
        value: R = self._submit(args, kwargs, show_logs=self._show_logs).result(show_logs=self._show_logs)
        return value

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> TrainingJob:
        """Submit the call as a job, and return at once; `job.result()` waits for its value."""
        return self._submit(args, kwargs)

    def map(self, items: Iterable[Any], *, return_exceptions: bool = False) -> list[Any]:
        """Run a job for each item, all at once, and return their values in the order of the items.

        Args:
            items: a dict gives keyword arguments, a tuple positional ones, anything else is the one argument.
            return_exceptions: return the error of a job in place of its value, whatever the function raised.

        Raises:
            Exception: the error of the first item that failed, when all jobs have ended.
        """
        calls = [_arguments(item) for item in items]
        for args, kwargs in calls:  # wrong ones, before anything is sent
            self._check(args, kwargs)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            jobs = list(pool.map(lambda call: self._submit(*call), calls))
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
        from pai_sdk.code.function_package import FunctionCall

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
    """Whether an error was raised in a job: its last cause is the traceback there."""
    cause, seen = error.__cause__, {id(error)}
    while cause is not None and id(cause) not in seen:
        if isinstance(cause, RemoteTraceback):
            return True
        seen.add(id(cause))
        cause = cause.__cause__
    return False


def _check_returns(function: Callable[..., Any]) -> None:
    """Refuse what gives no value when it is called.

    Raises:
        InvalidInputError: it is a generator function or an async one.
    """
    name = getattr(function, "__name__", type(function).__name__)
    if suspends(function) == "async":
        hint = "call asyncio.run() in a plain function"
        raise InvalidInputError(
            [Problem("function", f"{name} is an async function: a job has no loop for it", hint)]
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
