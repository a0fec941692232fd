"""Callbacks with which the training loops of Lightning and Hugging Face call a `TraceHook`.

A loop of plain PyTorch needs none: `for batch in hook.steps(loader)`. The library is imported by the function.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from pai_sdk._data.run.report.callbacks import import_library
from pai_sdk.errors import TraceError

if TYPE_CHECKING:
    from pai_sdk._data.trace.hook import TraceHook

logger = logging.getLogger(__name__)


def lightning_callback(hook: TraceHook) -> Any:
    """Returns a callback for `lightning.Trainer`: each batch of training or validation is a step.

    The batches of Lightning's sanity check, before the training, are left out. The hook ends with `fit`, also when
    the training fails.

    Raises:
        MissingExtraError: neither `lightning` nor `pytorch_lightning` is installed.

    Example:
        >>> Trainer(callbacks=[lightning_callback(hook)]).fit(model)  # doctest: +SKIP
    """
    base = import_library("lightning_callback", "lightning", ("lightning.pytorch", "pytorch_lightning")).Callback

    class TraceCallback(base):  # type: ignore[misc, valid-type]
        """Calls the hook."""

        def on_train_batch_end(self, *args: Any, **kwargs: Any) -> None:
            _after_step(hook, is_train=True)

        def on_validation_batch_end(self, trainer: Any, *args: Any, **kwargs: Any) -> None:
            if trainer.sanity_checking:
                hook.discard_step()
            else:
                _after_step(hook, is_train=False)

        def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
            try:
                hook.end()
            except TraceError as error:  # the error of the training is raised
                logger.error("%s", error)

        def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
            if stage == "fit":
                hook.end()

    return TraceCallback()


def trainer_callback(hook: TraceHook) -> Any:
    """Returns a callback for `transformers.Trainer`: each batch of training or evaluation is a step.

    The hook ends with `train`. `Trainer` has no callback for a training that fails: call `hook.end()` in a
    `finally`.

    Raises:
        MissingExtraError: `transformers` is not installed.

    Example:
        >>> Trainer(model, callbacks=[trainer_callback(hook)]).train()  # doctest: +SKIP
    """
    base = import_library("trainer_callback", "transformers", ("transformers",)).TrainerCallback

    class TraceCallback(base):  # type: ignore[misc, valid-type]
        """Calls the hook."""

        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            _after_step(hook, is_train=True)

        def on_substep_end(self, *args: Any, **kwargs: Any) -> None:
            _after_step(hook, is_train=True)

        def on_prediction_step(self, *args: Any, **kwargs: Any) -> None:
            _after_step(hook, is_train=False)

        def on_train_end(self, *args: Any, **kwargs: Any) -> None:
            hook.end()

    return TraceCallback()


def _after_step(hook: TraceHook, *, is_train: bool) -> None:
    # The hook ends with the training; the library can evaluate the model afterwards, with the same callbacks.
    if not hook.has_ended:
        hook.after_step(is_train=is_train)
