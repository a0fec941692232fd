"""Run by an interpreter that has the official client of AIWorkspace: registers a model with a training recipe.

Arguments: a JSON object with endpoint, key and region; one with URI and TrainingSpec of the model. Output: a JSON
object of action to answer or error.
"""

import json
import sys

from alibabacloud_aiworkspace20210204 import models
from alibabacloud_aiworkspace20210204.client import Client
from alibabacloud_tea_openapi.models import Config

GIVEN, MODEL = json.loads(sys.argv[1]), json.loads(sys.argv[2])
ANSWERS = {}
client = Client(
    Config(
        access_key_id=GIVEN["access_key_id"],
        access_key_secret=GIVEN["access_key_secret"],
        region_id=GIVEN["region_id"],
        endpoint=GIVEN["endpoint"].removeprefix("http://"),
        protocol="http",
        connect_timeout=60_000,
        read_timeout=60_000,
    )
)


def ask(name, action, *arguments):
    try:
        answer = getattr(client, action)(*arguments).body.to_map()
    except Exception as error:
        answer = {"error": f"{type(error).__name__}: {error}", "code": getattr(error, "code", None)}
    ANSWERS[name] = answer
    return answer


def request(model, **fields):
    return getattr(models, model)().from_map(fields)


labels = [{"Key": "team", "Value": "search"}]
wanted = request("CreateModelRequest", ModelName="official", WorkspaceId="1", Task="copy", Labels=labels)
model = ask("create", "create_model", wanted).get("ModelId", "none")
ask("create again", "create_model", wanted)
version = request("CreateModelVersionRequest", FormatType="Custom", Labels=labels, **MODEL)
ask("create version", "create_model_version", model, version)
ask("create next", "create_model_version", model, request("CreateModelVersionRequest", Uri=MODEL["Uri"]))
ask("get version", "get_model_version", model, "0.1.0", models.GetModelVersionRequest())
ask("update version", "update_model_version", model, "0.2.0", request("UpdateModelVersionRequest", Options="{}"))
ask("list versions", "list_model_versions", model, models.ListModelVersionsRequest(page_size=1))
ask(
    "set version labels",
    "create_model_version_labels",
    model,
    "0.2.0",
    request("CreateModelVersionLabelsRequest", Labels=labels),
)
ask(
    "delete version labels",
    "delete_model_version_labels",
    model,
    "0.2.0",
    models.DeleteModelVersionLabelsRequest(label_keys="team"),
)
ask("delete version", "delete_model_version", model, "0.2.0", models.DeleteModelVersionRequest())
ask("set labels", "create_model_labels", model, request("CreateModelLabelsRequest", Labels=labels))
ask("delete labels", "delete_model_labels", model, models.DeleteModelLabelsRequest(label_keys="team"))
ask("update", "update_model", model, models.UpdateModelRequest(model_description="the official one"))
ask("get", "get_model", model, models.GetModelRequest())
ask("list", "list_models", models.ListModelsRequest(model_name='"official"', workspace_id="1", task="copy"))
other = ask("create other", "create_model", request("CreateModelRequest", ModelName="other")).get(
    "ModelId", "none"
)
ask("delete", "delete_model", other, models.DeleteModelRequest())
ask("get deleted", "get_model", other, models.GetModelRequest())
print(json.dumps(ANSWERS))
