"""The command line on a tiny random model, and once on the real one.

pytest tests/test_cli.py
"""

import io
import json
import subprocess
import sys

import pytest
import torch

from project import ROOT
from specdec_lab.__main__ import COMMANDS, main
from specdec_lab.decoding import checkpoint, decode
from specdec_lab.decoding.decode import generate
from specdec_lab.decoding.records import Draft
from specdec_lab.decoding.sampling import Sampling
from specdec_lab.decoding.target import Target
from specdec_lab.decoding.trace import SUMMARY
from specdec_lab.decoding.transformer import Architecture, Transformer
from specdec_lab.proposers.ngram import NGram


class AsciiTokenizer:
    """Text to its ASCII codes and back, with a chat template of one line a message."""

    chat_template = "role: content"

    def apply_chat_template(self, messages, tokenize, add_generation_prompt):
        """The messages as text; the real tokenizers do it with Jinja."""
        assert not tokenize
        assert add_generation_prompt
        return "".join(f"{m['role']}: {m['content']}\n" for m in messages) + "assistant: "

    def encode(self, text, add_special_tokens=True):
        """One id a character."""
        return list(text.encode("ascii"))

    def decode(self, ids, skip_special_tokens=False, clean_up_tokenization_spaces=False):
        """One character an id."""
        return bytes(ids).decode("ascii")


class Recorder:
    """A plug-in that remembers every k it was asked for."""

    asked: list[int]

    def __init__(self) -> None:
        Recorder.asked = []

    def propose(self, context, k, sampling, randomness):
        """Nothing, after noting ``k``."""
        self.asked.append(k)
        return Draft.empty(context.tokens.shape[0])


@pytest.fixture
def target(monkeypatch):
    """A random model of 128 ASCII codes in the place of the default one."""
    torch.manual_seed(0)
    arch = Architecture(
        vocab_size=128,
        hidden_size=16,
        num_layers=2,
        num_heads=2,
        num_kv_heads=1,
        head_dim=8,
        mlp_size=32,
        inv_freq=(1.0, 0.1, 0.01, 0.001),
    )
    tiny = Target(Transformer(arch), max_context=256, tokenizer=AsciiTokenizer())
    monkeypatch.setattr(checkpoint, "load_target", lambda name=None, device="cpu": tiny)
    return tiny


@pytest.fixture
def no_model(monkeypatch):
    """Fails the test when a model is loaded: the input was wrong before that."""

    def load_target(name=None, device="cpu"):
        raise AssertionError("bad input must be refused before the model is loaded")

    monkeypatch.setattr(checkpoint, "load_target", load_target)


def answer(capsys, *options: str) -> dict:
    """The JSON object that generate prints, the only thing on stdout."""
    assert main(["generate", "--prompt", "abcabcab", "--json", *options]) == 0
    printed = capsys.readouterr().out
    assert printed.count("\n") == 1
    return json.loads(printed)


def refusal(capsys, *arguments: str) -> str:
    """The one sentence on stderr of a command that ends with exit code 2."""
    try:
        code = main(arguments)
    except SystemExit as leave:  # argparse leaves this way
        code = leave.code
    out, err = capsys.readouterr()
    assert code == 2
    assert out == ""
    assert err.count("\n") == 1
    assert "Traceback" not in err
    return err


def test_no_arguments_print_the_help(capsys):
    assert main([]) == 0
    printed = capsys.readouterr().out
    assert all(f"    {name}" in printed for name in COMMANDS)


def test_json_holds_what_generate_returns(capsys, target):
    found = answer(capsys, "--max-new-tokens", "40", "--k", "3")
    prompt = target.encode_chat("abcabcab")
    expected = generate(target, [prompt], NGram(), k=3, max_new_tokens=40)
    assert found["token_ids"] == expected.tokens[0]
    assert found["text"] == target.decode(expected.tokens[0])
    assert found["finish_reason"] == "length"
    assert tuple(found["trace"]) == SUMMARY
    assert found["trace"]["tau"] == pytest.approx(expected.trace.tau)
    assert found["trace"]["num_tokens"] == 40


def test_greedy_text_is_the_same_with_and_without_drafts(capsys, target):
    plain = answer(capsys, "--method", "none", "--k", "4")
    assert plain["trace"]["tau"] == 1
    assert plain["trace"]["alpha"] is None
    fast = answer(capsys, "--method", "ngram", "--k", "4")
    assert fast["trace"]["num_drafted"] > 0
    assert fast["token_ids"] == plain["token_ids"]


