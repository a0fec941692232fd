#!/usr/bin/env bash
# docker 7.2.0 (docker-py): `client.containers.create` refuses `stop_timeout`, which `APIClient.create_container` takes.
#
# Steps: call both with `stop_timeout=45`, on a client of a socket that does not exist. The first fails before it
# connects to anything; the second builds the request, with StopTimeout in it. No engine is needed.
# Seen on Python 3.11: "containers.create: TypeError: run() got an unexpected keyword argument 'stop_timeout'" and
# "create_container: StopTimeout 45".
# One might expect: the options of `docker create --stop-timeout` in both. `stop_signal` is taken by both.
# Exit status: 0 while docker-py behaves like this, 1 when it does not.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export HOME=$folder
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet "docker==7.2.0"

timeout 60 "$folder/venv/bin/python" - <<'PYTHON'
import sys

import docker

url = {"base_url": "unix:///nonexistent/docker.sock", "version": "1.41"}
try:
    docker.DockerClient(**url).containers.create("image", stop_signal="SIGTERM", stop_timeout=45)
    refusal = ""
except Exception as error:
    refusal = f"{type(error).__name__}: {error}"
seen = {}
api = docker.APIClient(**url)
api.create_container_from_config = lambda config, *rest: seen.update(config)
api.create_container("image", stop_signal="SIGTERM", stop_timeout=45)
print(f"docker {docker.__version__}")
print(f"containers.create: {refusal}")
print(f"create_container: StopTimeout {seen['StopTimeout']}")
sys.exit(0 if refusal.startswith("TypeError") and "stop_timeout" in refusal and seen["StopTimeout"] == 45 else 1)
PYTHON
