"""What the jobs of this corpus run."""

import argparse
import os
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--epochs", type=int, default=1)
arguments = parser.parse_args()

rows = Path(os.environ["PAI_INPUT_TRAIN"]).read_text().split()
for epoch in range(arguments.epochs):
    print(f"epoch={epoch} loss={arguments.lr / (epoch + 1)}")
Path("/ml/output/model/model.txt").write_text(f"{len(rows)} rows, {arguments.lr}")
Path("/ml/output/checkpoints/last.txt").write_text(str(arguments.epochs))
