"""Training: setup, updates, evaluation, checkpoints, early stopping."""

import contextlib
import dataclasses
import math
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import tensorflow as tf

from t2t_lite import files
from t2t_lite.corpus.download import RawFiles
from t2t_lite.data.manifest import Manifest
from t2t_lite.datagen.generate import DataGenerator
from t2t_lite.errors import Interrupted, T2TLiteError
from t2t_lite.model import flops
from t2t_lite.model.layers import skip_init
from t2t_lite.progress import log
from t2t_lite.training import checkpoints, distribute, logging, memory, signals
from t2t_lite.training.config import CONFIG, versions
from t2t_lite.training.evaluation import DevEvaluation
from t2t_lite.training.model_card import provenance_of, write_card
from t2t_lite.training.options import TrainingOptions
from t2t_lite.training.problem_choice import Job
from t2t_lite.training.run import Run
from t2t_lite.training.schedules import last_step
from t2t_lite.training.update import Updater
from t2t_lite.training.warm_start import check_warm_start, load_initial_weights

T = TypeVar("T")

MAX_CONSECUTIVE_SKIPS = 10
_FILE_TIMEOUT = 30.0  # seconds until a network file system shows a new file
# Options that may differ between workers.
_LOCAL_OPTIONS = (
    *("usr_dir", "data_dir", "raw_dir", "tfds_dir", "problem_options"),
    *("workers", "worker", "cluster_timeout", "sustained_tflops", "verbose"),
)


def train(job: Job, callbacks: logging.Callbacks = ()) -> Run:
    """Generate missing data, create or open the run of a job, and train it.

    All workers call this function; only the chief writes files and calls the
    `callbacks`. For errors see `train_run`.
    """
    options = job.options
    strategy = distribute.make_strategy(options, job.hparams)
    is_chief = distribute.workers_of(strategy)[1] == 0
    with distribute.worker_errors(strategy), contextlib.ExitStack() as stack:
        fix = "Start the same command on all workers."
        distribute.require_equal(strategy, _shared_settings(job), fix)
        check_warm_start(job)  # before data generation, which may take hours
        manifest = _make_generator(job).run()
        fix = "Use the same data on all workers."
        distribute.require_equal(strategy, {"data": manifest.digest}, fix)
        if is_chief:
            # Lock the run before its config is compared.
            stack.enter_context(signals.run_lock(job.output_dir))
            run = _create_run(job, manifest)
            log(f"Training {job.problem.name} in {run.output_dir}.")
            run.update_config(conditions=provenance_of(run, options))
        distribute.all_gather(strategy, "run")  # wait for the chief
        if not is_chief:
            deadline = time.monotonic() + _FILE_TIMEOUT
            while not (job.output_dir / CONFIG).exists():
                if time.monotonic() > deadline:
                    raise T2TLiteError(
                        "output_dir must be a folder that all workers share; "
                        f"{job.output_dir} lacks the chief's files."
                    )
                time.sleep(0.5)
            run = _create_run(job, manifest, dry_run=True)
        train_run(run, options, strategy, callbacks)
        # Wait for all workers, and share the training cost.
        run.config = distribute.all_gather(strategy, run.config)[0]
    return run


def _shared_settings(job: Job) -> dict[str, Any]:
    options = dataclasses.asdict(job.options)
    shared = [name for name in options if name not in _LOCAL_OPTIONS]
    return {
        **versions(),
        "problem": job.problem.name,
        "problem definition": job.problem.fingerprint(),
        **job.hparams.to_dict(),
        **{f"--{name}": str(options[name]) for name in shared},
    }


def _make_generator(job: Job) -> DataGenerator:
    seed, options = None, job.options
    if job.config and not job.has_data():  # generate the same data again
        seed = job.config["data"].get("seed")
    return DataGenerator(
        job.problem, job.data_dir, options.raw_dir, options.tfds_dir, seed
    )


def _seed_of(job: Job) -> int:
    seed = job.options.seed
    return (job.config or {}).get("seed", 1) if seed is None else seed


def _create_run(job: Job, manifest: Manifest, dry_run: bool = False) -> Run:
    return Run.create(
        job.output_dir,
        problem=job.problem,
        hparams=job.hparams,
        seed=_seed_of(job),
        data_dir=job.data_dir,
        manifest=manifest,
        usr_dir=job.options.usr_dir,
        hparams_set=job.hparams_set,
        facts=check_warm_start(job),
        dry_run=dry_run,
    )


