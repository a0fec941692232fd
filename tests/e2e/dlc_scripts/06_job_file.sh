#!/usr/bin/env bash
# Everything in a file, which wins over flags.
file=$(mktemp)
cat > "$file" <<END
name=easy_rec_mmoe_eval
workers=1
worker_image=registry.example.com/pai/tensorflow:1.15
worker_spec=${SPEC:-ecs.g6.2xlarge}
workspace_id=${WORKSPACE_ID:-101}
command=echo good && sleep 1 && python -c "print('=')"
END
dlc submit tfjob --name=overridden --job_file "$file"
