"""Access keys: the value, and the providers."""

from __future__ import annotations

import logging
import math
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from pai_sdk._core.config.file import config_path_of, read_config
from pai_sdk._core.names.hints import type_problem, wrong_type
from pai_sdk.errors import CredentialsError, CredentialsRenewalError, InvalidInputError, PaiError, Problem

_log = logging.getLogger(__name__)

_COMMAND_KEY_S = 60.0

_ID = "ALIBABA_CLOUD_ACCESS_KEY_ID"
_SECRET = "ALIBABA_CLOUD_ACCESS_KEY_SECRET"  # noqa: S105 - the name of a variable
_TOKEN = "ALIBABA_CLOUD_SECURITY_TOKEN"  # noqa: S105 - the name of a variable
# An OSError is mostly a passing network error; these are not.
_PERMANENT_ERRORS = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)


class Credentials(NamedTuple):
    """An access key, all parts read at one time; or a bearer token instead of a key.

    Example:
        >>> Credentials("LTAI-example", "secret")
        Credentials('LTAI-example', ***)
    """

    access_key_id: str
    access_key_secret: str
    security_token: str | None = None
    bearer_token: str | None = None

    def __repr__(self) -> str:
        return f"Credentials({self.access_key_id!r}, ***)"


CredentialsProvider: TypeAlias = Callable[[], Credentials]
"""Gives the key that is valid now; called before each request.

An error of the network (OSError), and any error after the first key, is temporary: the request is sent again and
`wait()` continues. A `CredentialsError` is final: there is no key."""


def static_credentials(
    access_key_id: str, access_key_secret: str, security_token: str | None = None
) -> CredentialsProvider:
    """A key that does not change.

    Args:
        access_key_id: its public part.
        access_key_secret: its secret part.
        security_token: belongs to a temporary key.

    Raises:
        CredentialsError: a part is empty, or has characters that cannot be in a key.

    Example:
        >>> static_credentials("LTAI-example", "secret")().access_key_id
        'LTAI-example'
    """
    key = _check_key(Credentials(access_key_id, access_key_secret, security_token or None))
    return lambda: key


def _check_key(key: Credentials) -> Credentials:
    """Returns the key unchanged; refuses a missing part, and characters that cannot be in a key."""
    for name, text in zip(
        ("access key id", "access key secret", "security token", "bearer token"), key, strict=True
    ):
        if not text:
            if name.startswith("access key") and not key.bearer_token:
                raise CredentialsError(f"the {name} is empty; an access key has an id and a secret")
        elif not isinstance(text, str):
            raise CredentialsError(f"the {name}: {type_problem('a string', text)}")
        # Such a string would break a header; mostly a line end was copied with the key.
        elif not re.fullmatch(r"[\x21-\x7e]+", text):
            raise CredentialsError(
                f"the {name} contains a space, a line end or a character outside ASCII; copy it again"
            )
    return key


def default_credentials() -> CredentialsProvider:
    """The key that Alibaba Cloud's tools use; searched for at the first call. Safe to use from many threads.

    In this order: the environment (read at each call), the role of a pod (OIDC), the profile of the `aliyun`
    command, `~/.alibabacloud/credentials.ini`, the role of the ECS machine, `ALIBABA_CLOUD_CREDENTIALS_URI`.

    Returns:
        A function that raises CredentialsError if there is no key; the error lists all attempts.

    Example:
        >>> import os
        >>> os.environ.update(ALIBABA_CLOUD_ACCESS_KEY_ID="LTAI-example", ALIBABA_CLOUD_ACCESS_KEY_SECRET="secret")
        >>> default_credentials()()
        Credentials('LTAI-example', ***)
    """
    return _Chain()


def provider_of(
    access_key_id: str | None,
    access_key_secret: str | None,
    security_token: str | None,
    credentials: CredentialsProvider | Credentials | None,
) -> CredentialsProvider:
    """Returns the provider for a session's arguments; without them, the one that Alibaba Cloud's tools use.

    Raises:
        InvalidInputError: half a key, or two keys.
        CredentialsError: the value cannot be a key.
    """
    if credentials is not None:
        if access_key_id or access_key_secret or security_token:
            raise InvalidInputError(
                [Problem("credentials", "conflicts with access_key_id", "give only one of them")]
            )
        if isinstance(credentials, Credentials):
            key = _check_key(credentials)
            return lambda: key
        if type(credentials).__module__ == "alibabacloud_credentials.models":
            return _UserProvider(_of_config(credentials))
        if not callable(credentials):
            expected = "Credentials, or a function that returns them"
            raise InvalidInputError([wrong_type("credentials", credentials, expected)])
        return _UserProvider(credentials)
    parts = {"access_key_id": access_key_id, "access_key_secret": access_key_secret}
    if not (any(parts.values()) or security_token):
        return default_credentials()
    if missing := [name for name, part in parts.items() if not part]:
        hint = "an access key has an id and a secret"
        raise InvalidInputError([Problem(name, "is required", hint) for name in missing])
    return static_credentials(access_key_id or "", access_key_secret or "", security_token)


