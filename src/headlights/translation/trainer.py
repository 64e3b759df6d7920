"""The training loop: updates, validations and saves, watched, stopped and continued."""

import math
import shlex
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headlights._version import __version__
from headlights.attention import scores
from headlights.translation.board import Board
from headlights.translation.data import TrainingData
from headlights.translation.folders import ModelFolder
from headlights.translation.judging import judge
from headlights.translation.model import TranslationModel
from headlights.translation.processes import Processes
from headlights.translation.progress import Meter, Reporter, StopSignals
from headlights.translation.recipe import Recipe, RecipeError
from headlights.translation.runs import Progress, RunFolder, Validation
from headlights.translation.translator import Translator
from headlights.translation.updates import Diverged, Updater

LOG_EVERY = 50  # updates
REPORT_EVERY = 1.0  # seconds
SAVE_EVERY = 60.0  # seconds between saves, at least
SAVE_SHARE = 0.05  # of the time may go into saving between validations


class TrainingError(RuntimeError):
    """Training cannot go on; the message is one line that says why and what to do."""


class Interrupted(Exception):  # noqa: N818 - like KeyboardInterrupt, it is not an error
    """A signal stopped the training after it was saved.

    Attributes:
        signal: Its number.
        run: The run folder.
        update: Updates done.
        again: What goes on with it: a command line, or in words.

    Args:
        signal: Its number.
        run: The run folder.
        update: Updates done.
    """

    def __init__(self, signal: int, run: Path, update: int) -> None:
        super().__init__(f"stopped at update {update}, saved in {run}")
        self.signal, self.run, self.update = signal, run, update
        self.again = f"headlights train --resume --out {shlex.quote(str(run))}"


