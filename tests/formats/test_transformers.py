"""The folder for transformers: `AutoTokenizer` loads it, in the installed version, and encodes as bpeflow does.

`make test-transformers` runs this file with version 4 and with version 5.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bpeflow
from bpeflow import AlreadyExistsError, ConfigError, FormatError, Tokenizer
from bpeflow._util.delimiters import BEGIN_OF_TEXT, END_OF_TEXT, PADDING
from bpeflow.cli.main import main
from bpeflow.formats.transformers import CHAT_TEMPLATES
from bpeflow.pretokenize.patterns import NAMED_PATTERNS

END, PAD, BOS = "<|endoftext|>", "<|pad|>", "<|begin_of_text|>"
OTHERS = [*dict.fromkeys(token for named in CHAT_TEMPLATES.values() for token in named.special_tokens)]
CORPUS = ["Hello world, it's the newest of the new.\n\n  naïve 日本 12345 " * 9]
TEXTS = [
    "Hello world , I 'm here !  it's <|endoftext|><|im_start|>user\n日本 12345 \n\n x",
    "",
    " .",
    "do n't ? ! ' s\r\n\u3000é\u0301<|pad|><|pad|>🙂",
]
CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": " the newest? "}]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(iter(CORPUS), 300, special_tokens=[END, PAD, BOS, *OTHERS])


@pytest.fixture
def load() -> Callable[[Path], Any]:
    pytest.importorskip("jinja2", reason="jinja2 is not installed")
    return pytest.importorskip("transformers", reason="transformers is not installed").AutoTokenizer.from_pretrained


def config(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    return content


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


# ---- as transformers sees it ----


@pytest.mark.parametrize("pattern", [*NAMED_PATTERNS, r"\w+|\W"])
def test_ids_and_decoding_are_those_of_bpeflow(
    pattern: str, tokenizer: Tokenizer, load: Callable[[Path], Any], tmp_path: Path
) -> None:
    ours = Tokenizer(tokenizer.vocab, tokenizer.merges, pattern=pattern)
    ours.save(tmp_path, "huggingface")
    theirs = load(tmp_path)
    assert len(theirs) == len(ours)
    for text in TEXTS:
        ids = ours.encode(text)
        assert theirs(text)["input_ids"] == theirs.encode(text) == ids
        assert theirs.decode(ids) == text
        assert theirs.decode(ids, skip_special_tokens=True) == ours.decode(ids, skip_special_tokens=True)
    assert theirs(TEXTS)["input_ids"] == ours.encode_batch(TEXTS)
    assert Tokenizer.load(tmp_path) == ours


def test_special_tokens_have_their_roles(tokenizer: Tokenizer, load: Callable[[Path], Any], tmp_path: Path) -> None:
    tokenizer.save(tmp_path, "huggingface")
    theirs = load(tmp_path)
    assert (theirs.eos_token, theirs.pad_token, theirs.bos_token, theirs.unk_token) == (END, PAD, BOS, None)
    assert theirs.eos_token_id == tokenizer.eot_token
    assert {*theirs.all_special_tokens} == {*tokenizer.special_tokens}
    assert theirs.model_max_length == int(1e30)
    tokenizer.save(tmp_path, "huggingface", eos="<|im_end|>", pad=END, bos="<|end|>", max_length=7, overwrite=True)
    theirs = load(tmp_path)
    assert (theirs.eos_token, theirs.pad_token, theirs.bos_token) == ("<|im_end|>", END, "<|end|>")
    assert {*theirs.all_special_tokens} == {*tokenizer.special_tokens}
    assert len(theirs(TEXTS[0], truncation=True)["input_ids"]) == theirs.model_max_length == 7
    assert theirs(TEXTS[3])["input_ids"] == tokenizer.encode(TEXTS[3])


def test_texts_are_padded(tokenizer: Tokenizer, load: Callable[[Path], Any], tmp_path: Path) -> None:
    tokenizer.save(tmp_path, "huggingface")
    batch = load(tmp_path)(["the newest", "the"], padding=True)
    first, second = tokenizer.encode_batch(["the newest", "the"])
    filling = len(first) - len(second)
    assert dict(batch) == {
        "input_ids": [first, second + [tokenizer.special_tokens[PAD]] * filling],
        "attention_mask": [[1] * len(first), [1] * len(second) + [0] * filling],
    }  # without token_type_ids, which most models do not take


def test_a_tokenizer_without_the_usual_names_has_an_end_token_only(load: Callable[[Path], Any], tmp_path: Path) -> None:
    tokenizer = Tokenizer.train(iter(CORPUS), 270, special_tokens=["<a>"])
    tokenizer.save(tmp_path, "huggingface")
    theirs = load(tmp_path)
    assert (theirs.eos_token, theirs.bos_token, theirs.pad_token) == ("<a>", None, None)  # as in token files
    assert theirs("the <a>")["input_ids"] == tokenizer.encode("the <a>")


@pytest.mark.parametrize("name", [*CHAT_TEMPLATES, "file"])
def test_chat_templates_render_conversations(
    name: str, tokenizer: Tokenizer, load: Callable[[Path], Any], tmp_path: Path
) -> None:
    expected = {
        "chatml": "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n the newest? <|im_end|>\n",
        "llama3": f"{BOS}<|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nthe newest?<|eot_id|>",
        "phi3": "<|system|>\nBe brief.<|end|>\n<|user|>\n the newest? <|end|>\n",
        "file": "Be brief.: the newest? :",
    }
    prompts = {
        "chatml": "<|im_start|>assistant\n",
        "llama3": "<|start_header_id|>assistant<|end_header_id|>\n\n",
        "phi3": "<|assistant|>\n",
        "file": "",
    }
    (tmp_path / "mine.jinja").write_text("{% for m in messages %}{{ m.content }}:{% endfor %}")
    template = str(tmp_path / "mine.jinja") if name == "file" else name
    tokenizer.save(tmp_path / "out", "huggingface", chat_template=template, eos="<|im_end|>")
    theirs = load(tmp_path / "out")
    assert theirs.apply_chat_template(CHAT, tokenize=False) == expected[name]
    prompted = theirs.apply_chat_template(CHAT, tokenize=False, add_generation_prompt=True)
    assert prompted == expected[name] + prompts[name]
    ids = theirs.apply_chat_template(CHAT, add_generation_prompt=True, return_dict=True)["input_ids"]
    assert ids == tokenizer.encode(prompted)


def test_saved_by_transformers_it_is_the_same(
    tokenizer: Tokenizer, load: Callable[[Path], Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tokenizer.save(tmp_path / "ours", "huggingface", chat_template="chatml", max_length=99)
    first = load(tmp_path / "ours")
    first.save_pretrained(tmp_path / "theirs")
    again = load(tmp_path / "theirs")
    for name in ("eos_token", "bos_token", "pad_token", "model_max_length", "chat_template", "padding_side"):
        assert getattr(again, name) == getattr(first, name)
    for text in TEXTS:
        assert again(text)["input_ids"] == tokenizer.encode(text)
    with caplog.at_level(logging.WARNING):
        assert Tokenizer.load(tmp_path / "theirs") == tokenizer
    assert caplog.text == ""  # though version 5 has added a post-processor, which does nothing


def test_bos_is_added_only_on_request(
    tokenizer: Tokenizer, load: Callable[[Path], Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tokenizer.save(tmp_path, "huggingface", add_bos=True)
    theirs = load(tmp_path)
    ids, bos = tokenizer.encode("the newest"), tokenizer.special_tokens[BOS]
    assert theirs("the newest")["input_ids"] == [bos, *ids]
    assert theirs("the newest", "the newest")["input_ids"] == [bos, *ids, bos, *ids]
    assert theirs("the newest", add_special_tokens=False)["input_ids"] == ids
    assert theirs.decode([bos, *ids], skip_special_tokens=True) == "the newest"
    theirs.save_pretrained(tmp_path / "theirs")
    assert load(tmp_path / "theirs")("the newest")["input_ids"] == [bos, *ids]
    with caplog.at_level(logging.WARNING):
        assert Tokenizer.load(tmp_path).encode("the newest") == ids
    assert "the post-processor, 'TemplateProcessing', is ignored" in caplog.text


@pytest.mark.parametrize("model_type", ["gpt2", "llama", "gpt_neox", "mistral", "qwen3", "olmo2"])
def test_the_config_of_a_model_may_be_in_the_folder(
    model_type: str, tokenizer: Tokenizer, load: Callable[[Path], Any], tmp_path: Path
) -> None:
    """It does not make `AutoTokenizer` replace the pattern by the model's own, which it does for a few types."""
    ours = Tokenizer(tokenizer.vocab, tokenizer.merges, pattern="cl100k")
    ours.save(tmp_path, "huggingface")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    for text in TEXTS:
        assert load(tmp_path)(text)["input_ids"] == ours.encode(text)


