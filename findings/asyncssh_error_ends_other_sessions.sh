#!/usr/bin/env bash
# asyncssh 2.24.1 as a server: an exception in the handler of one session ends all sessions of the connection.
#
# With `process_factory=handle`, asyncssh awaits `handle(process)` for each session. One connection has two sessions,
# as with OpenSSH's ControlMaster, or an editor beside its forwarded ports: the first one works for two seconds, and
# the handler of the second one raises ValueError.
# Behaviour: the server closes the connection. The first session ends without its output and without an exit status,
#   and so do forwarded ports. Only `connection_lost` of the server gets the exception.
# Expected: that session ends, as when a program fails. So a handler has to catch everything, and exit by itself.
# Source: asyncssh/connection.py, the tasks of `create_task`, whose exceptions are internal errors of the connection.
#
# Output:
#   alone: 'finished' with exit status 0
#   beside a session whose handler raises: '' with exit status None
#   connection_lost of the server: ValueError('of one session')
# Exit status: 0 while asyncssh behaves like this, 1 when it does not.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export HOME=$folder
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check asyncssh==2.24.1
cat > "$folder/show.py" <<'PYTHON'
import asyncio
import sys

import asyncssh

lost = []


class Server(asyncssh.SSHServer):
    def begin_auth(self, username):
        return False

    def connection_lost(self, exc):
        lost.append(exc)


async def handle(process):
    if process.command == "fail":
        raise ValueError("of one session")
    await asyncio.sleep(2)
    process.stdout.write("finished")
    process.exit(0)


async def run(port, *, with_failure):
    async with asyncssh.connect("127.0.0.1", port, username="user", known_hosts=None, client_keys=None) as connection:
        first = await connection.create_process("work")
        if with_failure:
            await connection.create_process("fail")
        done = await first.wait()
        return done.stdout, done.exit_status


async def main():
    key = asyncssh.generate_private_key("ssh-ed25519")
    server = await asyncssh.listen(
        "127.0.0.1", 0, server_factory=Server, server_host_keys=[key], process_factory=handle
    )
    port = server.get_port()
    alone = await run(port, with_failure=False)
    beside = await run(port, with_failure=True)
    error = next((item for item in lost if item is not None), None)
    print(f"alone: {alone[0]!r} with exit status {alone[1]}")
    print(f"beside a session whose handler raises: {beside[0]!r} with exit status {beside[1]}")
    print(f"connection_lost of the server: {error!r}")
    return (alone, beside) == (("finished", 0), ("", None)) and isinstance(error, ValueError)


sys.exit(not asyncio.run(main()))
PYTHON
timeout 60 "$folder/venv/bin/python" "$folder/show.py"
