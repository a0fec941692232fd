"""Run the examples of one page of documentation, as its reader would: `python tests/docs/page.py docs/index.md`.

They run in the environment of that Python. The tests make one with exactly what the page names: environment.py.
Blocks run from top to bottom in the current folder; line numbers in tracebacks are those of the page.

- `python` is executed, in one namespace for the whole page; blocks that start with `>>>` are doctests.
- A block of any language with `title="src/train.py"` is a file: it is written, for later blocks to use.
- `bash` and `console` are executed when they call `pai-sdk` or `docker compose`. Where lines start with `$ `,
  those are the commands. A command must succeed; `# exit 100` at its end says that it must end so instead.
- `<!-- norun: why -->` on the line above a block keeps it from running; it must still compile.
- `ipython` is a cell of a notebook: magics work, in the same namespace.
- Everything else (json, text, yaml, …) is for reading only.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from sybil import Document, Example, Region, Sybil
from sybil.evaluators.doctest import DocTestEvaluator
from sybil.evaluators.python import PythonEvaluator, pad
from sybil.parsers.abstract.doctest import DocTestStringParser
from sybil.parsers.markdown.lexers import RawFencedCodeBlockLexer

SHELLS = ("bash", "console", "shell", "sh")
_INFO = re.compile(r"[ \t]*(?P<language>[\w+-]+)?(?P<attributes>[^\n]*)\n")
_TITLE = re.compile(r'\btitle="([^"]+)"')
_NORUN = re.compile(r"<!--\s*norun:\s*(?P<reason>\S.*?)\s*-->[ \t]*\n[ \t]*\Z")
_CALLS_CLI = re.compile(r"(?:^(?:\$ )?|[|;&(])\s*(?:\w+=\S*\s+)*(?:pai-sdk|docker compose)\s", re.MULTILINE)
_EXIT = re.compile(r"#\s*exit (\d+)\s*$")

_run_python = PythonEvaluator()


def parse(document: Document) -> Iterable[Region]:
    """The blocks of a page that have something to run, write or compile."""
    for region in RawFencedCodeBlockLexer(_INFO)(document):
        language = region.lexemes["language"]
        region.parsed = region.lexemes["source"]
        title = _TITLE.search(region.lexemes["attributes"])
        if language in ("python", "pycon") and str(region.parsed).lstrip().startswith(">>>"):
            yield from _doctests(region, document)
            continue
        region.evaluator = _evaluator(language, title[1] if title else None, _kept_from_running(region, document))
        if region.evaluator is not None:
            yield region


def run(page: Path) -> int:
    """Run every block; returns how many there were."""
    document = Sybil(parsers=[parse]).parse(page)
    document.namespace["__name__"] = "__main__"
    examples = list(document.examples())
    for example in examples:
        print(f"{page.name}:{example.line}", flush=True)
        example.evaluate()
    return len(examples)


def _evaluator(language: str | None, title: str | None, norun: bool) -> Callable[[Example], None] | None:
    if language in SHELLS:
        return _check_shell if norun else _run_shell
    if language == "ipython" and not norun:
        return _run_cell
    if title is not None and not norun:
        return lambda example: _write(example, title)
    if language == "python":
        return _compile if norun else _run_python
    return None


def _kept_from_running(region: Region, document: Document) -> bool:
    return _NORUN.search(document.text[: region.start]) is not None


def _doctests(region: Region, document: Document) -> Iterable[Region]:
    for example in DocTestStringParser(DocTestEvaluator())(region.parsed, document.path):
        example.adjust(region, region.parsed)
        yield example


def _run_cell(example: Example) -> None:
    from IPython.core.interactiveshell import InteractiveShell  # needs the extra [notebook]
    from traitlets.config import Config

    config = Config({"HistoryManager": {"enabled": False}})
    shell = InteractiveShell.instance(user_ns=example.namespace, config=config)
    shell.run_cell(example.parsed).raise_error()


def _compile(example: Example) -> None:
    compile(pad(example.parsed, example.line), example.path, "exec")


def _write(example: Example, title: str) -> None:
    path = Path(title)
    if path.is_absolute() or ".." in path.parts:
        raise ValueError(f"{example.path}:{example.line}: a file of an example lies beside it, not at {title!r}")
    if path.suffix == ".py":
        _compile(example)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(example.parsed, encoding="utf-8")


def _run_shell(example: Example) -> None:
    if not _CALLS_CLI.search(example.parsed):
        _check_shell(example)
        return
    subprocess.run(["bash", "-o", "pipefail", "-c", _script(example)], check=True, stdin=subprocess.DEVNULL)


def _script(example: Example) -> str:
    commands = _after_prompts(example)
    if not commands:
        return f"set -e\n{example.parsed}"
    return "\n".join(_checked(f"{example.path}:{line}", command) for line, command in commands)


def _after_prompts(example: Example) -> list[tuple[int, str]]:
    """The commands of a console block, each with its line on the page."""
    commands: list[tuple[int, str]] = []
    refresh = False
    for number, text in enumerate(str(example.parsed).splitlines(), start=example.line + 1):
        if text.startswith("$ "):
            commands.append((number, text[2:]))
        elif refresh:
            commands[-1] = (commands[-1][0], f"{commands[-1][1]}\n{text}")
        refresh = bool(commands) and text.endswith("\\")
    return commands


def _checked(where: str, command: str) -> str:
    expected = int(found[1]) if (found := _EXIT.search(command)) else 0
    message = shlex.quote(f"{where}: $ {command}")
    return (
        f"{command}\nstatus=$?\n"
        f'if [ $status -ne {expected} ]; then echo {message} "ended with $status, not {expected}" >&2; exit 1; fi'
    )


def _check_shell(example: Example) -> None:
    subprocess.run(["bash", "-n", "-c", _script(example)], check=True)


if __name__ == "__main__":
    print(f"{run(Path(sys.argv[1]).resolve())} examples ran")
