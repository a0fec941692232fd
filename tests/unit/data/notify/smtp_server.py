"""A small SMTP server: it accepts every message, or refuses the sender."""

from __future__ import annotations

import socketserver
import threading


class SmtpServer:
    """Keeps the messages that it accepts; with `refusal`, it answers MAIL with that line."""

    def __init__(self, refusal: str = "") -> None:
        self.messages: list[str] = []
        self.connections = 0
        outer = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                outer.connections += 1
                self.answer("220 test")
                while line := self.rfile.readline().decode().strip():
                    verb = line[:4].upper()
                    if verb == "EHLO":
                        self.answer("250 test")
                    elif verb == "MAIL" and refusal:
                        self.answer(refusal)
                    elif verb == "DATA":
                        self.answer("354 go on")
                        self.read_message()
                    elif verb == "QUIT":
                        self.answer("221 bye")
                        return
                    else:
                        self.answer("250 ok")

            def read_message(self) -> None:
                lines = []
                while (line := self.rfile.readline().decode()) not in (".\r\n", ""):
                    lines.append(line)
                outer.messages.append("".join(lines))
                self.answer("250 accepted")

            def answer(self, line: str) -> None:
                self.wfile.write(f"{line}\r\n".encode())

        class Server(socketserver.ThreadingTCPServer):
            allow_reuse_address = True
            daemon_threads = True

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=lambda: self._server.serve_forever(0.01), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)
