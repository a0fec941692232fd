"""The demo: prepare data with a Processor, train on it with an Estimator, take the model home.

Both are real jobs: signed requests to the PAI API of the embedded service, code and data through its object store,
processes with the real /ml. With `--instance-type local` the same jobs run in Docker on this machine, and on
Alibaba Cloud with `Session()` and settings of yours.
"""

import argparse
import json
import sys
from pathlib import Path

from pai_sdk import Estimator, Processor, Session
from pai_sdk.job import Channel

HERE = Path(__file__).parent


def say(text: str) -> None:
    """A headline between what the jobs print."""
    print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n{text}")


def show(image: list[float], model: dict[str, list]) -> None:
    """Draw a digit, and let the model that came home say what it is."""
    for row in range(8):
        print("   ", "".join(" ░▒▓█"[min(4, int(pixel * 5))] * 2 for pixel in image[row * 8 : row * 8 + 8]))
    scores = [
        sum(weight * pixel for weight, pixel in zip(weights, image, strict=True)) + offset
        for weights, offset in zip(model["coef"], model["intercept"], strict=True)
    ]
    print(f"    the model says: {model['digits'][scores.index(max(scores))]}")


def main() -> None:
    """Run both jobs, then use the model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--instance-type", default="ecs.c6.large", help="`local` for Docker on this machine")
    parser.add_argument("--image", default="python:3.11", help="the image of both jobs; only Docker needs it")
    parser.add_argument("--output", type=Path, default=HERE / "output", help="where the results go")
    where = parser.parse_args()
    if where.instance_type == "local":
        session = Session()
        print("the jobs run in Docker on this machine")
    else:
        session = Session.embedded()
        print(f"the embedded service is up: {session.settings.endpoint}")

    say("1. Processor: prepare the data (the first job also installs scikit-learn, once)")
    processor = Processor(
        image_uri=where.image,
        command="python prepare.py",
        source_dir=HERE / "src",
        parameters={"keep": 1500},
        instance_type=where.instance_type,
        session=session,
    )
    processor.set_output_channels([Channel(name="data")])
    prepared = processor.run()

    say("2. Estimator: train on it")
    estimator = Estimator(
        image_uri=where.image,
        command="python train.py $PAI_USER_ARGS",
        source_dir=HERE / "src",
        hyperparameters={"epochs": 8, "alpha": 0.0005},
        metric_definitions=[{"name": "accuracy", "regex": r"accuracy=([0-9.]+)"}],
        instance_type=where.instance_type,
        session=session,
    )
    job = estimator.fit({"train": prepared.outputs["data"]})

    say("3. What it left")
    print("accuracy:", " ".join(f"{point.value:.3f}" for point in job.metrics("accuracy")))
    print("model:   ", estimator.model_data())
    folder = job.download("model", where.output / "model")
    print("here:    ", folder.resolve())
    model = json.loads((folder / "model.json").read_text())
    sample = json.loads((prepared.download("data", where.output / "data") / "digits.json").read_text())
    show(sample["images"][42], model)


if __name__ == "__main__":
    main()
