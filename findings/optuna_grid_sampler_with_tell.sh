#!/usr/bin/env bash
# With GridSampler or BruteForceSampler, `study.tell` of the last point of the grid is a RuntimeError.
#
# Version: optuna 5.0.0; Python 3.11.
# Behaviour: after the last point the samplers call `study.stop()`, which is allowed within `optimize` only. With the
#   ask-and-tell interface, `tell` raises in place of ending the search, although the result was stored.
# Expected: `tell` returns, as for all other points.
#
# Output:
#   GridSampler: ok, RuntimeError: `Study.stop` is supposed to be invoked inside an objective function or a callback.
#   GridSampler states: COMPLETE COMPLETE
#   BruteForceSampler: ok, RuntimeError: `Study.stop` is supposed to be invoked inside an objective function or a callback.
#   BruteForceSampler states: COMPLETE COMPLETE
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check optuna==5.0.0
cat > "$folder/show.py" <<'PYTHON'
import sys
import warnings

import optuna

warnings.simplefilter("ignore")
optuna.logging.set_verbosity(optuna.logging.ERROR)
space = {"x": optuna.distributions.CategoricalDistribution([1, 2])}
as_described = []
for sampler in (optuna.samplers.GridSampler({"x": [1, 2]}), optuna.samplers.BruteForceSampler()):
    study, outcomes = optuna.create_study(sampler=sampler), []
    for _ in range(2):
        trial = study.ask(space)
        try:
            study.tell(trial, 1.0)
            outcomes.append("ok")
        except RuntimeError as error:
            outcomes.append(f"RuntimeError: {error}")
    name = type(sampler).__name__
    print(f"{name}: {', '.join(outcomes)}")
    print(f"{name} states: {' '.join(trial.state.name for trial in study.trials)}")
    as_described.append(outcomes[0] == "ok" and outcomes[1].startswith("RuntimeError"))
sys.exit(not all(as_described))
PYTHON
"$folder/venv/bin/python" "$folder/show.py"
