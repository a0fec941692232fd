#!/usr/bin/env bash
# pyarrow cuts the nanoseconds of pandas.Timestamp in a list, without an error.
#
# Versions: pyarrow 26.0.1, pandas 3.1.1; Python 3.11.
# Behaviour: `pa.array` and `pa.Table.from_pylist` infer timestamp[us] for a list of pandas.Timestamp, which are
#   subclasses of datetime, and cut what is smaller. The same values in a Series, or with the type given, are exact;
#   a cast of an array that loses as much is an error ("would lose data").
# Expected: timestamp[ns], or an error.
#
# Output:
#   in a list: timestamp[us], 0 ns
#   in a list within a list: list<item: timestamp[us]>
#   rows of a table: timestamp[us]
#   in a Series: timestamp[ns], 123 ns
#   with the type: timestamp[ns], 123 ns
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pyarrow==26.0.1 pandas==3.1.1
cat > "$folder/show.py" <<'PYTHON'
import sys

import pandas as pd
import pyarrow as pa

moment = pd.Timestamp("2026-01-01 00:00:00.000000123")


def nanoseconds(array):
    return array.cast(pa.timestamp("ns")).cast(pa.int64())[0].as_py() % 1000


in_list, in_series = pa.array([moment]), pa.array(pd.Series([moment]))
with_type = pa.array([moment], pa.timestamp("ns"))
nested = pa.array([[moment]]).type
rows = pa.Table.from_pylist([{"at": moment}]).schema.field("at").type
print(f"in a list: {in_list.type}, {nanoseconds(in_list)} ns")
print(f"in a list within a list: {nested}")
print(f"rows of a table: {rows}")
print(f"in a Series: {in_series.type}, {nanoseconds(in_series)} ns")
print(f"with the type: {with_type.type}, {nanoseconds(with_type)} ns")
sys.exit(not (nanoseconds(in_list) == 0 and nanoseconds(in_series) == nanoseconds(with_type) == 123))
PYTHON
"$folder/venv/bin/python" "$folder/show.py"
