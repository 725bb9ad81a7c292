"""The proposers: one file a method. `load_proposer` finds one by name; nothing heavy loads before.

To add a method to the menu, write its file and one line in ``METHODS``. A method of your own needs
neither: hand `generate` an object with a `propose`, or `load_proposer` the dotted path of a class.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specdec_lab.decoding.target import Target
    from specdec_lab.proposers.base import Proposer

METHODS = {  # method -> module : class
    "ngram": "specdec_lab.proposers.ngram:NGram",
    "suffix": "specdec_lab.proposers.suffix:Suffix",
    "draft_model": "specdec_lab.proposers.draft_model:DraftModel",
    "draft_tree": "specdec_lab.proposers.draft_tree:DraftTree",
    "pard": "specdec_lab.proposers.pard:PARD",
    "mlp_speculator": "specdec_lab.proposers.mlp_speculator:MLPSpeculator",
    "mtp": "specdec_lab.proposers.mtp:MTP",
    "eagle": "specdec_lab.proposers.eagle:Eagle",
}
VARIANTS = {  # a method under the name of one of its forms
    "eagle_1": ("eagle", {"version": 1}),
    "eagle_2": ("eagle", {"version": 2}),
    "eagle_3": ("eagle", {"version": 3}),
    "eagle3": ("eagle", {"version": 3}),
}
OTHER_WORDS = {  # what other programs and papers say
    "prompt_lookup": "ngram",
    "lookup": "ngram",
    "draft": "draft_model",
    "assistant": "draft_model",
    "parallel_drafting": "pard",
    "suffix_decoding": "suffix",
    "deepseek_mtp": "mtp",
    "multi_token_prediction": "mtp",
    "mlp": "mlp_speculator",
    "speculator": "mlp_speculator",
    "plain": "none",
    "off": "none",
}
VLLM_OPTIONS = {
    "prompt_lookup_min": "min_n",
    "prompt_lookup_max": "max_n",
    "suffix_decoding_max_tree_depth": "max_depth",
    "suffix_decoding_max_spec_factor": "factor",
    "suffix_decoding_max_spec_offset": "offset",
    "suffix_decoding_min_token_prob": "min_token_prob",
    "suffix_decoding_max_cached_requests": "max_requests",
    "draft_sample_method": "drafting",
}


def load_proposer(
    config: str | Mapping[str, object] | None,
    target: Target | Callable[[], Target] | None = None,
) -> Proposer | None:
    """The proposer that ``config`` describes; None (plain decoding) for the method "none".

    ``config`` is a method's name or a mapping such as ``{"method": "ngram", "max_n": 4}``: the
    method and its options, vLLM's option names included. ``num_speculative_tokens`` sets how many
    tokens are drafted when `generate` is given no k. A dotted path, "package.module.Class", makes
    that class with the options as keyword arguments; it needs a `propose` and nothing else.
    ``target``, or a function that loads it, is asked for only where the class has an argument of
    that name. Raises ValueError for an unknown method or option, with the right word.
    """
    method, options = _read(config)
    if method == "none":
        return None
    default_k = options.pop("num_speculative_tokens", None)
    make = _plug_in(method) if "." in method else _built_in(method)
    _check_options(method, make, options)
    proposer = make(**options, **_wanted_target(method, make, target))
    if not callable(getattr(proposer, "propose", None)):
        raise ValueError(f"{method} is no proposer: it needs a method propose(context, k, ...)")
    if default_k is not None:
        from specdec_lab.decoding.request import whole_number

        proposer.default_k = whole_number("num_speculative_tokens", default_k, least=0)
    return proposer


def _read(config: str | Mapping[str, object] | None) -> tuple[str, dict[str, object]]:
    """The method and its options, those of the menu under our names."""
    if config is None or isinstance(config, str):
        return _our_method(config or "none", {})
    if not isinstance(config, Mapping):
        raise ValueError(f'a proposer is a name or {{"method": name, ...}}, not {config!r}')
    options = dict(config)
    word = "model" if config.get("method") == "custom_class" else "method"  # vLLM's plug-ins
    options.pop("method", None)
    method = config.get(word)
    if not isinstance(method, str) or not method:
        raise ValueError(f'the config needs a "{word}", not {method!r}; use {_menu()}')
    if word == "model":
        del options["model"]
    return (method, options) if "." in method else _our_method(method, _our_names(options))


def _our_method(word: str, options: dict[str, object]) -> tuple[str, dict[str, object]]:
    """The method that ``word`` is, or is a form of, with the options that make that form."""
    method, form = VARIANTS.get(word, (word, {}))
    for name in form.keys() & options.keys():
        raise ValueError(f"{word} says its {name} already; leave out that option")
    return _parallel(method, options | form)


def _parallel(method: str, options: dict[str, object]) -> tuple[str, dict[str, object]]:
    """vLLM's word for PARD: its draft model with ``parallel_drafting``."""
    if method != "draft_model" or "parallel_drafting" not in options:
        return method, options
    named = {"model": "weights"} if options.pop("parallel_drafting") else {}
    return "pard" if named else method, {named.get(n, n): v for n, v in options.items()}


