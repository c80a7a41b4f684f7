"""Small tasks, models and batches that the tests share."""

import functools
from argparse import Namespace
from collections.abc import Iterable, Sequence
from typing import Any

import numpy
import torch
from fairseq import tasks
from fairseq.data import Dictionary, LanguagePairDataset, ListDataset, data_utils
from fairseq.data.indexed_dataset import MMapIndexedDatasetBuilder
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from fairseq.tasks.sentence_prediction import SentencePredictionConfig, SentencePredictionTask
from fairseq.tasks.translation import TranslationConfig

import fairseq_entmax.models  # noqa: F401

TEMPERED = "entmax:temperature=learned:temperature_init=2"
MAPPINGS = ["softmax", "sparsemax", "entmax15", "entmax", "entmax:alpha=1.2", TEMPERED]
STRUCTURED = ["fusedmax", "entmax:tv=learned", "oscarmax:oscar=0.1", "sqpnormmax:p=learned"]
# For models whose layers have four heads
EVERY_MAPPING = [*MAPPINGS, *STRUCTURED, "entmax|fusedmax|softmax|entmax"]

SIZES = {"embed_dim": 16, "ffn_embed_dim": 24, "layers": 2, "attention_heads": 4}
TINY: dict[str, Any] = {
    **{f"{side}_{name}": size for name, size in SIZES.items() for side in ("encoder", "decoder")},
    **{"dropout": 0.0, "max_source_positions": 64, "max_target_positions": 64},
}


MARKERS = 3


def dictionary_of(symbols: Iterable[str]) -> Dictionary:
    dictionary = Dictionary()
    for symbol in symbols:
        dictionary.add_symbol(symbol)
    return dictionary


def words(markers: int = 0) -> Dictionary:
    return dictionary_of([*(f"w{n}" for n in range(20)), *(f"<unk-{n}>" for n in range(markers))])


@functools.cache
def tiny_task(markers: int = 0) -> Any:
    """A translation task over 20 words, with this number of markers for other words."""
    dictionary = words(markers)
    config = TranslationConfig(source_lang="a", target_lang="b")
    return tasks.translation.TranslationTask(config, dictionary, dictionary)


def marked_task() -> Any:
    return tiny_task(MARKERS)


def settings_of(arch: str = "entmax_transformer", **options: Any) -> Namespace:
    """The options of a tiny model as fairseq-train saves them."""
    args = Namespace(arch=arch, _name=arch, **{**TINY, **options})
    ARCH_CONFIG_REGISTRY[arch](args)
    return args


def built(args: Namespace, task: Any = None, seed: int = 1) -> Any:
    """The model with these options, in evaluation mode."""
    torch.manual_seed(seed)
    return ARCH_MODEL_REGISTRY[args.arch].build_model(args, task or tiny_task()).eval()


def build_model(
    arch: str = "entmax_transformer", seed: int = 1, task: Any = None, **options: Any
) -> Any:
    """A tiny model of an architecture, in evaluation mode."""
    return built(settings_of(arch, **options), task, seed)


def spread_scores(model: Any, factor: float = 4.0) -> Any:
    """Enlarge the query projections, so that sparse mappings give zeros."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "q_proj.weight" in name:
                parameter.mul_(factor)
    return model


def all_gates(model: Any) -> list[Any]:
    return [gate for layers in model.head_gates().values() for gate in layers.values()]


def random_sentences(lengths: Sequence[int], seed: int = 0) -> list[torch.Tensor]:
    """Random sentences of the given lengths, each with an end-of-sentence symbol."""
    generator = torch.Generator().manual_seed(seed)
    dictionary = tiny_task().source_dictionary
    sentences = []
    for length in lengths:
        tokens = torch.randint(dictionary.nspecial, len(dictionary), (length,), generator=generator)
        tokens[-1] = dictionary.eos()
        sentences.append(tokens)
    return sentences


def binarise(prefix: Any, sentences: Sequence[torch.Tensor]) -> None:
    builder = MMapIndexedDatasetBuilder(f"{prefix}.bin", dtype=numpy.int32)
    for sentence in sentences:
        builder.add_item(sentence)
    builder.finalize(f"{prefix}.idx")


def pair_dataset(*sides: Sequence[torch.Tensor], **options: Any) -> LanguagePairDataset:
    """A data set of these source and target sentences."""
    parts: list[Any] = []
    for sentences in sides:
        sizes = [len(sentence) for sentence in sentences]
        parts += [ListDataset(sentences, sizes), sizes, tiny_task().source_dictionary]
    return LanguagePairDataset(*parts, shuffle=False, **options)


def batch(source_lengths: list[int], target_lengths: list[int], **options: Any) -> Any:
    """One batch as fairseq's data loader makes it; sentences come in the order given by length."""
    target = random_sentences(target_lengths, seed=1)
    dataset = pair_dataset(random_sentences(source_lengths), target, **options)
    return dataset.collater([dataset[index] for index in range(len(target))])


