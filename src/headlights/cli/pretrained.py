"""Hugging Face models from local folders: nothing is fetched, unpickled or run but transformers' own code."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headlights.cli.common import UsageError
from headlights.cli.memory import is_out_of_memory


def is_pretrained(folder: Path) -> bool:
    """Tell whether a folder holds a Hugging Face model rather than one of ours.

    Args:
        folder: Any path.

    Returns:
        Whether its config.json names a kind of model.
    """
    try:
        config = json.loads((folder / "config.json").read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(config, dict) and isinstance(config.get("model_type"), str) and "format" not in config


def load_pretrained(folder: Path, device: str | None) -> tuple[Any, Any]:
    """Load a model, in evaluation mode, and its tokenizer.

    Args:
        folder: config.json, weights as safetensors, and a tokenizer.
        device: Where to compute; None: a GPU if there is one.

    Returns:
        The model, one for sequences to sequences if it has a decoder beside an encoder, and the tokenizer.

    Raises:
        UsageError: Something is missing, broken or of a kind that is refused; one line says what.
        ImportError: transformers is not installed.
    """
    import torch

    _check_weights(folder)
    transformers = _load_transformers()
    local = {"local_files_only": True, "trust_remote_code": False}
    with explained(folder, "transformers cannot load it"):
        config = transformers.AutoConfig.from_pretrained(folder, **local)
        kind = transformers.AutoModelForSeq2SeqLM if config.is_encoder_decoder else transformers.AutoModel
        model, found = kind.from_pretrained(
            folder, config=config, use_safetensors=True, output_loading_info=True, **local
        )
    if model.main_input_name != "input_ids":
        raise UsageError(f"{folder}: a {config.model_type} model takes {model.main_input_name}, not text")
    missing = sorted(key for key in found["missing_keys"] if not key.startswith("pooler."))
    if missing:
        raise UsageError(
            f"{folder}: {len(missing)} tensors are missing, such as {missing[0]}, and would be random; "
            "expected the weights of the whole model"
        )
    with explained(folder, "transformers cannot load its tokenizer"):
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **local)
    if len(tokenizer) <= len(tokenizer.all_special_ids):  # transformers makes up an empty one
        raise UsageError(f"{folder} holds no tokenizer, such as tokenizer.json; copy the folder again")
    return model.eval().to(device or ("cuda" if torch.cuda.is_available() else "cpu")), tokenizer


@contextmanager
def explained(folder: Path, trouble: str) -> Iterator[None]:
    """Turn what transformers raises, or what is raised for what it gives, into one line.

    Args:
        folder: The model's.
        trouble: What could not be done.

    Yields:
        Nothing.

    Raises:
        UsageError: The block raised; the message ends with the first line of its reason. Want of
            memory is left to who knows what to lower.
    """
    try:
        yield
    except UsageError:
        raise
    except (
        Exception
    ) as error:  # tokenizers and safetensors have no kinds of their own between this and theirs
        if is_out_of_memory(error):
            raise
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise UsageError(f"{folder}: {trouble}: {reason}") from None


@contextmanager
def quiet() -> Iterator[None]:
    """Keep transformers' reports and bars off standard error; afterwards all is as it was."""
    logging = _load_transformers().utils.logging
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def _check_weights(folder: Path) -> None:
    if any((folder / f"model.safetensors{end}").exists() for end in ("", ".index.json")):
        return
    pickles = sorted(path.name for path in folder.glob("*.bin"))
    if not pickles:
        raise UsageError(f"{folder} holds no weights: model.safetensors is missing; copy the folder again")
    raise UsageError(
        f"{folder}: {pickles[0]} is a pickle, which may run anything when opened, so it is not opened; if "
        f"you trust it, convert it in Python: transformers.AutoModel.from_pretrained({str(folder)!r})"
        f".save_pretrained({str(folder)!r})"
    )


def _load_transformers() -> Any:
    os.environ["HF_HUB_OFFLINE"] = "1"  # read when the library is imported
    try:
        import transformers
    except ImportError as error:
        raise ImportError(
            "viewing a Hugging Face model needs transformers: pip install 'headlights[hf]'"
        ) from error
    return transformers
