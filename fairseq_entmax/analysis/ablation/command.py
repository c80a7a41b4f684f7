"""The command ``fairseq-entmax ablate``: what a model loses without each of its heads."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from fairseq_entmax.analysis import arguments as choices
from fairseq_entmax.analysis.ablation import results
from fairseq_entmax.analysis.ablation.journal import Journal
from fairseq_entmax.analysis.ablation.removal import (
    Removal,
    Scorer,
    heads_of,
    names_of,
    text_of,
)
from fairseq_entmax.analysis.data import data_types, loading
from fairseq_entmax.analysis.data.generation import OF_GENERATE_ALONE, search_options
from fairseq_entmax.analysis.data.samples import on_device
from fairseq_entmax.analysis.models.likelihood import has_zeros
from fairseq_entmax.analysis.models.loaded import load_models
from fairseq_entmax.attention import attention_modules
from fairseq_entmax.files import sha256, write_together
from fairseq_entmax.head_names import Head, check_heads
from fairseq_entmax.paired_tests import require_scipy
from fairseq_entmax.progress import watched
from fairseq_entmax.summaries.rouge import Rouge, RougeOptions, require_rouge_score

logger = logging.getLogger(__name__)

JOURNAL, JSON = "removals.jsonl", "ablation.json"


def main(arguments: Sequence[str]) -> None:
    parser = loading.data_parser(choices.ABLATE)
    parser.prog = "fairseq-entmax ablate"
    choices.add_ablate_options(parser)
    loading.log_to_stderr()
    args = loading.parse(parser, arguments)
    _check(args)
    task = loading.setup_task(args)
    metric = rouge = None
    if choices.BLEU in args.scores:
        metric = results.bleu_metric(args.sacrebleu_tokenize, task.cfg.target_lang)
    if choices.ROUGE in args.scores:
        rouge = Rouge(RougeOptions(max_bytes=args.rouge_bytes, sentences=args.rouge_sentences))
    dataset = loading.load_dataset(task, args.gen_subset)
    (loaded,) = load_models(args, task)
    removals = _removals(args, loaded.model)
    batches, device = loading.batches(args, task, dataset, [loaded.model]), loading.device_of(args)
    samples = [on_device(sample, device) for sample in batches]
    config = loading.configuration(args)
    scorer = Scorer(loaded.model, task, config, samples, args.scores)
    _check_sentences(args, scorer)
    settings = scoring_settings(args, config, task, dataset, scorer.ids)
    os.makedirs(args.output, exist_ok=True)
    folder = Path(args.output)
    with Journal(str(folder / JOURNAL), settings, args.overwrite) as journal:
        if args.overwrite:
            (folder / JSON).unlink(missing_ok=True)
        _score_all(args, scorer, removals, journal)
        compared = results.compare(journal.finished, scorer, metric, args.trials, args.seed, rouge)
    counts = {"sentences": len(scorer.ids), "target_tokens": sum(scorer.target_tokens)}
    data_type = data_types.type_of_task(task)
    unit = results.NATS_OF_TEXT if data_type.name == "labelled" else results.NATS
    document = {
        "format": results.FORMAT,
        "version": results.VERSION,
        "checkpoint": loaded.path,
        "data": {"path": args.data, "subset": args.gen_subset, **data_type.scored(task, counts)},
        "loss_unit": results.ENTMAX if has_zeros(loaded.model) else unit,
        "settings": settings,
        **compared,
    }
    text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    write_together({folder / JSON: text.encode()})
    print(results.as_table(document))
    print(f"results: {os.path.join(args.output, JSON)}")


def _check(args: Namespace) -> None:
    """Reject wrong options before anything is loaded, and parse ``--scores``."""
    if not args.output:
        raise ValueError("give --output DIR, the folder to write to")
    paths = args.path.split(os.pathsep)
    if len(paths) > 1:
        raise ValueError(f"--path got {len(paths)} checkpoints, {args.path!r}: give one")
    args.scores = choices.chosen_scores(args.scores, data_types.type_named(args.task).has_search)
    loading.refuse(args, OF_GENERATE_ALONE, "leave it out")
    choices.check_counts(args)
    if choices.BLEU in args.scores and args.seed < 1:
        raise ValueError(f"--seed got {args.seed}: sacreBLEU's test needs 1 or more")
    if choices.LOSS in args.scores or choices.ROUGE in args.scores:
        require_scipy()
    if choices.ROUGE in args.scores:
        require_rouge_score()
    for option, value in (
        ("--rouge-bytes", args.rouge_bytes),
        ("--rouge-sentences", args.rouge_sentences),
    ):
        if value is not None and choices.ROUGE not in args.scores:
            raise ValueError(f"{option} got {value!r}, which needs rouge in --scores")
    output = Path(args.output)
    if os.path.lexists(output) and not output.is_dir():
        raise NotADirectoryError(f"--output {output} is a file: give a folder")
    if (output / JSON).exists() and not (output / JOURNAL).exists() and not args.overwrite:
        raise FileExistsError(
            f"--output {output} has an {JSON} but no {JOURNAL} to resume from: choose another "
            f"folder, or replace it with --overwrite"
        )


def _removals(args: Namespace, model: Any) -> list[Removal]:
    """The distinct removals that ``--heads`` and ``--sets`` name; by default, those of ``heads_of``."""
    singles = args.heads or ([] if args.sets else [choices.ALL])
    if choices.ALL in singles:
        removals: list[Removal] = [(head,) for head in heads_of(model)]
    else:
        removals = [(head,) for text in singles for head in _heads("--heads", text, model)]
    removals += [tuple(_heads("--sets", text, model)) for text in args.sets or []]
    if not removals:
        raise ValueError("the model has no open heads: there is nothing to remove")
    return list(dict.fromkeys(removals))


def _heads(option: str, text: str, model: Any) -> list[Head]:
    heads = sorted(choices.named_heads(option, text))
    counts: dict[str, list[int]] = {}
    for attention, _, module in attention_modules(model):
        counts.setdefault(attention, []).append(module.num_heads)
    try:
        check_heads(heads, counts, "the model")
    except ValueError as error:
        raise ValueError(f"{option}: {error}") from None
    return heads


def _check_sentences(args: Namespace, scorer: Scorer) -> None:
    if len(scorer.ids) < 2:
        raise ValueError(
            f"--gen-subset {args.gen_subset} has {len(scorer.ids)} sentences, but a "
            f"significance test needs 2 or more"
        )
    for mark, remedy in (("\u2581", "sentencepiece"), ("@@ ", "subword_nmt")):
        if sum(mark in reference for reference in scorer.references) > len(scorer.ids) / 2:
            logger.warning(
                "most references contain the subword mark %r, and BLEU and ROUGE would take subwords "
                "for words: join them with --post-process %s",
                mark.strip(),
                remedy,
            )


def _score_all(
    args: Namespace, scorer: Scorer, removals: Sequence[Removal], journal: Journal
) -> None:
    """Score the unchanged model and every removal that the journal lacks."""
    remaining = [one for one in [(), *removals] if names_of(one) not in journal.finished]
    total = len(remaining) * len(scorer.ids) * scorer.passes
    shown = loading.shows_progress(args)
    with watched(None, "ablate", total, shown, "sentences") as progress:
        for number, removal in enumerate(remaining, start=1):
            name = f"without {text_of(names_of(removal))}" if removal else "unchanged"
            progress.set_description(f"{number}/{len(remaining)} {name}", refresh=False)
            journal.add(names_of(removal), scorer.score(removal, progress.update))


# Generation options that do not affect the best hypothesis
PRINTED = ("sacrebleu", "nbest", "no_seed_provided", "print_alignment", "print_step")


def scoring_settings(
    args: Namespace, config: Any, task: Any, dataset: Any, ids: Sequence[int]
) -> dict[str, Any]:
    """Settings that scores depend on, in JSON's types; moving checkpoint or data changes none."""
    settings: dict[str, Any] = {
        "scores": args.scores,
        "checkpoint_sha256": sha256(args.path),
        "data_sha256": _data_hash(task, dataset, ids),
        "device": loading.device_of(args).type,
        "precision": "float16" if args.fp16 else "bfloat16" if args.bf16 else "float32",
        "max_tokens": args.max_tokens,
        "batch_size": args.batch_size,
        "required_batch_size_multiple": args.required_batch_size_multiple,
    }
    if not choices.OF_TEXT.isdisjoint(args.scores):
        search = search_options(config.generation, task).items()
        settings["generation"] = {name: one for name, one in search if name not in PRINTED}
        settings["generation"] |= {"seed": args.seed} if args.sampling else {}
        settings["text"] = {
            "post_process": args.post_process,
            "bpe": _component(config.bpe),
            "tokenizer": _component(config.tokenizer),
        }
    plain: dict[str, Any] = json.loads(json.dumps(settings, default=str))
    return plain


def _component(config: Any) -> Any:
    """The settings of a fairseq component, such as its BPE; None if there is none."""
    return None if config is None or config._name is None else OmegaConf.to_container(config)


def _data_hash(task: Any, dataset: Any, ids: Sequence[int]) -> str:
    """A hash of the scored sentences, as the model sees them, and of their dictionaries."""
    digest, data_type = hashlib.sha256(), data_types.type_of_task(task)
    for dictionary in (task.source_dictionary, task.target_dictionary):
        digest.update("\n".join(dictionary.symbols).encode() + b"\n\n")
    for number in ids:
        digest.update(f"{number}:{data_type.item_text(dataset[number])}\n".encode())
    return digest.hexdigest()
