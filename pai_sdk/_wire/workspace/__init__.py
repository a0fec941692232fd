"""Bodies of the workspace API that jobs of DLC refer to: data sets, code sources, quotas."""
