#!/usr/bin/env bash
# asyncssh 2.24.1 as a server for OpenSSH's `scp`: by SFTP, good copies end with 1; by the old protocol, they lose the
# execute bit.
#
# `listen(sftp_factory=True, allow_scp=True)` serves both protocols of `scp`. OpenSSH 9 uses SFTP; earlier releases,
# and `scp -O`, use the protocol of rcp. Each of them copies one executable file to the server, then back from it.
# Behaviour: the SFTP server closes the channel without an exit status, which OpenSSH takes for 255, and `scp` for a
#   failure: it ends with 1 and without a word, though each byte has arrived. `sftp -b` ends with 0. The server of the
#   old protocol uses the mode of a file only with `scp -p`; sshd creates files with it, less the umask.
# Expected: 0 and an executable file, as with sshd. A server of one's own sends `exit(0)` after the end of SFTP.
# Compare: other servers had the first, too: gravitational/teleport#20863, coder/coder#11786, paramiko/paramiko#2609.
#
# Output (OpenSSH 9.2, Python 3.11):
#   scp to the server:      exit status 1, same bytes, executable
#   scp from the server:    exit status 1, same bytes, executable
#   scp -O to the server:   exit status 0, same bytes, not executable
#   scp -O -p to the server: exit status 0, same bytes, executable
# Exit status: 0 while asyncssh behaves like this, 1 when it does not. Needs `scp` of OpenSSH 9 or newer.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export HOME=$folder
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check asyncssh==2.24.1
cat > "$folder/show.py" <<'PYTHON'
import asyncio
import sys
from pathlib import Path

import asyncssh

FOLDER = Path(sys.argv[1])
OPTIONS = ["-F", "none", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR"]
EXPECTED = [
    "scp to the server:      exit status 1, same bytes, executable",
    "scp from the server:    exit status 1, same bytes, executable",
    "scp -O to the server:   exit status 0, same bytes, not executable",
    "scp -O -p to the server: exit status 0, same bytes, executable",
]


class Server(asyncssh.SSHServer):
    def begin_auth(self, username):
        return False


async def copy(port, options, source, target):
    command = ["scp", *OPTIONS, *options, "-P", str(port), source, target]
    process = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.DEVNULL)
    return await process.wait()


async def main():
    server = await asyncssh.listen(
        "127.0.0.1",
        0,
        server_factory=Server,
        server_host_keys=[asyncssh.generate_private_key("ssh-ed25519")],
        sftp_factory=True,
        allow_scp=True,
    )
    port = server.get_port()
    script = FOLDER / "run.sh"
    script.write_text("echo done\n")
    script.chmod(0o755)
    seen = []
    for label, options in [
        ("scp to the server:     ", []),
        ("scp from the server:   ", []),
        ("scp -O to the server:  ", ["-O"]),
        ("scp -O -p to the server:", ["-O", "-p"]),
    ]:
        target = FOLDER / f"copy-{len(seen)}.sh"
        names = [str(script), f"user@127.0.0.1:{target}"]
        if "from" in label:
            names = [f"user@127.0.0.1:{script}", str(target)]
        status = await copy(port, options, *names)
        is_same = target.read_bytes() == script.read_bytes()
        mode = "executable" if target.stat().st_mode & 0o100 else "not executable"
        seen.append(f"{label} exit status {status}, {'same' if is_same else 'other'} bytes, {mode}")
    print(*seen, sep="\n")
    return seen == EXPECTED


sys.exit(not asyncio.run(main()))
PYTHON
timeout 100 "$folder/venv/bin/python" "$folder/show.py" "$folder"
