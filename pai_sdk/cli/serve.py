"""`pai-sdk serve`: the service in the foreground, for one machine or a team."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pai_sdk.cli import exit_codes

if TYPE_CHECKING:
    from pai_sdk.service.settings import ServiceInfo

__all__ = ["serve"]


def serve(
    host: Annotated[
        str, typer.Option(help="Address to listen on; others than loopback open it to the network.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 8765,
    data: Annotated[Path, typer.Option(help="Folder for jobs, logs and objects.")] = Path("~/.pai/service"),
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object with endpoint and key as the first line.")
    ] = False,
) -> None:
    """Serve the PAI API and an object store, until SIGTERM or Ctrl-C."""
    try:
        from pai_sdk.service.server import serve as serve_until_told
        from pai_sdk.service.settings import ServiceSettings
    except ImportError as error:
        typer.secho(
            f"error: the service is not installed ({error.name}): pip install 'pai-sdk[service]'",
            fg="red",
            err=True,
        )
        raise typer.Exit(exit_codes.ERROR) from error

    def ready(info: ServiceInfo) -> None:
        typer.echo(info.to_json() if as_json else _greeting(info))

    serve_until_told(ServiceSettings(host=host, port=port, data_dir=data.expanduser()), on_ready=ready)


def _read_secret(info: ServiceInfo) -> str:
    """A command that gives the secret: it can be pasted, and shows it to nobody who looks at the screen."""
    program = 'import json, sys; print(json.load(open(sys.argv[1]))["access_key_secret"])'
    return shlex.join(["python3", "-c", program, str(info.data_dir / "service.json")])


def _greeting(info: ServiceInfo) -> str:
    return "\n".join(
        [
            f"PAI API and object store on {info.endpoint}; Ctrl-C ends it.",
            "Point a shell at it:",
            f"  export PAI_REGION_ID={info.region_id} PAI_WORKSPACE_ID={info.workspace_id}",
            f"  export PAI_ENDPOINT={info.endpoint} PAI_AIWORKSPACE_ENDPOINT={info.endpoint}",
            f"  export PAI_OSS_ENDPOINT={info.oss_endpoint} PAI_OSS_BUCKET_NAME={info.bucket}",
            f"  export ALIBABA_CLOUD_ACCESS_KEY_ID={info.access_key_id}",
            f"  export ALIBABA_CLOUD_ACCESS_KEY_SECRET=$({_read_secret(info)})",
        ]
    )
