#!/usr/bin/env bash
# A here-document inside of the command: its lines reach the job as they are.
dlc submit pytorchjob --name=plan_0_clone --command='bash <<-EOF
source /mnt/user/.bashrc
cd /mnt/user/code
bash infer.sh "/mnt/user/configs/plan 0.yaml" $RANK
EOF' ${DATA:---data_sources=d-dcbhw3bc7cixdnl4yu} --resource_id=${RESOURCE_ID:-quotanur5zmaur63} --tags="CloneFromJobID=dlcu7odtzd6ykta9" \
    --workspace_id=${WORKSPACE_ID:-86989} --priority=5 --workers=1 --worker_image=registry.example.com/team/infer:1 --worker_cpu=${CPU:-12} \
    --worker_memory=${MEMORY:-200Gi} --worker_shared_memory=${MEMORY:-200Gi} --worker_gpu=${GPU:-1}
