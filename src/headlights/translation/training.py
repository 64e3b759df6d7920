"""Training: from a recipe to a translator, in a loop that can be watched, stopped and continued."""

import math
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

from headlights._errors import InputError
from headlights._version import __version__
from headlights.translation.batches import Batch
from headlights.translation.corpus import CorpusError
from headlights.translation.data import TrainingData, load_data
from headlights.translation.evaluation import bleu
from headlights.translation.folders import FolderError, ModelFolder
from headlights.translation.model import TranslationModel
from headlights.translation.progress import Meter, Reporter, StopSignals, default_reporter
from headlights.translation.recipe import Recipe, TrainingConfig, check_recipe, load_recipe
from headlights.translation.runs import Progress, RunFolder, Validation
from headlights.translation.tokenizer import Tokenizer
from headlights.translation.translator import Translator

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

    Args:
        signal: Its number.
        run: The run folder.
        update: Updates done.
    """

    def __init__(self, signal: int, run: Path, update: int) -> None:
        super().__init__(f"stopped at update {update}, saved in {run}")
        self.signal, self.run, self.update = signal, run, update


def train(
    recipe: Recipe | str | Path | dict[str, Any],
    *,
    out: str | Path = "headlights-run",
    resume: bool = False,
    device: str | torch.device | None = None,
    reporter: Reporter | None = None,
) -> Translator:
    """Train a translator.

    Args:
        recipe: A recipe, its content, a TOML file, or the name of a recipe that comes with the package.
        out: The run folder to make. It must not hold a run already, unless `resume`.
        resume: Continue the run in `out` from where it was last saved; limits count the whole run. The model,
            the data and their order must be those of the run; files may have moved, limits and rates may
            change.
        device: Where to compute; default: a GPU where there is one, else the CPU.
        reporter: Told of progress. Default: a bar on a terminal, lines elsewhere, on standard error.

    Returns:
        The best translator by validation BLEU, as saved in `out`/best.

    Raises:
        RecipeError: A key or value of the recipe is wrong.
        CorpusError: The data cannot be read.
        FolderError: `out` cannot be written to or continued.
        TrainingError: The loss is not a number any more.
        Interrupted: A signal ended the training; it was saved.
    """
    if isinstance(recipe, dict):
        recipe = check_recipe(recipe, "recipe")
    elif not isinstance(recipe, Recipe):
        recipe = load_recipe(recipe)
    run = RunFolder(Path(out))
    if resume:
        run.check_continues(recipe)
    else:
        run.check_free()
    saved = resume and run.can_resume()
    torch.manual_seed(recipe.training.seed)
    data = _load(recipe, run.resume_tokenizers() if saved else None)
    trainer = Trainer(recipe, data, run, device=device, reporter=reporter or default_reporter())
    if saved:
        trainer.restore()
        run.write_recipe(recipe)
    else:
        run.create(recipe)
    trainer.run_to_the_end()
    return Translator.load(run.best, device=device)


def _load(recipe: Recipe, tokenizers: tuple[Tokenizer, Tokenizer] | None) -> TrainingData:
    """The data of a recipe; whatever data is refused for comes from outside, and is told so."""
    try:
        return load_data(recipe, tokenizers=tokenizers)
    except (CorpusError, InputError):
        raise
    except ValueError as error:
        raise CorpusError(str(error)) from error


def learning_rate(config: TrainingConfig, update: int, done: float) -> float:
    """The rate of one update: linear warm-up, then down along the schedule.

    Source: Vaswani et al. 2017, arXiv:1706.03762, eq. 3, is schedule "inverse-sqrt" with the highest rate
    (E * `warmup_updates`) ** -0.5.

    Args:
        config: Schedule, highest and final rate, warm-up.
        update: Number of the update, from 0.
        done: Share of the training that is done, in 0..1; read by "cosine" alone.

    Returns:
        The learning rate.
    """
    warm = min(1.0, (update + 1) / config.warmup_updates) if config.warmup_updates else 1.0
    match config.schedule:
        case "cosine":
            cosine = 0.5 * (1.0 + math.cos(math.pi * min(done, 1.0)))
            return config.learning_rate * warm * (config.final_rate + (1.0 - config.final_rate) * cosine)
        case "inverse-sqrt":
            fall = math.sqrt(max(1, config.warmup_updates) / (update + 1))
            return config.learning_rate * min(warm, max(config.final_rate, fall))


class Trainer:
    """The training loop over one run folder.

    Args:
        recipe: What to train and for how long.
        data: Its data.
        run: Where to save.
        device: Where to compute; default: a GPU where there is one, else the CPU.
        reporter: Told of progress.
    """

    def __init__(
        self,
        recipe: Recipe,
        data: TrainingData,
        run: RunFolder,
        *,
        device: str | torch.device | None,
        reporter: Reporter,
    ) -> None:
        self.config, self.data, self.run, self.reporter = recipe.training, data, run, reporter
        self.forcing = recipe.forcing
        self.lowercase = recipe.tokenizer.lowercase
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        source, target = data.source_tokenizer, data.target_tokenizer
        model = TranslationModel(recipe.model, source.vocab_size, target.vocab_size, pad_id=target.pad_id)
        self.model = model.to(self.device)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(),
            lr=0.0,
            betas=(0.9, 0.98),
            weight_decay=self.config.weight_decay,
            fused=True,
        )
        self.progress = Progress(pairs=len(data.train))
        self._plan = data.train.plan(0)
        self._meter = Meter()
        self._next_report = self._next_save = 0.0

    def restore(self) -> None:
        """Take up the run from what its folder holds.

        Raises:
            FolderError: A file is missing or broken, or the training data has changed.
        """
        pairs, self.progress = self.progress.pairs, self.run.load_resume(self.model, self.optimizer)
        progress = self.progress
        if pairs != progress.pairs:
            raise FolderError(
                f"{self.run.path} was training on {progress.pairs} pairs but the data now has {pairs}; "
                "put the files back as they were, or train into a new folder"
            )
        self._plan = self.data.train.plan(progress.epoch)
        # With a later end than before, the validations that are still to come are those after this point.
        progress.validations = min(progress.validations, int(self._share_done() * self.config.validations))
        self.run.settle(progress.update)
        self._save_models()
        self.reporter.note(f"going on at update {progress.update}")

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
        self._meter.reset()
        self._schedule_save(took=0.0)
        try:
            with StopSignals() as signals:
                while self._share_done() < 1.0:
                    self._epoch(signals)
                if progress.latest is None or progress.latest.update != progress.update:
                    self._validate(self.config.validations)
        finally:
            self.reporter.finish()

    def _description(self) -> str:
        """What is trained on what, in a line."""
        data, parameters = self.data, sum(each.numel() for each in self.model.parameters())
        source, target = data.source_tokenizer.vocab_size, data.target_tokenizer.vocab_size
        return (
            f"{len(data.train):,} training and {len(data.valid):,} validation pairs, {source:,} source and "
            f"{target:,} target tokens, {parameters:,} parameters, on {self.device}"
        )

    def _epoch(self, signals: StopSignals) -> None:
        """Train to the end of the epoch, or to the end of the training if that comes first."""
        progress = self.progress
        self._plan = self.data.train.plan(progress.epoch)
        for rows in self._plan[progress.batch :]:
            started = time.monotonic()
            self._update(self.data.train.batch(rows).to(self.device))
            progress.update += 1
            progress.batch += 1
            progress.seconds += time.monotonic() - started
            done = self._share_done()
            self._tell(done)
            due = int(done * self.config.validations)
            if due > progress.validations:
                self._validate(due)
            elif signals.received is not None or time.monotonic() >= self._next_save:
                self._save_resume()
            if signals.received is not None:
                raise Interrupted(signals.received, self.run.path, progress.update)
            if done >= 1.0:
                return
        progress.epoch, progress.batch = progress.epoch + 1, 0

    def _update(self, batch: Batch) -> None:
        """One step of the optimiser."""
        self.model.train()
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.config, self.progress.update, self._share_done())
        loss = self.model.loss(
            batch,
            label_smoothing=self.config.label_smoothing,
            coverage=self.config.coverage,
            forcing=self.forcing.draw(batch.target_in, self.progress.update, seed=self.config.seed),
        )
        torch.autograd.backward(loss.smoothed / loss.tokens)
        nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip)
        self.optimizer.step()
        self.optimizer.zero_grad()
        cross_entropy = float(loss.cross_entropy)
        self._meter.add(cross_entropy, loss.tokens)
        if not math.isfinite(cross_entropy):
            raise self._diverged(
                f"the loss of update {self.progress.update + 1} is {cross_entropy} (training pairs "
                f"{sorted(batch.indices.tolist())[:5]} and others)"
            )

    def _diverged(self, what: str) -> TrainingError:
        cure = "train again with a lower training.learning_rate"
        if self.run.can_resume():
            cure = "go on from the last save with --resume and a lower training.learning_rate"
        return TrainingError(f"{what}; {cure}")

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
            self.run.log(
                update=progress.update,
                epoch=progress.epoch,
                loss=round(meter.loss, 4),
                learning_rate=self.optimizer.param_groups[0]["lr"],
                tokens_per_second=round(meter.speed),
                seconds=round(progress.seconds, 1),
            )
            meter.reset()

    def _validate(self, number: int) -> None:
        """Judge the model on the validation pairs and save it, as `best` too if it is."""
        started, progress = time.monotonic(), self.progress
        self.model.eval()
        translator = Translator(self._model_folder(None), device=self.device)
        pairs = self.data.valid
        texts = translator.translate([pair.source for pair in pairs], beam=1)
        score = bleu([text.text for text in texts], [pair.target for pair in pairs], lowercase=self.lowercase)
        found = Validation(progress.update, self._validation_loss(), score)
        if not math.isfinite(found.loss):
            raise self._diverged(f"the validation loss after update {progress.update} is {found.loss}")
        best = progress.best is None or found.is_better_than(progress.best)
        progress.validations, progress.latest = number, found
        progress.best = found if best else progress.best
        progress.seconds += time.monotonic() - started
        self.run.log(
            update=found.update,
            validation_loss=round(found.loss, 4),
            validation_bleu=round(found.bleu, 2),
            best=best,
            seconds=round(progress.seconds, 1),
        )
        self._save_resume()
        self._save_models()
        self.reporter.validation(number=found.update, loss=found.loss, bleu=found.bleu, best=best)
        self._meter.reset()

    @torch.no_grad()
    def _validation_loss(self) -> float:
        """Cross-entropy per token of the validation pairs, in nats."""
        total, tokens = 0.0, 0
        for batch in self.data.batches(self.data.valid, self.config.batch_tokens).ordered():
            loss = self.model.loss(batch.to(self.device))
            total, tokens = total + float(loss.cross_entropy), tokens + loss.tokens
        return total / tokens

    def _model_folder(self, validation: Validation | None) -> ModelFolder:
        training: dict[str, Any] = {
            "headlights": __version__,
            "torch": torch.__version__,
            "seed": self.config.seed,
            "update": self.progress.update,
            "seconds": round(self.progress.seconds, 1),
        }
        if validation is not None:
            training["validation_bleu"] = round(validation.bleu, 2)
            training["validation_loss"] = round(validation.loss, 4)
        return ModelFolder(self.model, self.data.source_tokenizer, self.data.target_tokenizer, training)

    def _save_resume(self) -> None:
        started = time.monotonic()
        self.run.save_resume(self._model_folder(None), self.optimizer, self.progress)
        self._schedule_save(took=time.monotonic() - started)

    def _schedule_save(self, took: float) -> None:
        self._next_save = time.monotonic() + max(SAVE_EVERY, took / SAVE_SHARE)

    def _save_models(self) -> None:
        """Make `best` and `last` what the saved state says they are, where they are not yet.

        A program killed between the saves leaves them behind `resume`; this is how they catch up.
        """
        progress = self.progress
        for validation, folder in ((progress.best, self.run.best), (progress.latest, self.run.last)):
            is_now = validation is not None and validation.update == progress.update
            if is_now and self.run.update_of(folder) != progress.update:
                self._model_folder(validation).save(folder)