def _our_names(options: Mapping[str, object]) -> dict[str, object]:
    """``options`` with vLLM's words turned into ours."""
    for theirs, ours in VLLM_OPTIONS.items():
        if theirs in options and ours in options:
            raise ValueError(f"{theirs} and {ours} are the same option; give one of them")
    return {VLLM_OPTIONS.get(name, name): value for name, value in options.items()}


def _built_in(method: str) -> Callable[..., Proposer]:
    """The class of a method of the menu, imported now."""
    if method not in METHODS:
        raise ValueError(_unknown(method))
    module, name = METHODS[method].split(":")
    return getattr(importlib.import_module(module), name)


def _plug_in(path: str) -> Callable[..., Proposer]:
    """What the dotted ``path`` names, imported now."""
    module, _, name = path.rpartition(".")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(
            f"no proposer at {path!r} ({error}); give the path of a class, package.module.Class"
        ) from error


def _check_options(
    method: str, make: Callable[..., Proposer], options: Mapping[str, object]
) -> None:
    """ValueError naming the valid options unless ``options`` are good arguments of ``make``."""
    if not callable(make):
        raise ValueError(f"{method} is no class; give the path of one, package.module.Class")
    signature = inspect.signature(make)
    names = dict.fromkeys((*signature.parameters, "num_speculative_tokens"))
    besides = {"target": None} if "target" in names else {}  # no option: the caller's own argument
    try:
        signature.bind(**options, **besides)
    except TypeError as error:
        words = ", ".join(name for name in names if name not in besides)
        raise ValueError(f"{method} {error}; its options are {words}") from None


def _wanted_target(
    method: str, make: Callable[..., Proposer], target: Target | Callable[[], Target] | None
) -> dict[str, Target]:
    """The target as an argument of ``make``, where it has one of that name."""
    wanted = inspect.signature(make).parameters.get("target")
    if wanted is None or (target is None and wanted.default is not inspect.Parameter.empty):
        return {}
    if target is None:
        raise ValueError(f"{method} needs the target too; call load_proposer(config, target)")
    return {"target": target() if callable(target) else target}


def _unknown(method: str) -> str:
    """One sentence: the right word for ``method``, and what this version has."""
    plain = method.lower().replace("-", "_")
    words = ("none", *METHODS, *VARIANTS, *OTHER_WORDS)
    near = difflib.get_close_matches(plain, words, n=1, cutoff=0.7)
    word = OTHER_WORDS.get(near[0], near[0]) if near else method
    hint = f", did you mean {word!r}" if near else ""
    return f"there is no method {method!r}{hint}; use {_menu()}"


def _menu() -> str:
    """The methods of this version, in words."""
    return f"{', '.join(METHODS)}, none or the dotted path of a class"
