"""The callbacks for other libraries: real trainings with those at hand, and stand-ins for the large ones.

A stand-in is the part of the library that calls the hooks, in the order that its documentation gives.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import pytest

from pai_sdk._client.code.job_package import job_package
from pai_sdk._data.run.events.records import read_scalars
from pai_sdk._data.run.report.context import Context
from pai_sdk._data.run.report.report_session import ReportSession, StopTraining
from pai_sdk.callbacks import (
    KerasReportCallback,
    LightGBMReportCallback,
    LightningReportCallback,
    TransformersReportCallback,
    XGBoostReportCallback,
)
from pai_sdk.errors import MissingExtraError
from tests.support.messages import refused
from tests.support.waiting import PATIENCE_S

ALL = [
    (KerasReportCallback, "keras", ["keras", "keras.callbacks"]),
    (LightGBMReportCallback, "lightgbm", ["lightgbm"]),
    (LightningReportCallback, "lightning", ["lightning", "lightning.pytorch", "pytorch_lightning"]),
    (TransformersReportCallback, "transformers", ["transformers"]),
    (XGBoostReportCallback, "xgboost", ["xgboost", "xgboost.callback"]),
]
X = numpy.linspace(0.0, 1.0, 80).reshape(40, 2)
Y = X[:, 0] * 3.0
# Real libraries warn of what is none of ours.
real_library = pytest.mark.filterwarnings("default")


@pytest.fixture
def run(tmp_path: Path) -> Iterator[ReportSession]:
    with ReportSession(tmp_path / "run") as session, session.bound():
        yield session


def reported(session: ReportSession) -> list[tuple[str, int, float]]:
    session.flush()
    files = sorted((session.context.folder / "tensorboard").rglob("*tfevents*"))
    return [(event.tag, event.step, event.value) for path in files for event in read_scalars(path)]


def checkpoints(session: ReportSession) -> dict[int, tuple[list[str], dict[str, float]]]:
    """Step to files and metrics of all checkpoints, once all of them are saved."""
    session.close()
    return {one.step: (sorted(one.files), dict(one.metrics)) for one in session.checkpoints()}


def with_checkpoints(session: ReportSession) -> list[int]:
    """The steps of the reports that come with a checkpoint, filled while the training runs."""
    found: list[int] = []
    session.on_report = lambda report: found.append(report.step) if report.checkpoint else None
    return found


# ---- all of them


@pytest.mark.parametrize(("callback", "library", "modules"), ALL)
def test_a_library_that_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, callback: Any, library: str, modules: list[str]
) -> None:
    for name in modules:
        monkeypatch.setitem(sys.modules, name, None)
    with refused(MissingExtraError) as caught:
        callback()
    assert caught.value.extra == library
    assert isinstance(caught.value.__cause__, ImportError)


def test_the_module_imports_no_library() -> None:
    names = [library for _, library, _ in ALL]
    program = f"import pai_sdk.callbacks, sys; print([name for name in {names} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_callback_is_one_of_its_library_and_can_be_pickled_and_derived_from(monkeypatch: Any) -> None:
    class Base:
        def __init__(self) -> None:
            self.model = None

    monkeypatch.setitem(sys.modules, "keras.callbacks", SimpleNamespace(Callback=Base))
    made = KerasReportCallback(checkpoint_every_n_epochs=3)
    assert isinstance(made, Base)
    assert isinstance(made, KerasReportCallback)
    assert type(made) is type(KerasReportCallback())
    copy = pickle.loads(pickle.dumps(made))
    assert type(copy) is type(made)
    assert vars(copy) == {"checkpoint_every_n_epochs": 3, "model": None}

    class Mine(KerasReportCallback, Base):
        pass

    assert type(Mine()) is Mine


# ---- XGBoost


@pytest.fixture
def xgboost() -> Any:
    return pytest.importorskip("xgboost")


def trained(xgboost: Any, rounds: int, *callbacks: Any, **more: Any) -> tuple[Any, dict[str, Any]]:
    found: dict[str, Any] = {}
    data = xgboost.DMatrix(X, Y)
    evals = [(data, "train"), (xgboost.DMatrix(X[::2], Y[::2]), "valid")]
    model = xgboost.train(
        {"max_depth": 2, "nthread": 1, "eval_metric": ["rmse", "mae"]},
        data,
        rounds,
        evals=evals,
        evals_result=found,
        verbose_eval=False,
        callbacks=list(callbacks),
        **more,
    )
    return model, found


@real_library
def test_xgboost_reports_each_round(xgboost: Any, run: ReportSession) -> None:
    at = with_checkpoints(run)
    model, found = trained(xgboost, 5, XGBoostReportCallback(checkpoint_every_n_rounds=2))
    assert at == [2, 4]
    assert sorted(reported(run)) == sorted(
        (f"{data}/{metric}", step, value)
        for data, metrics in found.items()
        for metric, values in metrics.items()
        for step, value in enumerate(values, 1)
    )
    saved = checkpoints(run)
    assert list(saved) == [2, 4]
    metrics = {f"{data}/{name}": values[3] for data, scores in found.items() for name, values in scores.items()}
    assert saved[4] == (["model.ubj"], metrics)
    again = xgboost.Booster(model_file=run.checkpoint().path / "model.ubj")
    assert again.num_boosted_rounds() == 4
    assert model.num_boosted_rounds() == 5


@real_library
def test_a_resumed_training_of_xgboost_counts_on(xgboost: Any, tmp_path: Path, run: ReportSession) -> None:
    _, whole = trained(xgboost, 4)
    trained(xgboost, 2, XGBoostReportCallback(checkpoint_every_n_rounds=2))
    assert list(checkpoints(run)) == [2]
    with ReportSession(tmp_path / "resumed") as resumed, resumed.bound():
        callback = XGBoostReportCallback(checkpoint_every_n_rounds=2)
        trained(xgboost, 2, callback, xgb_model=run.checkpoint().path / "model.ubj")
        points = [(step, value) for name, step, value in reported(resumed) if name == "train/rmse"]
        assert points == [
            (3, pytest.approx(whole["train"]["rmse"][2])),
            (4, pytest.approx(whole["train"]["rmse"][3])),
        ]
        assert list(checkpoints(resumed)) == [4]


@real_library
def test_xgboost_cv_reports_means(xgboost: Any, run: ReportSession) -> None:
    table = xgboost.cv(
        {"nthread": 1}, xgboost.DMatrix(X, Y), 3, nfold=2, as_pandas=False, callbacks=[XGBoostReportCallback()]
    )
    assert [value for name, _, value in reported(run) if name == "test/rmse"] == table["test-rmse-mean"]


@real_library
def test_xgboost_ends_when_it_is_stopped(xgboost: Any, run: ReportSession) -> None:
    run.on_report = lambda report: run.stop() if report.step == 2 else None
    with pytest.raises(StopTraining):
        trained(xgboost, 9, XGBoostReportCallback())
    assert {step for _, step, _ in reported(run)} == {1, 2}


_WORKER = """
import sys, numpy, xgboost
from pai_sdk.callbacks import XGBoostReportCallback
port, rank = int(sys.argv[1]), sys.argv[2]
x = numpy.linspace(0.0, 1.0, 40).reshape(20, 2)
with xgboost.collective.CommunicatorContext(dmlc_tracker_uri="127.0.0.1", dmlc_tracker_port=port, dmlc_nworker=2):
    data = xgboost.DMatrix(x, x[:, 0])
    xgboost.train({"nthread": 1, "tree_method": "hist"}, data, 3, evals=[(data, "train")], verbose_eval=False,
                  callbacks=[XGBoostReportCallback(checkpoint_every_n_rounds=3)])
    print(xgboost.collective.get_rank())
