"""The command line: ``python -m specdec_lab generate``, ``compare``, ``measure`` and others.

Each command is one function that declares its options and one that runs it; a new command is one
more pair in ``COMMANDS``. Bad input ends with one sentence on stderr and exit code 2.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specdec_lab.decoding.records import Step
    from specdec_lab.decoding.sampling import Sampling
    from specdec_lab.decoding.target import Target
    from specdec_lab.decoding.trace import Trace
    from specdec_lab.proposers.base import Proposer

PROGRAM = "python -m specdec_lab"
TRAINED = ("mlp_speculator", "draft_model", "pard", "mtp", "eagle_1", "eagle_3")  # by `train`
# A part of `measure`, and about how many minutes it takes.
MEASURED = {"cost": 1, "decode": 25, "acceptance": 6, "batch": 12, "peers": 12, "proposers": 3}
TABLE = (  # a metric of the trace, how it is printed, what it says
    ("num_tokens", "d", "tokens written"),
    ("num_forwards", "d", "forward passes of the model"),
    ("tau", ".2f", "tokens per forward pass; plain decoding has 1"),
    ("alpha", ".2f", "chance that a judged draft token is accepted"),
    ("draft_acceptance_rate", ".2f", "share of all draft tokens accepted"),
    ("draft_coverage", ".2f", "share of steps with a draft"),
    ("tokens_per_second", ".1f", "tokens per second"),
    ("ttft", ".3f", "seconds to the first token"),
    ("itl", ".4f", "seconds between tokens"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit code."""
    parser = _parser()
    args = parser.parse_args(argv)
    if args.command is None:
        parser.print_help()
        return 0
    try:
        args.run(args)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (ValueError, OSError) as error:
        print(f"{PROGRAM} {args.command}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one sentence, without the whole usage."""

    def error(self, message: str) -> None:
        self.exit(2, f"{self.prog}: {message}; --help lists the options\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog=PROGRAM,
        description="A laboratory of speculative decoding: a real model, faster, the same law.",
    )
    commands = parser.add_subparsers(dest="command", metavar="command")
    for name, (declare, run) in COMMANDS.items():
        command = commands.add_parser(name, help=run.__doc__, description=run.__doc__)
        declare(command)
        command.set_defaults(run=run)
    return parser


def _declare_fetch(parser: argparse.ArgumentParser) -> None:
    """It has no options."""


def _fetch(args: argparse.Namespace) -> None:
    """get the default model into the cache, and print its folder"""
    from specdec_lab.decoding.checkpoint import fetch

    print(fetch())


def _declare_generate(parser: argparse.ArgumentParser) -> None:
    _declare_prompt(parser.add_argument_group("prompt"))
    _declare_speculation(parser.add_argument_group("speculation"))
    _declare_sampling(parser.add_argument_group("sampling"))
    add = parser.add_argument
    add("--model", help="name or folder of the model; the default model if left out")
    add("--max-new-tokens", type=int, default=128, metavar="N", help="how long it may get (128)")
    add("--json", action="store_true", help="print one JSON object: text, token_ids, trace")


def _declare_prompt(group: argparse._ArgumentGroup) -> None:
    source = group.add_mutually_exclusive_group(required=True)
    source.add_argument("--prompt", metavar="TEXT", help="what to ask; - reads it from stdin")
    source.add_argument("--prompt-file", metavar="PATH", help="a file that holds the prompt")
    group.add_argument("--system", metavar="TEXT", help="a system message of your own")
    group.add_argument("--prefix", metavar="TEXT", default="", help="how the answer begins")


def _declare_speculation(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--method",
        default="ngram",
        help="how drafts are made: ngram (default), suffix, draft_model, draft_tree, "
        "mlp_speculator, pard, mtp, eagle, none, the dotted path of a class, "
        'or a JSON object with options, \'{"method": "ngram", "max_n": 4}\'',
    )
    add("--k", type=int, help="drafted tokens per step; the method's own number if left out")
    add("--verify", default="auto", metavar="RULE", help="auto (default), match, reject or block")


def _declare_sampling(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--temperature", type=float, default=0.0, metavar="T", help="0, the default, is greedy")
    add("--top-k", type=int, metavar="N", help="keep the N most probable tokens")
    add("--top-p", type=float, default=1.0, metavar="P", help="keep the smallest set of mass P")
    add("--min-p", type=float, default=0.0, metavar="P", help="keep tokens of P times the largest")
    add("--seed", type=int, help="the same seed gives the same text")


def _generate(args: argparse.Namespace) -> None:
    """let the model answer a prompt, and report how the drafts fared"""
    prompt, sampling = _read_prompt(args), _sampling(args)
    from specdec_lab.decoding.checkpoint import load_target
    from specdec_lab.decoding.decode import stream

    load = cache(lambda: load_target(args.model))
    proposer = _proposer(args.method, load)
    target = load()
    steps = stream(
        target,
        [target.encode_chat(prompt, prefix=args.prefix, system=args.system)],
        proposer,
        k=args.k,
        sampling=sampling,
        verify=args.verify,
        max_new_tokens=args.max_new_tokens,
        seed=args.seed,
    )
    (_print_json if args.json else _print_text)(target, steps)


def _read_prompt(args: argparse.Namespace) -> str:
    """The prompt from the option, from stdin or from a file."""
    text = args.prompt
    try:
        if args.prompt_file is not None:
            text = Path(args.prompt_file).read_text(encoding="utf-8")
        elif text == "-":
            text = sys.stdin.read()
    except UnicodeDecodeError as error:
        raise ValueError(f"the prompt is no UTF-8 text ({error}); convert it first") from error
    except OSError as error:
        raise OSError(f"{args.prompt_file} cannot be read ({error.strerror})") from error
    if not text.strip():
        raise ValueError("the prompt is empty; ask something")
    return text.rstrip("\n")


def _sampling(args: argparse.Namespace) -> Sampling:
    from specdec_lab.decoding.sampling import Sampling

    return Sampling(
        temperature=args.temperature, top_k=args.top_k, top_p=args.top_p, min_p=args.min_p
    )


def _proposer(method: str, target: Callable[[], Target]) -> Proposer | None:
    """The proposer of a name, a dotted path or a JSON object."""
    from specdec_lab.proposers import load_proposer

    return load_proposer(_config(method), target)


def _config(method: str) -> str | dict[str, object]:
    """A name or a dotted path as it is, a JSON object as what it says."""
    if not method.lstrip().startswith("{"):
        return method
    try:
        return json.loads(method)
    except json.JSONDecodeError as error:
        raise ValueError(f'--method is no JSON object ({error}); quote its words with "') from error


def _print_json(target: Target, steps: Iterator[Step]) -> None:
    """One JSON object on one line."""
    from specdec_lab.decoding.decode import collect

    generation = collect(1, steps)
    (token_ids,) = generation.tokens
    answer = {
        "text": target.decode(token_ids),
        "token_ids": token_ids,
        "finish_reason": generation.finish_reasons[0],
        "trace": generation.trace.summary(),
    }
    print(json.dumps(answer, allow_nan=False))


def _print_text(target: Target, steps: Iterator[Step]) -> None:
    """The text as it comes, then a table of the trace."""
    from specdec_lab.decoding.text import Detokenizer
    from specdec_lab.decoding.trace import Trace

    trace, text = Trace(), Detokenizer(target.tokenizer)
    for step in steps:
        trace.add(step)
        (row,) = step.rows
        print(text.push(row.tokens), end="", flush=True)
    print(text.finish(), _table(trace), sep="\n\n")


def _table(trace: Trace) -> str:
    """The metrics of ``TABLE`` that were counted, one a line."""
    lines = []
    for name, form, meaning in TABLE:
        value = getattr(trace, name)
        if value is not None:
            lines.append(f"{name:<22}{format(value, form):>8}  {meaning}")
    return "\n".join(lines)


def _declare_measure(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    minutes = ", ".join(f"{part} {number}" for part, number in MEASURED.items())
    add(
        "part",
        choices=(*MEASURED, "outside", "all"),
        nargs="?",
        default="all",
        help=f"all if left out; minutes on two cores: {minutes}; outside, never part of all, "
        "fetches and builds other libraries first",
    )
    add("--quick", action="store_true", help="a rough answer in a minute or two")
    _declare_device(parser)


def _declare_device(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--device", default="cpu", choices=("cpu", "cuda"), help="where to run (cpu)"
    )


def _measure(args: argparse.Namespace) -> None:
    """measure speed on this machine, and record it; an interrupted run goes on where it stopped"""
    from specdec_lab.study.measure import parts

    for part in MEASURED if args.part == "all" else (args.part,):
        path = parts.run(part, args.quick, args.device)
        print(f"recorded in {path}" if path else "not recorded", end="\n\n")


def _declare_compare(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--methods",
        nargs="+",
        default=[],
        metavar="METHOD",
        help="names, dotted paths or JSON objects as in generate; every method if left out",
    )
    add("--k", type=int, help="drafted tokens per step; each method's own number if left out")
    add("--temperature", type=float, default=0.0, metavar="T", help="0, the default, is greedy")
    work = parser.add_mutually_exclusive_group()
    work.add_argument("--domain", help="prompts of this domain; of every domain if left out")
    work.add_argument("--prompt", metavar="TEXT", help="a prompt of your own")
    add("--prompts", type=int, default=1, metavar="N", help="prompts of each domain (1)")
    add("--max-new-tokens", type=int, default=64, metavar="N", help="tokens for each prompt (64)")
    _declare_device(parser)


def _compare(args: argparse.Namespace) -> None:
    """all methods on the same prompts in three alternating rounds, in one table"""
    from specdec_lab.study.measure.compare import chosen_cells, chosen_prompts, compare

    prompts = chosen_prompts(args.prompt, args.domain, args.prompts)
    cells = chosen_cells(map(_config, args.methods), args.k, args.temperature)
    from specdec_lab.decoding.checkpoint import load_target

    print(compare(partial(load_target, device=args.device), cells, prompts, args.max_new_tokens))


def _declare_figures(parser: argparse.ArgumentParser) -> None:
    """It has no options."""


def _figures(args: argparse.Namespace) -> None:
    """draw every picture of the course again, from the recorded numbers"""
    from specdec_lab.study.figures import redraw_all

    redraw_all()


def _declare_train(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="action", required=True)
    corpus = actions.add_parser("corpus", help=_corpus.__doc__, description=_corpus.__doc__)
    corpus.set_defaults(run=_corpus)
    add = corpus.add_argument
    add("--tokens", type=int, default=100_000, metavar="N", help="usable tokens in all (100000)")
    add("--seed", type=int, default=0, help="fixes prompts and answers; 0 is the project's corpus")
    add("--rows", type=int, default=64, metavar="N", help="prompts answered together (64)")
    add("--max-new-tokens", type=int, default=192, metavar="N", help="longest answer (192)")
    add("--products", default="auto", metavar="KIND", help="auto (default), float32 or bfloat16")
    add("--keep-states", action="store_true", help="keep hidden states and laws for training too")
    add("--export", action="store_true", help="write so many of them to data/corpus instead")
    for name in TRAINED:
        method = actions.add_parser(
            name, help=_train_method.__doc__, description=_train_method.__doc__
        )
        method.set_defaults(run=_train_method)
        _declare_method(method)


def _declare_method(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--steps", type=int, default=2000, metavar="N", help="gradient steps in all (2000)")
    add("--learning-rate", type=float, metavar="R", help="the method's own if left out")
    add("--loss", default="kl", metavar="NAME", help="kl (default), cross_entropy or acceptance")
    add("--vocab-size", type=int, default=8192, metavar="N", help="tokens that are drafted (8192)")
    add("--options", type=json.loads, default={}, metavar="JSON", help="sizes, such as num_stages")
    add("--seed", type=int, default=0, help="fixes the first weights and the order of texts")
    add("--minutes", type=float, metavar="M", help="stop after so long; the same call goes on")
    add("--every", type=int, default=200, metavar="N", help="steps between two looks (200)")
    add("--folder", type=Path, metavar="PATH", help="where weights go; data/weights if left out")
    add("--start", type=Path, metavar="PATH", help="weights of an earlier run to go on from")
    add("--corpus", type=Path, metavar="PATH", help="a shard or a folder of them (data/corpus)")
    add("--unseen", type=Path, metavar="PATH", help="the same, for held-out texts (as --corpus)")
    add("--tokens", type=int, metavar="N", help="learn from so many only, the first ones; all")
    add("--labelled", type=int, default=0, metavar="N", help="tokens of human text beside it (0)")
    add("--learn-prompts", action="store_true", help="learn the laws inside prompts too")
    add("--half", action=argparse.BooleanOptionalAction, help="products in bfloat16; if they pay")
    _declare_device(parser)


def _train(args: argparse.Namespace) -> None:
    """make what drafts learn from"""


def _corpus(args: argparse.Namespace) -> None:
    """let the model answer many prompts; shards in the cache, resumed where they stopped"""
    from specdec_lab.decoding.checkpoint import load_target
    from specdec_lab.training.export import export
    from specdec_lab.training.generate import Plan, make_corpus, working_folder
    from specdec_lab.training.session import states_of

    if args.export:
        print(export(working_folder(args.seed), args.tokens))
        return
    plan = Plan(args.tokens, args.seed, args.rows, args.max_new_tokens, args.products)
    target = load_target()
    states = states_of(target) if args.keep_states else None
    print(make_corpus(target, plan, states=states))


def _train_method(args: argparse.Namespace) -> None:
    """train a draft on the corpus; an interrupted run goes on where it stopped"""
    from specdec_lab.training.session import run

    path = run(args)
    print(path or "not finished")


COMMANDS = {
    "fetch": (_declare_fetch, _fetch),
    "generate": (_declare_generate, _generate),
    "compare": (_declare_compare, _compare),
    "figures": (_declare_figures, _figures),
    "measure": (_declare_measure, _measure),
    "train": (_declare_train, _train),
}

if __name__ == "__main__":
    sys.exit(main())
