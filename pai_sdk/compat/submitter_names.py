"""Methods of estimators and processors by the names that alipai gives them."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from typing import Any

from pai_sdk.compat.helpers import name_from_base
from pai_sdk.errors import InvalidInputError, Problem

__all__ = ["SubmitterNames"]


class SubmitterNames:
    """Parts of the request of a job to come, as subclasses written for alipai ask for them."""

    base_job_name: str | None

    def job_name(self, job_name: str | None = None) -> str:
        """The name given, or a new one that begins with `base_job_name`."""
        return job_name or name_from_base(self.base_job_name or type(self).__name__.lower())

    def build_inputs(
        self,
        inputs: Mapping[str, Any] | None = None,
        input_channels: Sequence[Any] | None = None,
        default_inputs: Mapping[str, Any] | None = None,
    ) -> list[dict[str, Any]]:
        """The input channels of a request; nothing is uploaded, `fit()` and `submit()` do this.

        Args:
            inputs: input channel to what fills it.
            input_channels: the definitions of the channels; required ones must be filled.
            default_inputs: for channels that `inputs` does not fill.

        Raises:
            InvalidInputError: a required channel is missing, or the parameters are wrong.
        """
        given = {**(default_inputs or {}), **(inputs or {})}
        problems = [
            Problem(f"inputs[{channel.name!r}]", "is required and missing")
            for channel in input_channels or ()
            if channel.required and channel.name not in given
        ]
        if problems:
            raise InvalidInputError(problems)
        return self._channels_planned("InputChannels", inputs=given)

    def build_outputs(
        self,
        job_name: str,
        output_channels: Sequence[Any] | None = None,
        outputs: Mapping[str, Any] | None = None,
    ) -> list[dict[str, Any]]:
        """The output channels of a request.

        Args:
            job_name: the name of the job; it is part of the default place.
            output_channels: the definitions of the channels; the outputs that every job has otherwise.
            outputs: output channel to its place, for those that shall not go to the default place.

        Raises:
            InvalidInputError: the parameters are wrong.
        """
        planned = self._channels_planned("OutputChannels", outputs=outputs, job_name=job_name)
        if output_channels is None:
            return planned
        places = {channel["Name"]: channel for channel in planned}
        wanted = {channel.name: None for channel in output_channels} | dict.fromkeys(outputs or ())
        default = next((one["OutputUri"] for one in planned if one["Name"] not in (outputs or ())), None)
        return [
            places.get(name)
            or {"Name": name, "OutputUri": f"{posixpath.dirname(str(default).rstrip('/'))}/{name}/"}
            for name in wanted
            if name in places or default
        ]

    def _channels_planned(self, field: str, **given: Any) -> list[dict[str, Any]]:
        plan = self.plan(**given)  # type: ignore[attr-defined]
        channels: list[dict[str, Any]] = plan.request.to_wire().get(field, [])
        return channels
