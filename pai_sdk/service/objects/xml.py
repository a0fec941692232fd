"""The XML that OSS speaks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timezone
from html import escape
from urllib.parse import quote
from xml.etree import ElementTree

from pai_sdk.service.objects.error_codes import fault

__all__ = ["Children", "document", "iso_time", "name_writer", "parse", "printable"]

Children = Sequence[tuple[str, "str | int | bool | Children"]]

_MOST_TAGS = 200_000  # 10,000 parts with some facts each; an element takes many times its text in memory
# What XML 1.0 cannot hold, and the line end that its parsers change.
_UNSPEAKABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff]")


def document(tag: str, content: Children | str) -> bytes:
    r"""A whole document.

    Example:
        >>> document("Error", [("Code", "NoSuchKey")])
        b'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>NoSuchKey</Code></Error>'
    """
    return b'<?xml version="1.0" encoding="UTF-8"?>\n' + _element(tag, content).encode()


def _element(tag: str, content: str | int | bool | Children) -> str:
    if isinstance(content, bool):
        inner = "true" if content else "false"
    elif isinstance(content, int):
        inner = str(content)
    elif isinstance(content, str):
        inner = escape(printable(content), quote=False)
    else:
        inner = "".join([_element(name, value) for name, value in content])
    return f"<{tag}>{inner}</{tag}>"


def printable(text: str) -> str:
    """The text, with a question mark for each character that XML cannot hold."""
    return _UNSPEAKABLE.sub("?", text)


def name_writer(query: Mapping[str, str], names: Iterable[str]) -> tuple[Callable[[str], str], Children]:
    """How keys are written in an answer, and what the answer says of it.

    Encoded as in a URL when the client asked for it, and also when one of the names cannot be said otherwise.
    """
    wanted = query.get("encoding-type", "")
    if wanted not in ("", "url"):
        raise fault("InvalidArgument", "encoding-type can only be url.")
    if wanted or any(_UNSPEAKABLE.search(name) for name in names):
        return lambda name: quote(name, safe="/"), [("EncodingType", "url")]
    return lambda name: name, []


def iso_time(time_s: float) -> str:
    """`2026-11-21T10:15:00.000Z`."""
    return f"{datetime.fromtimestamp(int(time_s), timezone.utc):%Y-%m-%dT%H:%M:%S}.000Z"


def parse(body: bytes, tag: str) -> ElementTree.Element:
    """The root of a document that a client sent.

    Raises:
        StorageError: `MalformedXML` when it is none, has another root, or declares entities.
    """
    try:
        text = body.decode()  # the parser would read other encodings too, in which `<!` looks different
        if "<!" in text:  # no request needs a DOCTYPE, and entities are how XML is made to explode
            raise fault("MalformedXML")
        if text.count("<") > _MOST_TAGS:
            raise fault("MalformedXML", "The body has more elements than any request needs.")
        root = ElementTree.fromstring(text)  # noqa: S314 - without a DOCTYPE there is nothing to expand
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise fault("MalformedXML") from error
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]  # some clients name a namespace, some do not
    if root.tag != tag:
        raise fault("MalformedXML", f"The root element must be {tag}.")
    return root
