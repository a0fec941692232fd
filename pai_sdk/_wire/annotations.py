"""Annotations of jobs, and saved views of the page. PAI's API has none; names are snake_case."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from pai_sdk._wire.runs import ExtensionBody

MAX_NOTE_LENGTH = 10_000
MAX_TAG_LENGTH = 64
MAX_TAGS = 20
MAX_FIELDS_LENGTH = 16_384

_Tag: TypeAlias = Annotated[
    # No control characters, and no comma, which separates tags where users type them.
    str,
    StringConstraints(
        strip_whitespace=True, min_length=1, max_length=MAX_TAG_LENGTH, pattern=r"^[^\x00-\x1f\x7f,]+$"
    ),
]
# PostgreSQL stores no NUL.
_Text: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[^\x00]*$")]
_Tags: TypeAlias = Annotated[list[_Tag], Field(max_length=MAX_TAGS)]


class JobAnnotations(ExtensionBody):
    """The annotations of a job; `v` counts the changes of its note. The star is that of the user who asks."""

    star: bool
    tags: list[str]
    note: str
    archived: bool
    v: int


class AnnotationChanges(BaseModel):
    """Changes of the annotations of a job; fields that are left out stay as they are."""

    model_config = ConfigDict(extra="forbid")

    star: bool | None = None
    tags: _Tags | None = Field(None, description="All tags of the job.")
    add_tags: _Tags = Field(default_factory=list)
    remove_tags: _Tags = Field(default_factory=list)
    note: _Text | None = Field(None, max_length=MAX_NOTE_LENGTH)
    archived: bool | None = None
    v: int | None = Field(None, description="Refuse the note (409) unless this version of it is the last one.")


class SavedView(ExtensionBody):
    """A saved view of the page; `fields` is the fragment of its address. The service's own key has no name."""

    name: str
    fields: str
    shared: bool
    owner: str
    mine: bool


class SavedViews(ExtensionBody):
    """The views of a user, and those that others share with them."""

    views: list[SavedView]


class NewView(BaseModel):
    """Body of a request that saves a view."""

    model_config = ConfigDict(extra="forbid")

    fields: _Text = Field(max_length=MAX_FIELDS_LENGTH, description="Such as: q=status=Running&sort=-loss")
    shared: bool = Field(False, description="True to show it to the members of the user's workspaces.")
