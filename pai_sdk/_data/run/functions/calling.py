"""Calls a function as a training: in a `FunctionRun`, and in a job.

A copy of this file is the program of a job that runs a function. So it needs the standard library only, has the
syntax of Python 3.8, and imports other modules of pai_sdk only where a function reports.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import inspect
import io
import json
import os
import pickle
import sys
import traceback
from collections.abc import Callable, Mapping
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

CONFIG, CHECKPOINT_DIR, REPORTER = "config", "checkpoint_dir", "reporter"
KEY_VARIABLE = "FUNCTION_CALL_KEY"
CALL_FILE = "call"
RESULT_CHANNEL = "result"
_NUMBER = "_metric"  # the metric of a plain number that is yielded or returned


# ---- trainings ----------------------------------------------------------------------------------------------


def kind_of(function: Callable[..., Any]) -> str:
    """Returns `config`, `checkpoint_dir` or `reporter` by the parameters of a training; raises ValueError."""
    shapes = "f(config), f(config, checkpoint_dir=None) or f(config, reporter)"
    name = getattr(function, "__name__", type(function).__name__)
    if not callable(function):
        raise ValueError(f"{function!r} is not a function; the training function must be one of {shapes}")
    if suspends(function) == "async":
        raise ValueError(f"{name} is an async function; the training function must be one of {shapes}")
    signature = inspect.signature(function)
    present = [name for name in (CHECKPOINT_DIR, REPORTER) if name in signature.parameters]
    if len(present) == 2:
        raise ValueError(f"{name}{signature} takes both a checkpoint_dir and a reporter; choose one of them")
    kind = present[0] if present else CONFIG
    try:
        signature.bind({}, **({} if kind == CONFIG else {kind: None}))
    except TypeError as error:
        raise ValueError(
            f"{name}{signature} cannot be called as a training function ({error}); it must be one of {shapes}"
        ) from None
    return kind


def suspends(function: Callable[..., Any]) -> str:
    """Returns `async` or `generator` for a function whose calls return objects to be run; otherwise empty."""
    for candidate in (function, type(function).__call__):
        if inspect.iscoroutinefunction(candidate) or inspect.isasyncgenfunction(candidate):
            return "async"
        if inspect.isgeneratorfunction(candidate):
            return "generator"
    return ""


def call_training(
    function: Callable[..., Any], config: Any, on_result: Callable[[Mapping[str, Any]], None] | None = None
) -> Any:
    """Calls a training, and reports the metrics that it yields or returns."""
    kind = kind_of(function)
    if kind == REPORTER:
        with StatusReporter() as reporter:
            value = _run_generator(function(config, reporter=reporter))
    elif kind == CHECKPOINT_DIR:
        start = _reporting().get_checkpoint()
        value = _run_generator(function(config, checkpoint_dir=None if start is None else str(start.path)))
    else:
        value = _run_generator(function(config))
    metrics = _metrics_of(value)
    # `on_result` replaces the last report.
    if metrics:
        (on_result or _reporting().report)(metrics)
    return value


def _reporting() -> Any:
    """Returns the module that reports."""
    # Imported late: a job runs a copy of this file, which makes pai_sdk importable first. By its public path: the
    # image may have another release of pai_sdk.
    return import_module("pai_sdk")


def _run_generator(value: Any) -> Any:
    """Reports all that a generator yields, and returns its result; returns any other value unchanged."""
    if inspect.isasyncgen(value) or inspect.iscoroutine(value):
        close = getattr(value, "close", None)
        if close is not None:  # otherwise Python warns that it was never awaited
            close()
        # Nothing runs the value of an async function.
        raise TypeError(f"the function is async: it returned a {type(value).__name__}; call asyncio.run() in it")
    if not inspect.isgenerator(value):
        return value
    with contextlib.closing(value):  # `report` may raise StopTraining; the generator then cleans up
        while True:
            try:
                yielded = next(value)
            except StopIteration as end:
                return end.value
            _reporting().report(yielded if isinstance(yielded, Mapping) else {_NUMBER: yielded})


class _NoValueError(Exception):
    """A function returned a value that cannot be sent back."""


def _check_returned(value: Any, name: str) -> Any:
    """Returns the value of a call; raises `_NoValueError` for an object whose values would be lost."""
    if not (inspect.isgenerator(value) or inspect.isasyncgen(value) or inspect.iscoroutine(value)):
        return value
    close = getattr(value, "close", None)
    if close is not None:
        close()
    hint = "return list(…) of it" if inspect.isgenerator(value) else "call asyncio.run() in the function"
    raise _NoValueError(f"{name} returned a {type(value).__name__}, whose values are not computed yet; {hint}")


def is_open_file(value: Any) -> bool:
    """Returns True for an open file, which cloudpickle would turn into its content."""
    if not isinstance(value, io.IOBase) or isinstance(value, (io.BytesIO, io.StringIO)):
        return False
    # cloudpickle 3 pickles stdout and stderr by name, and refuses stdin.
    return not any(value is stream for stream in (sys.stdin, sys.stdout, sys.stderr))


def _pickled_value(value: Any, name: str, pickler: Any) -> bytes:
    """Pickles the value of a call; raises `_NoValueError` if it cannot be sent, such as a lock."""

    class Pickler(pickler):  # type: ignore[misc] # cloudpickle has no types
        def persistent_id(self, part: Any) -> None:
            if is_open_file(part):
                raise TypeError(f"cannot pickle '{type(part).__name__}' object")

    content = io.BytesIO()
    try:
        Pickler(content).dump(value)
    except Exception as error:  # of any kind: pickling runs code of any class
        hint = "return numbers, strings, lists, dicts, arrays, or objects of classes that can be pickled"
        kind = type(value).__name__
        raise _NoValueError(f"{name} returned a {kind} that cannot be sent back: {error}; {hint}") from error
    return content.getvalue()


def _metrics_of(value: Any) -> Mapping[str, Any] | None:
    """Returns a number, or a dict of numbers, as metrics; None for other values."""
    if isinstance(value, Mapping):
        are_numbers = all(isinstance(name, str) and _is_number(item) for name, item in value.items())
        return value if are_numbers else None
    return {_NUMBER: value} if _is_number(value) else None


def _is_number(value: Any) -> bool:
    if isinstance(value, bool):
        return False
    return isinstance(value, (int, float)) or (hasattr(value, "item") and getattr(value, "size", 0) == 1)


class StatusReporter:
    """The reporter of a training of the kind `f(config, reporter)`: `reporter(loss=0.1)` reports.

    Example:
        >>> with StatusReporter() as reporter:
        ...     reporter(loss=0.1)
    """

    def __init__(self) -> None:
        self._open: dict[Path, Any] = {}
        self._created: list[Path] = []

    def __enter__(self) -> StatusReporter:
        return self

    def __exit__(self, *exception: object) -> None:
        """Remove the checkpoint folders that were created and never set."""
        for block in self._open.values():
            with contextlib.suppress(GeneratorExit):
                block.__exit__(GeneratorExit, GeneratorExit(), None)
        self._open.clear()

    def __call__(self, _metric: Any = None, **metrics: Any) -> None:
        """Report metrics: keywords, a mapping, or one number."""
        if _metric is not None:
            metrics = {**(_metric if isinstance(_metric, Mapping) else {_NUMBER: _metric}), **metrics}
        try:
            _reporting().report(metrics)
        except BaseException as error:
            # From Python 3.11 on, the traceback then ends in the line that calls the reporter.
            error.__traceback__ = None
            raise

    def make_checkpoint_dir(self, step: int) -> str:
        """Returns an empty folder for the checkpoint of a step. `set_checkpoint` completes it."""
        block = _reporting().checkpoint_dir(step)
        folder = block.__enter__()
        self._open[folder.resolve()] = block
        self._created.append(folder.resolve())
        return str(folder)

    def set_checkpoint(self, checkpoint: str | os.PathLike[str]) -> None:
        """Make a folder of `make_checkpoint_dir` a checkpoint.

        Args:
            checkpoint: the folder, or a path in it.

        Raises:
            FileNotFoundError: the path is not in such a folder.
        """
        path = Path(checkpoint).resolve()
        folder = next((created for created in self._created if created == path or created in path.parents), None)
        if folder is None:
            raise FileNotFoundError(f"{checkpoint} is not in a folder that make_checkpoint_dir() has created")
        block = self._open.pop(folder, None)
        if block is not None:
            block.__exit__(None, None, None)

    @property
    def logdir(self) -> str:
        """The run's folder."""
        return str(_reporting().get_context().folder)

    @property
    def trial_id(self) -> str:
        """The run's id."""
        return str(_reporting().get_context().job_id)

    @property
    def trial_name(self) -> str:
        """The run's id."""
        return self.trial_id