def course(
    model: Any, loss_of: Any, optimizer: Any = torch.optim.Adam, lr: float = 1e-2
) -> tuple[list[float], dict[str, torch.Tensor]]:
    """The losses of four updates, each ``loss_of(model, update)``, and the weights after them."""
    moving, losses = optimizer(model.train().parameters(), lr=lr), []
    for update in range(4):
        torch.manual_seed(update)
        loss = loss_of(model, update)
        moving.zero_grad()
        loss.backward()
        moving.step()
        losses.append(loss.item())
    return losses, model.state_dict()


def sample() -> Any:
    """Three sentence pairs; sources are padded on the left."""
    return batch([9, 7, 4], [6, 8, 5], left_pad_source=True, left_pad_target=False)


@torch.no_grad()
def logits(model: Any) -> torch.Tensor:
    """The model's logits for :func:`sample`."""
    scores: torch.Tensor = model(**sample()["net_input"])[0]
    return scores


def search(
    models: Any, sample: Any, task: Any = None, digits: int = 12, prefix: Any = None, **options: Any
) -> list[list[Any]]:
    """Tokens and score of every hypothesis of a beam search by one model or several.

    The default beam is 3; ``prefix`` has the tokens with which the hypotheses have to begin.
    """
    models = models if isinstance(models, list) else [models]
    task, settings = task or tiny_task(), {"beam": 3, "max_len_a": 0, "max_len_b": 12, **options}
    generator = task.build_generator(models, Namespace(**settings))
    torch.manual_seed(0)
    sentences = task.inference_step(generator, models, sample, prefix_tokens=prefix)
    return [
        [(one["tokens"].tolist(), round(one["score"].item(), digits)) for one in hypotheses]
        for hypotheses in sentences
    ]


@torch.no_grad()
def assert_steps_equal_the_whole_pass(model: Any, sample: Any) -> None:
    """Assert that stepwise decoding gives the same as decoding all words at once."""
    inputs, read = sample["net_input"], {}
    tokens = inputs.get("prev_output_tokens", inputs["src_tokens"])
    if hasattr(model, "encoder"):
        read["encoder_out"] = model.encoder(inputs["src_tokens"], inputs["src_lengths"])
    whole, _ = model.decoder(tokens, **read)
    state: Any = {}
    steps = [
        model.decoder(tokens[:, : n + 1], incremental_state=state, **read)[0]
        for n in range(tokens.size(1))
    ]
    real = tokens.ne(tiny_task().target_dictionary.pad())
    torch.testing.assert_close(torch.cat(steps, 1)[real], whole[real], atol=1e-9, rtol=0)


def classification_task(num_classes: int = 3, **options: Any) -> Any:
    """A text classification task over the words of :func:`tiny_task`."""
    labels = dictionary_of(f"class{number}" for number in range(num_classes))
    config = {
        "num_classes": num_classes,
        "regression_target": False,
        "classification_head_name": "sentence_classification_head",
    }
    config = SentencePredictionConfig(**{**config, **options})
    return SentencePredictionTask(config, words(), labels)


def build_roberta(**options: Any) -> Any:
    """A tiny classification model with the head of its task, in evaluation mode."""
    task = classification_task()
    model = build_model("entmax_roberta", task=task, **{"max_positions": 64, **options})
    model.register_classification_head(task.cfg.classification_head_name, task.cfg.num_classes)
    return model.eval()


def padded(sources: list[list[int]]) -> torch.Tensor:
    """Sources ``(batch, tokens)``, padded on the right as by the task."""
    return data_utils.collate_tokens([torch.tensor(source) for source in sources], 1)