"""


@real_library
def test_rank_0_of_xgboost_reports_in_an_image_without_pai_sdk(xgboost: Any, tmp_path: Path) -> None:
    from xgboost.tracker import RabitTracker

    tracker = RabitTracker(n_workers=2, host_ip="127.0.0.1")
    tracker.start()
    port = str(tracker.worker_args()["dmlc_tracker_port"])
    # Without `site`, the libraries of this environment are found, but not the pai_sdk that is installed in it.
    libraries = Path(xgboost.__file__).resolve().parents[1]
    path = os.pathsep.join([str(libraries), str(job_package())])
    workers = [
        subprocess.Popen(
            [sys.executable, "-S", "-c", _WORKER, port, str(number)],
            env={"PYTHONPATH": path, "PAI_WORKING_DIR": str(tmp_path / str(number) / "usercode")},
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(2)
    ]
    ranks = [worker.communicate(timeout=PATIENCE_S)[0].split()[-1] for worker in workers]
    tracker.wait_for()
    assert [worker.returncode for worker in workers] == [0, 0]
    assert sorted(ranks) == ["0", "1"]
    first, other = (tmp_path / str(ranks.index(rank)) / "output" for rank in ("0", "1"))
    (events,) = (first / "tensorboard").iterdir()
    assert [(event.tag, event.step) for event in read_scalars(events)] == [("train/rmse", n) for n in (1, 2, 3)]
    assert (first / "checkpoints" / "3" / "_COMPLETE").is_file()
    assert not other.exists()


# ---- LightGBM


@pytest.fixture
def lightgbm() -> Any:
    return pytest.importorskip("lightgbm")


_LIGHTGBM = {
    "objective": "regression",
    "metric": ["l2", "l1"],
    "min_data_in_leaf": 2,
    "num_threads": 1,
    "verbose": -1,
}


def boosted(lightgbm: Any, rounds: int, *callbacks: Any, **more: Any) -> tuple[Any, dict[str, Any]]:
    found: dict[str, Any] = {}
    data = lightgbm.Dataset(X, Y)
    valid = lightgbm.Dataset(X[::2], Y[::2], reference=data)
    record = lightgbm.record_evaluation(found)
    model = lightgbm.train(_LIGHTGBM, data, rounds, [valid], ["fit"], callbacks=[*callbacks, record], **more)
    return model, found


@real_library
def test_lightgbm_reports_each_round(lightgbm: Any, run: ReportSession) -> None:
    stopping = lightgbm.early_stopping(1, min_delta=1e9, verbose=False)
    _, found = boosted(lightgbm, 5, LightGBMReportCallback(checkpoint_every_n_rounds=2), stopping)
    points = [
        (f"fit/{name}", step, value) for name in ("l2", "l1") for step, value in enumerate(found["fit"][name], 1)
    ]
    assert {step for _, step, _ in points} == {1, 2}, "stopped early, in a round that is reported"
    assert sorted(reported(run)) == sorted(points)
    saved = checkpoints(run)
    assert saved == {2: (["model.txt"], {"fit/l2": found["fit"]["l2"][1], "fit/l1": found["fit"]["l1"][1]})}


@real_library
def test_a_resumed_training_of_lightgbm_counts_on(lightgbm: Any, tmp_path: Path, run: ReportSession) -> None:
    _, whole = boosted(lightgbm, 4)
    boosted(lightgbm, 2, LightGBMReportCallback(checkpoint_every_n_rounds=2))
    assert list(checkpoints(run)) == [2]
    with ReportSession(tmp_path / "resumed") as resumed, resumed.bound():
        start = run.checkpoint().path / "model.txt"
        boosted(lightgbm, 2, LightGBMReportCallback(checkpoint_every_n_rounds=2), init_model=start)
        points = [(step, value) for name, step, value in reported(resumed) if name == "fit/l2"]
        assert points == [(3, pytest.approx(whole["fit"]["l2"][2])), (4, pytest.approx(whole["fit"]["l2"][3]))]
        assert list(checkpoints(resumed)) == [4]


@real_library
def test_lightgbm_cv_reports_means(lightgbm: Any, run: ReportSession) -> None:
    data = lightgbm.Dataset(X, Y)
    found = lightgbm.cv(_LIGHTGBM, data, 3, nfold=2, stratified=False, callbacks=[LightGBMReportCallback()])
    assert [value for name, _, value in reported(run) if name == "valid/l2"] == found["valid l2-mean"]


@real_library
def test_lightgbm_ends_when_it_is_stopped(lightgbm: Any, run: ReportSession) -> None:
    run.on_report = lambda report: run.stop() if report.step == 2 else None
    with pytest.raises(StopTraining):
        boosted(lightgbm, 9, LightGBMReportCallback())
    assert {step for _, step, _ in reported(run)} == {1, 2}


@real_library
def test_other_ranks_of_lightgbm_report_nothing(lightgbm: Any, tmp_path: Path) -> None:
    context = Context(rank=1, world_size=2, folder=tmp_path)
    with ReportSession(tmp_path, context=context) as session, session.bound():
        boosted(lightgbm, 2, LightGBMReportCallback(checkpoint_every_n_rounds=1))
    assert list(tmp_path.iterdir()) == []


# ---- Lightning


class Tensor:
    """What Lightning gives for a metric: a number in a memory of its own, and any number of views of it."""

    _memory = 0

    def __init__(self, value: float, memory: int = 0) -> None:
        self.value = value
        if not memory:
            Tensor._memory = memory = Tensor._memory + 64
        self.memory = memory

    def __float__(self) -> float:
        return self.value

    def data_ptr(self) -> int:
        return self.memory

    def detach(self) -> Tensor:
        return Tensor(self.value, self.memory)


class StandInForLightning:
    """Of `Trainer`: hooks, in order, and `logged_metrics`, which keeps values until newer ones replace them."""

    def __init__(self, callback: Any, *, every: int = 2, rank: int = 0, accumulate: int = 1) -> None:
        self.callback, self.log_every_n_steps, self.accumulate = callback, every, accumulate
        self.is_global_zero, self.sanity_checking = rank == 0, False
        self.global_step = self.current_epoch = 0
        self._logged: dict[str, Tensor] = {}
        self.saved: list[str] = []

    @property
    def logged_metrics(self) -> dict[str, Tensor]:
        return {name: value.detach() for name, value in self._logged.items()}

    def save_checkpoint(self, path: str | Path) -> None:
        self.saved.append(str(path))
        if self.is_global_zero:
            Path(path).write_text(f"{self.global_step}")

    def fit(self, epochs: int, batches: int) -> None:
        self._validate(sanity_checking=True)
        self.callback.on_train_start(self, None)
        while self.current_epoch < epochs:
            for batch in range(batches):
                self.global_step += (batch + 1) % self.accumulate == 0
                self._logged["loss"] = Tensor(self.global_step / 8)
                self.callback.on_train_batch_end(self, None, None, None, batch)
            self._validate()
            self._logged["loss_epoch"] = Tensor(float(self.current_epoch))
            self.callback.on_train_epoch_end(self, None)
            self.current_epoch += 1

    def _validate(self, *, sanity_checking: bool = False) -> None:
        self.sanity_checking = sanity_checking
        self._logged["val_loss"] = Tensor(-float(self.current_epoch))
        self.callback.on_validation_end(self, None)
        self.sanity_checking = False
        if sanity_checking:
            self._logged.clear()


@pytest.fixture
def lightning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lightning.pytorch", SimpleNamespace(Callback=type("Callback", (), {})))


@pytest.mark.usefixtures("lightning")
def test_lightning_reports_what_is_new(run: ReportSession) -> None:
    at = with_checkpoints(run)
    trainer = StandInForLightning(LightningReportCallback(checkpoint_every_n_epochs=2))
    trainer.fit(epochs=2, batches=3)
    assert at == [6]
    assert reported(run) == [
        ("loss", 2, 0.25),
        ("loss", 3, 0.375),
        ("val_loss", 3, 0.0),
        ("loss_epoch", 3, 0.0),
        ("loss", 4, 0.5),
        ("loss", 6, 0.75),
        ("val_loss", 6, -1.0),
        ("loss_epoch", 6, 1.0),
    ]
    assert checkpoints(run) == {6: (["checkpoint.ckpt"], {"loss": 0.75, "val_loss": -1.0, "loss_epoch": 1.0})}


@pytest.mark.usefixtures("lightning")
def test_lightning_saves_by_steps_once_for_each(run: ReportSession) -> None:
    callback = LightningReportCallback(checkpoint_every_n_train_steps=2, checkpoint_every_n_epochs=1)
    trainer = StandInForLightning(callback, accumulate=2)
    trainer.fit(epochs=1, batches=8)
    assert list(checkpoints(run)) == [2, 4]
    assert len(trainer.saved) == 2
    assert [(name, step) for name, step, _ in reported(run) if name == "loss"] == [("loss", 2), ("loss", 4)]


def test_the_end_of_an_epoch_comes_after_the_module_has_logged(
    run: ReportSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the hooks in the order of Lightning: callbacks, the module, subclasses of `Checkpoint`."""
    base = type("Callback", (), {"on_train_epoch_end": lambda *args: None})
    checkpoint = type("Checkpoint", (base,), {})
    module = SimpleNamespace(Callback=base, callbacks=SimpleNamespace(Checkpoint=checkpoint))
    monkeypatch.setitem(sys.modules, "lightning.pytorch", module)
    callback = LightningReportCallback(checkpoint_every_n_epochs=1)
    assert not isinstance(callback, checkpoint), "a trainer without checkpoints refuses one"
    trainer = StandInForLightning(callback)
    trainer.callbacks = [callback]  # type: ignore[attr-defined]
    trainer.global_step = 4
    callback.on_train_start(trainer, None)
    for epoch in range(2):
        trainer.global_step = 8 + epoch
        for is_after in (False, True):
            for each in trainer.callbacks:  # type: ignore[attr-defined]
                if isinstance(each, checkpoint) is is_after:
                    each.on_train_epoch_end(trainer, None)
            trainer._logged["f1"] = Tensor(float(epoch))
        trainer.current_epoch += 1
    callback.on_train_end(trainer, None)
    assert trainer.callbacks == [callback]  # type: ignore[attr-defined]
    assert reported(run) == [("f1", 8, 0.0), ("f1", 9, 1.0)]
    assert [metrics for _, metrics in checkpoints(run).values()] == [{"f1": 0.0}, {"f1": 1.0}]