def dry_run(job: Job) -> str:
    """Check data and model, measure one pass, and return a report."""
    options, problem = job.options, job.problem
    # Call it before anything runs on the devices.
    distribute.choose_strategy(options.replicas, job.hparams)
    generator = _make_generator(job)  # checks the options of the data
    if job.has_data():
        run = _create_run(job, generator.run(), dry_run=True)
        sizes, lines = run.vocab_sizes, [f"data: {run.data.check()}"]
    else:
        check_warm_start(job)
        sizes = problem.swap_if_reversed(*problem.expected_vocab_sizes())
        lines = [
            f"missing: {job.data_dir} has no data of {problem.name} yet; the "
            "same command without `dry_run`, or t2t-lite-datagen, generates it",
            "corpus: found",
        ]
        try:
            raw_dir, tfds_dir = options.raw_dir, options.tfds_dir
            raw = RawFiles(problem.files, raw_dir, tfds_dir=tfds_dir)
            problem.check_sources(raw)
        except T2TLiteError as error:
            lines[1] = str(error)
    seed_everything(_seed_of(job))
    lines.append(memory.measure_update(job.hparams, sizes, options))
    return "\n".join(lines)


def train_run(
    run: Run,
    options: TrainingOptions,
    strategy: tf.distribute.Strategy | None = None,
    callbacks: logging.Callbacks = (),
) -> None:
    """Train a run to its last update, from its newest checkpoint.

    The caller holds the lock of the run's folder, see `signals.run_lock`. The
    options may change between calls; without a strategy they determine it.

    Raises:
      Interrupted: a signal arrived or the time limit is reached; the run is
        saved.
      T2TLiteError: training failed; the message contains the fix.
    """
    strategy = strategy or distribute.make_strategy(options, run.hparams)
    is_chief = distribute.workers_of(strategy)[1] == 0
    try:
        with signals.Requests(options) as requests:
            seed_everything(
                run.seed, options.deterministic, options.check_numerics
            )
            trainer = Trainer(run, options, strategy, requests, callbacks)
            trainer.restore()
            trainer.train()
        if is_chief:
            run.update_config(training_cost=trainer.cost())
    finally:
        if is_chief:
            write_card(run)


def seed_everything(
    seed: int, deterministic: bool = False, check_numerics: bool = False
) -> None:
    """Set the seed and the determinism of the process, before building models.

    Keras samples the seeds of initializers from Python's generator. This
    package does not use TensorFlow's global seed.
    """
    random.seed(seed)
    if deterministic:
        tf.config.experimental.enable_op_determinism()
    if check_numerics:
        tf.debugging.enable_check_numerics()


