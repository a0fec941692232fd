"""The OSS protocol: an ASGI application over an object store."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from pai_sdk._service.identity.bucket_rights import BucketRights
from pai_sdk._service.identity.rate import KeyRates
from pai_sdk._service.oss.body import Threads
from pai_sdk._service.oss.bucket_operations import BucketOperations
from pai_sdk._service.oss.error_codes import oss_error
from pai_sdk._service.oss.multipart_operations import MultipartOperations
from pai_sdk._service.oss.object_operations import ObjectOperations, copy_source
from pai_sdk._service.oss.object_rows import check_bucket, encode_key
from pai_sdk._service.oss.oss_auth import Keys, Verifier
from pai_sdk._service.oss.oss_request import OssRequest, host_of, is_signed, read_request
from pai_sdk._service.oss.store import ObjectStore
from pai_sdk._service.oss.xml import as_storage_error, error_response

_log = logging.getLogger(__name__)

# Parameters of the signature and of the form of the response; they do not select the operation.
_COMMON = frozenset({"OSSAccessKeyId", "Expires", "Signature", "security-token", "encoding-type"})
_CHANGES_MEANING = frozenset(
    {
        "x-oss-ac-forward-allow",
        "x-oss-ac-source-ip",
        "x-oss-ac-subnet-mask",
        "x-oss-ac-vpc-id",
        "x-oss-async-process",
        "x-oss-process",
        "x-oss-traffic-limit",
        "x-oss-write-get-object-response",
    }
)
_OVERRIDES = tuple(
    f"response-{name}"
    for name in (
        "content-type",
        "content-language",
        "expires",
        "cache-control",
        "content-disposition",
        "content-encoding",
    )
)

Handler = Callable[[OssRequest], Awaitable[Response]]


@dataclass(frozen=True)
class Operation:
    """An operation: the parameters that select it, and its optional parameters."""

    handler: Handler
    marks: frozenset[str]
    options: frozenset[str]


class ObjectApp:
    """The OSS protocol over a store, as an ASGI application for the root of a server. It does not close the store.

    `keys` has the secret of each access key id, or returns it, None for an unknown one. Clients must sign for
    `region`, such as `cn-hangzhou`. All keys may access all buckets without `rights`.
    """

    def __init__(
        self,
        store: ObjectStore,
        keys: Keys,
        *,
        region: str,
        now: Callable[[], float] = time.time,
        rates: KeyRates | None = None,
        rights: BucketRights | None = None,
    ) -> None:
        self._verifier = Verifier(keys, region=region, now=now)
        self._rates, self._rights = rates or KeyRates(None), rights
        self._threads = threads = Threads()
        buckets = BucketOperations(store, threads, region=region, rights=rights)
        objects, uploads = ObjectOperations(store, threads), MultipartOperations(store, threads)
        self._operations: dict[tuple[str, str], tuple[Operation, ...]] = {
            ("service", "GET"): (_operation(buckets.list_buckets, "", "prefix marker max-keys"),),
            ("bucket", "GET"): (
                _operation(buckets.list_objects, "", "prefix delimiter marker max-keys"),
                _operation(
                    buckets.list_objects_v2,
                    "list-type",
                    "prefix delimiter start-after continuation-token max-keys fetch-owner",
                ),
                _operation(buckets.info, "bucketInfo"),
                _operation(buckets.location, "location"),
                _operation(buckets.acl, "acl"),
                _operation(
                    uploads.list_uploads, "uploads", "prefix delimiter key-marker upload-id-marker max-uploads"
                ),
            ),
            ("bucket", "PUT"): (_operation(buckets.create),),
            ("bucket", "DELETE"): (_operation(buckets.delete),),
            ("bucket", "POST"): (_operation(buckets.delete_objects, "delete"),),
            ("object", "GET"): (
                _operation(objects.get, "", " ".join(_OVERRIDES)),
                _operation(objects.acl, "acl"),
                _operation(uploads.list_parts, "uploadId", "max-parts part-number-marker"),
            ),
            ("object", "HEAD"): (
                _operation(objects.head, "", " ".join(_OVERRIDES)),
                _operation(objects.meta, "objectMeta"),
            ),
            ("object", "PUT"): (
                _operation(objects.put),
                _operation(uploads.put_part, "partNumber uploadId"),
            ),
            ("object", "POST"): (
                _operation(objects.append, "append", "position"),
                _operation(uploads.start, "uploads", "sequential"),
                _operation(uploads.complete, "uploadId"),
            ),
            ("object", "DELETE"): (
                _operation(objects.delete),
                _operation(uploads.abort, "uploadId"),
            ),
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one request."""
        if scope["type"] != "http":
            raise RuntimeError(f"the object store does not serve {scope['type']}")
        request_id = os.urandom(12).hex().upper()
        scope.setdefault("state", {})["request_id"] = request_id
        try:
            response = await self._respond(scope, receive)
        except ClientDisconnect:
            _log.info("%s %s: the client went away", scope["method"], request_id)
            response = _error_response(oss_error("IncompleteBody"), scope, request_id)
        except Exception as error:
            # For any error, the client gets a response in the format of OSS.
            response = _error_response(error, scope, request_id)
        response.headers["x-oss-request-id"] = request_id
        await response(scope, receive, send)

    async def _respond(self, scope: Scope, receive: Receive) -> Response:
        # Before anything of the request is parsed.
        if not is_signed(scope):
            raise oss_error("AccessDenied", "The request is not signed; give an access key.")
        request = read_request(scope, receive, self._verifier.check)
        if self._rates.acquire(request.key_id):
            raise oss_error("QpsLimitExceeded")
        operation = self._operation(request)
        await self._check_rights(request)
        return await operation(request)

    async def _check_rights(self, request: OssRequest) -> None:
        """Refuses a request for a bucket that the key may not access; creates and lists of buckets check that."""
        is_create = request.method == "PUT" and not request.key
        if self._rights is None or not request.bucket or is_create or self._rights.opens_all(request.key_id):
            return
        sources = [copy_source(request)[0]] if request.header("x-oss-copy-source") else []
        await self._threads.run(self._rights.check, request.key_id, request.method, [request.bucket, *sources])

    def _operation(self, request: OssRequest) -> Handler:
        level = "object" if request.key else "bucket" if request.bucket else "service"
        if request.bucket:
            check_bucket(request.bucket)
        if request.key:
            encode_key(request.key)
        operations = self._operations.get((level, request.method))
        if operations is None:
            raise oss_error("MethodNotAllowed")
        names = {name for name in request.query if not _is_common(name)}
        names.update(name for name in _CHANGES_MEANING & request.signed.headers.keys() if request.header(name))
        for operation in operations:
            if operation.marks <= names <= operation.marks | operation.options:
                return operation.handler
        # Never ignore an unknown parameter: a PUT of tags would then overwrite the object.
        unknown = ", ".join(sorted(names)) or "nothing"
        raise oss_error("NotImplemented", f"{request.method} on a {level} with {unknown} is not supported here.")


def _operation(handler: Handler, marks: str = "", options: str = "") -> Operation:
    return Operation(handler, frozenset(marks.split()), frozenset(options.split()))


def _is_common(name: str) -> bool:
    return name in _COMMON or (name.startswith("x-oss-") and name not in _CHANGES_MEANING)


def _error_response(error: Exception, scope: Scope, request_id: str) -> Response:
    return error_response(
        as_storage_error(error), method=scope["method"], host=host_of(scope), request_id=request_id
    )
