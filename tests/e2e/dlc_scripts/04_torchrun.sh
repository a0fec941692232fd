#!/usr/bin/env bash
# A recommender: the date is put between two quoted parts, all other variables are those of the job.
bizdate=${bizdate:-20261127}
dlc submit pytorchjob --name=sorter_train_${bizdate} \
    --command='set -e
pip install https://packages.example.com/tzrec-1.2.19-py2.py3-none-any.whl
export TRAIN_DATA="odps://project/tables/encoded_v3/dt='${bizdate}'"
torchrun --master_addr=$MASTER_ADDR --master_port=$MASTER_PORT --nnodes=$WORLD_SIZE --node_rank=$RANK \
    --nproc-per-node=$NPROC_PER_NODE -m tzrec.train_eval --train_input_path "${TRAIN_DATA}" \
    --edit_config_json '"'"'{"train_config.num_steps": 1000}'"'"'' \
    --workspace_id=${WORKSPACE_ID:-101} --workers=2 --worker_spec=${SPEC:-ecs.gn6v-c8g1.2xlarge} \
    --worker_image=registry.example.com/easyrec/tzrec-devel:1.0
