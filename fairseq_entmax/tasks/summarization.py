"""The task ``entmax_summarization``: fairseq's ``translation`` with a search for summaries."""

# No annotations as text here: fairseq reads the types of a dataclass of options
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from fairseq.tasks import register_task
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from omegaconf import II
from omegaconf.errors import OmegaConfBaseException

from fairseq_entmax import compat
from fairseq_entmax.tasks.search import (
    AVERAGE,
    LENGTH_PENALTIES,
    WU,
    SearchSettings,
    SummarySearch,
    SummarySearchWithAlignment,
    attends_to_source,
    no_attention,
)

logger = logging.getLogger(__name__)

# A penalty larger than any log probability; products with it are finite in float32
MOST_COVERAGE = 1e6
# The penalty of a text of any length that fairseq takes is finite
MOST_ALPHA = 10.0


def _option(default: Any, help: str) -> Any:
    return field(default=default, metadata={"help": help})


@dataclass
class SummarizationConfig(TranslationConfig):
    """The options of fairseq's ``translation``, and those of the search."""

    length_penalty: str = _option(
        AVERAGE,
        "what compares hypotheses of different lengths: average (fairseq's: by length to the "
        "power of --lenpen), or wu (((5 + length) / 6) to the power of --lenpen, 0.9 for "
        "summaries)",
    )
    coverage_penalty: float = _option(
        0.0,
        "beta: hypotheses lose beta nats for each unit of attention that a source word gets "
        "beyond 1 (5 for summaries; 0: none)",
    )
    no_repeat_ngram_except: str = _option(
        "",
        "tokens, with commas or spaces between them, such as '. !': an n-gram with one of them "
        "may repeat under --no-repeat-ngram-size",
    )
    # fairseq's own, to refuse what does not go together before models are loaded. They are bool,
    # which fairseq would make True of the reference where its command has no such option.
    sampling: Any = field(default=II("generation.sampling"))
    unnormalized: Any = field(default=II("generation.unnormalized"))


@register_task("entmax_summarization", dataclass=SummarizationConfig)
class EntmaxSummarizationTask(TranslationTask):
    """fairseq's ``translation`` with the beam search of OpenNMT-py for summaries.

    Data, training and checkpoints are those of ``translation``: a model trained with one task
    generates with the other. The options of the search may also stand among the arguments of
    :meth:`build_generator`, as ``--eval-bleu-args`` and fairseq's hub interface give them.

    Args:
        cfg: the options.
        src_dict: words of the source.
        tgt_dict: words of the target.

    Raises:
        ValueError: an option is wrong; names it, the value and what is allowed.
    """

    def __init__(self, cfg: Any, src_dict: Any, tgt_dict: Any) -> None:
        super().__init__(cfg, src_dict, tgt_dict)
        self._has_warned = False
        with compat.stopping_command():
            read_search(_reader(cfg), tgt_dict)

    @classmethod
    def setup_task(cls, cfg: Any, **kwargs: Any) -> Any:
        """Check the options, and load the dictionaries."""
        with compat.stopping_command():
            read = _reader(cfg)
            check_penalties(read)
            check_together(read, read)
        return super().setup_task(cfg, **kwargs)

    def build_generator(
        self,
        models: Sequence[Any],
        args: Any,
        seq_gen_cls: Any = None,
        extra_gen_cls_kwargs: dict[str, Any] | None = None,
        prefix_allowed_tokens_fn: Any = None,
    ) -> Any:
        """Make what generates; fairseq's own where no option asks for more.

        Arguments are those of fairseq's; ``--no-repeat-ngram-size`` alone takes the search of
        this package too, as fairseq's ignores it without its CUDA extension.

        Raises:
            ValueError: options do not go together, or not with a model; names them.
        """
        extra = dict(extra_gen_cls_kwargs or {})
        with compat.stopping_command():
            settings = self._settings(args)
            ngram_size = getattr(args, "no_repeat_ngram_size", 0)
            is_stock = settings == SearchSettings() and ngram_size <= 0
            if not is_stock and not getattr(args, "score_reference", False):
                if seq_gen_cls is not None:
                    raise ValueError(
                        f"seq_gen_cls {seq_gen_cls.__name__} takes the place of the search, and "
                        f"the options ask for {settings}: leave one of the two out"
                    )
                self._check_models(models, settings)
                self._say_what_has_no_effect(settings, ngram_size)
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
        """What the arguments of a generator say, and the task's options where they are silent."""
        of_task, of_generator = _reader(self.cfg), _reader(args)

        def read(name: str) -> Any:
            value = of_generator(name)
            return of_task(name) if value is None else value

        settings = read_search(read, self.target_dictionary)
        check_together(read, of_generator)
        return settings

    def _check_models(self, models: Sequence[Any], settings: SearchSettings) -> None:
        for model in models if settings.coverage_penalty else ():
            if not attends_to_source(model):
                raise ValueError(no_attention(model, settings.coverage_penalty))

    def _say_what_has_no_effect(self, settings: SearchSettings, ngram_size: int) -> None:
        if settings.may_repeat and ngram_size <= 0 and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "--no-repeat-ngram-except has no effect without --no-repeat-ngram-size, which "
                "is 3 for summaries"
            )


