#!/usr/bin/env bash
# Ray 2.60.0: an actor with num_gpus=0 keeps the CUDA_VISIBLE_DEVICES of its node, so it sees all GPUs of the node.
#
# Steps: start a node with CUDA_VISIBLE_DEVICES=0,1 and two GPUs declared; ask an actor with num_gpus=0 and one with
# num_gpus=1 for the variable. No GPU is needed.
# Seen on Python 3.11: "num_gpus=0: 0,1" and "num_gpus=1: 0".
# One might expect: num_gpus=0 gives an empty variable. RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO=1 brings that back.
# Exit status: 0 while Ray behaves like this, 1 when it does not.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export HOME=$folder RAY_USAGE_STATS_ENABLED=0
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet "ray==2.60.0"

CUDA_VISIBLE_DEVICES=0,1 timeout 180 "$folder/venv/bin/python" - <<'PYTHON'
import os
import sys

import ray

ray.init("local", num_cpus=2, num_gpus=2, include_dashboard=False, log_to_driver=False)


@ray.remote
class Actor:
    def visible(self):
        return os.environ.get("CUDA_VISIBLE_DEVICES")


without = ray.get(Actor.options(num_gpus=0).remote().visible.remote())
with_one = ray.get(Actor.options(num_gpus=1).remote().visible.remote())
ray.shutdown()
print(f"ray {ray.__version__}\nnum_gpus=0: {without}\nnum_gpus=1: {with_one}")
sys.exit(0 if (without, with_one in ("0", "1")) == ("0,1", True) else 1)
PYTHON
