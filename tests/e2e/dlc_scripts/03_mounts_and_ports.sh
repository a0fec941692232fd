#!/usr/bin/env bash
# Mounts by their URIs, a VPC, and ports for Ray between workers.
DEFAULT_URIS='cpfs://cpfs-298fffb5.cn-wulanchabu/ptc-29f47d93/exp-29f2869e/::/mnt/cpfs,oss://ai-data.oss-cn-wulanchabu-internal.aliyuncs.com/::/mnt/oss'
DATA_SOURCE_URIS=${DATA_SOURCE_URIS:-$DEFAULT_URIS}
dlc submit pytorchjob \
    --name=rollout_service \
    --command='bash /mnt/cpfs/run.sh' \
    --workers=2 --worker_cpu=${CPU:-116} --worker_gpu=${GPU:-8} --worker_memory=${MEMORY:-1800Gi} --worker_shared_memory=${MEMORY:-1800Gi} \
    --worker_image=dsw-registry-vpc.cn-wulanchabu.cr.aliyuncs.com/pai/python:3.13 \
    --data_source_uris="$DATA_SOURCE_URIS" \
    --resource_id=${RESOURCE_ID:-quotaev2tl4w6aw0} --workspace_id=${WORKSPACE_ID:-240810} \
    --vpc_id=vpc-0jl5rpw5 --switch_id=vsw-0jlmr9rj --security_group_id=sg-0jl0pd5q \
    --extended_cidrs='10.1.255.0/29,10.1.255.8/29,10.1.16.0/20' \
    --advanced_settings='createSvcForAllWorkers=true,customPortList=6379;8265;20000-25000' \
    --envs 'NCCL_IB_HCA=mlx5_0,mlx5_1,NCCL_DEBUG=INFO' \
    --priority=1
