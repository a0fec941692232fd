"""Callbacks that call `report` from the training loops of other libraries.

Each derives from its library's own callback class, but only when it is constructed: importing this module imports
none of the libraries. Metrics and checkpoints are reported by rank 0 only, a checkpoint before the metrics of its
step, so that a scheduler sees both in one report. This module is shipped with jobs: standard library only, syntax
of Python 3.8.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

from pai_sdk._data.run.events.writer import as_float64
from pai_sdk._data.run.report.session import checkpoint_dir, get_context, report
from pai_sdk.errors import MissingExtraError

# The libraries' objects are Any in all signatures, since most libraries are not installed where types are checked.
# With an Any as its base, a callback is accepted by type checkers where a library asks for its own class.
_Base: Any = object


class _ReportCallback(_Base):  # type: ignore[misc]
    """Base of the callbacks. Becomes a subclass of the library's callback class when an object is constructed."""

    _library = ""  # what pip installs
    _base = ""  # the name of its callback class; empty where any callable is a callback
    _modules: tuple[str, ...] = ()  # that have the class; the first one that can be imported counts

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        callback_class: Any = cls
        module = import_library(callback_class.__name__, callback_class._library, callback_class._modules)
        return object.__new__(_derived(callback_class, getattr(module, cls._base) if cls._base else object))

    def __reduce__(self) -> Any:
        # By the class that can be imported, since the derived one has no place in a module.
        return _new, (vars(type(self)).get("_origin", type(self)),), vars(self)


def _new(cls: Any) -> Any:
    return cls.__new__(cls)


@lru_cache
def _derived(cls: Any, base: Any) -> Any:
    """Returns a subclass of the class and of the library's callback class."""
    if issubclass(cls, base):
        return cls
    names = {name: getattr(cls, name) for name in ("__doc__", "__module__", "__qualname__")}
    # Cached, so that all objects of a class have one type: `type(a) is type(b)` holds.
    return type(cls.__name__, (cls, base), {**names, "_origin": cls})


def import_library(user: str, library: str, modules: Sequence[str]) -> Any:
    """Returns the module of a library that has its callback class; `user` is named in the error."""
    # One library may be installed under two names, with two classes. The module that the training has imported
    # counts, else the first one that can be imported.
    failure: ImportError | None = None
    for name in sorted(modules, key=lambda name: name not in sys.modules):
        try:
            return import_module(name)
        except ImportError as error:
            failure = failure or error
    raise MissingExtraError(
        f"{user} needs {library}, which cannot be imported here: {failure}; install it in the image, or name it "
        f"in `requirements`: pip install {library}",
        extra=library,
    ) from failure


