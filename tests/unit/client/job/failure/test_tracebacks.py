"""Tracebacks in a log: whole chains, groups, several processes in one log."""

from __future__ import annotations

import subprocess
import sys
import traceback

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pai_sdk._data.logs.tracebacks import find_traceback, is_launcher_error, root_cause, shortened

MISSING = """\
Traceback (most recent call last):
  File "/ml/usercode/train.py", line 4, in load
    return open(path)
FileNotFoundError: [Errno 2] No such file or directory: '/data/points.csv'

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/ml/usercode/train.py", line 10, in <module>
    load()
  File "/ml/usercode/train.py", line 6, in load
    raise RuntimeError("cannot load the data") from error
RuntimeError: cannot load the data"""


def raised(error: Exception) -> Exception:
    try:
        raise error
    except Exception as caught:
        return caught


def python_says(error: BaseException) -> str:
    return "".join(traceback.format_exception(error)).rstrip("\n")


def test_the_whole_chain_is_found_and_the_file_of_the_root_cause_is_in_it() -> None:
    log = ["epoch 1", *MISSING.splitlines()]
    assert find_traceback(log) == MISSING
    assert root_cause(MISSING) == "FileNotFoundError: [Errno 2] No such file or directory: '/data/points.csv'"
    assert shortened(MISSING) == MISSING.splitlines()


def test_an_earlier_traceback_that_was_survived_is_not_taken() -> None:
    survived = ["Traceback (most recent call last):", '  File "a.py", line 1', "KeyError: 'a'", "retrying"]
    assert find_traceback([*survived, *MISSING.splitlines()]) == MISSING


def test_a_cause_that_was_never_raised_has_no_traceback_of_its_own() -> None:
    error = ValueError("bad row")
    error.__cause__ = KeyError("age")
    text = python_says(raised(error))
    assert find_traceback(["starting", "", *text.splitlines()]) == text
    assert root_cause(text) == "KeyError: 'age'"


def test_a_message_of_several_lines_at_the_end_of_the_log_is_whole() -> None:
    text = python_says(
        raised(RuntimeError("CUDA error: device-side assert triggered\nset CUDA_LAUNCH_BLOCKING=1"))
    )
    assert find_traceback(text.splitlines()) == text


def test_lines_of_several_processes_with_prefixes() -> None:
    first = [f"[rank1]: {line}".rstrip() for line in MISSING.splitlines()]
    reset = python_says(raised(ConnectionResetError("rank 1 is gone")))
    second = [f"[rank0]: {line}" for line in reset.splitlines()]
    mixed = []
    for number in range(max(len(first), len(second))):
        mixed += first[number : number + 1] + second[number - 2 : number - 1] * (number >= 2)
    launcher = python_says(raised(RuntimeError("a worker has failed")))
    assert find_traceback(["starting", *mixed, *launcher.splitlines()]) == MISSING


def test_lines_of_several_processes_without_prefixes_stay_together() -> None:
    log = [
        "Traceback (most recent call last):",
        "Traceback (most recent call last):",
        '  File "train.py", line 1, in <module>',
        '  File "train.py", line 1, in <module>',
        "KeyError: 'age'",
        "KeyError: 'age'",
    ]
    assert find_traceback(["x", *log]).splitlines() == log


def test_the_traceback_of_torchrun_comes_after_that_of_the_training() -> None:
    launcher = [
        "Traceback (most recent call last):",
        '  File "/usr/local/bin/torchrun", line 8, in <module>',
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
        "=====",
        "train.py FAILED",
    ]
    log = [*MISSING.splitlines(), "E1122 10:00:00 failed (exitcode: 1)", *launcher]
    assert find_traceback(log) == MISSING
    assert find_traceback(launcher).splitlines() == launcher


