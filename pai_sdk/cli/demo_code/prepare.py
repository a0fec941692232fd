"""Prepare the data: read the digits that come with scikit-learn, keep some, write them as JSON."""

import json
import os
from pathlib import Path

from sklearn.datasets import load_digits

keep = json.loads(Path(os.environ["PAI_CONFIG_DIR"], "hyperparameters.json").read_text())["keep"]
images, digits = load_digits(return_X_y=True)
images, digits = images[: int(keep)] / 16.0, digits[: int(keep)]

target = Path(os.environ["PAI_OUTPUT_DATA"], "digits.json")
target.write_text(json.dumps({"images": images.tolist(), "digits": digits.tolist()}))
print(f"{len(digits)} digits of 64 pixels each written to {target}")