class Trainer:
    """The training loop of a run.

    The seed, the numbers of update and micro-batch, and the position in the
    data determine dropout and the order of the data, so neither has state.

    Attributes:
      step: the number of updates so far, skipped updates included.
      position: the `pipeline.Position` of the next micro-batch.
      saved_step: the step of the last checkpoint; 0 without a checkpoint.
    """

    def __init__(
        self,
        run: Run,
        options: TrainingOptions,
        strategy: tf.distribute.Strategy,
        requests: signals.Requests | None = None,
        callbacks: logging.Callbacks = (),
    ):
        self.run, self._options, self._strategy = run, options, strategy
        self._requests = requests or signals.Requests(options)
        addresses, index = distribute.workers_of(strategy)
        self._workers, self._worker = len(addresses), index
        self._is_chief = index == 0
        self._callbacks = callbacks if self._is_chief else ()
        self._steps = last_step(run.hparams, options.train_steps)
        if self._is_chief:
            for folder in (run.output_dir, run.checkpoints_dir):
                files.remove_unfinished(folder)
        log("Building the model.")
        self._resumes = bool(checkpoints.list_checkpoints(run.checkpoints_dir))
        # Workers receive the chief's initial weights, so they need values.
        with skip_init(self._resumes and self._workers == 1):
            with strategy.scope():
                self.model = run.model()
            self.model.gradient_checkpointing = options.gradient_checkpointing
            freeze = run.config.get("freeze", ())
            self.updater = Updater(
                self.model, run.hparams, strategy, run.seed, freeze
            )
        if freeze:
            log(
                f"{self.updater.trained_parameters:,} of "
                f"{self.model.count_params():,} parameters are trained."
            )
        # The name in metrics of the weights that select the best checkpoint.
        self._ranked = checkpoints.EMA if run.hparams.ema_decay else None
        self.step = self.saved_step = 0
        self.position = [0, 0, 0]
        self.meter = logging.Meter()
        self._decision_is_wanted = False
        self._batches: Iterator[dict[str, Any]] | None = None

    def restore(self) -> None:
        """Restore the newest checkpoint, or load the initial weights."""
        name = self._run_on_chief(self._restore_newest)
        if name is None:
            load_initial_weights(self.run, self.model)
            if self.updater.average:
                self.updater.average.reset()
            return
        path = self.run.checkpoints_dir / name
        if not self._is_chief:
            self._read(path)
        state = checkpoints.Reader(path).state
        self.step = self.saved_step = state["step"]
        self.position = state["position"]
        fields = [field.name for field in dataclasses.fields(logging.Totals)]
        totals = {key: state.get(key, 0) for key in fields}
        self.meter = logging.Meter(logging.Totals(**totals))

    def _restore_newest(self) -> str | None:
        directory = self.run.checkpoints_dir
        checkpoints.read_marks(directory)  # raises an error for damaged marks
        if not checkpoints.list_checkpoints(directory):
            if self._resumes or self.run.config.get("has_checkpoints"):
                raise T2TLiteError(
                    f"{directory} has no checkpoint, but the run was saved. "
                    "Restore the checkpoints, check that their disk is "
                    "mounted, or choose another `output_dir`."
                )
            return None
        return checkpoints.restore_newest(directory, self._read).path.name

    def _read(self, path: Path) -> None:
        checkpoints.restore(path, self.tensors())
        if averages := self._averages():
            checkpoints.restore(path / checkpoints.EMA, averages)

    def train(self) -> None:
        """Train to the last update or early stopping, evaluate and average."""
        run, requests = self.run, self._requests
        metric = self._options.best_metric
        shard = self._worker, self._workers, self._check
        self._dev = DevEvaluation(run, self.model, metric, *shard)
        with (
            # Only the metrics of the chief are kept.
            tempfile.TemporaryDirectory() as discarded,
            logging.TrainingLog(
                run.output_dir if self._is_chief else Path(discarded),
                self.step,
                self._steps,
                callbacks=self._callbacks,
            ) as self._log,
        ):
            try:
                self._log.show_status("Checking the data.")
                self._log.note(str(run.data.check()))
                passes = run.hparams.gradient_accumulation_steps
                if (idle := self.updater.replicas - passes) > 0:
                    self._log.note(
                        f"{idle} device(s) are idle: in a new run, raise "
                        "gradient_accumulation_steps and batch_tokens."
                    )
                # An estimate: three float32 per parameter at 100 MB/s.
                requests.save_seconds = 12 * self.model.count_params() / 100e6
                requests.heartbeat()
                if self.step < self._steps:
                    show = self._log.show_status
                    memory.try_largest_batch(self.updater, show)
                if self.step:
                    self._log.note(
                        f"Resuming from update {self.step} in {run.output_dir}"
                    )
                self._make_updates()
                self.save()
                self._evaluate_all()
                self._average()
            except signals.StopRequested as stop:
                self.save()
                saved = f"update {self.step} is saved"
                raise Interrupted(
                    f"Stopped by {stop}: "
                    f"{saved if self.step else 'nothing trained yet'} in "
                    f"{run.output_dir}. Run the same command to resume."
                ) from None

    def _make_updates(self) -> None:
        # The last process may have stopped before an evaluation.
        stop_early = bool(self.step) and self._evaluate_if_due()
        if self.step < self._steps and not stop_early:
            self._log.show_status("Tracing the graphs in the first update.")
        while self.step < self._steps and not stop_early:
            with self._requests.timing_update():
                self.update()
            self._report(self.step == self._steps)
            decision = self._decide()
            if decision.save:
                self.save()
            if decision.stop:
                raise signals.StopRequested(decision.stop)
            stop_early = self._evaluate_if_due()

    def _check(self) -> None:
        """Report progress, and raise `StopRequested` if a stop is requested."""
        self._requests.heartbeat()
        self._requests.check()

    def update(self) -> None:
        """Run one update with the next batches of the data."""
        # A worker must not leave an update that the other workers complete.
        single = self._workers == 1
        with self.meter.timed():
            if self._batches is None:
                self._batches = self.run.data.training_batches(self.position)
            count = self.run.hparams.gradient_accumulation_steps
            batches = [next(self._batches) for _ in range(count)]
            stats = self.updater.update(
                batches,
                self.step + 1,
                self._check if single else self._requests.heartbeat,
                lambda: any(self._requests.decide(self.step + 1)),
            )
            self.step += 1
            self.position = batches[-1]["position"]
            self.meter.add(stats)
            if not single:  # a single process does not wait for the device
                self._decision_is_wanted = bool(stats.wanting_decision)

    def _decide(self) -> signals.Decision:
        decision = self._requests.decide(self.step)
        if self._workers == 1:
            return decision
        if not self._decision_is_wanted:
            return signals.Decision()
        saves, stops = zip(*self._all_gather(decision), strict=True)
        return signals.Decision(any(saves), next(filter(None, stops), None))

    def _report(self, is_last: bool) -> None:
        """Log progress if due, and fail after too many skipped updates."""
        log, meter, step = self._log, self.meter, self.step
        due = is_last or step == 1 or step % self._options.log_steps == 0
        show = due or log.wants_progress()
        # Wait for the result of the last update before the limit is reached.
        if show or meter.consecutive_skips >= MAX_CONSECUTIVE_SKIPS - 1:
            meter.read()
        if meter.consecutive_skips >= MAX_CONSECUTIVE_SKIPS:
            raise T2TLiteError(
                f"{MAX_CONSECUTIVE_SKIPS} updates in a row, up to update "
                f"{step}, were skipped, because their gradients were not "
                f"finite. Update {self.saved_step} is saved. Lower "
                "learning_rate or raise warmup_steps in another `output_dir`, "
                "or resume with `check_numerics` to find the operation."
            )
        if not show:
            return
        epoch = int(self.position[0])
        record = {"step": step, **meter.record(), "epoch": epoch}
        if not due:
            log.show_progress(record)
            return
        if skipped := meter.skipped_in_interval:
            log.note(f"{skipped} update(s) skipped: gradients not finite.")
        log.record_updates(record)
        meter.start_interval()

    def _evaluate_if_due(self) -> bool:
        """Evaluate on dev if due; return whether to stop early."""
        if self.step % self._options.eval_steps_every:
            return False
        self._evaluate_all()
        if self._options.early_stopping_patience is None:
            return False
        best = next(iter(self._marks()), {"step": 0})["step"]
        worse = sum(
            step > best and weights == self._ranked
            for step, weights in self._log.metrics.evaluated
        )
        worse = self._all_gather(worse)[0]
        if worse < self._options.early_stopping_patience:
            return False
        self._log.note(
            f"Early stopping at update {self.step}: no improvement in {worse} "
            f"evaluations since update {best}."
        )
        return True

    def _evaluate_all(self) -> None:
        for weights in dict.fromkeys((None, self._ranked)):
            self._evaluate(weights)

    @contextlib.contextmanager
    def _with_weights(self, weights: str | None) -> Iterator[None]:
        """Give the model its moving average inside the block, for EMA."""
        model = checkpoints.model_tensors(self.model)
        averages = self._averages() if weights == checkpoints.EMA else {}
        trained = {name: tf.identity(model[name]) for name in averages}
        try:
            for name, average in averages.items():
                model[name].assign(average)
            yield
        finally:
            for name, value in trained.items():
                model[name].assign(value)

    def _evaluate(self, weights: str | None) -> None:
        """Evaluate the model on dev, once per step and weights."""
        log = self._log
        if self._is_evaluated(self.step, weights):
            return
        log.show_status("evaluating on dev", brief=True)
        self.meter.read()
        shard: dict[str, Any] = {}
        reason = ""
        try:
            self._check()
            with self._with_weights(weights):
                shard = self._dev.evaluate_shard()
        except signals.StopRequested as stop:
            reason = str(stop)
        shards, reasons = zip(*self._all_gather((shard, reason)), strict=True)
        if any(reasons):
            raise signals.StopRequested(next(filter(None, reasons)))
        scores = self._dev.scores(shards)
        if weights == self._ranked:
            marks = self._marks()
            previous = next(iter(marks), {})
            metric, value = self._dev.select_metric(scores, previous)
            mark = {"step": self.step, "metric": metric, "value": value}
            best = checkpoints.rank(marks, mark)[: self._options.keep_best]
            if math.isfinite(value) and mark in best:
                self.save(best)
        record: dict[str, Any] = {"step": self.step, **scores}
        record |= {"weights": weights} if weights else {}
        log.record_evaluation(record, self._dev.samples)

    def _is_evaluated(self, step: int, weights: str | None) -> bool:
        is_evaluated = (step, weights) in self._log.metrics.evaluated
        return self._all_gather(is_evaluated)[0]

    def _average(self) -> None:
        """Evaluate the average of the last checkpoints, unless EMA is used."""
        self._log.show_status("averaging", brief=True)
        directory = self.run.checkpoints_dir
        count = len(checkpoints.list_checkpoints(directory))
        count = min(count, self._options.keep_checkpoints)  # others may be old
        count = min(count, self.run.hparams.average_checkpoints)
        if self._all_gather(count)[0] < 2 or self._ranked:
            return

        def average() -> str:
            mean = checkpoints.resolve(directory, "default")
            if mean.averaged != count:
                mean = checkpoints.average_checkpoints(directory, count)
            return mean.path.name

        name = self._run_on_chief(average)
        if not self._is_evaluated(self.step, name):
            model = checkpoints.model_tensors(self.model)
            checkpoints.restore(directory / name, model)
            self._evaluate(name)

    def save(self, best: Sequence[dict[str, Any]] = ()) -> None:
        """Save a checkpoint, unless this step is saved already.

        `best` are the marks of the best checkpoints if this one is among them.
        """
        if self.step != self.saved_step:
            self._log.show_status("saving", brief=True)
            self.meter.read()
            with self._requests.timing_save():
                self._run_on_chief(self._write)
            self.saved_step = self.step
        elif not best:
            return
        self._run_on_chief(lambda: self._mark(best))

    def _write(self) -> None:
        state = {
            "step": self.step,
            "position": [int(index) for index in self.position],
            "seed": self.run.seed,
            **dataclasses.asdict(self.meter.totals),
        }
        directory, ema = self.run.checkpoints_dir, self._averages()
        if ema:
            ema = {**checkpoints.model_tensors(self.model), **ema}
        checkpoints.save(directory, self.tensors(), state, ema=ema)
        # Lets a later run report that its checkpoints are missing.
        if not self.run.config.get("has_checkpoints"):
            self.run.update_config(has_checkpoints=True)

    def _mark(self, best: Sequence[dict[str, Any]]) -> None:
        directory = self.run.checkpoints_dir
        if best:
            checkpoints.mark_best(directory, best)
        checkpoints.remove_old(directory, self._options.keep_checkpoints)
        write_card(self.run)

    def _marks(self) -> list[dict[str, Any]]:
        directory = self.run.checkpoints_dir
        return self._run_on_chief(lambda: checkpoints.read_marks(directory))

    def tensors(self) -> dict[str, tf.Variable]:
        """Return the weights and the optimizer's state by name."""
        model = checkpoints.model_tensors(self.model)
        return {**model, **self.updater.tensors()}

    def _averages(self) -> dict[str, tf.Variable]:
        return {
            f"{checkpoints.MODEL_PREFIX}{path}": average
            for path, average in self.updater.averages().items()
        }

    def _run_on_chief(self, function: Callable[[], T]) -> T:
        """Run a function on the chief; return its JSON result on all workers.

        A `SaveError` is raised on all workers.
        """
        result: Any = None
        message = ""
        if self._is_chief:
            try:
                result = function()
            except checkpoints.SaveError as error:
                message = str(error)
        result, message = self._all_gather((result, message))[0]
        if message:
            raise checkpoints.SaveError(message)
        return result

    def _all_gather(self, value: Any) -> list[Any]:
        return distribute.all_gather(self._strategy, value)

    def cost(self) -> dict[str, Any]:
        """Return the training cost up to the current step."""
        run, options = self.run, self._options
        train_stats = {
            **dataclasses.asdict(self.meter.totals),
            "devices": self._strategy.num_replicas_in_sync,
            "device": distribute.device_name(),
        }
        lengths = run.data.attended_lengths()
        sustained = (options.sustained_tflops or 0) * 1e12 or None
        cost = flops.training_cost(
            run.hparams, run.vocab_sizes[1], lengths, train_stats, sustained
        )
        parameters = self.model.count_params()
        return {"step": self.step, "parameters": parameters, **cost}