def test_a_seed_fixes_the_sampled_text_whatever_is_drafted(capsys, target):
    sampled = ("--temperature", "1", "--seed", "7")
    config = '{"method": "ngram", "min_n": 1, "max_n": 2, "occurrence": "first"}'
    texts = {
        answer(capsys, *sampled, "--method", method)["text"] for method in ("none", "ngram", config)
    }
    assert len(texts) == 1
    assert answer(capsys, "--temperature", "1", "--seed", "8")["text"] not in texts


@pytest.mark.parametrize("k", [1, 4, 8])
def test_k_reaches_the_proposer_case_16(capsys, monkeypatch, target, k):
    monkeypatch.setitem(sys.modules, "our.plug_ins", sys.modules[__name__])
    answer(capsys, "--method", "our.plug_ins.Recorder", "--k", str(k), "--max-new-tokens", "30")
    assert set(Recorder.asked) == {k}


def test_k_of_zero_decodes_plainly_case_16(capsys, target):
    trace = answer(capsys, "--k", "0")["trace"]
    assert (trace["num_drafted"], trace["draft_coverage"], trace["tau"]) == (0, 0, 1)


def test_every_option_reaches_the_loop(capsys, monkeypatch, target):
    seen = {}

    def stream(target, prompts, proposer, **options):
        seen.update(options, prompts=prompts)
        return iter(())

    monkeypatch.setattr(decode, "stream", stream)
    options = "--temperature .5 --top-k 9 --top-p .8 --min-p .1 --seed 3 --k 2 --verify block"
    message = ("--max-new-tokens", "5", "--system", "be brief", "--prefix", "Well")
    main(["generate", "--prompt", "hi", *options.split(), *message])
    assert seen == {
        "prompts": [target.encode("system: be brief\nuser: hi\nassistant: Well")],
        "sampling": Sampling(temperature=0.5, top_k=9, top_p=0.8, min_p=0.1),
        "seed": 3,
        "k": 2,
        "verify": "block",
        "max_new_tokens": 5,
    }


def test_the_model_is_the_one_asked_for(capsys, monkeypatch, target):
    names = []
    monkeypatch.setattr(checkpoint, "load_target", lambda name=None: names.append(name) or target)
    answer(capsys)
    answer(capsys, "--model", "a/folder")
    assert names == [None, "a/folder"]


def test_text_streams_and_a_table_follows(capsys, target):
    text = answer(capsys, "--max-new-tokens", "50")["text"]
    assert main(["generate", "--prompt", "abcabcab", "--max-new-tokens", "50"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"{text}\n\n")
    table = printed.removeprefix(text)
    assert "num_tokens                  50  tokens written" in table
    assert "tau" in table


def test_the_prompt_comes_from_stdin_or_a_file(capsys, monkeypatch, target, tmp_path):
    expected = answer(capsys)["text"]
    monkeypatch.setattr(sys, "stdin", io.StringIO("abcabcab\n"))
    assert main(["generate", "--prompt", "-", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["text"] == expected
    path = tmp_path / "prompt.txt"
    path.write_text("abcabcab\n", encoding="utf-8")
    assert main(["generate", "--prompt-file", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["text"] == expected


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "--prompt"),
        (("--prompt", " \n"), "the prompt is empty"),
        (("--prompt-file", "no/such/file"), "no/such/file"),
        (("--prompt", "a", "--prompt-file", "b"), "not allowed with"),
        (("--prompt", "a", "--method", "draft"), "'draft_model'"),
        (("--prompt", "a", "--method", "ngarm"), "'ngram'"),
        (("--prompt", "a", "--method", '{"method": "ngram", "n": 2}'), "min_n"),
        (("--prompt", "a", "--method", "{ngram}"), "no JSON object"),
        (("--prompt", "a", "--k", "1.9"), "--k"),
        (("--prompt", "a", "--temperature", "-1"), "temperature"),
        (("--prompt", "a", "--temperature", "nan"), "finite"),
        (("--prompt", "a", "--top-p", "0"), "top_p"),
        (("--prompt", "a", "--top-k", "0"), "top_k"),
        (("--prompt", "a", "--widht", "0"), "--widht"),
    ],
)
def test_bad_input_is_refused_before_the_model_is_loaded(capsys, no_model, options, words):
    assert words in refusal(capsys, "generate", *options)


def test_a_prompt_that_is_no_text_is_refused(capsys, no_model, tmp_path):
    path = tmp_path / "prompt.bin"
    path.write_bytes(b"\xff\xfe")
    assert "UTF-8" in refusal(capsys, "generate", "--prompt-file", str(path))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--k", "-1"), "k must be"),
        (("--k", "1000000"), "k must be"),
        (("--max-new-tokens", "0"), "max_new_tokens"),
        (("--verify", "typical"), "verify must be"),
        (("--system", "x" * 300), "shorten it"),
    ],
)
def test_bad_input_is_refused_before_a_forward_pass_case_16(
    capsys, monkeypatch, target, options, words
):
    monkeypatch.setattr(Target, "prefill", lambda *_: pytest.fail("a forward pass"))
    assert words in refusal(capsys, "generate", "--prompt", "a", *options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("compare", "--methods", "suffix", "ngrm"), "did you mean 'ngram'"),
        (("compare", "--methods", '{"method": "ngram", "width": 2}'), "its options are"),
        (("compare", "--methods", "{ngram}"), "JSON"),
        (("compare", "--domain", "poetry"), "no prompts for 'poetry'"),
        (("compare", "--domain", "chat", "--prompt", "a"), "not allowed with"),
        (("compare", "--k", "1000"), "k must be"),
        (("compare", "--temperature", "-1"), "temperature must"),
        (("compare", "--max-new-tokens", "0"), "max_new_tokens"),
        (("measure", "speed"), "invalid choice: 'speed'"),
        (("measure", "cost", "--device", "tpu"), "invalid choice: 'tpu'"),
    ],
)
def test_bad_measurements_are_refused_before_the_model_is_loaded(capsys, no_model, options, words):
    assert words in refusal(capsys, *options)


