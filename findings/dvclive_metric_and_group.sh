#!/usr/bin/env bash
# dvclive 3.49.1: a metric named like the group of another removes that one from metrics.json, or ends the training.
#
# Names with slashes are groups: `train/loss` is {"train": {"loss": ...}} in metrics.json, the file that DVC compares
# and shows. A metric `train` beside it takes the place of the whole group, without a word; in the other order the
# second `log_metric` raises AttributeError in the midst of a training. The files of the curves keep both in either order.
#
# Seen:
#   train/loss, then train: metrics.json {'train': 1.0}, curves ['train.tsv', 'train/loss.tsv']
#   train, then train/loss: AttributeError: 'float' object has no attribute 'copy'
# Exits 0 while this is so, 1 when it has changed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export HOME=$folder
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check dvclive==3.49.1 dvc==3.67.1
cd "$folder"
"$folder/venv/bin/python" - <<'PY'
import json
import sys
from pathlib import Path

from dvclive import Live


def tried(folder, names):
    """Logs a value for each name, and returns metrics.json without the step, the names of the curves, and the error."""
    error = ""
    with Live(folder, save_dvc_exp=False, dvcyaml=None, report=None) as live:
        for name in names:
            try:
                live.log_metric(name, 1.0)
            except AttributeError as found:
                error = f"AttributeError: {found}"
    metrics = json.loads(Path(folder, "metrics.json").read_text())
    metrics.pop("step", None)
    curves = Path(folder, "plots", "metrics")
    return metrics, sorted(str(path.relative_to(curves)) for path in curves.rglob("*.tsv")), error


metrics, curves, error = tried("one", ["train/loss", "train"])
print(f"train/loss, then train: metrics.json {metrics}, curves {curves}")
other = tried("two", ["train", "train/loss"])[2]
print(f"train, then train/loss: {other}")
same = metrics == {"train": 1.0} and curves == ["train.tsv", "train/loss.tsv"] and not error
sys.exit(0 if same and other == "AttributeError: 'float' object has no attribute 'copy'" else 1)
PY
