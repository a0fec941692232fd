#!/usr/bin/env bash
# Ray 2.60.0: `ray.init()` makes a token and demands it, and leaves it in HOME; `ray start --head` makes none.
#
# Steps: with an empty HOME, `ray start --head` and a look for ~/.ray/auth_token; then `ray.init()` and the same.
# Seen on Python 3.11: "after ray start --head: no token", "after ray.init(): a token".
# One might expect: both ways to start a cluster treat tokens alike. From then on `ray start` finds the file, and
# programs without the token cannot connect to the cluster that it starts.
# Exit status: 0 while Ray behaves like this, 1 when it does not.
set -euo pipefail

folder=$(mktemp -d)
raylets=""
trap 'for pid in $raylets; do kill -9 "$pid" 2>/dev/null || true; done; sleep 2; rm -rf "$folder"' EXIT
export HOME=$folder RAY_USAGE_STATS_ENABLED=0
unset RAY_AUTH_MODE RAY_AUTH_TOKEN RAY_AUTH_TOKEN_PATH RAY_ADDRESS
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet "ray==2.60.0"

token() { if [ -e "$HOME/.ray/auth_token" ]; then echo "a token"; else echo "no token"; fi; }

# `ray stop` would end every Ray of this machine: only the processes that name this folder are ended.
timeout 120 "$folder/venv/bin/ray" start --head --port=26399 --num-cpus=1 --node-ip-address=127.0.0.1 \
    --include-dashboard=false --temp-dir="$folder/ray" >/dev/null 2>&1
first=$(token)
for process in /proc/[0-9]*; do
    if [ "${process#/proc/}" != $$ ] && grep -zqs -- "$folder/ray" "$process/cmdline"; then
        raylets="$raylets ${process#/proc/}"
    fi
done
for pid in $raylets; do kill -9 "$pid" 2>/dev/null || true; done
sleep 3
timeout 180 "$folder/venv/bin/python" -c '
import ray
ray.init("local", num_cpus=1, include_dashboard=False, log_to_driver=False)
print("ray", ray.__version__)
ray.shutdown()'
second=$(token)
echo "after ray start --head: $first"
echo "after ray.init(): $second"
[ "$first" = "no token" ] && [ "$second" = "a token" ]
