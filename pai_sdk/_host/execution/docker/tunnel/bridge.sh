# Joins the input and output of this shell to a TCP port of the container, by what the image has for it.
#
# For `sh -c`, with the arguments HOST PORT. Writes one line to its error output: `connected`, `refused`, or
# `missing` if the image has no program for it. POSIX shell: dash, bash, busybox.

for _python in python3 python; do
    if command -v "$_python" >/dev/null; then
        exec "$_python" -c '
import os, select, socket, sys
try:
    peer = socket.create_connection((sys.argv[1], int(sys.argv[2])), 10)
except Exception:
    os.write(2, b"refused\n")
    sys.exit(1)
peer.settimeout(None)
os.write(2, b"connected\n")
sources = [0, peer]
while peer in sources:
    for source in select.select(sources, [], [])[0]:
        chunk = os.read(0, 65536) if source == 0 else peer.recv(65536)
        if source == 0 and chunk:
            peer.sendall(chunk)
        elif source == 0:
            sources.remove(0)
            peer.shutdown(socket.SHUT_WR)
        elif not chunk:
            sources.remove(peer)
        while source is peer and chunk:
            chunk = chunk[os.write(1, chunk):]
' "$1" "$2"
    fi
done
if command -v bash >/dev/null; then
    exec bash -c '
if ! { exec 3<>"/dev/tcp/$0/$1"; } 2>/dev/null; then
    echo refused >&2
    exit 1
fi
echo connected >&2
exec 4<&0
{ cat <&4 >&3; } &
exec cat <&3
' "$1" "$2"
fi
if command -v nc >/dev/null; then
    # It does not tell when it is connected.
    echo connected >&2
    exec nc "$1" "$2"
fi
echo missing >&2
exit 1
