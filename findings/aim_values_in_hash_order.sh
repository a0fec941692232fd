#!/usr/bin/env bash
# aim 3.29.1: `metric.values` hands back a curve in the order of the hashes of its steps, not of the steps.
#
# A run tracks the values 0.0 to 19.0 at the steps 0 to 19. The metric is read by `metric.values`: `values_list()`,
# `sparse_list()` and `sparse_numpy()` all return the same shuffled order, and the indices beside the values are
# 64-bit hashes, so the steps cannot be had from them. Only `metric.dataframe()` sorts by the step. Who plots the
# values as they come, or takes the last one as the latest, is wrong without a word.
#
# Seen:
#   values_list:  [0.0, 4.0, 6.0, 8.0, 16.0, 1.0, 19.0, 13.0, 17.0, 14.0, 9.0, 18.0, 3.0, 15.0, 10.0, 5.0, 11.0, 7.0,
#                 2.0, 12.0], so the "last" loss is 12.0
#   sparse_numpy: the same order
#   dataframe:    0.0 to 19.0
# Exits 0 while this is so, 1 when it has changed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export HOME=$folder
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check aim==3.29.1 'numpy==2.2.6' 'pandas==2.3.3' 'setuptools==80.9.0'
cd "$folder"
"$folder/venv/bin/python" - <<'PY'
import sys

from aim import Run

run = Run(repo=".", system_tracking_interval=None, log_system_params=False)
for step in range(20):
    run.track(float(step), name="loss", step=step)
(metric,) = run.metrics()
listed = list(metric.values.values_list())
sparse = list(metric.values.sparse_numpy()[1])
framed = list(metric.dataframe()["value"])
run.close()
print(f"values_list:  {listed}")
print(f"sparse_numpy: {[float(value) for value in sparse]}")
print(f"dataframe:    {framed}")
in_order = [float(step) for step in range(20)]
shuffled = listed != in_order and sorted(listed) == in_order
sys.exit(0 if shuffled and sparse == listed and framed == in_order and listed[-1] == 12.0 else 1)
PY
