"""Links and tokens: shared views, terminals, dashboards."""

from __future__ import annotations

from pydantic import Field

from pai_sdk._wire.body import Body, Boolean, Integer, Query, String

__all__ = [
    "Dashboard",
    "DashboardQuery",
    "RayDashboard",
    "SharingToken",
    "TokenQuery",
    "TokenSettings",
    "WebTerminal",
    "WebTerminalQuery",
]


class TokenSettings(Body):
    """What the holder of a token may do more."""

    enable_cross_account_access: Boolean = None
    enable_log_download_job: Boolean = None


class TokenQuery(Query):
    """The parameters of GetToken."""

    target_type: String = None
    target_id: String = None
    expire_time: Integer = None
    token_settings: TokenSettings | None = None


class SharingToken(Body):
    """The response of GetToken."""

    token: String = Field(default=None, repr=False)
    request_id: String = None


class WebTerminalQuery(Query):
    """The parameters of GetWebTerminal."""

    is_shared: Boolean = None
    pod_uid: String = None


class WebTerminal(Body):
    """The response of GetWebTerminal: a link that is valid for half a minute."""

    web_terminal_url: String = Field(default=None, repr=False)
    request_id: String = None


class DashboardQuery(Query):
    """The parameters of GetDashboard and GetRayDashboard."""

    is_shared: Boolean = Field(default=None, alias="isShared")
    token: String = Field(default=None, alias="token", repr=False)


class Dashboard(Body):
    """The response of GetDashboard; without a link for jobs that have none."""

    url: String = Field(default=None, alias="url")


class RayDashboard(Body):
    """The response of GetRayDashboard."""

    metrics_enabled: String = Field(default=None, alias="metricsEnabled")
    url: String = Field(default=None, alias="url")