# ---- signed files, and errors -------------------------------------------------------------------------------


def signed(key: bytes, header: Mapping[str, Any], payload: bytes) -> bytes:
    """Returns a file: a signature in the first line, a JSON header in the second one, then the payload."""
    content = json.dumps(dict(header)).encode() + b"\n" + payload
    return hmac.new(key, content, hashlib.sha256).hexdigest().encode() + b"\n" + content


def open_signed(key: bytes, content: bytes) -> tuple[dict[str, Any], bytes]:
    """Returns header and payload of a signed file; raises ValueError when the signature does not match the key."""
    signature, _, signed_part = content.partition(b"\n")
    expected = hmac.new(key, signed_part, hashlib.sha256).hexdigest().encode()
    if not hmac.compare_digest(signature, expected):
        raise ValueError("the signature is wrong: the file is damaged, or was written with another key")
    header, _, payload = signed_part.partition(b"\n")
    fields = json.loads(header)
    if not isinstance(fields, dict):
        raise ValueError("the header is not a JSON object")
    return fields, payload


def error_message(error: BaseException, dumps: Callable[[Any], bytes]) -> tuple[dict[str, Any], bytes]:
    """Returns an error as header and payload: the pickled chain of causes if possible, and the traceback."""
    # The frames of this package are of no use for the author of the function.
    trace, package_folder = error.__traceback__, os.path.dirname(__file__)  # noqa: PTH120
    while trace is not None and os.path.dirname(trace.tb_frame.f_code.co_filename) == package_folder:  # noqa: PTH120
        trace = trace.tb_next
    text = "".join(traceback.format_exception(type(error), error, trace))
    try:
        message = str(error)
    except Exception as raised:  # of its own `__str__`
        message = f"its message raises {type(raised).__name__}"
    header = {"kind": "error", "type": type(error).__name__, "message": message, "traceback": text}
    chain: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and all(cause is not link for link in chain):
        chain.append(cause)
        cause = cause.__cause__
    try:
        payload = dumps(chain)
        pickle.loads(payload)  # noqa: S301 # written above; some errors can be pickled, but not unpickled
    except Exception:  # of any kind: the header has the traceback
        payload = b""
    return header, payload