def _numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Returns the metrics that are numbers."""
    numbers = {}
    for name, value in metrics.items():
        try:
            # Converted at once: libraries change their tensors in place.
            numbers[str(name)] = as_float64(name, value)
        except (TypeError, ValueError, RuntimeError):  # the last one for tensors with several elements
            continue
    return numbers


class LightningReportCallback(_ReportCallback):
    """For `Trainer(callbacks=[…])` of Lightning: reports logged metrics of the module every `log_every_n_steps`.

    Metrics of a validation and of an epoch are reported when it ends, with those that the module logs in its own
    `on_train_epoch_end`. The step is `trainer.global_step`. Metrics that the module logs in its own
    `on_train_batch_end` are part of the next report, because Lightning calls callbacks first.

    Args:
        checkpoint_every_n_epochs: save a checkpoint with `checkpoint.ckpt` this often; never by default.
        checkpoint_every_n_train_steps: save a checkpoint every n steps of the training; never by default.

    Example:
        >>> trainer = Trainer(callbacks=[LightningReportCallback(checkpoint_every_n_epochs=1)])  # doctest: +SKIP
    """

    _library, _base, _modules = "lightning", "Callback", ("lightning.pytorch", "pytorch_lightning")

    def __init__(self, *, checkpoint_every_n_epochs: int = 0, checkpoint_every_n_train_steps: int = 0) -> None:
        super().__init__()
        self.checkpoint_every_n_epochs = checkpoint_every_n_epochs
        self.checkpoint_every_n_train_steps = checkpoint_every_n_train_steps
        self._step = self._saved_step = 0
        self._last_metrics: dict[str, Any] = {}
        self._is_attached = False

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Starts to count, in a resumed training at its step."""
        self._step = self._saved_step = trainer.global_step
        self._attach(trainer)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Leave the trainer as it was."""
        self._detach(trainer)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Leave the trainer as it was."""
        self._detach(trainer)

    def _attach(self, trainer: Any) -> None:
        """Adds a callback that Lightning calls at the end of an epoch after the module's hook."""
        # Lightning (2.6.6, `loops/fit_loop.py`) calls only subclasses of `Checkpoint` and `EarlyStopping` after
        # the module's hook. This class cannot be one: a trainer with `enable_checkpointing=False` refuses an
        # explicit `Checkpoint`, and other trainers would not add their default one.
        module = import_library(type(self).__name__, self._library, self._modules)
        base: Any = getattr(getattr(module, "callbacks", None), "Checkpoint", None)
        self._is_attached = base is not None and hasattr(trainer, "callbacks")
        if self._is_attached:
            names = {
                "on_train_epoch_end": lambda _, trainer, pl_module: self._end_epoch(trainer),
                "reports_of": self,
            }
            trainer.callbacks = [*trainer.callbacks, type("AfterModule", (base,), names)()]

    def _detach(self, trainer: Any) -> None:
        if self._is_attached:
            self._is_attached = False
            trainer.callbacks = [
                callback for callback in trainer.callbacks if getattr(callback, "reports_of", None) is not self
            ]

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Report, and save a checkpoint, when the step is due."""
        before, self._step = self._step, trainer.global_step
        # One batch may be several steps (optimizers), and several batches one step (accumulated gradients).
        if _passes(before, self._step, self.checkpoint_every_n_train_steps):
            self._save(trainer)
        if _passes(before, self._step, trainer.log_every_n_steps):
            self._report(trainer)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Report the metrics of the validation."""
        if not trainer.sanity_checking:
            self._report(trainer)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Report the metrics of the epoch, and save a checkpoint when it is due; with a real trainer, later."""
        if not self._is_attached:
            self._end_epoch(trainer)

    def _end_epoch(self, trainer: Any) -> None:
        if _passes(trainer.current_epoch, trainer.current_epoch + 1, self.checkpoint_every_n_epochs):
            self._save(trainer)
        self._report(trainer)

    def _report(self, trainer: Any) -> None:
        # `logged_metrics` has the values of earlier steps and epochs too.
        metrics = dict(trainer.logged_metrics)
        new = {name: value for name, value in metrics.items() if not _is_same(value, self._last_metrics.get(name))}
        self._last_metrics = metrics
        if new and trainer.is_global_zero:
            report(_numbers(new), step=trainer.global_step)

    def _save(self, trainer: Any) -> None:
        step = trainer.global_step
        if step == self._saved_step:
            return
        self._saved_step = step
        if not trainer.is_global_zero:
            # All ranks take part. Strategies that save shards use the path of rank 0, other strategies write
            # nothing.
            trainer.save_checkpoint("checkpoint.ckpt")
            return
        with checkpoint_dir(step, metrics=_numbers(trainer.logged_metrics)) as folder:
            trainer.save_checkpoint(folder / "checkpoint.ckpt")


def _is_same(value: Any, previous: Any) -> bool:
    """Returns True if both are the tensor with the same memory."""
    # Lightning returns another view of a tensor to each reader, so identity would always differ.
    return previous is not None and bool(value.data_ptr() == previous.data_ptr())


def _passes(before: int, after: int, every: int) -> bool:
    return every > 0 and after // every > before // every


class TransformersReportCallback(_ReportCallback):
    """For `Trainer(callbacks=[…])` of Hugging Face: reports the logs of the trainer at its `state.global_step`.

    The trainer does not log a loss that is NaN or infinite: it logs the mean of the losses before (seen with
    Transformers 5.24). `TrainingArguments(logging_nan_inf_filter=False)` makes it log the real loss.

    Args:
        checkpoints: report each folder `checkpoint-<step>` that the trainer saves. It is copied in the background;
            with `save_total_limit`, before the training continues, since the trainer removes folders then.

    Example:
        >>> Trainer(model, arguments, callbacks=[TransformersReportCallback(checkpoints=True)])  # doctest: +SKIP
    """

    _library, _base, _modules = "transformers", "TrainerCallback", ("transformers",)

    def __init__(self, *, checkpoints: bool = False) -> None:
        super().__init__()
        self.checkpoints = checkpoints

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Report the logs of the trainer."""
        if state.is_world_process_zero and logs:
            report(_numbers(logs), step=state.global_step)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Report the checkpoint that the trainer has saved."""
        if not self.checkpoints:
            return
        if args.world_size > 1:
            args.distributed_state.wait_for_everyone()  # each rank writes files of its own into the folder
        if state.is_world_process_zero:
            folder = Path(args.output_dir, f"checkpoint-{state.global_step}")
            mode = "ASYNC" if args.save_total_limit is None else "SYNC"
            report(step=state.global_step, checkpoint=folder, checkpoint_upload_mode=mode)


class KerasReportCallback(_ReportCallback):
    """For `model.fit(callbacks=[…])` of Keras 3: the logs of each epoch. The step is the number of epochs done.

    Args:
        checkpoint_every_n_epochs: save a checkpoint with `model.keras` this often; never by default.

    Example:
        >>> model.fit(x, y, callbacks=[KerasReportCallback(checkpoint_every_n_epochs=1)])  # doctest: +SKIP
    """

    _library, _base, _modules = "keras", "Callback", ("keras.callbacks",)

    def __init__(self, *, checkpoint_every_n_epochs: int = 0) -> None:
        super().__init__()
        self.checkpoint_every_n_epochs = checkpoint_every_n_epochs

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Report the logs of the epoch, and save a checkpoint when it is due."""
        if get_context().rank:
            return
        step, metrics = epoch + 1, _numbers(logs or {})
        if _passes(epoch, step, self.checkpoint_every_n_epochs):
            with checkpoint_dir(step, metrics=metrics) as folder:
                self.model.save(folder / "model.keras")
        report(metrics, step=step)