def read_search(read: Callable[[str], Any], dictionary: Any) -> SearchSettings:
    """Check the options of the search, and look their tokens up.

    Args:
        read: gives the value of an option, None where there is none.
        dictionary: fairseq's, of the target.

    Raises:
        ValueError: names the option, the value, and what is allowed.
    """
    length, coverage = check_penalties(read)
    text = str(read("no_repeat_ngram_except") or "")
    indices = set()
    for token in split_tokens(text):
        index = dictionary.index(token)
        if index == dictionary.unk() and token != dictionary.unk_word:
            raise ValueError(
                f"--no-repeat-ngram-except got {token!r:.100}, which is not in the dictionary of "
                f"the target: write it as it is there, such as '▁.' with SentencePiece, or leave "
                f"it out"
            )
        indices.add(index)
    return SearchSettings(length, coverage, tuple(sorted(indices)))


def check_penalties(read: Callable[[str], Any]) -> tuple[str, float]:
    """The length penalty and beta, which are allowed values; raises ``ValueError``."""
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
    return length, float(coverage)


def check_together(read: Callable[[str], Any], generation: Callable[[str], Any]) -> None:
    """Refuse options of the search that do not go with fairseq's on generation.

    Args:
        read: gives an option of the search.
        generation: gives one of fairseq's.

    Raises:
        ValueError: names both.
    """
    length, coverage = check_penalties(read)
    if coverage and generation("sampling"):
        raise ValueError(
            f"--coverage-penalty {coverage:g} compares hypotheses, and --sampling draws them: "
            f"leave one of the two out"
        )
    if length == WU and generation("unnormalized"):
        raise ValueError(
            "--length-penalty wu divides scores by a length, and --unnormalized forbids it: "
            "leave one of the two out"
        )
    alpha = generation("lenpen")
    if length == WU and alpha is not None and not 0 <= alpha <= MOST_ALPHA:
        raise ValueError(
            f"--lenpen got {alpha}: with --length-penalty wu, give a number from 0 to "
            f"{MOST_ALPHA:g}, such as 0.9"
        )


def split_tokens(text: str) -> list[str]:
    """The tokens of a list with spaces or commas; a comma between spaces is a token itself."""
    tokens: list[str] = []
    for word in text.split():
        tokens += [word] if word == "," else filter(None, word.split(","))
    return tokens


def _reader(options: Any) -> Callable[[str], Any]:
    """Gives options by name: None for what is not there, or refers to what is not there."""

    def read(name: str) -> Any:
        try:
            value = getattr(options, name, None)
        except OmegaConfBaseException:
            return None
        return None if isinstance(value, str) and value.startswith("${") else value

    return read
