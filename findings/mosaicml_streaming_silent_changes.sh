#!/usr/bin/env bash
# mosaicml-streaming 0.13.0: big-endian arrays come back as other numbers, and `load_state_dict` is ignored in a process
# that has begun to read.
#
# A data set has the columns `ndarray` and `int`. The arrays are big-endian, as `numpy.frombuffer` gives them for IDX,
# FITS and other files. A training reads two batches, keeps the state, reads on, meets a NaN, and goes back to the
# state: in the same process, then in a new one.
# Behaviour: `ndarray` stores the bytes as they are and the name of the type without its byte order; reading takes them
#   for little-endian, without an error. The state of the epoch that is being read counts as an old one: the loader
#   starts at the first batch. In a new process it continues at the third one.
# Expected: the same numbers, or a refusal as for other types; the third batch, or an error.
# Sources: streaming/base/format/mds/encodings.py, class NDArray; streaming/base/dataset.py, `_resume`: a state of an
#   epoch before the presumed next one is dropped. Compare mosaicml/streaming#437 and #880.
# The part `streaming.vision`, which needs torchvision and is not used here, is replaced by an empty module.
#
# Output:
#   written: [1, 2, 3], read: [72057594037927936, 144115188075855872, 216172782113783808]
#   before: [[0, 1], [2, 3]]
#   after load_state_dict, same process: [[0, 1], [2, 3], [4, 5], [6, 7]]
#   after load_state_dict, new process: [[4, 5], [6, 7]]
# Exit status: 0 while mosaicml-streaming behaves like this, 1 when it does not.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export HOME=$folder OMP_NUM_THREADS=1
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 numpy==2.1.3 transformers==4.57.6 \
    xxhash==3.8.2 Brotli==1.2.1 python-snappy==0.7.3 zstd==1.5.7.2 pillow==13.0.0 catalogue==2.0.10
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check --no-deps mosaicml-streaming==0.13.0
cat > "$folder/show.py" <<'PYTHON'
import sys
import warnings
from types import ModuleType

sys.modules["streaming.vision"] = ModuleType("streaming.vision")
warnings.simplefilter("ignore")

import json
import subprocess

import numpy as np
from streaming import MDSWriter, StreamingDataLoader, StreamingDataset

folder = sys.argv[1]


def loader():
    return StreamingDataLoader(StreamingDataset(local=folder, batch_size=2), batch_size=2)


def numbers(batches):
    return [batch["number"].tolist() for batch in batches]


if len(sys.argv) > 2:  # the new process
    later = loader()
    later.load_state_dict(json.loads(sys.argv[2]))
    print(json.dumps(numbers(later)))
    sys.exit()
array = np.frombuffer(bytes([0, 0, 0, 0, 0, 0, 0, 1, *[0] * 7, 2, *[0] * 7, 3]), dtype=">i8")
with MDSWriter(out=folder, columns={"array": "ndarray", "number": "int"}) as writer:
    for number in range(8):
        writer.write({"array": array, "number": number})
read = StreamingDataset(local=folder, batch_size=1)[0]["array"]
print(f"written: {array.tolist()}, read: {read.tolist()}")
first = loader()
batches = iter(first)
before = numbers([next(batches), next(batches)])
state = first.state_dict()
numbers(batches)
first.load_state_dict(state)
same = numbers(first)
command = [sys.executable, __file__, folder, json.dumps(state)]
new = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout.splitlines()[-1])
print(f"before: {before}")
print(f"after load_state_dict, same process: {same}")
print(f"after load_state_dict, new process: {new}")
everything = [[0, 1], [2, 3], [4, 5], [6, 7]]
is_so = read.tolist() == array.byteswap().tolist() and (before, same, new) == (
    everything[:2],
    everything,
    everything[2:],
)
sys.exit(not is_so)
PYTHON
timeout 120 "$folder/venv/bin/python" "$folder/show.py" "$folder/data" 2> "$folder/log" || { cat "$folder/log" >&2; exit 1; }
