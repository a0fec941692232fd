"""Runs generated programs with stand-ins that record their arguments."""

from __future__ import annotations

import ast
from inspect import signature
from types import SimpleNamespace
from typing import Any

from pai_sdk import Estimator
from pai_sdk.jobs import Role


def arguments_of(code: str, **names: Any) -> dict[str, Any]:
    """Runs a program; returns the arguments of the Estimator, with those of its options, `fit` and the session."""
    calls: dict[str, Any] = {}

    def estimator(**arguments: Any) -> SimpleNamespace:
        assert {*arguments} <= {*signature(Estimator).parameters, "api", "dlc"}
        for role in arguments.get("roles", {}).values():
            Role(**role)
        calls.update(arguments)
        return SimpleNamespace(fit=lambda **fit: calls.update(fit=fit) or SimpleNamespace(training_job_id="dlc1"))

    tree = ast.parse(code)
    tree.body = [
        node
        for node in tree.body
        if not isinstance(node, ast.ImportFrom) or not str(node.module).startswith("pai_sdk")
    ]
    namespace = {
        "Estimator": estimator,
        "DlcOptions": dict,
        "Secret": lambda name: ("secret", name),
        "setup_default_session": lambda **arguments: calls.update(session=arguments),
        "print": lambda *_: None,
        **names,
    }
    exec(compile(tree, "generated", "exec"), namespace)
    return calls
