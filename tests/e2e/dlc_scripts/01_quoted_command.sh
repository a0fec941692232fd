#!/usr/bin/env bash
# A quoted command that prepares the shell, changes into a folder of a data set, and starts a program.
set -e
NAME=${1:-sft_qwen_0427}
WORKSPACE_ID=${WORKSPACE_ID:-28250}
RESOURCE_ID=${RESOURCE_ID:-quota6grhfqhj13o}
DATA=${DATA:---data_sources=d-k8tu6brdfsyi2wj470,d-ceg1efkflyg23vzhev}

dlc submit pytorchjob \
    --name=$NAME \
    --command="source /mnt/user/.bashrc && conda activate /mnt/user/envs/train; cd /mnt/user/code && bash run.sh \"$NAME\"" \
    $DATA \
    --resource_id=$RESOURCE_ID \
    --workspace_id=$WORKSPACE_ID \
    --priority=5 \
    --worker_image=registry-vpc.cn-wulanchabu.cr.aliyuncs.com/team/train:v2 \
    --workers=1 \
    --worker_cpu=${CPU:-12} \
    --worker_gpu=${GPU:-1} \
    --worker_memory=${MEMORY:-200Gi} \
    --worker_shared_memory=${MEMORY:-200Gi}
