"""A small WebHDFS: a namenode and a datanode on loopback that keep their files in memory.

It answers as Hadoop's documentation of the REST API says, also where that is inconvenient: CREATE, APPEND and OPEN
redirect to the datanode, RENAME onto a file that exists does nothing and answers `{"boolean": false}`, errors are
`RemoteException`s. Times are in milliseconds.
"""

from __future__ import annotations

import json
import posixpath
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, quote, unquote, urlsplit


@dataclass
class Node:
    content: bytes | None  # None: a folder
    modified_ms: int
    owner: str
    number: int  # another one for each file that is made


@dataclass
class Asked:
    op: str
    of_datanode: bool
    path: str
    query: dict[str, str]


class RemoteException(Exception):
    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status, self.kind = status, kind


@dataclass
class WebHdfs:
    """Attributes: `nodes` by path; `asked`, each request; `forbidden`, users that may do nothing;
    `ignores_rename_options`, as some gateways do; `before`, called ahead of each request, may raise. Its clock
    stands still.
    """

    forbidden: set[str] = field(default_factory=set)
    ignores_rename_options: bool = False
    before: Callable[[Asked], None] = lambda asked: None

    def __post_init__(self) -> None:
        self.nodes: dict[str, Node] = {"/": Node(None, 1, "root", 1)}
        self.asked: list[Asked] = []
        self.lock = threading.Lock()
        self._made = 1
        self._clock_ms = 1_700_000_000_000
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hdfs": self}))
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def files(self) -> dict[str, bytes]:
        with self.lock:
            return {path: node.content for path, node in self.nodes.items() if node.content is not None}

    # ---- the namenode's operations; called with the lock held ----------------------------------------------

    def now(self) -> int:
        return self._clock_ms

    def made(self, content: bytes | None, user: str) -> Node:
        self._made += 1
        return Node(content, self.now(), user, self._made)

    def node(self, path: str) -> Node:
        if path not in self.nodes:
            raise RemoteException(404, "FileNotFoundException", f"File does not exist: {path}")
        return self.nodes[path]

    def make_folders(self, path: str, user: str) -> None:
        if path not in self.nodes:
            self.make_folders(posixpath.dirname(path), user)
            self.nodes[path] = self.made(None, user)
        elif self.nodes[path].content is not None:
            raise RemoteException(403, "ParentNotDirectoryException", f"{path} (is not a directory)")

    def create(self, path: str, content: bytes, user: str, *, overwrite: bool) -> None:
        if path in self.nodes and (not overwrite or self.nodes[path].content is None):
            raise RemoteException(403, "FileAlreadyExistsException", f"{path} for client already exists")
        self.make_folders(posixpath.dirname(path), user)
        self.nodes[path] = self.made(content, user)

    def append(self, path: str, content: bytes) -> None:
        node = self.node(path)
        node.content, node.modified_ms = (node.content or b"") + content, self.now()

    def rename(self, source: str, target: str, options: str) -> bool:
        if source not in self.nodes:
            return False
        found = self.nodes.get(target)
        if found is not None and found.content is None:
            target = posixpath.join(target, posixpath.basename(source))
            found = self.nodes.get(target)
        if found is not None and "OVERWRITE" not in options.upper():
            return False
        if posixpath.dirname(target) not in self.nodes:
            return False
        for path in [path for path in self.nodes if path == source or path.startswith(f"{source}/")]:
            self.nodes[target + path[len(source) :]] = self.nodes.pop(path)
        return True

    def delete(self, path: str, *, recursive: bool) -> bool:
        if path not in self.nodes:
            return False
        inside = [each for each in self.nodes if each.startswith(f"{path.rstrip('/')}/") and each != path]
        if inside and not recursive:
            raise RemoteException(403, "PathIsNotEmptyDirectoryException", f"`{path} is non empty': is not empty")
        for each in [*inside, path]:
            del self.nodes[each]
        return True

    def status(self, path: str, suffix: str) -> dict[str, object]:
        node = self.node(path)
        return {
            "accessTime": node.modified_ms,
            "blockSize": 0 if node.content is None else 134217728,
            "fileId": node.number,
            "group": "supergroup",
            "length": len(node.content or b""),
            "modificationTime": node.modified_ms,
            "owner": node.owner,
            "pathSuffix": suffix,
            "permission": "755",
            "replication": 0 if node.content is None else 1,
            "type": "DIRECTORY" if node.content is None else "FILE",
        }

    def children(self, path: str) -> list[str]:
        base = path.rstrip("/") + "/"
        return sorted(
            each[len(base) :]
            for each in self.nodes
            if each.startswith(base) and "/" not in each[len(base) :] and each != "/"
        )


