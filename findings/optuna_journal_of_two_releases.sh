#!/usr/bin/env bash
# A trial that Optuna 5 has begun and Optuna 4 has ended cannot be read by Optuna 4: a TypeError over time zones.
#
# Versions: optuna 5.0.0 and 4.4.0 on one journal file; Python 3.11.
# Behaviour: Optuna 5 writes times of trials in UTC with a zone into the journal, Optuna 4 local times without one.
#   Optuna 4 keeps both as they are, so `trial.duration`, and a data frame of the study, fail for a trial with one of
#   each. Optuna 5 converts what it reads, and has no such trouble.
# Expected: a version in the journal, or times that the earlier release reads.
#
# Output:
#   5.0.0 begins trial 0
#   4.4.0 ends trial 0
#   4.4.0 duration: TypeError: can't subtract offset-naive and offset-aware datetimes
#   4.4.0 data frame: TypeError: can't subtract offset-naive and offset-aware datetimes
#   5.0.0 duration: timedelta
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for version in 5.0.0 4.4.0; do
  python3 -m venv "$folder/$version"
  "$folder/$version/bin/pip" install --quiet --disable-pip-version-check "optuna==$version" pandas==3.1.1
done
cat > "$folder/show.py" <<'PYTHON'
import sys
import warnings

import optuna
from optuna.storages.journal import JournalFileBackend

warnings.simplefilter("ignore")
optuna.logging.set_verbosity(optuna.logging.ERROR)
action, path = sys.argv[1:]
storage = optuna.storages.JournalStorage(JournalFileBackend(path))
study = optuna.create_study(storage=storage, study_name="study", load_if_exists=True)
if action == "begin":
    study.ask({"x": optuna.distributions.FloatDistribution(0, 1)})
    print(f"{optuna.__version__} begins trial 0")
elif action == "end":
    study.tell(0, 1.0)
    print(f"{optuna.__version__} ends trial 0")
else:
    reads = {"duration": lambda: study.trials[0].duration, "data frame": lambda: study.trials_dataframe()}
    failed = []
    for name in ("duration",) if action == "read" else reads:
        try:
            print(f"{optuna.__version__} {name}: {type(reads[name]()).__name__}")
        except TypeError as error:
            failed.append(name)
            print(f"{optuna.__version__} {name}: TypeError: {error}")
    sys.exit(len(failed) != (0 if action == "read" else 2))
PYTHON
"$folder/5.0.0/bin/python" "$folder/show.py" begin "$folder/journal.log"
"$folder/4.4.0/bin/python" "$folder/show.py" end "$folder/journal.log"
"$folder/4.4.0/bin/python" "$folder/show.py" fails "$folder/journal.log"
"$folder/5.0.0/bin/python" "$folder/show.py" read "$folder/journal.log"
