"""docker-py beside the requests that is installed: 7.0 cannot use sockets since requests 2.32."""

from __future__ import annotations

import gc
import warnings
from pathlib import Path

import docker
import pytest
from docker.errors import DockerException


def test_the_client_tries_the_socket(tmp_path: Path) -> None:
    with pytest.raises(DockerException) as caught:
        docker.APIClient(base_url=f"unix://{tmp_path}/engine.sock", version="auto")
    reason = str(caught.value)
    with warnings.catch_warnings():
        # docker-py leaves the socket open that could not connect: let it be found here, and in no later test.
        warnings.simplefilter("ignore", ResourceWarning)
        del caught
        gc.collect()
    assert "FileNotFoundError" in reason