class _Handler(BaseHTTPRequestHandler):
    hdfs: WebHdfs  # of the subclass of a server

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        self._serve()

    do_PUT = do_POST = do_DELETE = do_GET

    def log_message(self, *args: object) -> None:
        pass

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        path = unquote(url.path).removeprefix("/webhdfs/v1").rstrip("/") or "/"
        op = query.get("op", "").upper()
        try:
            asked = Asked(op, "datanode" in query, path, query)
            self.hdfs.before(asked)
            with self.hdfs.lock:
                self.hdfs.asked.append(asked)
                user = query.get("user.name", "dr.who")
                if user in self.hdfs.forbidden:
                    raise RemoteException(403, "AccessControlException", f"Permission denied: user={user}")
                self._answer(op, path, query, body, user)
        except RemoteException as error:
            names = {"exception": error.kind, "javaClassName": f"org.{error.kind}", "message": str(error)}
            self._send(error.status, {"RemoteException": names})

    def _answer(self, op: str, path: str, query: dict[str, str], body: bytes, user: str) -> None:
        hdfs = self.hdfs
        if op in ("CREATE", "APPEND", "OPEN") and "datanode" not in query:
            if op != "CREATE":
                hdfs.node(path)
            self._redirect(path, query)
        elif op == "OPEN":
            start = int(query.get("offset", 0))
            content = hdfs.node(path).content or b""
            self._send(200, content[start : start + int(query.get("length", len(content)))])
        elif op == "CREATE":
            hdfs.create(path, body, user, overwrite=query.get("overwrite") == "true")
            self._send(201, b"")
        elif op == "APPEND":
            hdfs.append(path, body)
            self._send(200, b"")
        elif op == "RENAME":
            self._rename(path, query)
        else:
            self._send(200, self._answered(op, path, query, user))

    def _answered(self, op: str, path: str, query: dict[str, str], user: str) -> dict[str, object]:
        if op == "GETFILESTATUS":
            return {"FileStatus": self.hdfs.status(path, "")}
        if op == "LISTSTATUS":
            return {"FileStatuses": {"FileStatus": self._list(path)}}
        if op == "MKDIRS":
            self.hdfs.make_folders(path, user)
            return {"boolean": True}
        if op == "DELETE":
            return {"boolean": self.hdfs.delete(path, recursive=query.get("recursive") == "true")}
        raise RemoteException(400, "UnsupportedOperationException", f"{op} is not supported")

    def _rename(self, path: str, query: dict[str, str]) -> None:
        hdfs = self.hdfs
        if "renameoptions" not in query or hdfs.ignores_rename_options:
            self._send(200, {"boolean": hdfs.rename(path, query["destination"], "")})
            return
        hdfs.node(path)
        if not hdfs.rename(path, query["destination"], query["renameoptions"]):
            raise RemoteException(403, "FileAlreadyExistsException", "rename destination exists")
        self._send(200, b"")

    def _list(self, path: str) -> list[dict[str, object]]:
        if self.hdfs.node(path).content is not None:
            return [self.hdfs.status(path, "")]
        return [self.hdfs.status(posixpath.join(path, name), name) for name in self.hdfs.children(path)]

    def _redirect(self, path: str, query: dict[str, str]) -> None:
        parameters = "&".join(f"{name}={quote(value)}" for name, value in [*query.items(), ("datanode", "1")])
        self.send_response(307)
        self.send_header("Location", f"http://127.0.0.1:{self.hdfs.port}/webhdfs/v1{quote(path)}?{parameters}")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _send(self, status: int, content: bytes | dict[str, object]) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        kind = "application/octet-stream" if isinstance(content, bytes) else "application/json"
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
