"""`headlights info`: what is installed and what it can use."""

import importlib.metadata
import platform

from headlights._version import __version__

PACKAGES = ("tokenizers", "safetensors", "sacrebleu", "pydantic", "numpy", "matplotlib", "transformers")


def command() -> None:
    """Print versions and devices, for bug reports."""
    import torch

    print(f"headlights {__version__}, Python {platform.python_version()}, {platform.platform()}")
    capability = torch.backends.cpu.get_cpu_capability()
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {capability}")
    gpus = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    print(f"GPUs: {', '.join(gpus) if gpus else 'none'}")
    for package in PACKAGES:
        try:
            print(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            print(f"{package} not installed")