def test_a_run_folder_is_a_folder_for_transformers(load: Callable[[Path], Any], tmp_path: Path) -> None:
    output = {"formats": ["huggingface", "tiktoken"], "chat_template": "chatml", "eos": "<|im_end|>", "max_length": 64}
    specials = [END, "<|im_start|>", "<|im_end|>"]
    settings = {"input": iter(CORPUS), "vocab_sizes": [270, 280], "special_tokens": specials, "out_dir": tmp_path}
    report = bpeflow.train({**settings, "output": output}).report
    for folder in (tmp_path, tmp_path / "vocab_270"):
        theirs, ours = load(folder), Tokenizer.load(folder)
        assert theirs(TEXTS)["input_ids"] == ours.encode_batch(TEXTS)
        assert (theirs.eos_token, theirs.model_max_length) == ("<|im_end|>", 64)
        assert theirs.apply_chat_template(CHAT[1:], tokenize=False).startswith("<|im_start|>user\n")
    assert {"tokenizer_config.json", "vocab_270/special_tokens_map.json"} <= {*report.files}


# ---- without transformers ----


def test_the_defaults_are_described(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["convert", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    for word in (*END_OF_TEXT, *BEGIN_OF_TEXT, *PADDING, *CHAT_TEMPLATES):
        assert word in text


def test_convert_has_all_options(tokenizer: Tokenizer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = str(tmp_path / "source.json"), tmp_path / "target"
    tokenizer.save(source)
    command = ["convert", source, str(target), "--to", "huggingface", "--eos", "<|im_end|>", "--bos", END, "--pad"]
    command += ["<|end|>", "--add_bos", "--chat_template", "chatml", "--max_length", "2k"]
    assert main(command) == 0
    files = ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"]
    assert capsys.readouterr().out.split() == [str(target / name) for name in files]
    assert names(target) == {*files}
    content = config(target)
    roles = {"eos_token": "<|im_end|>", "bos_token": END, "pad_token": "<|end|>"}
    assert roles.items() <= content.items()
    assert roles.items() <= json.loads((target / "special_tokens_map.json").read_text(encoding="utf-8")).items()
    assert content["model_max_length"] == 2000
    assert content["clean_up_tokenization_spaces"] is False  # older versions of transformers do it otherwise
    assert content["chat_template"] == CHAT_TEMPLATES["chatml"].template
    assert END in json.dumps(json.loads((target / "tokenizer.json").read_text(encoding="utf-8"))["post_processor"])


def test_convert_takes_the_options_of_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Unless others are given, or the format has no place for them."""
    (tmp_path / "corpus.txt").write_text("low lower", encoding="utf-8")
    output = {"formats": "huggingface", "eos": "<|im_end|>", "chat_template": "chatml", "max_length": 512}
    specials, run = [END, "<|im_end|>", "<|im_start|>"], tmp_path / "run"
    values = {"input": tmp_path / "corpus.txt", "vocab_size": 262, "special_tokens": specials, "output": output}
    bpeflow.train({**values, "out_dir": run})
    assert main(["convert", str(run), str(tmp_path / "same"), "--to", "hf"]) == 0
    assert config(tmp_path / "same") == config(run)
    assert main(["convert", str(run), str(tmp_path / "other"), "--to", "hf", "--eos", END]) == 0
    assert config(tmp_path / "other") == {**config(run), "eos_token": END, "additional_special_tokens": specials[1:]}
    for target in ("tokenizer.json", "x.tiktoken", "folder"):
        assert main(["convert", str(run), str(tmp_path / target)]) == 0


def test_convert_takes_the_options_of_a_folder(tokenizer: Tokenizer, tmp_path: Path) -> None:
    source, command = tmp_path / "source", ["--to", "hf", "--overwrite"]
    tokenizer.save(source, "huggingface", eos="<|im_end|>", chat_template="chatml", max_length=9)
    for path in (source, source / "tokenizer.json"):
        assert main(["convert", str(path), str(tmp_path / "b"), *command]) == 0
        assert config(tmp_path / "b") == config(source)
    assert main(["convert", str(source), str(tmp_path / "b"), *command, "--eos", END]) == 0
    assert config(tmp_path / "b")["eos_token"] == END
    assert main(["convert", str(source), str(tmp_path / "file.json"), "--to", "hf"]) == 0


def test_convert_leaves_out_options_that_it_cannot_copy(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Roles of tokens that are not special, and what stands for a missing option; a template has a file of its own."""
    source, target, command = tmp_path / "source", tmp_path / "b", ["--to", "hf", "--overwrite"]
    tokenizer.save(source, "huggingface")
    plain = config(source)
    changes = {"eos_token": {"content": END}, "pad_token": "<none>", "model_max_length": 1e30, "chat_template": [{}]}
    (source / "tokenizer_config.json").write_text(json.dumps(plain | changes))
    assert main(["convert", str(source), str(target), *command]) == 0
    assert config(target) == plain
    (source / "chat_template.jinja").write_text("{{ messages }}")
    assert main(["convert", str(source), str(target), *command]) == 0
    assert config(target) == {**plain, "chat_template": "{{ messages }}"}
    (source / "chat_template.jinja").unlink()
    (source / "tokenizer_config.json").write_text("{")
    assert main(["convert", str(source), str(target), *command]) == 0
    assert config(target) == plain


def test_a_file_is_written_alone(tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path / "tokenizer.json")
    assert names(tmp_path) == {"tokenizer.json"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"eos": "<|end_of_text|>"}, r"^eos: '<\|end_of_text\|>' is not a special token of .*; did you mean '<"),
        ({"pad": "the"}, r"^pad: 'the' is not a special token of the tokenizer; it has '<\|endoftext\|>', '<\|im_s"),
        ({"max_length": 0}, "^max_length: must be at least 1, found 0"),
        ({"eos": 5}, "^eos: must be a valid string, found 5"),
        ({"eosx": "a"}, r"^unknown setting eosx \(did you mean eos\?\)"),
        ({"overwrit": True}, "^unknown setting overwrit"),
        ({"chat_template": "llama3"}, r"chat_template llama3 needs .*: <\|start_header_id\|> <\|end_header"),
        ({"chat_template": "chat-ml"}, "chat_template: no file chat-ml; did you mean 'chatml'?"),
        ({"chat_template": "x/y.jinja"}, "no file x/y.jinja; need a Jinja file, or chatml, llama3, phi3"),
        ({"add_bos": True}, "^add_bos: there is no token to add; give bos"),
    ],
)  # fmt: skip
def test_options_that_do_not_fit_are_refused(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    tokenizer = Tokenizer.train(iter(CORPUS), 270, special_tokens=[END, "<|im_start|>"])
    with pytest.raises(ConfigError, match=message):
        tokenizer.save(tmp_path / "out", "huggingface", **options)
    assert not list(tmp_path.rglob("*.json"))
    settings = {"input": iter(CORPUS), "vocab_size": 270, "special_tokens": [END, "<|im_start|>"]}
    with pytest.raises(ConfigError, match=r"^(unknown setting )?output\."):
        bpeflow.train({**settings, "out_dir": tmp_path / "run", "output": {"formats": "huggingface", **options}})
    assert not (tmp_path / "run").exists()


def test_a_tokenizer_without_special_tokens_has_no_roles_to_give(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^eos: '<s>' is not a special token of the tokenizer; it has none$"):
        Tokenizer.train(iter(CORPUS), 270, special_tokens=[]).save(tmp_path, "huggingface", eos="<s>")


@pytest.mark.parametrize(("content", "message"), [(b" \n", "an empty chat template"), (b"\xff", "not UTF-8")])
def test_a_broken_chat_template_is_refused(content: bytes, message: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "chat.jinja"
    path.write_bytes(content)
    with pytest.raises(FormatError, match=rf"chat\.jinja: {message}"):
        tokenizer.save(tmp_path / "out", "huggingface", chat_template=str(path))
    assert names(tmp_path) <= {"chat.jinja", "out"}
    with pytest.raises(ConfigError, match=rf"output\.formats: huggingface: .*chat\.jinja: {message}"):
        bpeflow.train(
            {"input": iter(CORPUS), "vocab_size": 270, "output": {"formats": "huggingface", "chat_template": str(path)}}
        )


@pytest.mark.parametrize(("target", "name"), [("out", "gpt2"), ("out", "tiktoken"), ("x.json", "huggingface")])
def test_other_formats_have_no_place_for_the_options(
    target: str, name: str, tokenizer: Tokenizer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tokenizer.save(tmp_path / "source.json")
    command = [
        "convert",
        str(tmp_path / "source.json"),
        str(tmp_path / target),
        "--to",
        name,
        "--pad",
        END,
        "--add_bos",
    ]
    assert main(command) == 2
    reason = "x.json is the name of a file, so name a folder" if name == "huggingface" else f"not {name}"
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("bpeflow: add_bos, pad: only a folder in the huggingface format has a place for this; ")
    assert line.endswith(reason)
    assert not (tmp_path / target).exists()


def test_the_options_of_a_run_need_the_format() -> None:
    with pytest.raises(ConfigError, match=r"output: eos, max_length: .*add it to output\.formats"):
        bpeflow.train({"input": "a", "vocab_size": 270, "output": {"formats": "tiktoken", "eos": "x", "max_length": 9}})


def test_all_files_of_the_folder_are_one_tokenizer(tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path, "huggingface", chat_template="chatml")
    with pytest.raises(AlreadyExistsError, match=r"holds a tokenizer \(.*overwrite=True"):
        tokenizer.save(tmp_path, "huggingface", chat_template="phi3")
    (tmp_path / "chat_template.jinja").write_text("of another")  # which transformers would prefer
    tokenizer.save(tmp_path, "huggingface", chat_template="phi3", overwrite=True)
    assert names(tmp_path) == {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"}
    assert "<|end|>" in config(tmp_path)["chat_template"]
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(AlreadyExistsError, match="a tokenizer, or a part of one"):
        tokenizer.save(tmp_path, "huggingface")
    tokenizer.save(tmp_path, "huggingface", overwrite=True)
    assert "chat_template" not in config(tmp_path)


def test_other_options_replace_the_files(tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path)
    (tmp_path / "chat_template.jinja").touch()
    tokenizer.save(tmp_path, "huggingface", pad=END, overwrite=True)
    assert config(tmp_path)["pad_token"] == END
    assert names(tmp_path) == {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"}