@pytest.mark.usefixtures("lightning")
def test_other_ranks_of_lightning_take_part_in_saving_only(run: ReportSession) -> None:
    trainer = StandInForLightning(LightningReportCallback(checkpoint_every_n_epochs=1), rank=1)
    trainer.fit(epochs=2, batches=2)
    assert trainer.saved == ["checkpoint.ckpt", "checkpoint.ckpt"]
    assert not run.context.folder.exists()


@pytest.mark.parametrize("name", ["lightning.pytorch", "pytorch_lightning"])
def test_the_lightning_that_is_in_use_counts(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for other in ("lightning", "lightning.pytorch", "pytorch_lightning"):
        monkeypatch.delitem(sys.modules, other, raising=False)
    in_use = SimpleNamespace(Callback=type("Callback", (), {}))
    monkeypatch.setitem(sys.modules, name, in_use)
    assert isinstance(LightningReportCallback(), in_use.Callback)


@real_library
def test_a_training_with_lightning(tmp_path: Path, run: ReportSession) -> None:
    lightning = pytest.importorskip("lightning.pytorch")
    torch = pytest.importorskip("torch")

    class Model(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(2, 1)

        def training_step(self, batch: Any, number: int) -> Any:
            loss = (self.layer(batch[0]) ** 2).mean()
            self.log("loss", loss, on_step=True, on_epoch=True)
            return loss

        def validation_step(self, batch: Any, number: int) -> None:
            self.log("val_loss", (self.layer(batch[0]) ** 2).mean())

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.1)

    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.rand(20, 2)), 5)

    def fit(epochs: int, start: Path | None = None) -> Any:
        # Two that read the metrics too, one before this callback and one after it.
        others = (
            lightning.callbacks.EarlyStopping("val_loss"),
            lightning.callbacks.ModelCheckpoint(monitor="loss"),
        )
        trainer = lightning.Trainer(
            max_epochs=epochs,
            default_root_dir=tmp_path,
            log_every_n_steps=2,
            logger=False,
            enable_progress_bar=False,
            accelerator="cpu",
            callbacks=[others[0], LightningReportCallback(checkpoint_every_n_epochs=1), others[1]],
        )
        trainer.fit(Model(), data, data, ckpt_path=start)

    fit(1)
    first = [("loss_step", 2), ("loss_step", 4), ("val_loss", 4), ("loss_epoch", 4)]
    assert [point[:2] for point in reported(run)] == first
    assert list(checkpoints(run)) == [4]
    with ReportSession(tmp_path / "resumed") as resumed, resumed.bound():
        fit(2, run.checkpoint().path / "checkpoint.ckpt")
        assert [point[:2] for point in reported(resumed)] == [(name, step + 4) for name, step in first]