def _of_config(config: object) -> CredentialsProvider:
    """Returns the provider for a `Config` of the official library."""
    _library()  # also removes its log handlers
    from alibabacloud_credentials.client import Client

    client = Client(config)

    def ask() -> Credentials:
        key = client.get_credential()
        return Credentials(key.access_key_id or "", key.access_key_secret or "", key.security_token or None)

    return ask


class _UserProvider:
    """A provider function of the user: its result is checked, its errors are wrapped."""

    def __init__(self, ask: CredentialsProvider) -> None:
        self._provide = ask
        self._has_succeeded = False

    def __call__(self) -> Credentials:
        try:
            key = self._provide()
        except PaiError:
            raise
        except Exception as error:
            if self._has_succeeded or (isinstance(error, OSError) and not isinstance(error, _PERMANENT_ERRORS)):
                raise _cannot_renew(
                    error, "check that the function given as credentials can reach its source"
                ) from error
            raise CredentialsError(
                f"the function given as credentials raised {type(error).__name__}: {_reason(error)}"
            ) from error
        key = self._check_key(key)
        self._has_succeeded = True
        return key

    @staticmethod
    def _check_key(key: object) -> Credentials:
        if not isinstance(key, Credentials):
            kind = "None" if key is None else f"a {type(key).__name__}"
            raise CredentialsError(
                f"the function given as credentials returned {kind}; return pai_sdk.credentials.Credentials(…)"
            )
        return _check_key(key)


class _Chain:
    """Searches the sources in order, and remembers the first one with a key."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # A provider of the official library, which has no types.
        self._chosen: Any = None

    def __repr__(self) -> str:
        return "default_credentials()"

    def __call__(self) -> Credentials:
        # Read at each call: a program may set new variables when its key changes.
        if key := _from_environment():
            return key
        # One thread searches, the others wait for its result: a search may take seconds (metadata service).
        with self._lock:
            if self._chosen is None:
                key, self._chosen = _search()
                return key
            provider = self._chosen
        try:
            return _get_key(provider)
        except Exception as error:
            raise _cannot_renew(error, f"log in again, or set {_ID} and {_SECRET}") from error


def _from_environment() -> Credentials | None:
    access_key_id, secret = os.environ.get(_ID), os.environ.get(_SECRET)
    if access_key_id and secret:
        return static_credentials(access_key_id, secret, os.environ.get(_TOKEN))()
    return None


def _search() -> tuple[Credentials, Any]:
    half = [name for name in (_ID, _SECRET) if os.environ.get(name)]
    tried = [f"environment: {'only ' + half[0] if half else f'neither {_ID} nor {_SECRET}'} is set"]
    for name, make in _sources():
        try:
            provider = make()
            key = _get_key(provider)
        except Exception as error:
            # The next source may have a key.
            tried.append(f"{name}: {_reason(error)}")
            continue
        _log.debug("access key found: %s", name)
        return key, provider
    raise CredentialsError(_no_key_message(tried + _unused_keys()))


def _sources() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yields the sources of the official library."""
    # The library reads some variables when it is imported; they are read here instead, at each search.
    env = os.environ.get
    library = _library()
    if env("ALIBABA_CLOUD_ROLE_ARN") and env("ALIBABA_CLOUD_OIDC_TOKEN_FILE"):
        yield (
            "role of the pod (OIDC)",
            lambda: library.OIDCRoleArnCredentialsProvider(
                role_arn=env("ALIBABA_CLOUD_ROLE_ARN"),
                oidc_provider_arn=env("ALIBABA_CLOUD_OIDC_PROVIDER_ARN"),
                oidc_token_file_path=env("ALIBABA_CLOUD_OIDC_TOKEN_FILE"),
                role_session_name=env("ALIBABA_CLOUD_ROLE_SESSION_NAME"),
                sts_region_id=env("ALIBABA_CLOUD_STS_REGION"),
                enable_vpc=_is_on("ALIBABA_CLOUD_VPC_ENDPOINT_ENABLED"),
            ),
        )
    profile = env("ALIBABA_CLOUD_PROFILE")
    cli_file = Path.home() / ".aliyun" / "config.json"
    if not _is_on("ALIBABA_CLOUD_CLI_PROFILE_DISABLED"):
        yield (
            f"aliyun command ({cli_file})",
            lambda: _cli_profile(library, cli_file, profile),
        )
    ini_file = env("ALIBABA_CLOUD_CREDENTIALS_FILE") or str(Path.home() / ".alibabacloud" / "credentials.ini")
    yield (
        f"credentials file ({ini_file})",
        lambda: library.ProfileCredentialsProvider(profile_file=ini_file, profile_name=profile or "default"),
    )
    if not _is_on("ALIBABA_CLOUD_ECS_METADATA_DISABLED"):
        yield (
            "role of the ECS machine",
            # Without its scheduler, which is a thread for each provider that renews keys in advance.
            lambda: library.EcsRamRoleCredentialsProvider(
                role_name=env("ALIBABA_CLOUD_ECS_METADATA"), async_update_enabled=False
            ),
        )
    if uri := env("ALIBABA_CLOUD_CREDENTIALS_URI"):
        yield "ALIBABA_CLOUD_CREDENTIALS_URI", lambda: library.URLCredentialsProvider(uri=uri)


