"""Train a classifier of handwritten digits. An ordinary script; it also runs without a job."""

import argparse
import json
import os
import time
from pathlib import Path

from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import train_test_split

from pai_sdk import report


def main() -> None:
    """Train for some epochs, report the accuracy of each, save the model."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--alpha", type=float, default=1e-4)
    parser.add_argument("--title", default="digits")
    arguments = parser.parse_args()

    # The channel "train" has the data of the demo's Processor; without it, the whole set is used.
    channel = os.environ.get("PAI_INPUT_TRAIN")
    if channel:
        data = json.loads(Path(channel, "digits.json").read_text())
        images, digits = data["images"], data["digits"]
    else:
        images, digits = load_digits(return_X_y=True)
    train_x, test_x, train_y, test_y = train_test_split(images, digits, test_size=0.25, random_state=0)
    print(f"{arguments.title}: {len(train_x)} images for training, {len(test_x)} for testing")

    model = SGDClassifier(alpha=arguments.alpha, random_state=0)
    for epoch in range(1, arguments.epochs + 1):
        model.partial_fit(train_x, train_y, classes=sorted(set(digits)))
        accuracy = model.score(test_x, test_y)
        print(f"epoch {epoch}/{arguments.epochs} accuracy={accuracy:.4f}")
        report({"accuracy": accuracy}, step=epoch)
        time.sleep(0.3)  # slow enough to watch

    target = Path(os.environ["PAI_OUTPUT_MODEL"], "model.json")
    weights = {
        "digits": model.classes_.tolist(),
        "coef": model.coef_.tolist(),
        "intercept": model.intercept_.tolist(),
    }
    target.write_text(json.dumps(weights))
    print(f"model of {target.stat().st_size} bytes written to {target}")


if __name__ == "__main__":
    main()
