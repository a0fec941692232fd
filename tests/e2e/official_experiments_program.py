"""Run by an interpreter that has the official client of AIWorkspace: every action it has on experiments.

Argument: a JSON object with endpoint, key and region. Output: a JSON object of action to answer or error.
"""

import json
import sys

from alibabacloud_aiworkspace20210204 import models
from alibabacloud_aiworkspace20210204.client import Client
from alibabacloud_tea_openapi.models import Config

GIVEN = json.loads(sys.argv[1])
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


experiment = ask(
    "create",
    "create_experiment",
    request(
        "CreateExperimentRequest",
        Name="official",
        WorkspaceId="1",
        ArtifactUri="oss://pai-local/official/",
        Accessibility="PUBLIC",
        Labels=[{"Key": "team", "Value": "search"}],
    ),
).get("ExperimentId", "none")
for number in range(2):
    ask(
        f"create {number}",
        "create_experiment",
        models.CreateExperimentRequest(name=f"more-{number}", workspace_id="1"),
    )
ask("create again", "create_experiment", models.CreateExperimentRequest(name="official", workspace_id="1"))
labels = request("SetExperimentLabelsRequest", Labels=[{"Key": "a/b", "Value": "c"}])
ask("set labels", "set_experiment_labels", experiment, labels)
ask("get", "get_experiment", experiment, models.GetExperimentRequest(verbose=True))
ask("delete label", "delete_experiment_label", experiment, "a/b", models.DeleteExperimentLabelRequest())
ask("update", "update_experiment", experiment, models.UpdateExperimentRequest(name="renamed"))
options = models.ListExperimentRequestOptions(match_name_exactly="true")
ask("list", "list_experiment", models.ListExperimentRequest(name="renamed", options=options, workspace_id="1"))
ask("list labels", "list_experiment", models.ListExperimentRequest(labels="team=search"))
first = ask(
    "list by token",
    "list_experiment",
    models.ListExperimentRequest(order_by="Name DESC", max_results=2, page_token=0, workspace_id="1"),
)
token = first.get("NextPageToken")
ask(
    "list next",
    "list_experiment",
    models.ListExperimentRequest(order_by="Name DESC", max_results=2, page_token=token),
)
ask("delete", "delete_experiment", experiment, models.DeleteExperimentRequest())
ask("get deleted", "get_experiment", experiment, models.GetExperimentRequest())
print(json.dumps(ANSWERS))
