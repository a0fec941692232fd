"""The TLS certificate of a service. It is read again when its files change."""

from __future__ import annotations

import hashlib
import ipaddress
import logging
import ssl
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pai_sdk._service.settings import ServiceSettings
from pai_sdk.errors import ServiceStartError

logger = logging.getLogger(__name__)

_FIRST_LINE, _LAST_LINE = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
_EXPIRED, _NOT_YET_VALID = 10, 9  # verify codes of OpenSSL


@dataclass(frozen=True)
class _Loaded:
    """The content of both files at one time."""

    context: ssl.SSLContext
    names: tuple[str, ...]
    expires_at: float
    fingerprint: str


class Certificate:
    """A certificate with its private key, from two files in PEM; new connections use the newest."""

    def __init__(self, certificate_file: Path, key_file: Path) -> None:
        # Followed in the file by those of the CAs between it and the root.
        self.certificate_file = certificate_file
        self._key_file = key_file  # without a passphrase
        self._stamp = self._stamp_now()
        self._loaded = _load(certificate_file, key_file)
        # The object stays the same when the files change: the listening server keeps it.
        self.context = _server_context(certificate_file, key_file)
        # OpenSSL calls it in every handshake, also while another thread reloads the files: one assignment replaces
        # certificate and key together.
        self.context.sni_callback = self._choose

    @property
    def expires_at(self) -> float:
        """The time of expiry, in seconds since 1970."""
        return self._loaded.expires_at

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the certificate, in hexadecimal."""
        return self._loaded.fingerprint

    def name_for(self, host: str, preferred: Iterable[str] = ()) -> str:
        """Returns the name that clients use for the server: the first of `host` and `preferred` it covers."""
        names = self._loaded.names
        for name in (host, *preferred):
            if _covers(names, name):
                return name
        full_names = [name for name in names if not name.startswith("*.")]
        if not full_names:
            logger.warning("the certificate is not for %s; clients refuse it. --name gives another name", host)
        return full_names[0] if full_names else host

    def reload_if_changed(self) -> None:
        """Reads the files again if they have changed. If they are wrong, the last certificate stays in use."""
        stamp = self._stamp_now()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._loaded = _load(self.certificate_file, self._key_file)
        except ServiceStartError as error:
            logger.error("the certificate is not renewed: %s", error)
        else:
            until = time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(self.expires_at))
            logger.info("the certificate was renewed; it is valid until %s", until)

    def _choose(self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        connection.context = self._loaded.context

    def _stamp_now(self) -> list[tuple[int, ...]]:
        stamps: list[tuple[int, ...]] = []
        for file in (self.certificate_file, self._key_file):
            try:
                status = file.stat()
            except OSError:
                stamps.append(())
            else:
                stamps.append((status.st_ino, status.st_size, status.st_mtime_ns))
        return stamps


def certificate_of(settings: ServiceSettings) -> Certificate | None:
    """Returns the certificate that the settings name; None for a service without TLS."""
    if settings.tls_cert is None and settings.tls_key is None:
        return None
    if settings.tls_cert is None or settings.tls_key is None:
        raise ServiceStartError("TLS needs a certificate and its key: give both --tls-cert and --tls-key")
    return Certificate(settings.tls_cert.expanduser().absolute(), settings.tls_key.expanduser().absolute())


def _load(certificate_file: Path, key_file: Path) -> _Loaded:
    """Reads the files, and verifies the certificate as a client does."""
    pem, key = _text(certificate_file), _text(key_file)
    if _FIRST_LINE not in pem:
        raise ServiceStartError(f"{certificate_file} contains no certificate in PEM")
    if "PRIVATE KEY-----" not in key:
        raise ServiceStartError(f"{key_file} contains no private key in PEM")
    context = _server_context(certificate_file, key_file)
    try:
        fields = _fields_for_client(context, pem)
    except ssl.SSLCertVerificationError as error:
        reason = {_EXPIRED: "has expired", _NOT_YET_VALID: "is not valid yet"}.get(error.verify_code)
        problem = reason or f"is not accepted by clients: {error.verify_message}"
        raise ServiceStartError(f"the certificate in {certificate_file} {problem}") from error
    except ssl.SSLError as error:
        raise ServiceStartError(f"the certificate in {certificate_file} cannot be used: {error.reason}") from error
    values = (value for kind, value in fields.get("subjectAltName", ()) if kind in ("DNS", "IP Address"))
    names = tuple(_normal(value) for value in values)
    certificate = pem[pem.index(_FIRST_LINE) : pem.index(_LAST_LINE) + len(_LAST_LINE)]
    fingerprint = hashlib.sha256(ssl.PEM_cert_to_DER_cert(certificate)).hexdigest()
    return _Loaded(context, names, float(ssl.cert_time_to_seconds(fields["notAfter"])), fingerprint)


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise ServiceStartError(f"{file} cannot be read: {error.strerror}") from error


def _server_context(certificate_file: Path, key_file: Path) -> ssl.SSLContext:
    def no_passphrase() -> str:
        raise ServiceStartError(f"the private key in {key_file} has a passphrase; store it without one")

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(certificate_file, key_file, password=no_passphrase)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            message = f"the private key in {key_file} does not belong to the certificate in {certificate_file}"
        else:
            reason = (error.reason or "damaged").replace("_", " ").lower()
            message = f"{certificate_file} and {key_file} cannot be used: {reason}"
        raise ServiceStartError(message) from error
    except OSError as error:
        raise ServiceStartError(f"{certificate_file} or {key_file} cannot be read: {error.strerror}") from error
    return context


def _fields_for_client(context: ssl.SSLContext, pem: str) -> dict[str, Any]:
    """Returns the fields of the certificate that a client reads, by a handshake in memory."""
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname = False
    trusting.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    trusting.load_verify_locations(cadata=pem)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trusting.wrap_bio(to_client, to_server)
    server = context.wrap_bio(to_server, to_client, server_side=True)
    waiting = [client, server]
    while waiting:
        for side in [*waiting]:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            waiting.remove(side)
    return client.getpeercert() or {}


def _covers(names: Iterable[str], host: str) -> bool:
    normal_host = _normal(host)
    wildcard = f"*.{normal_host.partition('.')[2]}"
    return any(name in (normal_host, wildcard) for name in names)


def _normal(name: str) -> str:
    try:
        return str(ipaddress.ip_address(name.strip("[]")))
    except ValueError:
        return name.lower()