def _cli_profile(library: Any, file: Path, profile: str | None) -> Any:
    """Returns the provider of the `aliyun` command's profile, changed for profiles of mode `External`."""
    # For such a profile, alibabacloud-credentials 1.0.12 writes the key into the file, and runs the command for
    # each request if its output has no `expiration`.

    class Profile(library.CLIProfileCredentialsProvider):  # type: ignore[misc]
        def _get_external_credential_update_callback(self) -> None:
            return None

        def _get_external_credential_update_callback_async(self) -> None:
            return None

        def _get_credentials_provider(self, config: dict[str, Any], profile_name: str) -> Any:
            provider = super()._get_credentials_provider(config, profile_name)
            is_external = isinstance(provider, library.ExternalCredentialsProvider)
            return _CommandKeyCache(provider) if is_external else provider

    return Profile(profile_file=str(file), profile_name=profile)


class _CommandKeyCache:
    """Caches the key that a command prints for up to a minute; one thread at a time runs the command."""

    def __init__(self, provider: Any) -> None:
        self._provider = provider
        self._lock = threading.Lock()
        self._key: Any = None
        self._until = 0.0

    def get_credentials(self) -> Any:
        """Returns the key, as a type of the library."""
        with self._lock:
            if self._key is None or time.monotonic() >= self._until:
                self._key = self._provider.get_credentials()
                remaining_s = (self._key.get_expiration() or math.inf) - time.time()
                # Half of the remaining time, so that a request never gets a key that expires on its way.
                self._until = time.monotonic() + min(_COMMAND_KEY_S, remaining_s / 2)
            return self._key

    async def get_credentials_async(self) -> Any:
        """Returns the key, for asynchronous code of the library."""
        return self.get_credentials()

    def get_provider_name(self) -> str:
        """Returns the name that the library shows in its errors."""
        return str(self._provider.get_provider_name())


def _library() -> Any:
    from alibabacloud_credentials import provider

    # The library adds handlers to its logger that write to stderr; the application decides where logs go.
    logger = logging.getLogger("credentials")
    for handler in list(logger.handlers):
        if type(handler) is logging.StreamHandler:
            logger.removeHandler(handler)
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    return provider


def _get_key(provider: Any) -> Credentials:
    # One call, not three getters of the provider: between two of them a temporary key may be renewed.
    key = provider.get_credentials()
    return static_credentials(
        key.get_access_key_id() or "", key.get_access_key_secret() or "", key.get_security_token()
    )()


def _cannot_renew(error: Exception, hint: str) -> CredentialsRenewalError:
    return CredentialsRenewalError(f"the access key could not be renewed: {_reason(error)}; {hint}")


def _reason(error: Exception) -> str:
    # The text after "result" is a response that may contain a part of a key.
    text = re.split(r",?\s+result\b", str(error), maxsplit=1)[0]
    return " ".join(text.split())[:200] or type(error).__name__


def _unused_keys() -> list[str]:
    """Returns the config file if it has a key: alipai reads it there."""
    path = config_path_of(os.environ)
    try:
        has_key = {"access_key_id", "access_key_secret"} <= read_config(path).keys()
    except PaiError:
        return []
    return [f"{path}: its access key is not used; keep it in one of the places below"] if has_key else []


def _is_on(name: str) -> bool:
    return os.environ.get(name, "").lower() == "true"


def _no_key_message(tried: list[str]) -> str:
    lines = "".join(f"\n  - {line}" for line in tried)
    return (
        f"no access key was found. Tried:{lines}\n"
        "Do one of these:\n"
        f"  1. export {_ID}=… {_SECRET}=…\n"
        "  2. run `aliyun configure`, or write ~/.alibabacloud/credentials.ini\n"
        "  3. Session(access_key_id=…, access_key_secret=…); or Session.embedded(), which needs no account"
    )
