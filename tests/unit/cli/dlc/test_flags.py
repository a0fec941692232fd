"""Flags of `pai-sdk dlc`, and job files."""

from __future__ import annotations

from pathlib import Path

import pytest

from pai_sdk._wire.dlc.flags import Flag
from pai_sdk.cli.dlc.flags import Arguments, parse, read_job_file
from pai_sdk.errors import InvalidInputError

FLAGS = (
    Flag("name", short="n"),
    Flag("command"),
    Flag("workers", kind="number"),
    Flag("chief", kind="boolean"),
    Flag("force", kind="boolean", short="f"),
    Flag("data_sources", kind="list"),
    Flag("envs", kind="pairs"),
    Flag("job_file"),
    Flag("preempt", kind="boolean", refusal="leave it out"),
)


def parsed(*words: str) -> Arguments:
    return parse(words, FLAGS)


@pytest.mark.parametrize("words", [("--name=a b",), ("--name", "a b"), ("-n", "a b"), ("-n=a b",), ("-na b",)])
def test_a_value_is_behind_a_sign_or_the_next_word(words: tuple[str, ...]) -> None:
    assert parsed(*words).text("name") == "a b"


def test_values_may_look_like_flags() -> None:
    assert parsed("--command", "--name=x").text("command") == "--name=x"
    assert parsed("--command=-c a=b").text("command") == "-c a=b"
    assert parsed("--command", "echo 1\necho 2\n").text("command") == "echo 1\necho 2\n"


@pytest.mark.parametrize(
    ("words", "is_set", "others"),
    [
        (("--chief",), True, []),
        (("--chief=true",), True, []),
        (("--chief", "true"), True, []),
        (("--chief=false",), False, []),
        (("--chief", "false"), False, []),
        (("-f", "dlc1"), False, ["dlc1"]),
        ((), False, []),
    ],
)
def test_booleans(words: tuple[str, ...], is_set: bool, others: list[str]) -> None:
    arguments = parsed(*words)
    assert (arguments.boolean("chief"), arguments.positionals, arguments.problems) == (is_set, others, [])


def test_the_last_value_counts_and_lists_grow() -> None:
    arguments = parsed("--name=a", "--name=b", "--data_sources=d-a,d-b", "--data_sources", "d-c")
    assert arguments.text("name") == "b"
    assert arguments.items("data_sources") == ["d-a", "d-b", "d-c"]


def test_a_comma_belongs_to_a_value_unless_a_pair_follows() -> None:
    arguments = parsed("--envs=A=1,B=mlx5_0,mlx5_1,C=,D=x=y", "--envs", "E=5")
    assert arguments.pairs("envs") == {"A": "1", "B": "mlx5_0,mlx5_1", "C": "", "D": "x=y", "E": "5"}


def test_mistakes_are_reported_together_by_their_flags() -> None:
    arguments = parsed(
        "--nme=a", "--preempt", "-x", "value", "--workers=two", "--envs=abc", "--chief=maybe", "--name"
    )
    arguments.number("workers"), arguments.pairs("envs"), arguments.boolean("chief")
    with pytest.raises(InvalidInputError) as caught:
        arguments.check()
    places = ["--nme", "--preempt", "-x", "--name", "--workers", "--envs", "--chief"]
    assert [each.where for each in caught.value.problems] == places


def test_a_flag_that_is_not_supported_may_be_off() -> None:
    parsed("--preempt=false").check()


def test_words_before_a_command() -> None:
    before = parse(["-n", "a", "submit", "--foo", "pytorchjob"], FLAGS, until_positional=True)
    assert (before.text("name"), before.positionals) == ("a", ["submit", "--foo", "pytorchjob"])


def test_a_job_file_has_values_up_to_the_ends_of_lines(tmp_path: Path) -> None:
    file = tmp_path / "x.params"
    file.write_text(
        '# comment\n\nname=train\ncommand=echo "good" && sleep 120 # =\nworkers = 2\nchief=true\nenvs=A=1,B=2\n'
    )
    arguments = parsed("--name=flag", "--workers=1")
    arguments.replace(read_job_file(file, arguments.flags))
    assert arguments.text("command") == 'echo "good" && sleep 120 # ='
    assert (arguments.text("name"), arguments.number("workers"), arguments.boolean("chief")) == ("train", 2, True)
    assert arguments.pairs("envs") == {"A": "1", "B": "2"}


def test_mistakes_in_a_job_file_have_their_lines(tmp_path: Path) -> None:
    file = tmp_path / "x.params"
    file.write_text("name=a\nworker\nfoo=1\npreempt=true\njob_file=y\n")
    with pytest.raises(InvalidInputError) as caught:
        read_job_file(file, parsed().flags)
    assert [each.where.rpartition(" ")[2] for each in caught.value.problems] == ["2", "3", "4", "5"]


def test_a_job_file_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError):
        read_job_file(tmp_path / "x", {})