BAD_JSON = """\
Traceback (most recent call last):
  File "/ml/usercode/train.py", line 9, in <module>
    json.loads(text)
  File "/usr/lib/python3.11/json/__init__.py", line 346, in loads
    return _default_decoder.decode(s)
  File "/usr/lib/python3.11/json/decoder.py", line 337, in decode
    obj, end = self.raw_decode(s, idx=_w(s, 0).end())
               ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/usr/lib/python3.11/json/decoder.py", line 355, in raw_decode
    raise JSONDecodeError("Expecting value", s, err.value) from None
json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)"""


def launched(why: str = "returned non-zero exit status 1.") -> str:
    """The traceback of a program that has started the training, which failed."""
    command = ["python", "train.py"]
    return f"""\
Traceback (most recent call last):
  File "/ml/usercode/start.py", line 3, in <module>
    subprocess.run({command}, check=True)
  File "/usr/lib/python3.11/subprocess.py", line 571, in run
    raise CalledProcessError(retcode, process.args,
subprocess.CalledProcessError: Command '{command}' {why}"""


@pytest.mark.parametrize("launches", [1, 2])
def test_the_root_cause_is_that_of_the_process_that_a_launcher_started(launches: int) -> None:
    launchers = [line for _ in range(launches) for line in ("flushing", *launched().splitlines())]
    found = find_traceback(["epoch 1", *BAD_JSON.splitlines(), *launchers])
    assert root_cause(found) == "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)"
    assert found.startswith(BAD_JSON)
    assert found.endswith(launched())
    assert found.count("CalledProcessError:") == launches


@pytest.mark.parametrize(
    "error",
    [
        "torch.multiprocessing.spawn.ProcessExitedException: process 0 terminated with exit code 1",
        "concurrent.futures.process.BrokenProcessPool: A process in the process pool was terminated abruptly.",
        "RuntimeError: Horovod detected that one or more processes exited with non-zero status, thus causing the "
        "job to be terminated. The first process to do so was:\nProcess name: 0\nExit code:    1",
    ],
)
def test_errors_of_other_launchers(error: str) -> None:
    launcher = f'Traceback (most recent call last):\n  File "launch.py", line 8, in main\n{error}'
    found = find_traceback([*BAD_JSON.splitlines(), *launcher.splitlines()])
    assert root_cause(found) == BAD_JSON.splitlines()[-1]
    assert found.endswith(launcher)


@pytest.mark.parametrize("prefix", ["", "[1,1]<stderr>:"])
def test_mpirun_says_that_a_process_has_failed_below_its_traceback(prefix: str) -> None:
    banner = [
        "-" * 74,
        "Primary job  terminated normally, but 1 process returned",
        "a non-zero exit code.",
        "-" * 74,
    ]
    banner += ["mpirun detected that one or more processes exited with non-zero status", "", "  Exit code:    1"]
    log = [*(f"{prefix}{line}" for line in BAD_JSON.splitlines()), *banner]
    assert root_cause(find_traceback(log)) == BAD_JSON.splitlines()[-1]


def test_a_launcher_that_raises_another_error_from_that_of_the_process() -> None:
    error = subprocess.CalledProcessError(1, ["python", "train.py"])
    chain = python_says(_caused(RuntimeError("the training failed"), raised(error)))
    found = find_traceback([*BAD_JSON.splitlines(), *chain.splitlines()])
    assert root_cause(found).startswith("json.decoder.JSONDecodeError: ")
    assert found.endswith(chain)


@pytest.mark.parametrize("distance", [0, 100])
@pytest.mark.parametrize("why", ["returned non-zero exit status 128.", "died with <Signals.SIGKILL: 9>."])
def test_a_program_that_raised_nothing_has_no_earlier_traceback(why: str, distance: int) -> None:
    survived = [*BAD_JSON.splitlines(), *["epoch"] * distance]
    assert find_traceback([*survived, *launched(why).splitlines()]) == launched(why)


def test_a_traceback_that_was_survived_long_before_is_not_that_of_the_process() -> None:
    log = [*BAD_JSON.splitlines(), *["epoch"] * 100, *launched().splitlines()]
    assert find_traceback(log) == launched()


