#!/usr/bin/env bash
# A study of Optuna that is continued by a new process prunes other trials than one that ran in one process.
#
# Version: optuna 5.0.0; Python 3.11.
# Behaviour: SuccessiveHalvingPruner(min_resource="auto"), the default, and HyperbandPruner(max_resource="auto"), the
#   default, learn their first step from the longest trial that is complete at their first decision, and keep it in
#   the pruner object only. With a new object and the same storage, they learn it again, now from longer trials. The
#   rungs of the trials before, which are in the storage, belong to other steps then.
# Expected: what was learned is in the study, as the rungs are.
#
# Output:
#   SuccessiveHalvingPruner in one process: COMPLETE COMPLETE PRUNED@1 PRUNED@1 PRUNED@1 PRUNED@1
#   SuccessiveHalvingPruner continued: COMPLETE COMPLETE PRUNED@40 PRUNED@10 PRUNED@10 PRUNED@10
#   HyperbandPruner in one process: COMPLETE COMPLETE PRUNED@1 PRUNED@1 PRUNED@1 PRUNED@1
#   HyperbandPruner continued: COMPLETE COMPLETE COMPLETE COMPLETE PRUNED@1 PRUNED@1
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check optuna==5.0.0
cat > "$folder/show.py" <<'PYTHON'
import sys

import optuna

optuna.logging.set_verbosity(optuna.logging.ERROR)
# Last step and level of the trials, in their order; the loss falls with the step.
TRIALS = [(100, 0.5), (1000, 0.4), (1000, 5.0), (1000, 6.0), (1000, 7.0), (1000, 8.0)]
STEPS = [1, 2, 4, 8, 10, 16, 32, 40, 64, 100, 128, 160, 256, 512, 640, 1000]


def objective(trial):
    last, level = TRIALS[trial.number]
    for step in [step for step in STEPS if step <= last]:
        trial.report(level + 10 / step, step)
        if trial.should_prune():
            raise optuna.TrialPruned
    return level


def outcome(make, parts):
    storage = optuna.storages.InMemoryStorage()
    for trials in parts:  # a new object for each part, as in a new process
        study = optuna.create_study(storage=storage, study_name="study", pruner=make(), load_if_exists=True)
        study.optimize(objective, n_trials=trials)
    return " ".join(
        f"PRUNED@{trial.last_step}" if trial.state.name == "PRUNED" else trial.state.name for trial in study.trials
    )


differ = []
for make in (optuna.pruners.SuccessiveHalvingPruner, optuna.pruners.HyperbandPruner):
    whole, continued = outcome(make, [6]), outcome(make, [2, 4])
    print(f"{make.__name__} in one process: {whole}")
    print(f"{make.__name__} continued: {continued}")
    differ.append(whole != continued)
sys.exit(not all(differ))
PYTHON
"$folder/venv/bin/python" "$folder/show.py"