@real_library
@pytest.mark.parametrize("is_checkpointing", [False, True])
def test_what_a_module_of_lightning_logs_at_the_end_of_an_epoch_is_of_that_epoch(
    tmp_path: Path, run: ReportSession, is_checkpointing: bool
) -> None:
    """Lightning calls the hook of callbacks before the same hook of the module."""
    lightning = pytest.importorskip("lightning.pytorch")
    torch = pytest.importorskip("torch")

    class Model(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(2, 1)

        def training_step(self, batch: Any, number: int) -> Any:
            return (self.layer(batch[0]) ** 2).mean()

        def on_train_epoch_end(self) -> None:
            self.log("f1", float(self.current_epoch + 1))

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.1)

    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.rand(20, 2)), 5)
    trainer = lightning.Trainer(
        max_epochs=3,
        default_root_dir=tmp_path,
        logger=False,
        enable_checkpointing=is_checkpointing,
        enable_progress_bar=False,
        accelerator="cpu",
        callbacks=[LightningReportCallback(checkpoint_every_n_epochs=1)],
    )
    before = list(trainer.callbacks)
    trainer.fit(Model(), data)
    assert reported(run) == [("f1", 4, 1.0), ("f1", 8, 2.0), ("f1", 12, 3.0)]
    assert {step: metrics for step, (_, metrics) in checkpoints(run).items()} == {
        4: {"f1": 1.0},
        8: {"f1": 2.0},
        12: {"f1": 3.0},
    }
    assert trainer.callbacks == before, "the trainer is as it was"


