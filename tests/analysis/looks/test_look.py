"""``look`` in Python: the attention of one sentence, for every kind of model."""

from argparse import Namespace

import pytest
import torch
from fairseq.hub_utils import GeneratorHubInterface

from fairseq_entmax.analysis import load_model, load_task, look, record_attention
from tests.pruning.test_surgery import state_of, trained
from tests.support import build_model, marked_task, search, spread_scores, tiny_task

pytestmark = pytest.mark.slow

TEXT = "w1 w2 w3 w4 w5"
TRANSLATION = "w7 w2 w9"
CUT = "▁w1 w2 ▁w3 w4 w6"  # cut like the words in the folders' dictionaries


def numbers(text):
    words = tiny_task().source_dictionary
    return torch.tensor([*(words.index(word) for word in text.split()), words.eos()])


def net_input_of(text):
    source = numbers(text)
    return {"src_tokens": source[None], "src_lengths": torch.tensor([len(source)])}


@pytest.mark.parametrize(
    "options",
    [
        {"attn_mapping": "sparsemax"},
        {"attn_mapping": "entmax", "encoder_self_attn_heads": "0,3", "cross_attn_heads": "2,1"},
    ],
)
def test_weights_are_those_of_one_pass_over_the_sentence(options):
    model = spread_scores(build_model(**options))
    found = look(model, TEXT, TRANSLATION, task=tiny_task())
    net_input = net_input_of(TEXT)
    net_input["prev_output_tokens"] = numbers(TRANSLATION).roll(1)[None]
    expected, _ = record_attention(model, {"net_input": net_input})
    assert found.tokens == [*TEXT.split(), "</s>"]
    assert found.target_tokens == [*TRANSLATION.split(), "</s>"]
    assert found.read_tokens == ["</s>", *TRANSLATION.split()]
    for attention, layers in found.attention.items():
        for layer, own in enumerate(layers):
            there = expected[attention].get(layer)
            assert len(own) == 0 if there is None else torch.equal(own, there[0])
    weights = expected["cross"][0][0, 1]
    best = weights.max(dim=-1)
    links = found.links("cross", 0, 1, top=1)
    assert [link.keys[0][0] for link in links] == [found.tokens[place] for place in best.indices]
    assert [link.keys[0][1] for link in links] == pytest.approx(best.values.tolist(), abs=1e-5)
    assert [link.zeros for link in links] == weights.eq(0).sum(-1).tolist()


def test_without_a_translation_the_model_translates_as_in_generation():
    model = spread_scores(build_model(attn_mapping="entmax15"))
    found = look(model, TEXT, task=tiny_task(), beam=3, max_len_b=6)
    (((best, _), *_),) = search(model, {"net_input": net_input_of(TEXT)}, max_len_b=6)
    assert found.is_generated
    assert found.target_tokens == [tiny_task().target_dictionary[token] for token in best]
    assert found.translation == " ".join(found.target_tokens[:-1])
    again = look(model, TEXT, found.translation, task=tiny_task())
    assert not again.is_generated
    assert torch.equal(again.attention["cross"][1], found.attention["cross"][1])


def test_random_state_and_training_mode_are_left_unchanged():
    model = build_model().train()
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    first, second = (look(model, TEXT, task=tiny_task(), max_len_b=4) for _ in range(2))
    assert torch.rand(1) == expected
    assert model.training
    assert torch.equal(first.attention["cross"][0], second.attention["cross"][0])


def test_closed_gates_are_left_out_of_the_mean():
    model = trained(attn_mapping="entmax", head_gates="cross")
    found = look(model, TEXT, TRANSLATION, task=tiny_task())
    gates = torch.tensor(found.gates["cross"])
    assert gates.eq(0).any()
    opened = torch.stack(found.attention["cross"])[gates > 0]
    assert torch.allclose(found.weights(), opened.mean(0))


def test_a_model_that_copies_restores_unknown_words():
    options = {"source_position_markers": 3, "share_all_embeddings": True}
    model = build_model("entmax_copy_transformer", task=marked_task(), **options)
    found = look(model, "w1 quux w2", "w3 quux", task=marked_task())
    assert found.tokens == ["w1", "<unk-0>", "w2", "</s>"]
    assert found.target_tokens == ["w3", "<unk-0>", "</s>"]
    assert "<unk-0> stands for quux" in str(found)
    assert not found.is_generated
    written = look(model, "quux", task=marked_task(), max_len_a=0, max_len_b=4).translation
    assert "<unk-0>" not in written


