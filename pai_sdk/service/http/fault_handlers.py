"""Refusals in PAI's form, for what an application does not know and what is malformed."""

from __future__ import annotations

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from pai_sdk.service.http.routes.json_responses import request_id
from pai_sdk.service.wire_errors import Fault, fault_response, invalid_parameter

__all__ = ["add_refusals", "refusal"]


def add_refusals(app: FastAPI) -> None:
    """Let an application answer in PAI's form to what it refuses."""

    @app.exception_handler(Fault)
    async def refused(request: Request, fault: Fault) -> JSONResponse:
        return refusal(request, fault)

    @app.exception_handler(RequestValidationError)
    async def malformed(request: Request, error: RequestValidationError) -> JSONResponse:
        problems = "; ".join(f"{problem['loc'][-1]}: {problem['msg']}" for problem in error.errors())
        return refusal(request, invalid_parameter(problems))

    @app.exception_handler(HTTPException)
    async def unknown(request: Request, error: HTTPException) -> JSONResponse:
        codes = {404: "InvalidAction.NotFound", 405: "InvalidAction.NotFound"}
        message = f"This service has no action {request.method} {request.url.path[:200]}."
        return refusal(request, Fault(error.status_code, codes.get(error.status_code, "InvalidRequest"), message))


def refusal(request: Request, fault: Fault) -> JSONResponse:
    """The answer to a request that is refused."""
    return fault_response(fault, request_id=request_id(request), host=request.headers.get("host", ""))