class Trainer:
    """The training loop over one run folder.

    Args:
        recipe: What to train and for how long.
        data: Its data.
        run: Where to save.
        processes: Who trains together, and where.
        reporter: Told of progress.

    Raises:
        RecipeError: The model does not fit into memory.
    """

    def __init__(
        self,
        recipe: Recipe,
        data: TrainingData,
        run: RunFolder,
        *,
        processes: Processes,
        reporter: Reporter,
    ) -> None:
        self.recipe, self.data, self.run, self.reporter = recipe, data, run, reporter
        self.config = recipe.training
        self.processes = processes
        self.device = processes.device
        source, target = data.source_tokenizer, data.target_tokenizer
        try:
            model = TranslationModel(recipe.model, source.vocab_size, target.vocab_size, pad_id=target.pad_id)
            self.model = model.to(self.device)
        except RuntimeError as error:  # torch's, for want of memory
            reason = str(error).partition("\n")[0].rpartition("Allocator: ")[2]
            raise RecipeError(f"model: cannot be built here: {reason}; choose smaller sizes") from None
        self.updater = Updater(recipe, self.model, processes)
        processes.seed(self.config.seed, 0)
        self.progress = Progress(pairs=len(data.train), valid_pairs=len(data.valid))
        if processes.main:  # the only one that saves
            self.progress.train_hash, self.progress.valid_hash = data.fingerprints()
        self._plan = data.train.plan(0)
        self._meter = Meter()
        self._next_report = self._next_save = 0.0
        self._board: Board | None = None

    def restore(self) -> None:
        """Take up the run from what its folder holds.

        Raises:
            FolderError: A file is missing or broken, or the training data has changed.
        """
        fresh, self.progress = self.progress, self.run.load_resume(self.model, self.updater.optimizer)
        self.updater.taken_up()
        self.processes.seed(self.config.seed, self.progress.update)
        progress = self.progress
        self.run.check_same_data(progress, fresh)
        progress.valid_pairs = fresh.valid_pairs
        progress.train_hash, progress.valid_hash = fresh.train_hash, fresh.valid_hash
        self._plan = self.data.train.plan(progress.epoch)
        # With a later end than before, the validations that are still to come are those after this point.
        progress.validations = min(progress.validations, self._validations_due())
        if self.processes.main:
            self.run.settle(progress.update)
            self._save_models()
        self.reporter.note(f"going on at update {progress.update}")

    def restore_in_turn(self) -> None:
        """Restore in the first process, which clears up, and then in the others: all must see the folder.

        Raises:
            FolderError: As `restore`.
        """
        if not self.processes.main:
            self.processes.wait()
        self.restore()
        if self.processes.main:
            self.processes.wait()

    def run_to_the_end(self) -> None:
        """Train until a limit of the recipe is reached; saves at every validation and when asked to stop.

        Raises:
            FolderError: The system refuses to save.
            TrainingError: The loss is not a number any more.
            Interrupted: A signal asked to stop; everything is saved.
        """
        for note in (*self.data.notes, self._description()):
            self.reporter.note(note)
        progress = self.progress
        if self._share_done() >= 1.0:
            self.reporter.note(f"nothing to do: the run has reached its limit at update {progress.update}")
        self._settle_kernels()
        self._meter.reset()
        self._schedule_save(took=0.0)
        try:
            with self._board_open(), StopSignals() as signals:
                while not self._ended():
                    self._epoch(signals)
                if progress.latest is None or progress.latest.update != progress.update:
                    self._validate(self.config.validations)
                if self._out_of_patience():
                    self.reporter.note(
                        f"stopped early: {progress.waited} validations without a better one "
                        f"(training.patience = {self.config.patience})"
                    )
        finally:
            self.reporter.finish()

    def _settle_kernels(self) -> None:
        """Bring compiled kernels before the first update.

        They would come by themselves when a process has done work enough, and add up in another order: a run
        that was killed and goes on would get them at another update.
        """
        additive = any(isinstance(each, scores.Additive) for each in self.model.modules())
        if additive and self.device.type == "cpu":
            scores.compile_additive()

    @contextmanager
    def _board_open(self) -> Iterator[None]:
        """TensorBoard's files for as long as training goes on, if the recipe asks for them."""
        if not (self.config.tensorboard and self.processes.main):
            yield
            return
        with Board(self.run.board, self.progress.update) as self._board:
            yield
        self._board = None

    def best(self) -> Translator:
        """The best translator of the run, in every process.

        Returns:
            As saved in `best`; processes that may not see that folder get its parameters from the first.
        """
        self.processes.wait()
        if self.processes.main:
            translator = Translator.load(self.run.best, device=self.device)
        else:
            translator = Translator(self._model_folder(self.progress.best), device=self.device)
        self.processes.copy_from_main(translator.model)
        return translator

    def _description(self) -> str:
        """What is trained on what, in a line."""
        data, parameters = self.data, sum(each.numel() for each in self.model.parameters())
        source, target = data.source_tokenizer.vocab_size, data.target_tokenizer.vocab_size
        count = self.processes.count
        return (
            f"{len(data.train):,} training and {len(data.valid):,} validation pairs, {source:,} source and "
            f"{target:,} target tokens, {parameters:,} parameters, on {self.device}"
            + (f", {count} processes" if count > 1 else "")
        )

    def _epoch(self, signals: StopSignals) -> None:
        """Train to the end of the epoch, or to the end of the training if that comes first."""
        progress, at_once = self.progress, self.config.accumulate
        self._plan = self.data.train.plan(progress.epoch)
        for first in range(progress.batch, len(self._plan), at_once):
            started = time.monotonic()
            self._update(self._plan[first : first + at_once])
            progress.seconds += time.monotonic() - started
            self._tell(self._share_done())
            save, received = self._agreed(signals)
            due = self._validations_due()
            if due > progress.validations:
                self._validate(due)
                received = self._agreed(signals)[1]
            elif save or received:
                self._save_resume()
            if received:
                raise Interrupted(received, self.run.path, progress.update)
            if self._ended():
                return
        progress.epoch, progress.batch = progress.epoch + 1, 0

    def _agreed(self, signals: StopSignals) -> tuple[bool, int]:
        """Whether to save now, and the signal to stop at or 0: of the first process, and so is the time."""
        received, save = signals.received or 0, time.monotonic() >= self._next_save
        seconds, save_now, stop = self.processes.from_main([self.progress.seconds, float(save), received])
        self.progress.seconds = seconds
        return bool(save_now), int(stop)

    def _update(self, plan: Sequence[Tensor]) -> None:
        """One step of the optimiser, on the batches of these pairs."""
        progress = self.progress
        batches = [self.data.train.batch(rows, epoch=progress.epoch).to(self.device) for rows in plan]
        try:
            found = self.updater.update(batches, progress.update, self._share_done())
        except Diverged as error:
            first, rows = progress.batch, torch.cat(list(plan))
            if error.batch is not None:
                first, rows = first + error.batch, plan[error.batch]
            raise self._diverged(
                f"{error.what} (epoch {progress.epoch + 1}, batch {first + 1} of {len(self._plan)}: "
                f"{self.data.name_pairs(rows.tolist())})"
            ) from None
        self._meter.add(found.cross_entropy, found.tokens)
        progress.update += 1
        progress.batch += len(plan)

    def _diverged(self, what: str) -> TrainingError:
        cure = "train again with a lower training.learning_rate"
        if self.run.can_resume():
            cure = "go on from the last save with --resume and a lower training.learning_rate"
        return TrainingError(f"{what}; {cure}")

    def _ended(self) -> bool:
        return self._share_done() >= 1.0 or self._out_of_patience()

    def _out_of_patience(self) -> bool:
        patience = self.config.patience
        return patience is not None and self.progress.waited >= patience

    def _share_done(self) -> float:
        """How much of the training is done, in 0..1, by the limit that is nearest."""
        config, progress = self.config, self.progress
        shares = [0.0]
        if config.max_updates is not None:
            shares.append(progress.update / config.max_updates)
        if config.max_epochs is not None:
            shares.append((progress.epoch + progress.batch / len(self._plan)) / config.max_epochs)
        if config.max_minutes is not None:
            shares.append(progress.seconds / (60.0 * config.max_minutes))
        return min(1.0, max(shares))

    def _validations_due(self) -> int:
        """How many validations belong to the part of the training that is done."""
        return int(self._share_done() * self.config.validations + 1e-9)  # 29 / 50 * 50 is a little below 29

    def _tell(self, done: float) -> None:
        """Report and log an update where it is time to."""
        progress, meter = self.progress, self._meter
        now = time.monotonic()
        if now >= self._next_report:
            self._next_report = now + REPORT_EVERY
            self.reporter.update(
                number=progress.update,
                done=done,
                loss=meter.loss,
                tokens_per_second=meter.speed,
                seconds_left=progress.seconds * (1.0 - done) / done if done else math.inf,
            )
        if progress.update % LOG_EVERY == 0:
            self._log(
                update=progress.update,
                epoch=progress.epoch,
                loss=round(meter.loss, 4),
                learning_rate=self.updater.rate,
                tokens_per_second=round(meter.speed),
                seconds=round(progress.seconds, 1),
            )
            meter.reset()

    def _log(self, **entry: Any) -> None:
        if self.processes.main:
            self.run.log(**entry)
        if self._board is not None:
            self._board.add(entry)

    def _validate(self, number: int) -> None:
        """Judge the model on the validation pairs and save it, as `best` too if it is.

        If parameters are averaged, their mean is judged as well, and is `best` if it is the better one.
        """
        started, progress = time.monotonic(), self.progress
        own = better = self._judge()
        entry = {"validation_loss": round(own.loss, 4), "validation_bleu": round(own.bleu, 2)}
        if self.updater.average is not None:
            with self.updater.average.shown():
                mean = replace(self._judge(), averaged=True)
            entry |= {"average_loss": round(mean.loss, 4), "average_bleu": round(mean.bleu, 2)}
            better = mean if mean.is_better_than(own) else own
        best = progress.best is None or better.is_better_than(progress.best)
        progress.validations, progress.latest = number, own
        progress.best = better if best else progress.best
        progress.waited = 0 if best else progress.waited + 1
        progress.seconds += time.monotonic() - started
        self._log(update=own.update, **entry, best=best, seconds=round(progress.seconds, 1))
        self._save_resume()
        if self.processes.main:
            self._save_models()
        self.reporter.validation(
            number=own.update, loss=better.loss, bleu=better.bleu, best=best, averaged=better.averaged
        )
        self._meter.reset()

    def _judge(self) -> Validation:
        """How good the model is as it stands."""
        self.model.eval()
        found = (0.0, 0.0)
        if self.processes.main:
            found = judge(self._model_folder(None), self.data, self.recipe, self.device)
        score, loss = self.processes.from_main(found)
        if not math.isfinite(loss):
            raise self._diverged(f"the validation loss after update {self.progress.update} is {loss}")
        return Validation(self.progress.update, loss, score)

    def _model_folder(self, validation: Validation | None) -> ModelFolder:
        training: dict[str, Any] = {
            "headlights": __version__,
            "torch": torch.__version__,
            "seed": self.config.seed,
            "update": self.progress.update,
            "seconds": round(self.progress.seconds, 1),
        }
        if self.config.start:
            training["start"] = self.config.start
        if validation is not None:
            training["validation_bleu"] = round(validation.bleu, 2)
            training["validation_loss"] = round(validation.loss, 4)
            if validation.averaged:
                training["averaged_updates"] = self.config.average
        return ModelFolder(self.model, self.data.source_tokenizer, self.data.target_tokenizer, training)

    def _save_resume(self) -> None:
        if not self.processes.main:
            return
        started = time.monotonic()
        self.run.save_resume(self._model_folder(None), self.updater.optimizer, self.progress)
        self._schedule_save(took=time.monotonic() - started)

    def _schedule_save(self, took: float) -> None:
        self._next_save = time.monotonic() + max(SAVE_EVERY, took / SAVE_SHARE)

    def _save_models(self) -> None:
        """Make `best` and `last` what the saved state says they are, where they are not yet.

        A program killed between the saves leaves them behind `resume`; this is how they catch up.
        """
        progress = self.progress
        for validation, folder in ((progress.best, self.run.best), (progress.latest, self.run.last)):
            if validation is None or validation.update != progress.update:
                continue
            if self.run.update_of(folder) != progress.update:
                average = self.updater.average if validation.averaged else None
                with nullcontext() if average is None else average.shown():
                    self._model_folder(validation).save(folder)
