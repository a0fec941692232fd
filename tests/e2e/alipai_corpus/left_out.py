"""Uses what has no counterpart; each use says what replaces it."""

from pai.common.docker_utils import run_container
from pai.common.git_utils import git_clone_repo
from pai.common.yaml_utils import safe_load
from pai.dataset import list_common_datasets
from pai.dsw import mount
from pai.libs import alibabacloud_paistudio20220112
from pai.pipeline import PipelineStep
from pai.session import get_default_session
from pai.tracking import log_lineage

session = get_default_session()
uses = (
    lambda: run_container("python:3.11", "name"),
    lambda: git_clone_repo({"repo": "https://example.com/a.git"}),
    lambda: safe_load("a: 1"),
    lambda: list_common_datasets(),
    lambda: mount("oss://models/", "/mnt"),
    lambda: alibabacloud_paistudio20220112.models,
    lambda: PipelineStep(name="a"),
    lambda: log_lineage([], []),
    lambda: session.training_job_api.list(),
    lambda: session.job_api,
)
for use in uses:
    try:
        use()
    except (NotImplementedError, AttributeError) as error:
        assert "is not part of" in str(error) or "use instead" in str(error), error
    else:
        raise AssertionError("it did something")