# ---- Transformers


@pytest.fixture
def transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    module = SimpleNamespace(TrainerCallback=type("TrainerCallback", (), {}))
    monkeypatch.setitem(sys.modules, "transformers", module)


class StandInForTransformers:
    """Of `Trainer`: `on_log` and `on_save` of each step, and the limit of saved folders."""

    def __init__(
        self, folder: Path, callback: Any, *, limit: int | None = None, rank: int = 0, world: int = 1
    ) -> None:
        self.callback, self.waits = callback, 0
        everyone = SimpleNamespace(wait_for_everyone=self._wait)
        self.args = SimpleNamespace(
            output_dir=str(folder), save_total_limit=limit, world_size=world, distributed_state=everyone
        )
        self.state = SimpleNamespace(global_step=0, is_world_process_zero=rank == 0)

    def _wait(self) -> None:
        self.waits += 1

    def train(self, steps: int) -> None:
        saved: list[Path] = []
        for step in range(1, steps + 1):
            self.state.global_step = step
            logs = {"loss": 1.0 / step, "note": "text", "shape": numpy.ones(3)}
            self.callback.on_log(self.args, self.state, None, logs=logs, model=None)
            saved.append(Path(self.args.output_dir, f"checkpoint-{step}"))
            saved[-1].mkdir(parents=True)
            (saved[-1] / "model.safetensors").write_bytes(bytes(1 << 20))
            while self.args.save_total_limit and len(saved) > self.args.save_total_limit:
                oldest = saved.pop(0)
                (oldest / "model.safetensors").unlink()
                oldest.rmdir()
            self.callback.on_save(self.args, self.state, None, model=None)


