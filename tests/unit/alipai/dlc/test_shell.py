"""Words of shell scripts: what this package reads in them is what a shell passes to the command."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pai_sdk.alipai.dlc.scope import Scope
from pai_sdk.alipai.dlc.shell import ShellError, parse
from pai_sdk.alipai.dlc.values import source_of

SCRIPTS = {
    "quotes": r"""dlc 'a b' "c d" e\ f 'it'\''s' "say \"hi\" \$HOME \\ \n" $'tab\t' '' "" a"b"c'd'""",
    "continued lines": "dlc a \\\n  b\\\nc \"d \\\ne\" 'f \\\ng' # comment\n",
    "a text of several lines": 'dlc --command="\nset -e\n  cd /a\n"\n',
    "variables": 'A=1 B="x y"\nC=$A-${B}\ndlc $A "$B" ${C} "$C" pre${A}post \'$A\' "\'$A\'" \\$A',
    "split words": 'A="--x=1 --y 2"\ndlc $A "$A" z',
    "empty variables": 'A=\ndlc $A "$A" b',
    "appended": 'A=x\nA+=" y"\ndlc "$A"',
    "an array": 'ARGS=(--a=1\n  --b \'c d\' # why\n  "$HOME/e")\nARGS+=(f)\ndlc "${ARGS[@]}" ${ARGS[0]}',
    "defaults": 'A=1\ndlc "${A:-2}" "${B:-3 4}" "${A:+yes}" "${B:+no}" ${B:-"$A"}',
    "affixes": 'A=/x/y.tar.gz\ndlc "${A##*/}" "${A#*/}" "${A%.*}" "${A%%.*}"',
    "a here-document in a command": "dlc --command=\"$(cat <<'EOF'\necho \"a )\" '$B' $C\n\nEOF\n)\" b",
    "a here-document with variables": 'A=1\ndlc "$(cat <<EOF\n$A \\$A `echo x` "q" \\"\nEOF\n)"',
    "a here-document without tabs": 'dlc "$(cat <<-EOF\n\ta\n\t b\n\tEOF\n)"',
    "a variable from a here-document": "read -r -d '' A <<'EOF'\nx $y\nz\nEOF\ndlc \"$A\"",
    "an exported variable": "export A=b C='d e'\ndlc $A \"$C\"",
    "output of echo": 'A=$(echo x y)\ndlc "$A" `echo z`',
    "redirections": "dlc a >/dev/null 2>&1 b < /dev/null",
    "a pipe": "dlc a b | cat\n",
    "JSON in quotes": """dlc --config='{"a": {"b": "c d"}}' --x "{\\"e\\": 1}\"""",
    "a hash within a word": "dlc a#b '#c' # d",
}


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_words_are_those_of_a_shell(script: str, tmp_path: Path) -> None:
    shell = shutil.which("bash")
    if shell is None:
        pytest.skip("there is no bash")
    # A pipe runs the function in a subshell, so that it writes to a file.
    text = f"dlc() {{ printf '%s\\0' \"$@\" > out; }}\n{script}\n"
    subprocess.run([shell, "-c", text], cwd=tmp_path, env={"HOME": "/home/x", "PATH": "/usr/bin:/bin"}, check=True)
    expected = (tmp_path / "out").read_text().split("\0")[:-1]
    assert words_of(script, HOME="/home/x") == expected


def words_of(script: str, **environ: str) -> list[str]:
    scope = Scope()
    for command in parse(script):
        values = [value for word in command.tokens for value in scope.tokens(word)]
        if values and values[0] == "dlc":
            names: dict[str, Any] = {"os": type("os", (), {"environ": environ})}
            for name, definition in scope.definitions.items():
                exec(f"{name} = {definition.source}", names)
            return [str(eval(source_of(value), names)) for value in values[1:]]
        scope.run(command)
    raise AssertionError("no command")


@pytest.mark.parametrize(
    ("script", "line"),
    [("a\ndlc 'x", 2), ('dlc "x\n', 1), ("dlc $(x", 1), ("\n\ncat <<EOF\nx\n", 3), ("A=(x", 1), ("dlc ${A", 1)],
)
def test_what_is_not_closed_is_named_with_its_line(script: str, line: int) -> None:
    with pytest.raises(ShellError) as error:
        parse(script)
    assert error.value.line == line


def test_lines_and_depths() -> None:
    commands = parse("a\n\nfor i in 1 2; do\n  b \\\n   c\ndone\nif x; then\n  d\nfi\ne\n")
    first_words = {str(command.tokens[0][0].value): command for command in commands}  # type: ignore[union-attr]
    assert {name: (each.line, each.depth) for name, each in first_words.items()} == {
        "a": (1, 0),
        "for": (3, 1),
        "b": (4, 1),
        "x": (7, 1),
        "d": (8, 1),
        "e": (10, 0),
    }


@given(st.text("a1 '\"\\$`(){}<>|&;#\n=", max_size=30))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    scope = Scope()
    with contextlib.suppress(ShellError):
        for command in parse(text):
            scope.run(command)
            for word in command.tokens:
                for value in scope.tokens(word):
                    compile(source_of(value), "value", "eval")
