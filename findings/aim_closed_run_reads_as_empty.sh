#!/usr/bin/env bash
# aim 3.29.1: a run that was closed reads as empty in other processes until its repository is indexed.
#
# A run notes a hyperparameter and three values, and is closed. Another process then opens the repository:
# `Repo.iter_runs()` finds no run, and `Run(hash, read_only=True)` opens it without an error, but has neither the
# hyperparameter nor a metric. `aim storage reindex` makes all of it appear; a running `aim up` indexes, too. A script
# that trains and then reads its results, with no server beside it, gets "nothing" instead of an error.
#
# Seen:
#   before reindex: runs 0, hparams None, metrics []
#   after reindex:  runs 1, hparams {'lr': 0.001}, metrics ['loss']
# Exits 0 while this is so, 1 when it has changed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export HOME=$folder
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check aim==3.29.1 'numpy==2.2.6' 'setuptools==80.9.0'
cd "$folder"
cat > write.py <<'PY'
from aim import Run

run = Run(repo=".", system_tracking_interval=None, log_system_params=False)
run["hparams"] = {"lr": 0.001}
for step in range(3):
    run.track(step / 2, name="loss", step=step)
print(run.hash)
run.close()
PY
cat > read.py <<'PY'
import sys

from aim import Repo, Run

runs = len(list(Repo(".").iter_runs()))
run = Run(sys.argv[1], repo=".", read_only=True)
print(f"runs {runs}, hparams {run.get('hparams')}, metrics {[metric.name for metric in run.metrics()]}")
PY
run=$("$folder/venv/bin/python" write.py | tail -n 1)
before=$("$folder/venv/bin/python" read.py "$run" | tail -n 1)
"$folder/venv/bin/aim" storage --repo . reindex --yes >/dev/null 2>&1
after=$("$folder/venv/bin/python" read.py "$run" | tail -n 1)
echo "before reindex: $before"
echo "after reindex:  $after"
[ "$before" = "runs 0, hparams None, metrics []" ] && [ "$after" = "runs 1, hparams {'lr': 0.001}, metrics ['loss']" ]