def test_the_last_frame_of_the_users_code_is_shown_above_those_of_libraries() -> None:
    shown = shortened(BAD_JSON)
    assert shown[1:5] == ["  …", *BAD_JSON.splitlines()[1:3], "  …"]
    assert "346" not in "".join(shown)


def test_a_shown_frame_is_whole() -> None:
    frames = [
        line
        for name in "abc"
        for line in (f'  File "/ml/usercode/{name}.py", line 1, in {name}', "    call()", "    ^^^^^^")
    ]
    error = "\n".join(["Traceback (most recent call last):", *frames, frames[0], "    raise", "KeyError: 3"])
    assert shortened(error)[:3] == ["Traceback (most recent call last):", "  …", frames[6]]


SYNTAX = [
    '  File "/ml/usercode/train.py", line 1',
    "    print(1",
    "         ^",
    "SyntaxError: '(' was never closed",
]


def test_an_error_in_the_syntax_of_the_program_is_found() -> None:
    found = find_traceback(["installing", *SYNTAX])
    assert found.splitlines() == shortened(found) == SYNTAX
    assert root_cause(found) == SYNTAX[-1]
    assert not find_traceback([*SYNTAX, *(f"epoch {number}" for number in range(100))]), "it was survived"
    assert not find_traceback(["SyntaxError: in a text", "SyntaxError: "])


def test_an_error_in_the_syntax_of_a_program_that_another_one_started() -> None:
    launcher = raised(subprocess.CalledProcessError(1, ["python", "train.py"]))
    found = find_traceback([*SYNTAX, *python_says(launcher).splitlines()])
    assert root_cause(found) == SYNTAX[-1]
    assert "CalledProcessError" in found


def test_a_logger_that_writes_its_time_before_the_traceback() -> None:
    log = ["2026-11-22 10:00:00 ERROR Traceback (most recent call last):", *MISSING.splitlines()[1:4]]
    assert find_traceback(log) == "\n".join(MISSING.splitlines()[:4])


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exception groups came with Python 3.11")
def test_an_exception_group() -> None:
    group = ExceptionGroup("2 workers", [raised(ValueError("one")), raised(KeyError("two"))])  # noqa: F821
    text = python_says(raised(group))
    assert find_traceback(["starting", *text.splitlines(), "bye"]) == text
    assert root_cause(text) == "ExceptionGroup: 2 workers (2 sub-exceptions)"
    assert "ValueError: one" in "\n".join(shortened(text))
    wrapped = python_says(_caused(RuntimeError("stopped"), raised(group)))
    assert find_traceback(["starting", *wrapped.splitlines()]) == wrapped


def _caused(error: Exception, cause: Exception) -> Exception:
    try:
        raise error from cause
    except Exception as caught:
        return caught


def _chain(links: list[tuple[str, bool]]) -> Exception:
    """Exceptions that Python has chained: each `from` the one before it, or raised while that was handled."""
    error: Exception | None = None
    for name, is_cause in links:
        kind = type(name, (Exception,), {"__module__": "builtins"})
        try:
            if error is None:
                raise kind("root")
            if is_cause:
                raise kind(f"after {len(name)}") from error
            try:
                raise error
            except Exception:
                raise kind("while handling")  # noqa: B904
        except Exception as caught:
            error = caught
    assert error is not None
    return error


names = st.from_regex(r"[A-Z][a-z]{1,8}(Error|Exception)", fullmatch=True)
noise = st.lists(st.from_regex(r"(epoch [0-9]+ loss=[0-9.]+|\[INFO\] ok|  indented|)", fullmatch=True), max_size=6)