def test_words_join_the_tokens_of_both_sides(tiny):
    found = look(str(tiny / "plain.pt"), CUT, "▁w1 w4 ▁w5", data=str(tiny / "bin"))
    joined = found.words()
    assert joined.tokens == ["w1w2", "w3w4w6", "</s>"]
    assert joined.target_tokens == ["w1w4", "w5", "</s>"]
    assert joined.read_tokens == ["</s>", "w1w4", "w5"]
    cross, of_words = found.attention["cross"][0], joined.attention["cross"][0]
    assert of_words.shape == (4, 3, 3)
    by_hand = cross[:, :2, 2:5].sum(-1).mean(-1)
    assert torch.allclose(of_words[:, 0, 1], by_hand)
    for layers in joined.attention.values():
        for one in layers:
            assert torch.allclose(one.sum(-1), torch.ones(one.shape[:2]))
    assert joined.words() is joined


def test_checkpoints_loaded_models_and_hub_interfaces_are_accepted(tiny, tmp_path):
    data = str(tiny / "bin")
    task = load_task(data)
    loaded = load_model(str(tiny / "plain.pt"), task)
    expected = look(str(tiny / "plain.pt"), CUT, CUT, data=data).attention["cross"][0]
    settings = Namespace(generation=Namespace(replace_unk=None), tokenizer=None, bpe=None)
    hub = GeneratorHubInterface(settings, task, [loaded.model])
    for model, options in ((loaded, {"task": task}), (loaded, {"data": data}), (hub, {})):
        assert torch.equal(look(model, CUT, CUT, **options).attention["cross"][0], expected)
    look(hub, CUT, CUT).write_report(tmp_path / "hub.html")
    assert "sentences of your own" in (tmp_path / "hub.html").read_text(encoding="utf-8")
    hub = GeneratorHubInterface(settings, task, [loaded.model] * 2)
    with pytest.raises(ValueError, match="recorded for one model, not for 2"):
        look(hub, CUT)
    stock = build_model("transformer")
    torch.save(state_of(stock, "transformer"), tmp_path / "stock.pt")
    found = look(str(tmp_path / "stock.pt"), CUT, CUT, data=data)
    assert found.attention["cross"][0].gt(0).all()
    with pytest.raises(ValueError, match="no attention whose weights"):
        look(stock, TEXT, task=tiny_task())
    # Dictionaries are enough if the checkpoint names the languages
    for language in ("a", "b"):
        tiny_task().source_dictionary.save(str(tmp_path / f"dict.{language}.txt"))
    state = state_of(build_model())
    named = {"_name": "translation", "data": "gone", "source_lang": "a", "target_lang": "b"}
    state["cfg"]["task"] = named
    torch.save(state, tmp_path / "named.pt")
    assert look(str(tmp_path / "named.pt"), TEXT, TEXT, data=str(tmp_path)).tokens


@pytest.mark.parametrize("name", ["softmax", "pruned", "adaptive"])
def test_a_language_model_reads_the_text_after_its_first_symbol(texts, name):
    found = look(str(texts / f"{name}.pt"), CUT, data=str(texts / "bin"))
    assert set(found.attention) == {"decoder-self"}
    assert found.tokens == ["</s>", *CUT.split()]
    assert found.target_tokens == [*CUT.split(), "</s>"]
    weights = next(one for one in found.attention["decoder-self"] if len(one))
    assert weights.triu(1).eq(0).all()
    assert [link.visible for link in found.links()] == [1, 2, 3, 4, 5, 6]
    assert found.words().tokens == ["</s>", "w1w2", "w3w4w6"]
    with pytest.raises(ValueError, match="--translation got 'w1', but language models do not tra"):
        look(str(texts / f"{name}.pt"), CUT, "w1", data=str(texts / "bin"))


def test_an_empty_or_too_long_text_and_a_model_that_diverged_are_refused():
    long = "a text has 71 tokens, but the model takes at most 64"
    for texts, message in ((["", None], "a text is empty"), (["w1", "w1 " * 70], long)):
        with pytest.raises(ValueError, match=message):
            look(build_model(), *texts, task=tiny_task())
    model = build_model()
    torch.nn.init.constant_(model.encoder.layers[0].fc1.bias, torch.nan)
    with pytest.raises(ValueError, match="model gives non-finite numbers: training"):
        look(model, "w1", "w2", task=tiny_task())
