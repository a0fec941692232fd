"""Names made to lead out of a folder, to break a listing, or to be mistaken for another name."""

from __future__ import annotations

import random
from collections.abc import Iterator
from urllib.parse import quote, quote_from_bytes

_PIECES = [
    *(
        "..",
        ".",
        "../",
        "../../../../../../etc/passwd",
        "..\\",
        "\\",
        "/",
        "//",
        "/etc/passwd",
        "~",
        "$HOME",
        "`id`",
    ),
    *("%2e%2e%2f", "%2e", "%252e%252e/", "%2F", "%5c", "%00", "%", "%zz", "%c0%af", "..;/", "....//"),
    *(
        "blobs",
        "incoming",
        "objects.db",
        "lock",
        "canary",
        "outside/canary",
        "blobs/00/",
        "con",
        "C:\\",
        "file://",
    ),
    *("\x00", "\x01", "\x08", "\t", "\n", "\r", "\r\n", "\x1b[2J", "\x1f", "\x7f", "\x80", "\x85", "\x9f"),
    *("<", ">", "&", "&amp;", "]]>", "<!--", '"', "'", "<Key>", "</Key>", "?", "#", "*", ";", "=", "+", " ", ":"),
    *("é", "e\u0301", "ﬁ", "Å", "\u212b", "\u202e", "\ufeff", "\u200b", "\u2028", "\ufffd", "\ufffe", "\uffff"),
    *("日本", "🙂", "\U0010ffff", "ß", "İ", "a", "b", "k" * 120, "é" * 200),
]
LONGEST_KEY_BYTES = 1023


def keys(seed: int, count: int) -> Iterator[str]:
    """So many keys, the same for the same seed; some of them none that OSS allows."""
    chance = random.Random(seed)
    for _ in range(count):
        key = "".join(chance.choices(_PIECES, k=chance.randint(1, 6)))
        if chance.random() < 0.05:  # as long as a key may be, or a byte more or less
            space = chance.randint(LONGEST_KEY_BYTES - 1, LONGEST_KEY_BYTES + 1) - len(key.encode())
            key += "x" * max(space, 0)
        yield key


def is_allowed(key: str) -> bool:
    """Whether OSS takes it for a key."""
    return 1 <= len(key.encode()) <= LONGEST_KEY_BYTES and key[0] not in "/\\"


def written(key: str, chance: random.Random) -> bytes:
    """A key as it may stand in the path of a request; all of these ways mean the same key."""
    way = chance.randrange(4)
    if way == 0:
        return quote(key, safe="").encode()
    if way == 1:
        return quote(key, safe="/~:;=+*'\"<>&").encode()
    if way == 2:
        return quote(key, safe="").lower().encode() if key == key.lower() else quote(key).encode()
    return "".join(f"%{byte:02x}" for byte in key.encode()).encode()


def noise(chance: random.Random) -> bytes:
    """What may stand in the place of anything: a hostile name, or bytes that mean nothing."""
    if chance.random() < 0.2:
        return quote_from_bytes(chance.randbytes(chance.randint(1, 12)), safe="").encode()
    return quote("".join(chance.choices(_PIECES, k=chance.randint(1, 3))), safe="").encode()
