#!/usr/bin/env bash
# A body of CreateJob in a file, checked by a dry run, which packs code and data by hand; no second job of the name.
set -euo pipefail
dir=$(mktemp -d)
cat > "$dir/job.yaml" <<'END'
DisplayName: packed-by-hand
JobType: PyTorchJob
WorkspaceId: "101"
UserCommand: |
  set -e
  curl -sf "$CODE_URL" -o /tmp/code.tar && mkdir -p /tmp/code && tar -xf /tmp/code.tar -C /tmp/code
  cd /tmp/code && python train.py > train.log 2>&1; echo $? > exit_code
  ossutil cp -f train.log exit_code oss://results/packed-by-hand/
JobSpecs:
  - Type: Worker
    PodCount: 1
    Image: registry.example.com/train:1
    EcsSpec: ecs.c6.large
Envs:
  CODE_URL: https://code.oss-cn-hangzhou.aliyuncs.com/code.tar?signed
END
pai-sdk dlc job submit --body-json @"$dir/job.yaml" --override JobSpecs[0].PodCount=2 --dry-run -o json > "$dir/request.json"
grep -q '"PodCount": 2' "$dir/request.json"
if dlc get job --display_name packed-by-hand | grep -q packed-by-hand; then
    echo "it has been submitted"
    exit 3
fi
job=$(pai-sdk dlc job submit --body-json @"$dir/job.yaml" --override JobSpecs[0].PodCount=2 -o quiet)
echo "submitted $job"
