"""The adapters, called as Lightning and Hugging Face's Trainer call their callbacks (small stand-ins of them).

A training with each of the two runs where they are installed.
"""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pai_sdk._data.trace.adapters import lightning_callback, trainer_callback
from pai_sdk._data.trace.hook import TraceHook, trace
from pai_sdk._data.trace.trace_writer import TraceWriter
from tests.unit.data.trace.fake_sink import FakeSink

pytestmark = pytest.mark.interpreter

real_library = pytest.mark.filterwarnings("default")


def stand_in(monkeypatch: pytest.MonkeyPatch, name: str, attribute: str) -> None:
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        monkeypatch.setitem(sys.modules, ".".join(parts[:end]), types.ModuleType(".".join(parts[:end])))
    setattr(sys.modules[name], attribute, type(attribute, (), {}))


def stored(sink: FakeSink) -> list[float]:
    return sink.visible(pa.schema([("loss", pa.float64())]))["loss"].to_pylist()


def stored_ids(sink: FakeSink) -> list[int]:
    return sink.visible(pa.schema([("id", pa.int64()), ("loss", pa.float64())]))["id"].to_pylist()


@pytest.mark.parametrize("module", ["lightning.pytorch", "pytorch_lightning"])
def test_lightning(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    for name in ("lightning", "lightning.pytorch", "pytorch_lightning"):
        monkeypatch.setitem(sys.modules, name, None)
    stand_in(monkeypatch, module, "Callback")
    sink = FakeSink()
    callback = lightning_callback(TraceHook(TraceWriter({"loss": "double"}, sink)))
    for batch in range(3):
        trace("loss", [float(batch)])
        callback.on_train_batch_end(None, None, {"loss": batch}, None, batch)
    trace("loss", [9.0])
    callback.on_validation_batch_end(types.SimpleNamespace(sanity_checking=False), None, None, None, 0)
    callback.teardown(None, None, stage="validate")
    assert stored(sink) == []
    callback.teardown(None, None, stage="fit")
    assert stored(sink) == [0.0, 1.0, 2.0]


def test_lightning_sanity_check_and_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, "lightning.pytorch", "Callback")
    sink = FakeSink()
    callback = lightning_callback(TraceHook(TraceWriter({"loss": "double"}, sink), when="both"))
    for loss, is_sanity_check in ((1.0, True), (2.0, False)):
        trace("loss", [loss])
        trainer = types.SimpleNamespace(sanity_checking=is_sanity_check)
        callback.on_validation_batch_end(trainer, None, None, None, 0)
    callback.on_exception(None, None, ValueError("the training fails"))
    assert stored(sink) == [2.0]


def test_lightning_failure_of_training_and_sink(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stand_in(monkeypatch, "lightning.pytorch", "Callback")

    def full(operation: str, number: int) -> None:
        if operation == "commit":
            raise OSError("the disk is full")

    callback = lightning_callback(TraceHook(TraceWriter({"loss": "double"}, FakeSink(before=full))))
    trace("loss", [1.0])
    callback.on_train_batch_end(None, None, None, None, 0)
    callback.on_exception(None, None, ValueError("the training fails"))
    assert "1 of 1 rows are not stored: the disk is full" in caplog.text


def test_trainer(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, "transformers", "TrainerCallback")
    sink = FakeSink()
    callback = trainer_callback(TraceHook(TraceWriter({"loss": "double"}, sink), when="both"))
    for call in (callback.on_substep_end, callback.on_step_end, callback.on_prediction_step):
        trace("loss", [1.0])
        call(None, None, None, model=None)
    callback.on_train_end(None, None, None)
    trace("loss", [2.0])
    callback.on_prediction_step(None, None, None)  # an evaluation after the training
    assert stored(sink) == [1.0, 1.0, 1.0]


IDS = {"train": range(8), "eval": range(100, 104)}


@real_library
@pytest.mark.parametrize(
    ("when", "fails", "ids"),
    [
        ("train", False, [*IDS["train"]] * 2),
        ("eval", False, [*IDS["eval"]] * 2),
        ("both", False, 2 * [*IDS["train"], *IDS["eval"]]),
        ("train", True, [0, 1, 2, 3]),
    ],
)
def test_a_training_with_lightning(tmp_path: Path, when: str, fails: bool, ids: list[int]) -> None:
    lightning = pytest.importorskip("lightning.pytorch")
    torch = pytest.importorskip("torch")

    class Model(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)

        def training_step(self, batch: Any, number: int) -> Any:
            if fails and number == 1:
                raise RuntimeError("the training fails")
            losses = self.layer(batch[0] / 100.0)[:, 0] ** 2
            trace("id", batch[0][:, 0].long())
            trace("loss", losses)
            return losses.mean()

        validation_step = training_step

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.1)

    data = {
        part: torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.tensor(numbers)[:, None]), 4)
        for part, numbers in ((part, [float(number) for number in numbers]) for part, numbers in IDS.items())
    }
    sink = FakeSink()
    hook = TraceHook(TraceWriter({"id": "bigint", "loss": "double"}, sink), when=when)
    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    trainer = lightning.Trainer(
        max_epochs=2,
        default_root_dir=tmp_path,
        accelerator="cpu",
        callbacks=[lightning_callback(hook)],
        **quiet,
    )
    try:
        trainer.fit(Model(), data["train"], data["eval"])
    except RuntimeError:
        assert fails
    assert not hook.check_alive()
    assert stored_ids(sink) == ids


@real_library
@pytest.mark.parametrize("accumulation", [1, 2])
@pytest.mark.parametrize(
    ("when", "ids"),
    [
        ("train", [*IDS["train"]] * 2),
        ("eval", [*IDS["eval"]] * 2),
        ("both", 2 * [*IDS["train"], *IDS["eval"]]),
    ],
)
def test_a_training_with_transformers(tmp_path: Path, accumulation: int, when: str, ids: list[int]) -> None:
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")

    class Model(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)

        def forward(self, number: Any, labels: Any = None) -> dict[str, Any]:
            losses = (self.layer(number[:, None] / 100.0)[:, 0] - labels) ** 2
            trace("id", number)
            trace("loss", losses)
            return {"loss": losses.mean(), "logits": losses}

    data = {part: [{"number": number, "labels": 0.5} for number in numbers] for part, numbers in IDS.items()}
    arguments = transformers.TrainingArguments(
        str(tmp_path / "out"),
        num_train_epochs=2,
        per_device_train_batch_size=4,
        per_device_eval_batch_size=4,
        gradient_accumulation_steps=accumulation,
        eval_strategy="epoch",
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    sink = FakeSink()
    hook = TraceHook(TraceWriter({"id": "bigint", "loss": "double"}, sink), when=when)
    trainer = transformers.Trainer(
        Model(),
        arguments,
        train_dataset=data["train"],
        eval_dataset=data["eval"],
        callbacks=[trainer_callback(hook)],
    )
    trainer.train()
    trainer.evaluate()  # the hook has ended with the training
    found = stored_ids(sink)
    assert sorted(found) == sorted(ids)  # Trainer shuffles
