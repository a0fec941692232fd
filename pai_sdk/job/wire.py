"""How the models of the wire behave: PascalCase outside, strict when written, tolerant when read."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_pascal

__all__ = ["Received", "Sent"]


class Sent(BaseModel):
    """A model that we write: immutable, and a field it does not know is an error, not a loss."""

    model_config = ConfigDict(
        alias_generator=to_pascal,
        populate_by_name=True,
        extra="forbid",
        frozen=True,
        protected_namespaces=(),
        defer_build=True,  # importing this library must cost almost nothing
    )

    def to_wire(self) -> dict[str, Any]:
        """The JSON object that is sent: wire names, unset fields left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)

    def to_json(self, *, indent: int | None = None) -> str:
        """The same as text; compact unless an indent is given."""
        separators = (",", ":") if indent is None else None
        return json.dumps(self.to_wire(), ensure_ascii=False, indent=indent, separators=separators)


class Received(BaseModel):
    """A model that we read: what is missing is None, what is unknown is kept."""

    model_config = ConfigDict(
        alias_generator=to_pascal,
        populate_by_name=True,
        extra="allow",
        coerce_numbers_to_str=True,  # ids come as numbers from some services, as text from others
        frozen=True,
        protected_namespaces=(),
        defer_build=True,
    )