def error_of(header: dict[str, Any], payload: bytes) -> BaseException:
    """Returns the error that `error_message` has described; the remote traceback is the last cause."""
    from pai_sdk.errors import FunctionError, RemoteTraceback

    # Unpickling runs code, so the payload must come from a trusted process or file.
    try:
        chain: list[BaseException] = pickle.loads(payload)  # noqa: S301 # the caller has checked where it is from
    except Exception:  # the class of the error may be missing in this process; the header has the traceback
        chain = []
    chain = chain or [FunctionError(f"{header['type']}: {header['message']}")]
    chain.append(RemoteTraceback(f"\n{header['traceback']}"))
    for number, cause in enumerate(chain[1:]):
        chain[number].__cause__ = cause
    return chain[0]


def exit_code_of(error: SystemExit) -> int:
    """Returns the exit code of a process that raises this SystemExit."""
    if error.code is None:
        return 0
    return error.code if isinstance(error.code, int) else 1


def exit_text_of(error: SystemExit) -> str:
    """Returns the string that Python prints for a SystemExit: the reason in `sys.exit("reason")`; else empty."""
    return "" if error.code is None or isinstance(error.code, int) else str(error.code)


# ---- the program of a job -----------------------------------------------------------------------------------


def _main(folder: Path) -> int:
    """Runs the call of a folder, and writes its result into the output channel."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr] # printed lines are the log
    # Removed from the environment, which child processes of the function inherit and trainings print.
    key = bytes.fromhex(os.environ.pop(KEY_VARIABLE))
    header, payload = open_signed(key, (folder / CALL_FILE).read_bytes())
    problems = _problems(header)
    if problems:
        message = f"{header['name']} cannot run in this image: " + "; ".join(problems)
        _write_result(key, {"kind": "refused", "message": message, "nonce": header["nonce"]})
        sys.stderr.write(f"{message}\n")
        return 1
    sys.path[0] = str(folder)
    cloudpickle = import_module("cloudpickle")
    sys.path[0] = str(Path.cwd())  # the code that was sent with the job
    try:
        function, args, kwargs = pickle.loads(payload)  # noqa: S301 # signed by the client that submitted the job
        if header["kind"] == "training":
            value = call_training(function, *args)
        else:
            value = _check_returned(function(*args, **kwargs), header["name"])
        outcome: dict[str, Any] = {"kind": "value"}
        payload, exit_code = _pickled_value(value, header["name"], cloudpickle.Pickler), 0
    except SystemExit as error:
        exit_code, text = exit_code_of(error), exit_text_of(error)
        outcome, payload = {"kind": "exit", "exit_code": exit_code}, b""
        if text:
            sys.stderr.write(f"{text}\n")
            outcome["message"] = f"the function called sys.exit: {text}"
    except _NoValueError as error:
        sys.stderr.write(f"{error}\n")
        outcome, payload, exit_code = {"kind": "refused", "message": str(error)}, b"", 1
    except BaseException as error:
        outcome, payload = error_message(error, cloudpickle.dumps)
        sys.stderr.write(outcome["traceback"])
        exit_code = 1
    _write_result(key, {**outcome, "nonce": header["nonce"]}, payload)
    return exit_code


def _problems(header: Mapping[str, Any]) -> list[str]:
    """Returns the differences between this image and the client for which the function cannot run."""
    installed = "{}.{}".format(*sys.version_info)
    if header["python"] != installed:
        return [
            f"it was pickled by Python {header['python']}, and this is Python {installed}; "
            "use an image with the same"
        ]
    problems = []
    for module, (distribution, version) in header["modules"].items():
        try:
            installed = metadata.version(distribution)
        except metadata.PackageNotFoundError:
            problems.append(f"it needs {module}; add '{distribution}=={version}' to `requirements`")
            continue
        if series_of(installed) != series_of(version):
            problems.append(
                f"it was pickled with {distribution} {version}, and here is {installed}; "
                f"add '{distribution}=={version}' to `requirements`"
            )
    return problems


def series_of(version: str) -> tuple[str, ...]:
    """Returns the part of a version within which pickles are expected to work: `2`, or `0.3`."""
    parts = version.split(".")
    return tuple(parts[:2] if parts[0] == "0" else parts[:1])


def _write_result(key: bytes, header: Mapping[str, Any], payload: bytes = b"") -> None:
    channel = Path(os.environ.get("PAI_OUTPUT_RESULT") or f"/ml/output/{RESULT_CHANNEL}")
    rank = os.environ.get("RANK", "")
    channel.mkdir(parents=True, exist_ok=True)
    (channel / f"rank-{rank if rank.isdecimal() else 0}").write_bytes(signed(key, header, payload))


if __name__ == "__main__":
    sys.exit(_main(Path(__file__).resolve().parent))
