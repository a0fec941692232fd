"""A search: the rules from the user's arguments, the study in its folder, and the run of its trials.

All modules that need Optuna are imported here, and `tune.tuner` imports this one when a tuner is created.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pai_sdk._client.display.choice import heartbeat
from pai_sdk._client.job.follow.polling import FollowPolicy
from pai_sdk._client.job.gather import Gathering
from pai_sdk._client.job.interrupts import search_interrupted, single_interrupt
from pai_sdk._client.submit.channels import InputSource
from pai_sdk._client.submit.problems import Problems
from pai_sdk._client.tune.functions import FunctionTrials
from pai_sdk._client.tune.jobs import JobTrials
from pai_sdk._client.tune.journal import open_journal
from pai_sdk._client.tune.objectives import Objective
from pai_sdk._client.tune.plots import plot_study as plot_study  # `Tuner.plot` takes it from here
from pai_sdk._client.tune.population import PopulationBased
from pai_sdk._client.tune.progress import TrialsDisplay, shows_functions
from pai_sdk._client.tune.samplers import checked_pruner, checked_sampler
from pai_sdk._client.tune.space import SearchSpace
from pai_sdk._client.tune.study import Study, StudyRules
from pai_sdk._client.tune.template import TrialTemplate
from pai_sdk._client.tune.trials import SearchLimits, TrialList
from pai_sdk._client.tune.warm_start import earlier_trials
from pai_sdk._data.storage.claims import claimed
from pai_sdk._data.storage.store import Store
from pai_sdk.errors import TuningFailed


def rules_of(
    space: SearchSpace,
    objectives: list[Objective],
    *,
    sampler: object,
    pruner: object,
    seed: int | None,
    warm_start: object,
    session: Any,
    problems: Problems,
) -> StudyRules:
    """Returns the rules of a study from the user's arguments; `problems` collects the errors."""
    return StudyRules(
        space,
        objectives,
        checked_sampler(sampler, space, problems),
        checked_pruner(pruner, len(objectives), problems),
        seed,
        (lambda: []) if warm_start is None else lambda: earlier_trials(warm_start, space, objectives, session),
        sampler if isinstance(sampler, PopulationBased) else None,
    )


def open_read_only(store: Store, session: Any = None) -> Study:
    """Opens the study in a folder, in its current state; another tuner may drive it."""
    return Study.load(open_journal(store), store.uri, None, session)


@dataclass(frozen=True)
class Search:
    """One run of a tuner."""

    store: Store
    name: str
    rules: StudyRules
    limits: SearchLimits
    show: bool  # whether to display a live table
    session: Any = None  # for the jobs of trials that are read

    @contextmanager
    def study(self) -> Iterator[Study]:
        """Yields the study, claimed for this process (InUseError otherwise); it is created if necessary."""
        with claimed(self.store) as claim:
            journal = open_journal(self.store, claim)
            if len(journal):
                yield Study.load(journal, self.store.uri, self.rules, self.session)
            else:
                yield Study.create(journal, self.store.uri, self.rules, self.session)

    def run_function(self, study: Study, function: Callable[..., Any]) -> TrialList:
        """Calls a function for each missing trial."""
        display = TrialsDisplay(study, has_jobs=False) if self.show and shows_functions() else None
        root = self.store.root or Path.home() / ".pai" / "runs" / self.name
        if self.store.root is None and study.population is not None:
            # The run of a trial is replaced when the trial restarts, so another study of this name must not share
            # it.
            root = root.with_name(f"{self.name}-{study.id[:8]}")
        trials = FunctionTrials(
            study,
            function,
            root / "runs",
            self.limits,
            on_change=(lambda: None) if display is None else display.functions_changed,
        )
        with single_interrupt(), nullcontext() if display is None else heartbeat(display):
            try:
                trials.run()
            except KeyboardInterrupt:
                # Raised anew, because the traceback of the wait would scroll the message off the screen.
                raise search_interrupted(study.uri) from None
        if display is not None:
            display.ended()
        return self._result(study, is_timed_out=trials.is_timed_out)

    def run_jobs(
        self,
        study: Study,
        template: TrialTemplate,
        inputs: Mapping[str, InputSource] | None,
        *,
        on_interrupt: Literal["detach", "stop"],
        policy: FollowPolicy | None,
    ) -> TrialList:
        """Runs a job for each missing trial."""
        gathering = Gathering(
            [],
            fail_fast=False,
            on_interrupt=on_interrupt,
            show=self.show,
            policy=policy,
            display=TrialsDisplay(study) if self.show else None,
        )
        session = template.session
        trials = JobTrials(
            study,
            lambda live: template.submit(
                live.params, live.number, study.key(live), inputs, is_new=live.is_new, parent=live.parent_job
            ),
            session.get_job,
            self.limits,
            gathering=gathering,
            policy=policy or FollowPolicy(),
        )
        trials.run(stops_on_interrupt=on_interrupt == "stop")
        return self._result(study, is_timed_out=trials.is_timed_out)

    def _result(self, study: Study, *, is_timed_out: bool) -> TrialList:
        """Returns all trials; raises if none has succeeded, although the timeout was not reached."""
        trials = study.trials()
        if not is_timed_out and not any(trial.state == "complete" for trial in trials):
            failed = {trial.number: trial.reason for trial in trials if trial.state == "failed"}
            raise TuningFailed(failed, study=study.uri, trials=len(trials))
        return trials
