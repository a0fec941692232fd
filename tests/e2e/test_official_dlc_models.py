"""The models of DLC's official clients read the bodies that ours write, and lose nothing.

They run in environments of their own: nothing of them is imported here.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.client_fields import full_body, golden_fields
from tests.support.peer_environment import python_with

PROGRAM = Path(__file__).with_name("official_dlc_program.py")
PACKAGES = {
    "dlc 1.11.6": "alibabacloud_pai_dlc20201203",
    "dlc 1.4.4": "alibabacloud_pai_dlc20201203",
    "aiworkspace 8.3.5": "alibabacloud_aiworkspace20210204",
}


@pytest.fixture(scope="module")
def pythons() -> dict[str, Path]:
    """Made before the tests' own HOME is set, so that they are kept from run to run."""
    return {name: python_with(f"{package}=={name.split()[1]}") for name, package in PACKAGES.items()}


def without_empty_lists(value: Any) -> Any:
    """These clients write `[]` for each list that is not set."""
    if isinstance(value, dict):
        return {key: without_empty_lists(item) for key, item in value.items() if item != []}
    return [without_empty_lists(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("client", PACKAGES)
@pytest.mark.timeout(1800)  # the first run installs them
def test_every_field_passes_through_the_client(client: str, pythons: dict[str, Path]) -> None:
    """What `tests/unit/wire/dlc/test_fields.py` says of these bodies and our models holds for the clients too."""
    models = golden_fields()[client]["models"]
    bodies = [(name, full_body(models, name)) for name in models]
    lines = "".join(json.dumps(each) + "\n" for each in bodies)
    command = [str(pythons[client]), "-W", "ignore", str(PROGRAM), PACKAGES[client]]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    theirs = [without_empty_lists(json.loads(line)) for line in done.stdout.splitlines()]
    assert theirs == [body for _, body in bodies]
