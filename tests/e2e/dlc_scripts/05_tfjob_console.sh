#!/usr/bin/env bash
# As the console writes it: a role each for chief, workers, parameter server and evaluator.
dlc submit tfjob \
    --name=easyrec_train \
    --command="cd /mnt/data && python -m easy_rec.python.train_eval --pipeline_config_path mmoe.config --edit_config_json '{\"train_config.fine_tune_checkpoint\": \"\"}'" \
    --workspace_id=${WORKSPACE_ID:-101} \
    --chief=true \
    --chief_image=registry.example.com/pai/tensorflow:1.15 \
    --chief_spec=${SPEC:-ecs.g6.2xlarge} \
    --workers=3 \
    --worker_image=registry.example.com/pai/tensorflow:1.15 \
    --worker_spec=${SPEC:-ecs.g6.2xlarge} \
    --ps=1 \
    --ps_image=registry.example.com/pai/tensorflow:1.15 \
    --ps_spec=${SPEC:-ecs.g6.xlarge} \
    --evaluators=1 \
    --evaluator_image=registry.example.com/pai/tensorflow:1.15 \
    --evaluator_spec=${SPEC:-ecs.g6.xlarge} \
    ${DATA:---data_sources=d-9f2xk3wq:v3:/mnt/data}
