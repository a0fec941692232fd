#!/usr/bin/env bash
# One master is the head of Ray; when it runs, its address goes into the variables of the workers.
set -euo pipefail
COMMON=(--workspace_id ${WORKSPACE_ID:-341495} --resource_id ${RESOURCE_ID:-quota1abc2def} --priority 1)
COMMON+=(${DATA:---data_sources d-t3o24m34nmm1oksycx:v2:/vePFS/share/})
IMAGE=registry.example.com/mint:sm90
head_id=$(dlc submit pytorchjob --name ray-head --masters 1 --workers 0 --master_image $IMAGE --master_cpu ${CPU:-8} \
    --master_memory ${MEMORY:-32Gi} --master_gpu 0 --envs ROLE=head --command "bash /vePFS/share/ray_entrypoint.sh" "${COMMON[@]}" \
    | grep -oE 'dlc[a-z0-9]{8,}' | tail -n 1)
while [ "$(dlc get job "$head_id" | python3 -c 'import json, sys; print(json.load(sys.stdin)["Status"])')" != Running ]; do
    sleep 0.2
done
ip=$(dlc get job "$head_id" | python3 -c 'import json, sys; print(json.load(sys.stdin)["Pods"][0]["Ip"])')
dlc submit pytorchjob --name ray-worker --workers 1 --worker_image $IMAGE --worker_cpu ${CPU:-8} --worker_memory ${MEMORY:-32Gi} \
    --worker_gpu ${GPU:-1} --envs "ROLE=worker,HEAD_IP=$ip" --command 'bash /vePFS/share/ray_entrypoint.sh --address=$HEAD_IP:6379' "${COMMON[@]}"
