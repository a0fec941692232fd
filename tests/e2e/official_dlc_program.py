"""Run with the official client's interpreter: reads bodies into its models, and writes what they make of them.

The arguments are the package and nothing else; the input has a line of JSON for each body, `[model, body]`.
"""

from __future__ import annotations

import importlib
import json
import sys

models = importlib.import_module(f"{sys.argv[1]}.models")
for line in sys.stdin:
    name, body = json.loads(line)
    print(json.dumps(getattr(models, name)().from_map(body).to_map()))
