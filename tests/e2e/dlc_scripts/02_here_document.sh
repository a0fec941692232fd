#!/usr/bin/env bash
# A here-document inside of the command: its lines reach the job as they are.
dlc submit pytorchjob --name=plan_0_clone --command='bash <<-EOF
source /mnt/user/.bashrc
cd /mnt/user/code
./infer.sh "/mnt/user/configs/plan 0.yaml" $RANK
EOF' --data_sources=d-dcbhw3bc7cixdnl4yu --resource_id=quotanur5zmaur63 --tags="CloneFromJobID=dlcu7odtzd6ykta9" \
    --workspace_id=86989 --priority=5 --workers=1 --worker_image=registry.example.com/team/infer:1 --worker_cpu=12 \
    --worker_memory=200Gi --worker_shared_memory=200Gi --worker_gpu=1