class XGBoostReportCallback(_ReportCallback):
    """For `xgboost.train(callbacks=[…])`: the evaluations of each round, `train/rmse` for rmse of `train`.

    The step is the number of rounds of the model, which continues in a resumed training. In `xgboost.cv`, the
    means over the folds are reported, and there is no model to save.

    Args:
        checkpoint_every_n_rounds: save a checkpoint with `model.ubj` this often; never by default.

    Example:
        >>> xgboost.train({}, data, evals=[(data, "train")], callbacks=[XGBoostReportCallback()])  # doctest: +SKIP
    """

    _library, _base, _modules = "xgboost", "TrainingCallback", ("xgboost.callback",)

    def __init__(self, *, checkpoint_every_n_rounds: int = 0) -> None:
        super().__init__()
        self.checkpoint_every_n_rounds = checkpoint_every_n_rounds

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        """Report the evaluations of the round, and save a checkpoint when it is due."""
        if import_module("xgboost.collective").get_rank():
            return False
        step, metrics = model.num_boosted_rounds(), {}
        for data, scores in evals_log.items():
            for name, values in scores.items():
                last = values[-1]  # with its standard deviation in cv
                metrics[f"{data}/{name}"] = last[0] if isinstance(last, tuple) else last
        if _passes(step - 1, step, self.checkpoint_every_n_rounds):
            with checkpoint_dir(step, metrics=metrics) as folder:
                model.save_model(folder / "model.ubj")
        report(metrics, step=step)
        return False


class LightGBMReportCallback(_ReportCallback):
    """For `lightgbm.train(callbacks=[…])`: the evaluations of each round, `valid/l2` for l2 of the set `valid`.

    The step is the number of rounds of the model, which continues in a resumed training.

    Args:
        checkpoint_every_n_rounds: save a checkpoint with `model.txt` this often; never by default.

    Example:
        >>> lightgbm.train({}, data, valid_sets=[valid], callbacks=[LightGBMReportCallback()])  # doctest: +SKIP
    """

    _library, _modules = "lightgbm", ("lightgbm",)

    order = 25  # of the callbacks of a round: before early stopping, which has 30
    before_iteration = False

    def __init__(self, *, checkpoint_every_n_rounds: int = 0) -> None:
        self.checkpoint_every_n_rounds = checkpoint_every_n_rounds

    def __call__(self, env: Any) -> None:
        """Report the evaluations of the round, and save a checkpoint when it is due."""
        if get_context().rank:
            return
        step = env.iteration + 1
        metrics = {f"{result[0]}/{result[1]}": result[2] for result in env.evaluation_result_list or ()}
        if _passes(env.iteration, step, self.checkpoint_every_n_rounds):
            with checkpoint_dir(step, metrics=metrics) as folder:
                env.model.save_model(folder / "model.txt")
        report(metrics, step=step)
