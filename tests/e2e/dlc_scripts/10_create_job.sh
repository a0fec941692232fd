#!/usr/bin/env bash
# The generation before `submit`, which waits for the job.
dlc create job --kind PyTorchJob --name filter_lines_node1 --worker_count 1 --worker_cpu 128 --worker_gpu 0 \
    --worker_memory 1024 --worker_shared_memory 1024Gi --worker_image registry.example.com/data:3 \
    --data_sources data128herqudrh8 --workspace_id ws1so95hgb5kn6ja --resource_id rg1 --interactive \
    --command "cd /mnt/code && python filter.py --columns overall_score"
