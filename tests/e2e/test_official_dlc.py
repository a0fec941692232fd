"""The official clients of DLC, unmodified, create, follow, stop, list and delete jobs of a service.

They run in environments of their own: nothing of them is imported here.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from pai_sdk._service.state.folder import read_info
from tests.support.peer_environment import python_with

PROGRAM = Path(__file__).with_name("official_dlc_jobs_program.py")
RELEASES = ("1.11.6", "1.4.4")  # the first signs with ACS3, the second with the older scheme


@pytest.fixture(scope="module")
def pythons() -> dict[str, Path]:
    """Made before the tests' own HOME is set, so that they are kept from run to run."""
    return {release: python_with(f"alibabacloud_pai_dlc20201203=={release}") for release in RELEASES}


@pytest.fixture(params=RELEASES)
def results(request: pytest.FixtureRequest, pythons: dict[str, Path], service_dir: Path) -> dict[str, Any]:
    info = read_info(service_dir)
    assert info is not None
    address = info.endpoint.partition("://")[2]
    values = [address, info.access_key_id, info.access_key_secret]
    command = [str(pythons[request.param]), "-W", "ignore", str(PROGRAM), *values]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.mark.timeout(1800)  # the first run installs them
def test_a_client_works_with_jobs(results: dict[str, Any]) -> None:
    job, (first, second) = results["job"], results["made"]
    assert (job["Status"], job["ReasonCode"], job["DisplayName"]) == ("Succeeded", "JobSucceeded", "official")
    assert [pod["Type"] for pod in job["Pods"]] == ["master", "worker"]
    assert results["logs"] == {
        f"{first}-master-0": ["2", "3", "4", "5"],
        f"{first}-worker-0": ["2", "3", "4", "5"],
    }
    assert "succeeded" in results["events"][-1]
    assert results["metrics"] == [f"{first}-master-0", f"{first}-worker-0"]
    assert results["stopped"] == second
    assert (results["stop"]["Status"], results["stop"]["ReasonCode"]) == ("Stopped", "JobStoppedByUser")
    assert results["second stop"]["code"] == "BadRequest"
    assert results["second stop"]["message"].startswith("code: 400, Job can't be stopped, because it is Stopped")
    assert results["list"] == [[first, "Succeeded"], [second, "Stopped"]]
    assert results["total"] == 2
    assert results["wrong page"]["code"] == "InvalidParameter"
    assert results["specs"] == ["local"]
    assert (results["board"]["JobId"], results["board"]["Status"]) == (first, "Running")
    assert results["token"]
    if "tagged" in results:
        assert results["tagged"] == {"official": "a b+c/d", "later": "x"}
        assert results["untagged"] == {"official": "a b+c/d"}
    assert results["deleted"] == [first, second]
    assert results["missing"]["code"] == "NotFound"
    assert results["refused"]["code"] == "InvalidParameter"
