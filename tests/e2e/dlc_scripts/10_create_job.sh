#!/usr/bin/env bash
# The generation before `submit`, which waits for the job.
dlc create job --kind PyTorchJob --name filter_lines_node1 --worker_count 1 --worker_cpu ${CPU:-128} --worker_gpu 0 \
    --worker_memory ${MEMORY:-1024} --worker_shared_memory ${MEMORY:-1024Gi} --worker_image registry.example.com/data:3 \
    ${DATA:---data_sources data128herqudrh8} --workspace_id ${WORKSPACE_ID:-ws1so95hgb5kn6ja} --resource_id rg1 --interactive \
    --command "cd /mnt/user/code && python3 filter.py --columns overall_score"
