"""Files that look like keys: they are not uploaded unless the user allows it."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Iterator

from pai_sdk._data.storage.walk import FolderListing
from pai_sdk.errors import Problem

_MAX_KEY_BYTES = 16_000  # no private key is larger

_NAMES = (
    ".env",
    ".env.*",
    "*.env",
    "id_rsa",
    "id_dsa",
    "id_ecdsa",
    "id_ed25519",
    "id_ecdsa_sk",
    "id_ed25519_sk",
    "*.pem",
    "*.key",
    "*.p12",
    "*.pfx",
    "*.ppk",
    "*.jks",
    "*.keystore",
    "*.kdbx",
    ".netrc",
    "_netrc",
    ".pypirc",
    ".npmrc",
    ".s3cfg",
    ".boto",
    ".my.cnf",
    ".databrickscfg",
    ".vault-token",
    ".htpasswd",
    ".pgpass",
    ".git-credentials",
    ".ossutilconfig",
    ".odpscmd.ini",
    "odps_config.ini",
    ".dockercfg",
    "credentials",
    "credentials.ini",
    "credentials.json",
    "credentials.csv",
    "client_secret*.json",
    "service-account*.json",
    "accesskey*.csv",
    "kubeconfig",
)
_PATH_GLOBS = (
    ".aliyun/config.json",
    ".aws/config",
    ".cache/huggingface/token",
    ".config/gcloud/*",
    ".docker/config.json",
    ".huggingface/token",
    ".kaggle/kaggle.json",
    ".kube/config",
    ".pai/config.json",
    ".streamlit/secrets.toml",
)
# Examples to copy from, and certificates that everybody may see.
_HARMLESS = (".env.example", ".env.sample", ".env.template", ".env.dist", "*.pub", "cacert.pem", "ca-bundle.pem")
# A certificate, or attributes that some tools write, may precede the key.
_HEAD_BYTES = 4096
_KEY_SIGNS = (b"PRIVATE KEY", b"PuTTY-User-Key-File")
_KEY = re.compile(rb"^-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----|^PuTTY-User-Key-File-\d", re.MULTILINE)


def _any_of(globs: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(fnmatch.translate, globs)))


# Called for each file, so a set is tried first, then one expression.
_EXACT = frozenset(name for name in _NAMES if "*" not in name)
_GLOBS = _any_of([name for name in _NAMES if "*" in name])
_PATHS = _any_of(f"*/{path}" for path in _PATH_GLOBS)
_NO_SECRETS = _any_of(_HARMLESS)


def is_secret_path(path: str) -> bool:
    """Returns True if keys and passwords usually have this path."""
    path = path.lower()
    name = path.rpartition("/")[2]
    is_match = name in _EXACT or _GLOBS.match(name) or _PATHS.match(f"/{path}")
    return bool(is_match) and not _NO_SECRETS.match(name)


def secret_problems(listing: FolderListing) -> Iterator[Problem]:
    """Yields the files that look like keys or passwords, or contain a private key."""
    for file in listing.files:
        # A link with a harmless name may point to a key.
        if is_secret_path(file.path) or is_secret_path(file.target):
            message = "looks like a key or a password"
        elif file.size_bytes <= _MAX_KEY_BYTES and _has_private_key(f"{listing.root}/{file.path}"):
            message = "holds a private key"
        else:
            continue
        yield Problem(file.path, message, "name it in .paiignore, or give allow_secrets=True to upload it")


def _has_private_key(path: str) -> bool:
    """Returns True if a file starts with a private key; False if it cannot be read."""
    try:
        with open(path, "rb", buffering=0) as stream:  # noqa: PTH123 - asked for each file; a Path costs more
            head = stream.read(_HEAD_BYTES)
            return any(sign in head for sign in _KEY_SIGNS) and bool(_KEY.search(head))
    except OSError:
        return False
