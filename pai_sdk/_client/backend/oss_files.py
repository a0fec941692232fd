"""The files of jobs that run elsewhere: in the bucket of the settings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pai_sdk._client.backend.base import Plan, Purpose
from pai_sdk._client.backend.connection import JOB_SETTINGS, Connection
from pai_sdk._core.endpoint import host_of
from pai_sdk._data.storage.sync.tree_index import is_folder_complete
from pai_sdk._data.storage.tree import FileTree
from pai_sdk._data.storage.uri import OssUri
from pai_sdk._wire.pai.spec import CodeDir
from pai_sdk.errors import InvalidInputError, ObjectNotFoundError, Problem

if TYPE_CHECKING:
    from pai_sdk._data.storage.oss.client import OssClient
    from pai_sdk._data.storage.store import Store

UPLOAD_FOLDERS: Mapping[Purpose, str] = {"code": "pai/code", "input": "pai/input_data"}


class OssFiles:
    """Methods of `Backend` about files; a class that has them sets `_connection`."""

    _connection: Connection

    def tree_uri(self, tree: FileTree, purpose: Purpose) -> str:
        """Returns a folder named by the content hash, so that the same files are uploaded only once."""
        return f"{self._bucket()}/{UPLOAD_FOLDERS[purpose]}/{tree.digest[:32]}/"

    def local_uri(self, path: Path, *, folder: bool) -> str | None:
        """Returns None: jobs of a service have no access to local files."""
        return None

    def code_dir(self, uri: str) -> CodeDir:
        """Returns the code folder of a job for the URI of its code."""
        where = OssUri.parse(uri)
        endpoint = where.endpoint or host_of(self._connection.settings.oss_url)
        return CodeDir.oss(where.bucket, where.key, endpoint=endpoint)

    def default_output(self, job_folder: str, channel: str) -> str:
        """Returns a separate folder of the job in the bucket of the settings."""
        return f"{self._bucket()}/pai/training_job/{job_folder}/{channel}/"

    def store(self, uri: str) -> Store:
        """Opens the folder of an output as a store."""
        from pai_sdk._data.storage.store import open_store

        return open_store(uri, client=self.files() if uri.startswith("oss://") else None)

    def download(self, uri: str, target: Path, *, progress: bool = True) -> Path:
        """Downloads a file or a folder of a job's outputs."""
        from pai_sdk._data.storage.transfer import download

        return download(self.files(), OssUri.parse(uri), target, progress=progress)

    def files(self) -> OssClient:
        """Returns the client of the object storage; the first call creates it."""
        return self._connection.files()

    def read_file(self, uri: str) -> bytes | None:
        """Returns a small object; None where there is none."""
        try:
            return self.files().get_bytes(OssUri.parse(uri))
        except ObjectNotFoundError:
            return None

    def _upload_trees(self, plan: Plan, *, progress: bool) -> None:
        if plan.uploads:
            from pai_sdk._data.storage.transfer import upload_tree

            client = self.files()
            for upload in plan.uploads:
                upload_tree(client, upload.tree, OssUri.parse(upload.uri), progress=progress)

    def _check_uploaded(self, uris: Mapping[str, str]) -> None:
        """Checks that an earlier submission has uploaded the folders of a plan that was loaded from a file."""
        prefixes = tuple(f"{self._bucket()}/{folder}/" for folder in UPLOAD_FOLDERS.values())
        hint = "submit the plan where it was created, or create it again"
        problems = [
            Problem(where, f"its files are not in {uri}", hint)
            for where, uri in uris.items()
            # URIs that are not from `tree_uri` belong to the user, and are not checked.
            if uri.startswith(prefixes) and not is_folder_complete(self.files(), _placed_folder(uri))
        ]
        if problems:
            raise InvalidInputError(problems)

    def _bucket(self) -> str:
        settings = self._connection.settings
        settings.require(*JOB_SETTINGS)
        return f"oss://{settings.oss_bucket_name}"


def _placed_folder(uri: str) -> OssUri:
    """Returns the folder from `tree_uri` that contains a URI: `oss://bucket/pai/code/<hash>/…`."""
    return OssUri.parse("/".join(uri.split("/")[:6]) + "/")