@pytest.mark.usefixtures("transformers")
@pytest.mark.parametrize("limit", [None, 1])
def test_transformers_reports_logs_and_folders(tmp_path: Path, run: ReportSession, limit: int | None) -> None:
    trainer = StandInForTransformers(tmp_path / "out", TransformersReportCallback(checkpoints=True), limit=limit)
    trainer.train(3)
    assert reported(run) == [("loss", 1, 1.0), ("loss", 2, 0.5), ("loss", 3, 1.0 / 3)]
    assert checkpoints(run) == {step: (["model.safetensors"], {"loss": 1.0 / step}) for step in (1, 2, 3)}


@pytest.mark.usefixtures("transformers")
def test_transformers_reports_no_folder_unless_asked(tmp_path: Path, run: ReportSession) -> None:
    StandInForTransformers(tmp_path / "out", TransformersReportCallback()).train(1)
    assert checkpoints(run) == {}


@pytest.mark.usefixtures("transformers")
def test_all_ranks_of_transformers_have_written_before_rank_0_reports(tmp_path: Path, run: ReportSession) -> None:
    other = StandInForTransformers(tmp_path / "1", TransformersReportCallback(checkpoints=True), rank=1, world=2)
    other.train(1)
    assert other.waits == 1
    assert not run.context.folder.exists()
    first = StandInForTransformers(tmp_path / "0", TransformersReportCallback(checkpoints=True), world=2)
    first.train(1)
    assert first.waits == 1
    assert list(checkpoints(run)) == [1]


