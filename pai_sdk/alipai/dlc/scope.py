"""The variables of a shell script, as far as they can be known without running it."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pai_sdk.alipai.dlc.shell import Array, Command, Output, Text, Variable, Word
from pai_sdk.alipai.dlc.values import Computed, Name, Value, joined, source_of, unmarked

__all__ = ["Definition", "Scope"]

_RESERVED = ("estimator", "job", "session", "os", "sys", "subprocess", "datetime", "getpass", "Estimator")
_OF_CONTAINER = ("MASTER_ADDR", "MASTER_PORT", "NPROC_PER_NODE", "RANK", "TF_CONFIG", "WORLD_SIZE")


@dataclass(frozen=True)
class Definition:
    """A Python variable; without an expression, it is the parameter of a function."""

    source: str = ""
    needs: str = ""  # an import
    note: str = ""


class Scope:
    """Follows the assignments of a script; `definitions` are the Python variables that values refer to."""

    def __init__(self, expressions: Sequence[Name] = ()) -> None:
        self._expressions = expressions  # of the program whose text the script is
        self.definitions: dict[str, Definition] = {}  # by name in Python
        self.notes: list[str] = []  # that hold for all submissions behind them
        self.files: dict[Value, Value] = {}  # that the script writes with here-documents
        self._variables: dict[str, Value | list[Value]] = {}
        self._target = ""  # the variable that is being assigned, whose name a computed value gets

    def copy(self) -> Scope:
        """Returns a scope with these variables, whose definitions and notes are those of one submission."""
        scope = Scope(self._expressions)
        scope.files = self.files
        scope.definitions = dict(self.definitions)
        scope.notes = list(self.notes)
        scope._variables = dict(self._variables)
        return scope

    def run(self, command: Command) -> None:
        """Applies what a command changes: variables, and files that it writes."""
        for name, is_appended, value in command.assignments:
            self._target = name
            self._assign(name, self._value(value), is_appended=is_appended)
        self._target = ""
        tokens = [word for each in command.tokens for word in self.tokens(each)]
        match tokens:
            case ["for", str(name), *items]:
                self._assign(name, self._loop_variable(name, items[1:], command.line))
            case ["read", *options] if command.heredocs:
                name = str(options[-1]) if options else ""
                text = self.text(command.heredocs[-1])
                self._assign(name, text.strip() if isinstance(text, str) else text)
            case ["read", *options]:
                for each in options:
                    if isinstance(each, str) and re.fullmatch(r"[A-Za-z_]\w*", each):
                        self._assign(each, self._untranslated(each, f"read {each}", command.line))
            case ["cat", *_] if command.heredocs and command.targets:
                self.files[self.text(command.targets[-1])] = self.text(command.heredocs[-1])

    def tokens(self, word: Word) -> list[Value]:
        """Expands a word as the shell does: arrays, and unquoted variables with spaces, become several tokens."""
        values: list[Value] = [""]
        is_word = not word
        for part in word:
            items = self._items(part) if isinstance(part, Variable) else None
            if items is None:
                values[-1] = joined(values[-1], self._part(part))
                is_word = True
                continue
            is_word = is_word or bool(items)
            for index, item in enumerate(items):
                if index:
                    values.append("")
                values[-1] = joined(values[-1], item)
        return values if is_word else []

    def text(self, word: Word) -> Value:
        """Expands a word to one text."""
        return joined(*(self._part(part) for part in word))

    def _items(self, part: Variable) -> list[Value] | None:
        """Returns the tokens that a variable expands to; None if it is one word in any case."""
        name = re.sub(r"\[[@*]\]$", "", part.name)
        value = self._variables.get(name)
        if name in ("@", "*"):
            self._note("the arguments of the script are not passed on: give them to the Estimator")
            return []
        if isinstance(value, list):
            return value if name != part.name else value[:1]
        if isinstance(value, str) and not part.is_quoted and not part.operator:
            return list(value.split())
        return None

    def _part(self, part: Text | Variable | Output) -> Value:
        if isinstance(part, Text):
            return unmarked(part.value, self._expressions)
        if isinstance(part, Output):
            return self._output(part)
        value = self._variables.get(part.name)
        if index := re.fullmatch(r"(\w+)\[(\d+)\]", part.name):
            items = self._variables.get(index[1])
            value = dict(enumerate(items)).get(int(index[2]), "") if isinstance(items, list) else None
        if isinstance(value, list):
            value = joined(*(joined(" " if index else "", each) for index, each in enumerate(value)))
        return self._with_operator(part, value)

    def _with_operator(self, part: Variable, value: Value | None) -> Value:
        if part.operator in ("", "?", ":?"):
            return self._from_outside(part.name) if value is None else value
        if part.operator in (":-", "-", ":=", "="):
            if value is None:
                return self._from_outside(part.name, self.text(part.word))
            return value or self.text(part.word)
        if part.operator in (":+", "+"):
            return self.text(part.word) if value else ""
        source = f"${{{part.name}{part.operator}…}}"
        if isinstance(value, str) and part.operator in ("%", "%%", "#", "##"):
            pattern = self.text(part.word)
            if isinstance(pattern, str):
                return _without_affix(value, part.operator, pattern)
        return self._untranslated(part.name, source)

    def _from_outside(self, name: str, default: Value | None = None) -> Value:
        """Returns a variable that the script does not set: of its environment, or an argument."""
        if name.isdigit():
            source = f"sys.argv[{name}]"
            if default is not None:
                source = f"{source} if len(sys.argv) > {name} else {source_of(default)}"
            return self._defined(self._target or f"argument_{name}", source, "import sys")
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            return self._untranslated("value", f"${name}")
        note = ""
        if name in _OF_CONTAINER:
            note = (
                f"the shell replaces ${name} before it submits: write it in single quotes if the job has to do it"
            )
        source = f'os.environ["{name}"]'
        if default is not None:
            source = f'os.environ.get("{name}", {source_of(default)})'
        return self._defined(name, source, "import os", note)

    def _output(self, part: Output) -> Value:
        match part.commands:
            case [Command(heredocs=[*_, document]) as command] if self._names(command) == ["cat"]:
                return _without_line_ends(self.text(document))
            case [Command() as command]:
                tokens = [value for word in command.tokens for value in self.tokens(word)]
                value = self._of_command(tokens)
                if value is not None:
                    return value
        if part.commands and "$" not in part.source and "`" not in part.source:
            name = (self._names(part.commands[0]) or ["output"])[0]
            source = f"subprocess.getoutput({source_of(part.source.strip())})"
            return self._defined(self._target or name, source, "import subprocess")
        source = f"$({part.source.strip()})" if part.commands else part.source
        return self._untranslated(self._target or "value", source)

    def _of_command(self, tokens: Sequence[Value]) -> Value | None:
        match tokens:
            case ["date", str(form)] if form.startswith("+"):
                source = f"datetime.now().strftime({source_of(form[1:])})"
                return self._defined(self._target or "now", source, "from datetime import datetime")
            case ["date", "-u", str(form)] if form.startswith("+"):
                source = f"datetime.now(timezone.utc).strftime({source_of(form[1:])})"
                return self._defined(self._target or "now", source, "from datetime import datetime, timezone")
            case ["whoami"]:
                return self._defined("user", "getpass.getuser()", "import getpass")
            case ["pwd"]:
                return self._defined("folder", "os.getcwd()", "import os")
            case ["echo", *more] if not any(isinstance(each, str) and each.startswith("-") for each in more):
                return joined(*(joined(" " if index else "", each) for index, each in enumerate(more)))
        return None

    def _names(self, command: Command) -> list[str]:
        return [str(value) for word in command.tokens for value in self.tokens(word)]

    def _value(self, value: Word | Array) -> Value | list[Value]:
        if isinstance(value, Array):
            return [each for word in value.tokens for each in self.tokens(word)]
        return self.text(value)

    def _assign(self, name: str, value: Value | list[Value], *, is_appended: bool = False) -> None:
        before = self._variables.get(name)
        if is_appended and before is not None:
            if isinstance(before, list):
                value = [*before, *(value if isinstance(value, list) else [value])]
            elif not isinstance(value, list):
                value = joined(before, value)
        self._variables[name] = value

    def _loop_variable(self, name: str, items: Iterable[Value], line: int) -> Value:
        shown = ", ".join(each if isinstance(each, str) else source_of(each) for each in items)
        python = _python_name(name)
        note = (
            f"line {line} is a loop over {shown or name}: make the lines above a function with the parameter"
            f" {python}, and submit all jobs with run_all()"
        )
        return self._defined(name, "", note=note)

    def _untranslated(self, name: str, source: str, line: int = 0) -> Value:
        where = f"line {line}: " if line else ""
        note = f"{where}{' '.join(source.split())} is not translated: set {_python_name(name)} to it"
        return self._defined(name, '""', note=note)

    def _defined(self, name: str, source: str, needs: str = "", note: str = "") -> Value:
        """Returns a Python variable with this expression, under a free name."""
        python = wanted = _python_name(name)
        definition = Definition(source, needs, note)
        number = 1
        while self.definitions.get(python, definition) != definition:
            number += 1
            python = f"{wanted}_{number}"
        self.definitions[python] = definition
        return Computed((Name(python),))

    def _note(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)


def _python_name(name: str) -> str:
    python = re.sub(r"\W", "_", name).lower()
    if not python or python[0].isdigit():
        python = f"value_{python}"
    return f"{python}_" if keyword.iskeyword(python) or python in _RESERVED else python


def _without_line_ends(value: Value) -> Value:
    if isinstance(value, str):
        return value.rstrip("\n")
    *before, last = value.parts
    return Computed((*before, last.rstrip("\n"))) if isinstance(last, str) else value


def _without_affix(value: str, operator: str, pattern: str) -> str:
    """Returns what `${name%pattern}` and its like leave, of a pattern without classes of characters."""
    body = "".join(".*" if each == "*" else "." if each == "?" else re.escape(each) for each in pattern)
    ends = range(len(value) + 1)
    if operator[0] == "#":
        ends = ends if operator == "#" else ends[::-1]
        return next((value[end:] for end in ends if re.fullmatch(body, value[:end], re.S)), value)
    ends = ends[::-1] if operator == "%" else ends
    return next((value[:end] for end in ends if re.fullmatch(body, value[end:], re.S)), value)
