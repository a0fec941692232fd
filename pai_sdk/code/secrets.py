"""Files that look like keys: they are not uploaded unless the user says so."""

from __future__ import annotations

import fnmatch

__all__ = ["looks_secret"]

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
_WHOLE_PATHS = (".docker/config.json", ".kube/config", ".aliyun/config.json", ".pai/config.json")
# Examples to copy from, and certificates that everybody may see.
_HARMLESS = (".env.example", ".env.sample", ".env.template", ".env.dist", "*.pub", "cacert.pem", "ca-bundle.pem")


def looks_secret(path: str) -> bool:
    """Whether a file's path is one that keys and passwords have.

    Example:
        >>> [looks_secret(path) for path in ("conf/.env", ".env.example", "keys/ID_RSA", "train.py")]
        [True, False, True, False]
    """
    path = path.lower()
    name = path.rpartition("/")[2]
    if any(fnmatch.fnmatchcase(name, pattern) for pattern in _HARMLESS):
        return False
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in _NAMES) or any(
        path == whole or path.endswith(f"/{whole}") for whole in _WHOLE_PATHS
    )
