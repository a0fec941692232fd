"""docker-py beside the requests that is installed: 7.0 cannot use sockets since requests 2.32."""

from __future__ import annotations

from pathlib import Path

import docker
import pytest
from docker.errors import DockerException


def test_the_client_tries_the_socket(tmp_path: Path) -> None:
    with pytest.raises(DockerException) as caught:
        docker.APIClient(base_url=f"unix://{tmp_path}/engine.sock", version="auto")
    assert "FileNotFoundError" in str(caught.value)