@settings(max_examples=30)
@given(st.lists(st.tuples(names, st.booleans()), min_size=1, max_size=6), noise, noise)
def test_what_python_prints_is_what_is_found(
    links: list[tuple[str, bool]], before: list[str], after: list[str]
) -> None:
    text = python_says(_chain(links))
    found = find_traceback([*before, *text.splitlines(), "", *after, "[INFO] ended", ""])
    assert found == text
    assert root_cause(found) == f"{links[0][0]}: root"
    shown = shortened(found)
    assert root_cause("\n".join(shown)) == f"{links[0][0]}: root"
    assert any(line.startswith(links[-1][0]) for line in shown)


@given(st.lists(st.sampled_from([*MISSING.splitlines(), "", "[rank0]: ", "| x", "  + Exception Group "])))
def test_no_log_breaks_the_search(lines: list[str]) -> None:
    found = find_traceback(lines)
    root_cause(found)
    shortened(found)


IPYTHON = """\
---------------------------------------------------------------------------
KeyError                                  Traceback (most recent call last)
Cell In[3], line 2
      1 table = {}
----> 2 price(table)

File ~/shop/shop.py:7, in price(table)
      6 def price(table):
----> 7     return table["price"]

KeyError: 'price'"""
CHAINED = (
    IPYTHON
    + """

The above exception was the direct cause of the following exception:

ShopError                                 Traceback (most recent call last)
Cell In[3], line 4
      2     price(table)
----> 4 raise ShopError("closed") from error

ShopError: closed"""
)
PAPERMILL = f"""\
Traceback (most recent call last):
  File "/opt/papermill/execute.py", line 251, in raise_for_execution_errors
    raise error
papermill.exceptions.PapermillExecutionError:
---------------------------------------------------------------------------
Exception encountered at "In [3]":
{IPYTHON}
"""
RICH = """\
╭───────────────────── Traceback (most recent call last) ──────────────────────╮
│ /ml/usercode/train.py:3 in <module>                                          │
│                                                                              │
│ ❱ 3 table["price"]                                                           │
╰──────────────────────────────────────────────────────────────────────────────╯
KeyError: 'price'"""
COLOURED = (
    "Traceback (most recent call last):\n"
    '  File \x1b[35m"/ml/usercode/train.py"\x1b[0m, line \x1b[35m3\x1b[0m, in \x1b[35m<module>\x1b[0m\n'
    '    \x1b[31mtable\x1b[0m\x1b[1;31m["price"]\x1b[0m\n'
    "\x1b[1;35mKeyError\x1b[0m: \x1b[35m'price'\x1b[0m"
)


@pytest.mark.parametrize(
    "text", [IPYTHON, CHAINED, PAPERMILL, RICH, COLOURED], ids=["IPython", "chain", "papermill", "rich", "colours"]
)
@pytest.mark.parametrize("prefix", ["", "[rank1]: "])
def test_tracebacks_of_other_programs_name_the_exception(text: str, prefix: str) -> None:
    found = find_traceback(["epoch 1", *(f"{prefix}{line}".rstrip() for line in text.splitlines())])
    assert root_cause(found) == "KeyError: 'price'"
    assert found.startswith("Traceback (most recent call last):")
    assert "\x1b" not in found
    assert "KeyError: 'price'" in shortened(found)


def test_the_end_of_a_frame_is_not_needed() -> None:
    """The log may be cut off, or the program may be killed while it writes."""
    for lines in (IPYTHON.splitlines()[:5], RICH.splitlines()[:3], RICH.splitlines()[:1]):
        assert root_cause(find_traceback(lines)) == ""


def test_the_lines_before_a_traceback_are_left_out() -> None:
    lines = ["Traceback (most recent call last):", "  File 'a.py', line 1", "KeyError: 3"]
    traceback = find_traceback(["ok", *lines])
    assert traceback.splitlines() == lines
    assert root_cause(traceback) == "KeyError: 3"


def test_a_failed_program_is_an_error_of_its_launcher() -> None:
    cause = "subprocess.CalledProcessError: Command 'make' returned non-zero exit status 2."
    assert is_launcher_error(cause)
