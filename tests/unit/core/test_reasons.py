"""Reasons for failed instances."""

from __future__ import annotations

import pytest

from pai_sdk._core.reasons import exit_reason, missing_module

pytestmark = pytest.mark.interpreter


def test_a_killed_instance_probably_ran_out_of_memory() -> None:
    assert exit_reason("train1-master-0", 137)[0] == "OutOfMemory"


def test_the_last_missing_module_of_a_log_is_named() -> None:
    assert missing_module(["epoch 1", "ModuleNotFoundError: No module named 'torch'"]) == "torch"
