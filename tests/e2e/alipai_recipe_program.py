"""A program as alipai's users write it to train a registered model; the test replaces `pai` by `pai_sdk` only.

Arguments: key, secret, the name of the model, a folder. It prints one JSON object with what it has seen.
"""

import json
import posixpath
import sys
from pathlib import Path

from pai.common.oss_utils import download
from pai.huggingface.estimator import HuggingFaceEstimator
from pai.image import ImageScope, retrieve
from pai.model import ModelTrainingRecipe, RegisteredModel
from pai.modelscope import ModelScopeEstimator
from pai.session import get_default_session, setup_default_session

_, key, secret, name, folder = sys.argv
setup_default_session(access_key_id=key, access_key_secret=secret)
session = get_default_session()
seen = {}

# The model, and what its recipe says.
model = RegisteredModel(model_name=name, model_version="0.1.0")
recipe = model.training_recipe()
seen["listed"] = [one.model_name for one in RegisteredModel.list(task="copy")]
seen["hyperparameters"] = recipe.hyperparameters
seen["inputs"] = [channel.name for channel in recipe.input_channels]
seen["definitions"] = [one.name for one in recipe.hyperparameter_definitions]
scripts = recipe.retrieve_scripts(posixpath.join(folder, "scripts"))
seen["scripts"] = sorted(path.name for path in Path(scripts).iterdir())

# By default inputs, and with data and values of one's own.
job = recipe.train(job_name="by-default")
seen["default"] = json.loads(Path(download(recipe.model_data() + "result.json", folder)).read_text())
data = Path(folder, "train")
data.mkdir()
(data / "own.csv").write_text("a\nb\n")
own = ModelTrainingRecipe(
    model_name=name,
    model_version="0.1.0",
    method=None,
    hyperparameters={"epochs": 3},
    instance_type="ecs.c6.xlarge",
    labels={"team": "search"},
)
job = own.train(inputs={"train": str(data)}, wait=False)
job.wait()
seen["own"] = json.loads(Path(download(own.model_data() + "result.json", folder)).read_text())
seen["status"] = str(job.status)

# The older way.
estimator = model.get_estimator(hyperparameters={"epochs": 5})
estimator.fit(inputs={**model.get_estimator_inputs(), "model": model.model_data})
download(posixpath.join(estimator.model_data(), "result.json"), folder)
seen["estimator"] = json.loads(Path(folder, "result.json").read_text())
try:
    own.deploy(service_name="served", instance_type="ecs.c6.large")
except NotImplementedError as error:
    seen["deploy"] = str(error)

# Images and estimators of frameworks.
seen["serving image"] = retrieve("PyTorch", "latest", image_scope=ImageScope.INFERENCE).image_uri
here = {"command": "echo trained > $PAI_OUTPUT_MODEL/done", "instance_type": "ecs.c6.large"}
for estimator in (
    HuggingFaceEstimator(transformers_version="latest", **here),
    ModelScopeEstimator(modelscope_version="latest", **here),
):
    estimator.fit()
    seen[type(estimator).__name__] = estimator.latest_job.record.algorithm_spec["Image"]
print(json.dumps(seen))