@real_library
def test_a_training_with_transformers(tmp_path: Path, run: ReportSession) -> None:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("torch")
    tiny = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    data = [{"input_ids": [number, 1, 2], "labels": number % 2} for number in range(16)]

    def train(epochs: int, start: Path | None = None) -> None:
        arguments = transformers.TrainingArguments(
            str(tmp_path / "out"),
            num_train_epochs=epochs,
            per_device_train_batch_size=4,
            logging_steps=2,
            save_steps=2,
            save_total_limit=1,
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
        )
        model = transformers.BertForSequenceClassification(transformers.BertConfig(vocab_size=20, **tiny))
        callback = TransformersReportCallback(checkpoints=True)
        trainer = transformers.Trainer(model, arguments, train_dataset=data, callbacks=[callback])
        trainer.train(resume_from_checkpoint=None if start is None else str(start))

    train(1)
    assert [step for name, step, _ in reported(run) if name == "loss"] == [2, 4]
    assert list(checkpoints(run)) == [2, 4]
    with ReportSession(tmp_path / "resumed") as resumed, resumed.bound():
        train(2, run.checkpoint().path)
        assert [step for name, step, _ in reported(resumed) if name == "loss"] == [6, 8]


# ---- Keras


@pytest.fixture
def keras(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keras.callbacks", SimpleNamespace(Callback=type("Callback", (), {})))


class StandInForKeras:
    """Of `Model`: `fit` with `on_epoch_end` after each epoch, and `save`."""

    def save(self, path: Path) -> None:
        path.write_text("weights")

    def fit(self, callback: Any, epochs: int, initial_epoch: int = 0) -> None:
        callback.model = self
        for epoch in range(initial_epoch, epochs):
            callback.on_epoch_end(epoch, {"loss": epoch / 2, "val_loss": epoch / 4})


@pytest.mark.usefixtures("keras")
def test_keras_reports_each_epoch(run: ReportSession) -> None:
    at = with_checkpoints(run)
    StandInForKeras().fit(KerasReportCallback(checkpoint_every_n_epochs=2), epochs=3, initial_epoch=1)
    assert at == [2]
    assert reported(run) == [("loss", 2, 0.5), ("val_loss", 2, 0.25), ("loss", 3, 1.0), ("val_loss", 3, 0.5)]
    assert checkpoints(run) == {2: (["model.keras"], {"loss": 0.5, "val_loss": 0.25})}


@pytest.mark.usefixtures("keras")
def test_other_ranks_of_keras_report_nothing(tmp_path: Path) -> None:
    context = Context(rank=1, world_size=2, folder=tmp_path)
    with ReportSession(tmp_path, context=context) as session, session.bound():
        StandInForKeras().fit(KerasReportCallback(checkpoint_every_n_epochs=1), epochs=2)
    assert list(tmp_path.iterdir()) == []


@real_library
def test_a_training_with_keras(tmp_path: Path, run: ReportSession, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    keras = pytest.importorskip("keras")
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    callback = KerasReportCallback(checkpoint_every_n_epochs=2)
    history = model.fit(X, Y, epochs=2, verbose=0, callbacks=[callback]).history
    assert reported(run) == [("loss", step, value) for step, value in enumerate(history["loss"], 1)]
    assert checkpoints(run) == {2: (["model.keras"], {"loss": history["loss"][1]})}
    with ReportSession(tmp_path / "resumed") as resumed, resumed.bound():
        start = run.checkpoint()
        again = keras.models.load_model(start.path / "model.keras")
        again.fit(X, Y, initial_epoch=start.step, epochs=3, verbose=0, callbacks=[callback])
        assert [step for _, step, _ in reported(resumed)] == [3]
