"""What jobs import needs the standard library only, and works on the older Pythons that images have."""

from __future__ import annotations

import pytest

from tests.support.interpreters import IN_JOBS, imports_with_the_standard_library_only

MODULES = [
    "pai_sdk.callbacks",
    "pai_sdk._data.run.report.callbacks",
    "pai_sdk._data.run.report.checkpoints",
    "pai_sdk._data.run.events",
    "pai_sdk._data.run.report.preemption",
    "pai_sdk._data.run.report",
    "pai_sdk._data.run.report.callbacks",
    "pai_sdk._data.run.functions.calling",
    "pai_sdk._data.run.report.checkpoints",
    "pai_sdk._data.run.events.writer",
    "pai_sdk._data.run.report.launch",
    "pai_sdk._data.run.report.layout",
    "pai_sdk._data.run.store.oss_folder",
    "pai_sdk._data.run.report.preemption",
    "pai_sdk._data.run.store.remote_run",
    "pai_sdk._data.run.report.checkpoint_saver",
    "pai_sdk._data.run.report.debugger",
    "pai_sdk._data.run.report.debugger_editor",
    "pai_sdk._data.run.report.debugger_marker",
    "pai_sdk._data.run.report.debugger_terminal",
    "pai_sdk._data.run.report.debugger_variables",
    "pai_sdk._data.run.report.context",
    "pai_sdk._data.run.report.metrics",
    "pai_sdk._data.run.report.report_session",
    "pai_sdk._data.run.report.session",
    "pai_sdk._data.storage.oss.v4",
]


@pytest.mark.parametrize("version", IN_JOBS)
def test_modules_for_jobs_need_the_standard_library_only(version: str) -> None:
    imports_with_the_standard_library_only(version, MODULES)
