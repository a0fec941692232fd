"""A session by the names that alipai gives its settings."""

from __future__ import annotations

from typing import Any

import pytest
from pai_sdk.common.consts import Network

from pai_sdk import Session, setup_default_session
from pai_sdk.errors import WrongCallError
from tests.support.messages import refused

KEY: dict[str, Any] = {"access_key_id": "id", "access_key_secret": "hush"}


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (None, "oss-cn-x.aliyuncs.com"),
        ("oss-cn-x-internal.aliyuncs.com", "oss-cn-x-internal.aliyuncs.com"),
        ("https://oss-cn-x.aliyuncs.com", "oss-cn-x.aliyuncs.com"),
        ("http://127.0.0.1:9000", "127.0.0.1:9000"),  # http without a scheme, for sessions and for oss2
        ("http://10.0.0.5:9000", "http://10.0.0.5:9000"),  # without TLS, which a client must know
    ],
)
def test_the_endpoint_fits_into_a_uri(given: str | None, shown: str) -> None:
    session = Session("cn-x", "1", oss_endpoint=given, **KEY)
    assert session.oss_endpoint == shown
    assert session.patch_oss_endpoint("oss://models/k") == f"oss://models.{shown.removeprefix('http://')}/k"
    assert (
        session.patch_oss_endpoint("oss://models.oss-cn-y.aliyuncs.com/k")
        == "oss://models.oss-cn-y.aliyuncs.com/k"
    )


def test_the_key_can_be_given_to_another_session() -> None:
    config = Session("cn-x", "1", security_token="token", **KEY).credential_config
    assert (config.type, config.access_key_id, config.security_token) == ("sts", "id", "token")
    again = Session("cn-x", "1", credential_config=Session("cn-x", "1", **KEY).credential_config)  # type: ignore[call-arg]
    assert again.credential_config.access_key_secret == "hush"
    assert Session("cn-x", "1").credential_config is None  # the default key of the machine


@pytest.mark.parametrize(
    "values",
    [
        ("LTAI5tExampleExample", "hush-hush-hush"),
        ("STS.NTExample", "hush-hush-hush", "token"),
        ("id", "hush-hush-hush", None, "cn-hangzhou"),
    ],
)
def test_a_key_by_position_is_asked_for_by_name_and_not_shown(values: tuple[Any, ...]) -> None:
    with refused(WrongCallError) as caught:
        setup_default_session(*values)
    assert "access_key_secret=…" in str(caught.value)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(("given", "network"), [(None, Network.PUBLIC), ("vpc", Network.VPC)])
def test_the_network_is_that_of_the_settings(given: str | None, network: Network) -> None:
    session = Session("cn-x", "1", network=given, **KEY)
    assert session.network is network
    assert Session("cn-x", "1", network=session.network, **KEY).settings.network == network.value


class Bucket:
    """An `oss2.Bucket`, as far as it matters."""

    bucket_name = "models"


@pytest.mark.parametrize("bucket", ["models", Bucket()])
def test_the_bucket_is_given_by_name_or_as_it_is(bucket: object) -> None:
    session = setup_default_session(region_id="cn-x", oss_bucket=bucket, network=Network.VPC, **KEY)
    assert (session.oss_bucket_name, session.settings.network) == ("models", "VPC")
    with refused(WrongCallError, "oss_bucket"):
        setup_default_session(region_id="cn-x", oss_bucket=7)
