"""What jobs can run on: prices of spot instances, and the queues of quotas."""

from __future__ import annotations

from fastapi import APIRouter

from pai_sdk._service.identity.requests import PrincipalOf
from pai_sdk._service.routes.dlc.dlc_route import BodyRoute
from pai_sdk._service.services import workloads
from pai_sdk._service.services.budgets import LISTS, within
from pai_sdk._service.services.context import ContextOf
from pai_sdk._wire.resources.spot_prices import SpotPriceList, SpotPriceQuery
from pai_sdk._wire.resources.workloads import WorkloadList, WorkloadQuery

router = APIRouter(prefix="/api/v1", route_class=BodyRoute)


@router.get("/spots/{instance_type}/pricehistory")
def get_spot_price_history(instance_type: str, query: SpotPriceQuery) -> SpotPriceList:
    """GetSpotPriceHistory: empty, since this service has no spot instances."""
    return SpotPriceList(spot_price_history=[], total_count=0)


@router.get("/quotas/{quota_id}/workloads")
@within(LISTS)
def list_quota_workloads(
    context: ContextOf, principal: PrincipalOf, quota_id: str, query: WorkloadQuery
) -> WorkloadList:
    """ListQuotaWorkloads: the jobs that name a quota, and have not ended; those that wait with their places."""
    return workloads.list_workloads(context, principal, quota_id, query)
