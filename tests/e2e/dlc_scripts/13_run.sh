#!/usr/bin/env bash
# Not of DLC's command line: the commands of pai-sdk, with jobs of DLC.
set -e
job=$(pai-sdk run --api dlc --name by-run --image none -t ecs.c6.large --command 'echo hello from a job' --no-wait)
job=$(echo "$job" | head -n 1)
echo "$job"
pai-sdk wait "$job" --quiet
pai-sdk ps --api dlc -q --name by-run
pai-sdk logs "$job"
