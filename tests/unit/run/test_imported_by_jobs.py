"""What jobs import needs the standard library only, and works on the older Pythons that images have."""

from __future__ import annotations

import pytest

from tests.interpreters import IN_JOBS, imports_with_the_standard_library_only

MODULES = [
    "pai_sdk.callbacks",
    "pai_sdk.run.callbacks",
    "pai_sdk.run.calling",
    "pai_sdk.run.checkpoints",
    "pai_sdk.run.events",
    "pai_sdk.run.launch",
    "pai_sdk.run.layout",
    "pai_sdk.run.oss_folder",
    "pai_sdk.run.preemption",
    "pai_sdk.run.remote_run",
    "pai_sdk.run.report",
    "pai_sdk.storage.oss_v4",
]


@pytest.mark.parametrize("version", IN_JOBS)
def test_modules_for_jobs_need_the_standard_library_only(version: str) -> None:
    imports_with_the_standard_library_only(version, MODULES)
