"""The Chinese of the page for what the service advises about failed jobs, and for why they failed."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import pai_sdk._service.web
from pai_sdk._core import reasons
from pai_sdk._data.logs import advice
from pai_sdk._data.logs.missing_modules import missing_module_hint
from pai_sdk._data.logs.missing_variables import missing_file_hint, missing_variable_hint
from pai_sdk._service.services.jobs.details.failure import sentence

_SOURCES = Path(pai_sdk._service.web.__file__).parent / "src"
_KEYS = [
    key
    for file in ("service_texts.ts", "views/job/failure.tsx")
    for key in re.findall(r'^  "≈((?:[^"\\]|\\.)*)":', (_SOURCES / file).read_text("utf-8"), re.MULTILINE)
]


def _job(*names: str) -> Any:
    channels = [SimpleNamespace(name=name) for name in names]
    return SimpleNamespace(
        hyperparameter_values=dict.fromkeys(names, "1"), input_channels=channels, output_channels=channels
    )


def _hints() -> list[str]:
    """Each kind of advice, as logs give it."""
    places = {"library": "libGL.so.1", "program": "nvcc", "path": "/a"}
    hints = [hint.format(**places) for _, hint in advice._HINTS]
    hints += map(missing_module_hint, ("cv2", "mine", "imp", "distutils", "sqlite3", "torch.new"))
    for job in (_job(), _job("train")):
        for kind in ("HPS", "INPUT", "OUTPUT"):
            for name in ("TRIAN", "OTHER"):
                hints.append(missing_variable_hint(f"KeyError: 'PAI_{kind}_{name}'", job) or "")
        hints.append(missing_file_hint("FileNotFoundError: data/a.csv not found", job) or "")
    return hints


def _messages() -> list[str]:
    """The sentences of the service for the reasons of failures, with what it advises."""
    messages = [reasons.exit_reason("a", code)[1] for code in (1, 126, 127, 134, 137)]
    messages += [reasons.exit_reason("a", code, kernel_killed=code == 1)[1] for code in (1, 137)]
    messages += [reasons.memory_limit_message("a", 137, limit) for limit in (None, 1 << 30)]
    messages += [reasons.disk_full_message("a", 1, folder) for folder in ("", "/tmp")]
    messages += [reasons.disk_full_log_message("a", 1, "No space left on device")]
    messages += [reasons.requirements_message(1), reasons.requirements_message(1, "no pip", has_pip=False)]
    messages += [reasons.max_running_time_message(60), reasons.supervisor_lost_message()]
    messages += [reasons.machine_lost_message("b")]
    messages += [reasons.node_lost_message("a", "node-1", is_alive=is_alive) for is_alive in (True, False)]
    return messages


def _is_chinese(sentence: str) -> bool:
    """Matches as `pattern` of service_texts.ts does: the first key, which must be the closest one, too."""
    found = []
    for key in _KEYS:
        expression = re.sub(r"\\\{\d\\\}", r"(?:(?!\\. ).)*?", re.escape(key))
        if re.fullmatch(re.sub("…$", ".*", expression), sentence):
            found.append(key)
    assert found[:1] == sorted(found, key=lambda key: -len(re.sub(r"\{\d\}|…", "", key)))[:1]
    return bool(found)


def test_matching_is_strict() -> None:
    assert len(_KEYS) > 60
    assert _is_chinese("The module a comes with b: add requirements=['b'], or a line in requirements.txt.")
    assert not _is_chinese("Something else.")


@pytest.mark.parametrize("hint", _hints())
def test_advice_about_logs_is_chinese(hint: str) -> None:
    assert _is_chinese(sentence(hint))


@pytest.mark.parametrize("message", _messages())
def test_reasons_and_their_advice_are_chinese(message: str) -> None:
    text, advised = reasons.split_advice(message)
    assert not advised or _is_chinese(advised)
    assert [part for part in re.split(r"(?<=\.) ", text) if not _is_chinese(part)] == []
