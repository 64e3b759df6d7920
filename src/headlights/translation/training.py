"""Training: from a recipe to a translator, in a loop that can be watched, stopped and continued."""

import math
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from headlights._version import __version__
from headlights.translation.batches import Batch
from headlights.translation.data import TrainingData, load_data
from headlights.translation.evaluation import bleu
from headlights.translation.folders import FolderError, ModelFolder
from headlights.translation.model import TranslationModel
from headlights.translation.progress import Reporter, StopSignals, default_reporter
from headlights.translation.recipe import Recipe, TrainingConfig, check_recipe, load_recipe
from headlights.translation.runs import Progress, RunFolder
from headlights.translation.translator import Translator

LOG_EVERY = 50  # updates


class TrainingError(RuntimeError):
    """Training cannot go on; the message is one line that says why and what to do."""


class Interrupted(Exception):  # noqa: N818 - like KeyboardInterrupt, it is not an error
    """A signal stopped the training after it was saved.

    Attributes:
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
        resume: Continue the run in `out` from where it was last saved; limits count the whole run.
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
    if resume and not run.can_resume():
        raise FolderError(
            f"{out} holds no saved training to continue; train into a new folder without resume"
        )
    torch.manual_seed(recipe.training.seed)
    data = load_data(recipe, tokenizers=run.resume_tokenizers() if resume else None)
    trainer = Trainer(recipe, data, run, device=device, reporter=reporter or default_reporter())
    if resume:
        trainer.progress = run.load_resume(trainer.model, trainer.optimizer)
    else:
        run.create(recipe)
    trainer.run_to_the_end()
    return Translator.load(run.best, device=device)


def learning_rate(config: TrainingConfig, update: int, done: float) -> float:
    """The rate of one update: linear warm-up, then half a cosine down to its final share.

    Args:
        config: Highest and final rate, warm-up.
        update: Number of the update, from 0.
        done: Share of the training that is done, in 0..1.

    Returns:
        The learning rate.
    """
    warm = min(1.0, (update + 1) / config.warmup_updates) if config.warmup_updates else 1.0
    cosine = 0.5 * (1.0 + math.cos(math.pi * min(done, 1.0)))
    return config.learning_rate * warm * (config.final_rate + (1.0 - config.final_rate) * cosine)


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
        self.progress = Progress()
        self._epoch_batches = 1
        self._meter = _Meter()

    def run_to_the_end(self) -> None:
        """Train until a limit of the recipe is reached; saves at every validation and when asked to stop.

        Raises:
            TrainingError: The loss is not a number any more.
            Interrupted: A signal asked to stop; everything is saved.
        """
        for note in self.data.notes:
            self.reporter.note(note)
        if self._share_done() >= 1.0:
            self.reporter.note(
                f"nothing to do: the run has reached its limit at update {self.progress.update}"
            )
        try:
            with StopSignals() as signals:
                while self._share_done() < 1.0:
                    self._epoch(signals)
        finally:
            self.reporter.finish()

    def _epoch(self, signals: StopSignals) -> None:
        """Train to the end of the epoch, or to the end of the training if that comes first."""
        progress = self.progress
        self._epoch_batches = len(self.data.train.plan(progress.epoch))
        for batch in self.data.train.batches(progress.epoch, start=progress.batch):
            started = time.monotonic()
            self._update(batch.to(self.device))
            progress.update += 1
            progress.batch += 1
            progress.seconds += time.monotonic() - started
            done = self._share_done()
            if progress.update % LOG_EVERY == 0:
                self._log(done)
            if done * self.config.validations >= progress.validations + 1:
                self._validate(int(done * self.config.validations))
            if signals.received is not None:
                self._save_resume()
                raise Interrupted(signals.received, self.run.path, progress.update)
            if done >= 1.0:
                return
        progress.epoch, progress.batch = progress.epoch + 1, 0
        if self._share_done() >= 1.0 and progress.validations < self.config.validations:
            self._validate(self.config.validations)

    def _update(self, batch: Batch) -> None:
        """One step of the optimiser."""
        self.model.train()
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.config, self.progress.update, self._share_done())
        loss = self.model.loss(
            batch, label_smoothing=self.config.label_smoothing, coverage=self.config.coverage
        )
        torch.autograd.backward(loss.smoothed / loss.tokens)
        nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self._meter.add(float(loss.cross_entropy), loss.tokens)
        if not math.isfinite(self._meter.loss):
            raise TrainingError(
                f"the loss of update {self.progress.update + 1} is {float(loss.cross_entropy)} (training "
                f"pairs {sorted(batch.indices.tolist())[:5]} and others); lower training.learning_rate"
            )

    def _share_done(self) -> float:
        """How much of the training is done, in 0..1, by the limit that is nearest."""
        config, progress = self.config, self.progress
        shares = [0.0]
        if config.max_updates is not None:
            shares.append(progress.update / config.max_updates)
        if config.max_epochs is not None:
            within = progress.batch / self._epoch_batches if progress.batch else 0.0
            shares.append((progress.epoch + within) / config.max_epochs)
        if config.max_minutes is not None:
            shares.append(progress.seconds / (60.0 * config.max_minutes))
        return min(1.0, max(shares))

    def _log(self, done: float) -> None:
        loss, speed = self._meter.take()
        progress = self.progress
        left = progress.seconds * (1.0 - done) / done if done else math.inf
        self.reporter.update(
            number=progress.update, done=done, loss=loss, tokens_per_second=speed, seconds_left=left
        )
        self.run.log(
            update=progress.update,
            epoch=progress.epoch,
            loss=round(loss, 4),
            learning_rate=self.optimizer.param_groups[0]["lr"],
            tokens_per_second=round(speed),
            seconds=round(progress.seconds, 1),
        )

    def _validate(self, number: int) -> None:
        """Judge the model on the validation pairs and save it, as `best` too if it is."""
        started, progress = time.monotonic(), self.progress
        progress.validations = number
        self.model.eval()
        folder = self._model_folder()
        pairs = self.data.valid
        texts = Translator(folder, device=self.device).translate([pair.source for pair in pairs], beam=1)
        score = bleu([text.text for text in texts], [pair.target for pair in pairs], lowercase=self.lowercase)
        loss = self._validation_loss()
        best = progress.best_bleu is None or score > progress.best_bleu
        if best:
            progress.best_bleu, progress.best_update = score, progress.update
        progress.seconds += time.monotonic() - started
        folder = self._model_folder(validation_bleu=round(score, 2), validation_loss=round(loss, 4))
        if best:
            folder.save(self.run.best)
        folder.save(self.run.last)
        self._save_resume()
        self.reporter.validation(number=progress.update, loss=loss, bleu=score, best=best)
        self.run.log(
            update=progress.update,
            validation_loss=round(loss, 4),
            validation_bleu=round(score, 2),
            best=best,
            seconds=round(progress.seconds, 1),
        )
        self._meter.pause()

    @torch.no_grad()
    def _validation_loss(self) -> float:
        """Cross-entropy per token of the validation pairs, in nats."""
        total, tokens = 0.0, 0
        for batch in self.data.batches(self.data.valid, self.config.batch_tokens).ordered():
            loss = self.model.loss(batch.to(self.device))
            total, tokens = total + float(loss.cross_entropy), tokens + loss.tokens
        return total / tokens

    def _model_folder(self, **scores: float) -> ModelFolder:
        training = {
            "headlights": __version__,
            "torch": torch.__version__,
            "seed": self.config.seed,
            "update": self.progress.update,
            "seconds": round(self.progress.seconds, 1),
            **scores,
        }
        return ModelFolder(self.model, self.data.source_tokenizer, self.data.target_tokenizer, training)

    def _save_resume(self) -> None:
        self.run.save_resume(self._model_folder(), self.optimizer, self.progress)


@dataclass(slots=True)
class _Meter:
    """Loss and speed since they were last taken."""

    total: float = 0.0
    tokens: int = 0
    since: float = field(default_factory=time.monotonic)

    def add(self, loss: float, tokens: int) -> None:
        self.total += loss
        self.tokens += tokens

    @property
    def loss(self) -> float:
        """Nats per token."""
        return self.total / max(1, self.tokens)

    def take(self) -> tuple[float, float]:
        """Loss per token and tokens per second; starts anew."""
        loss, speed = self.loss, self.tokens / max(1e-9, time.monotonic() - self.since)
        self.pause()
        return loss, speed

    def pause(self) -> None:
        """Forget what was added, after work that is not training."""
        self.total, self.tokens, self.since = 0.0, 0, time.monotonic()
