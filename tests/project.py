"""Where the project lies, and its scripts as modules."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent


def load_ci(name: str) -> ModuleType:
    """The script .ci/<name>.py as a module; .ci is a folder of scripts and no package."""
    key = f"specdec_ci_{name}"
    if key not in sys.modules:
        spec = importlib.util.spec_from_file_location(key, ROOT / ".ci" / f"{name}.py")
        sys.modules[key] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[key]
