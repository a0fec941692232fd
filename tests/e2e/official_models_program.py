"""Run with the official client's interpreter: what its models make of ours, and what answers they define.

Reads requests as JSON lines and writes, for each, what is left of it; then, after an empty line, one answer of
GetTrainingJob and one job of ListTrainingJobs with every field filled.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from typing import Any

from alibabacloud_paistudio20220112 import models


def filled(model: type[Any]) -> Any:
    """An instance with a value in every field, as its own annotations have them."""
    made = model()
    for name, annotation in inspect.get_annotations(model.__init__).items():
        setattr(made, name, value(str(annotation), name))
    return made


def value(annotation: str, name: str) -> Any:
    inner = re.fullmatch(r"List\[(.*)\]", annotation)
    if inner:
        return [value(inner[1], name), value(inner[1], name)]
    if annotation.startswith("Dict["):
        return {"key": name}
    plain: dict[str, Any] = {"str": f"the {name}", "int": 7, "float": 0.1, "bool": True}
    if annotation in plain:
        return plain[annotation]
    return filled(getattr(models, annotation.rpartition(".")[2]))


for line in sys.stdin:
    request = models.CreateTrainingJobRequest().from_map(json.loads(line))
    request.validate()
    print(json.dumps(request.to_map()))
print()
print(json.dumps(filled(models.GetTrainingJobResponseBody).to_map()))
print(json.dumps(filled(models.ListTrainingJobsResponseBodyTrainingJobs).to_map()))
