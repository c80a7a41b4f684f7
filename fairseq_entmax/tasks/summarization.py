"""The task ``entmax_summarization``: fairseq's ``translation`` with a search for summaries."""

# No ``from __future__ import annotations``: fairseq reads the types of options at run time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fairseq.tasks import register_task
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from omegaconf.errors import OmegaConfBaseException

from fairseq_entmax import command_errors, compat
from fairseq_entmax.tasks.search import (
    AVERAGE,
    LENGTH_PENALTIES,
    WU,
    SearchSettings,
    SummarySearch,
    SummarySearchWithAlignment,
)

# A penalty larger than any log probability; products with it are finite in float32
MOST_COVERAGE = 1e6
# Up to here the penalty is finite for any length of text that fairseq accepts
MOST_LENPEN = 10.0


@dataclass
class SummarizationConfig(TranslationConfig):
    """The options of fairseq's ``translation``, and those of the search."""

    length_penalty: str = compat.option(
        AVERAGE,
        "how to compare hypotheses of different lengths: average (fairseq's: divide by length to the "
        "power of --lenpen), or wu (divide by ((5 + length) / 6) to the power of --lenpen, 0.9 for summaries)",
    )
    coverage_penalty: float = compat.option(
        0.0,
        "beta: hypotheses lose beta nats for each unit of attention that a source word gets "
        "beyond 1 (5 for summaries; 0: none)",
    )
    no_repeat_ngram_except: str = compat.option(
        "",
        "tokens, separated by commas or spaces, such as '. !'; an n-gram that contains one of them "
        "may repeat despite --no-repeat-ngram-size",
    )


@register_task("entmax_summarization", dataclass=SummarizationConfig)
class EntmaxSummarizationTask(TranslationTask):
    """fairseq's ``translation`` with the beam search of OpenNMT-py for summaries.

    Data, training and checkpoints are those of ``translation``: a model trained with one task
    generates with the other. The options of the search may also be given as arguments of
    :meth:`build_generator`, as by ``--eval-bleu-args`` and fairseq's hub interface.
    """

    def __init__(self, cfg: Any, src_dict: Any, tgt_dict: Any) -> None:
        super().__init__(cfg, src_dict, tgt_dict)
        with command_errors.stopping_command():
            read_search(_reader(cfg), tgt_dict)

    def build_generator(
        self,
        models: Sequence[Any],
        args: Any,
        seq_gen_cls: Any = None,
        extra_gen_cls_kwargs: dict[str, Any] | None = None,
        prefix_allowed_tokens_fn: Any = None,
    ) -> Any:
        """Make the generator, which is fairseq's own if no option asks for more.

        Arguments are those of fairseq's method. ``--no-repeat-ngram-size`` alone also selects this
        package's search, as fairseq's ignores it without its CUDA extension.
        """
        extra = dict(extra_gen_cls_kwargs or {})
        with command_errors.stopping_command():
            settings = self._settings(args)
            ngram_size = getattr(args, "no_repeat_ngram_size", 0)
            is_stock = settings == SearchSettings() and ngram_size <= 0
            is_search = seq_gen_cls is None and not getattr(args, "score_reference", False)
            if is_search and not is_stock:
                for model in models if settings.coverage_penalty else ():
                    layers = getattr(getattr(model, "decoder", None), "layers", ())
                    # Decoders other than Transformers may have attention elsewhere
                    across = [
                        layer.encoder_attn for layer in layers if hasattr(layer, "encoder_attn")
                    ]
                    copies = hasattr(getattr(model, "decoder", None), "give_copy_scores")
                    # Without heads, the last layer gives every word the weight 0
                    if across and not getattr(across[-1], "num_heads", across[-1]) and not copies:
                        raise ValueError(
                            f"--coverage-penalty {settings.coverage_penalty:g} needs the decoder's "
                            f"attention to the source, and the last layer of {type(model).__name__} "
                            f"has none: leave the option out, or use a Transformer with cross-attention"
                        )
                extra["settings"] = settings
                seq_gen_cls = SummarySearch
                if getattr(args, "print_alignment", None):
                    seq_gen_cls = SummarySearchWithAlignment
                    extra["print_alignment"] = args.print_alignment
        return super().build_generator(
            models,
            args,
            seq_gen_cls=seq_gen_cls,
            extra_gen_cls_kwargs=extra,
            prefix_allowed_tokens_fn=prefix_allowed_tokens_fn,
        )

    def _settings(self, args: Any) -> SearchSettings:
        """Settings from a generator's arguments, or from the task's options if not given there."""
        of_task, of_generator = _reader(self.cfg), _reader(args)

        def read(name: str) -> Any:
            value = of_generator(name)
            return of_task(name) if value is None else value

        settings = read_search(read, self.target_dictionary)
        _check_together(settings, of_generator)
        return settings


def read_search(read: Callable[[str], Any], dictionary: Any) -> SearchSettings:
    """Check the options of the search, and look their tokens up in the target's dictionary."""
    length, coverage = read("length_penalty") or AVERAGE, read("coverage_penalty") or 0.0
    if length not in LENGTH_PENALTIES:
        raise ValueError(
            f"--length-penalty got {str(length)!r:.100}: give {' or '.join(LENGTH_PENALTIES)}"
        )
    is_number = isinstance(coverage, int | float)
    if not (is_number and 0 <= coverage <= MOST_COVERAGE):
        raise ValueError(
            f"--coverage-penalty got {str(coverage)!r:.100}: give a number from 0 to "
            f"{MOST_COVERAGE:,.0f}, such as 5"
        )
    indices = set()
    for token in split_tokens(str(read("no_repeat_ngram_except") or "")):
        index = dictionary.index(token)
        if index == dictionary.unk() and token != dictionary.unk_word:
            raise ValueError(
                f"--no-repeat-ngram-except got {token!r:.100}, which is not in the target's "
                f"dictionary: write it as it is there, such as '▁.' with SentencePiece, or leave it out"
            )
        indices.add(index)
    return SearchSettings(length, float(coverage), tuple(sorted(indices)))


def _check_together(settings: SearchSettings, generation: Callable[[str], Any]) -> None:
    """Raise ValueError if options of the search conflict with fairseq's generation options."""
    is_wu = settings.length_penalty == WU
    if settings.coverage_penalty and generation("sampling"):
        raise ValueError(
            f"--coverage-penalty {settings.coverage_penalty:g} compares hypotheses, and --sampling "
            f"draws them: leave one of the two out"
        )
    if is_wu and generation("unnormalized"):
        raise ValueError(
            "--length-penalty wu divides scores by a length, and --unnormalized forbids it: "
            "leave one of the two out"
        )
    lenpen = generation("lenpen")
    if is_wu and lenpen is not None and not 0 <= lenpen <= MOST_LENPEN:
        raise ValueError(
            f"--lenpen got {lenpen}: with --length-penalty wu, give a number from 0 to "
            f"{MOST_LENPEN:g}, such as 0.9"
        )


def split_tokens(text: str) -> list[str]:
    """Split a text at spaces and commas; a comma between spaces is itself a token."""
    tokens: list[str] = []
    for word in text.split():
        tokens += [word] if word == "," else filter(None, word.split(","))
    return tokens


def _reader(options: Any) -> Callable[[str], Any]:
    """Make a function that reads options by name: None if missing, or an unresolved reference."""

    def read(name: str) -> Any:
        try:
            value = getattr(options, name, None)
        except OmegaConfBaseException:
            return None
        return None if isinstance(value, str) and value.startswith("${") else value

    return read
