"""Pipes that hide a failure, as a shell sees them."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pai_sdk._client.submit.request_fields import hiding_pipe

HIDES = [
    "python train.py | tee log.txt",
    "python train.py 2>&1 | tee log.txt",
    "python train.py|tee log.txt",
    "python train.py |& tee log.txt",
    "cd src && python train.py | tee log.txt",
    "LR=0.1 python train.py --note 'a; b' | grep -v noise",
    "set -e\npython train.py | tee log.txt",
    "for i in 1 2; do python train.py $i | tee log; done",
    "(python train.py | tee log)",
    "cat data.csv | python train.py | tee log",
    "python train.py | tee log # set -o pipefail",
]
SAFE = [
    "python train.py",
    "python train.py || exit 1",
    "set -o pipefail; python train.py | tee log",
    "set -eo pipefail\npython train.py | tee log",
    "set -euxo pipefail && python train.py | tee log",
    "bash -o pipefail -c 'python train.py | tee log'",
    "bash -eo pipefail -c 'python train.py | tee log'",
    "python train.py --pattern 'a|b'",
    'python train.py --pattern "a|b" "$(ls | head -1)"',
    "python train.py --pattern a\\|b",
    "N=$(nvidia-smi -L | wc -l) python train.py",
    "N=`nvidia-smi -L | wc -l`; python train.py $N",
    "echo y | python train.py",
    "cat data.csv | python train.py",
    "yes | pip install x",
    "python train.py # | tee log",
    "python train.py > log 2>&1",
    "python train.py >| log",
    "case $RANK in 0|1) python train.py;; 2|3) true;; esac",
    "cat <<EOF >conf\na | b\nEOF\npython train.py",
    "python train.py | tee log; exit ${PIPESTATUS[0]}",
    "python train.py > >(tee log)",
    "python train.py <<< 'a|b'",
    "",
    "echo 'unclosed | quote",
    # These hide a failure, but only a shell's grammar could tell them from the ones above.
    "set -o pipefail; set +o pipefail; python train.py | tee log",
    "case $RANK in 0|1) python train.py | tee log;; esac",
    "bash -c 'python train.py | tee log'",
    "cat <<EOF >conf\na | b\nEOF\npython train.py | tee log",
]


@pytest.mark.parametrize("script", HIDES)
def test_a_pipe_without_pipefail_is_found(script: str) -> None:
    assert "|" in hiding_pipe(["sh", "-c", script])


@pytest.mark.parametrize("script", SAFE)
def test_what_hides_no_failure_is_left_alone(script: str) -> None:
    assert hiding_pipe(["sh", "-c", script]) == ""


def test_commands_that_are_lists() -> None:
    assert hiding_pipe(["python", "train.py", "|", "tee"]) == ""
    assert hiding_pipe(["/bin/bash", "-c", "python train.py | tee log"]) == "python train.py | tee log"
    assert hiding_pipe(["bash", "-eo", "pipefail", "-c", "python train.py | tee log"]) == ""
    script = "cd src; python train.py 2>&1 | tee log.txt"
    assert hiding_pipe(["sh", "-c", script]) == "python train.py 2>&1 | tee log.txt"
    assert hiding_pipe(["bash", "-oc", "pipefail", "python train.py | tee log"]) == ""
    assert hiding_pipe(["sh", "run.sh"]) == ""
    assert hiding_pipe([]) == ""


@given(st.text(alphabet="ab |&;<>()'\"\\`$#{}\n=", max_size=40))
def test_no_text_breaks_the_search(script: str) -> None:
    hiding_pipe(["sh", "-c", script])


words = st.sampled_from(["false", "false x", "'a|b' 2>/dev/null", '"|"', "false \\| x"])


@pytest.mark.skipif(shutil.which("bash") is None, reason="compares with bash")
@given(st.lists(words, min_size=1, max_size=3), st.booleans())
def test_bash_agrees_on_what_is_hidden(programs: list[str], is_safe: bool) -> None:
    script = ("set -o pipefail; " if is_safe else "") + " | ".join([*programs, "cat"])
    ended = subprocess.run(["bash", "-c", script], check=False, capture_output=True, timeout=30).returncode
    assert bool(hiding_pipe(["bash", "-c", script])) == (ended == 0)