def test_compare_prints_a_line_a_method(capsys, target):
    methods = ("--methods", "ngram", '{"method": "suffix", "max_depth": 8}')
    assert main(["compare", "--prompt", "abcabcab", "--k", "3", *methods]) == 0
    lines = capsys.readouterr().out.splitlines()
    ways = lines[3:6]
    assert [line.split()[:2] for line in ways] == [["plain", "0"], ["ngram", "3"], ["suffix", "3"]]
    assert all(line.endswith("1 of 1") for line in ways)


def test_a_model_that_cannot_be_had_is_a_sentence(capsys, monkeypatch):
    def load_target(name=None):
        raise OSError("there is no network")

    monkeypatch.setattr(checkpoint, "load_target", load_target)
    assert "there is no network" in refusal(capsys, "generate", "--prompt", "a")


def test_an_unknown_command_is_a_sentence(capsys):
    assert "fetch" in refusal(capsys, "fecth")


def test_an_interrupt_ends_quietly(capsys, monkeypatch):
    def load_target(name=None):
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint, "load_target", load_target)
    assert main(["generate", "--prompt", "a"]) == 130


def test_fetch_prints_the_folder_as_its_last_line(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(checkpoint, "fetch", lambda: tmp_path)
    assert main(["fetch"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == str(tmp_path)


def run(*arguments: str) -> subprocess.CompletedProcess:
    """The real command in a process of its own."""
    command = [sys.executable, "-m", "specdec_lab", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=600, cwd=ROOT
    )


@pytest.mark.model
def test_the_real_command_answers_in_json():
    asked = ("--prompt", "Repeat three times: the red fox jumps.", "--max-new-tokens", "48")
    found = {
        method: json.loads(run("generate", "--method", method, "--k", "4", *asked, "--json").stdout)
        for method in ("ngram", "none")
    }
    assert found["ngram"]["token_ids"] == found["none"]["token_ids"]
    assert "fox" in found["ngram"]["text"]
    assert found["none"]["trace"]["tau"] == 1
    assert found["ngram"]["trace"]["tau"] > 1


@pytest.mark.model
def test_a_reader_that_leaves_early_sees_no_traceback():
    asked = ("generate", "--prompt", "Count to ninety.", "--max-new-tokens", "60")
    command = [sys.executable, "-m", "specdec_lab", *asked]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT
    ) as process:
        process.stdout.read(1)
        process.stdout.close()
        assert b"Traceback" not in process.stderr.read()
    assert process.returncode == 0
