"""Which models claims.sh trains of each corpus, and what it does with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from messages import UsageError

SMALL, LARGE = "small", "large"
SIZES = (LARGE, SMALL)  # the larger take longer, and more waits for them
# The mapping of each model, and options of fairseq-train where it is not that of all attentions
MODELS: Mapping[str, tuple[str, ...]] = {
    "softmax": ("softmax",),
    "entmax": ("entmax",),
    "entmax15": ("entmax15",),
    "sparsemax": ("sparsemax",),
    "cross-sparsemax": ("softmax", "--cross-attn-mapping", "sparsemax"),
    "cross-fusedmax": ("softmax", "--cross-attn-mapping", "fusedmax"),
    "cross-oscarmax": ("softmax", "--cross-attn-mapping", "oscarmax"),
    "cross-sqpnormmax": ("softmax", "--cross-attn-mapping", "sqpnormmax"),
    "sparse-encoder": ("softmax", "--encoder-self-attn-mapping", "sparsemax"),
}
AT_BOTH_SIZES = ("softmax", "entmax", "entmax15", "sparsemax")
PRUNED_MODELS = ABLATED_MODELS = ("softmax", "entmax")
# The first is trained for as long as the second takes, too
EQUAL_TIME = ("entmax", "entmax15")
# Of each size what removing a head is scored by: BLEU takes a translation of the test set a head
ABLATION_SCORES = {SMALL: "loss,bleu", LARGE: "loss"}


@dataclass(frozen=True)
class Budget:
    """To how many heads a model is pruned.

    Attributes:
        text: as prune.sh takes it, such as ``all=24``.
        scratch: whether a model with the same heads is trained from scratch, too.
    """

    text: str
    scratch: bool

    @property
    def name(self) -> str:
        """The text as a part of a run's name."""
        return self.text.replace("=", "")


@dataclass(frozen=True)
class Scope:
    """What is trained of one corpus.

    Attributes:
        models: of each size, their names.
        pruned: models of size `LARGE` that are pruned.
        ablated: models whose heads are removed one by one.
        equal_time: whether the models of `EQUAL_TIME` are compared at equal time.
    """

    models: Mapping[str, tuple[str, ...]]
    pruned: tuple[str, ...] = PRUNED_MODELS
    budgets: tuple[Budget, ...] = (
        Budget("all=24", True),
        Budget("all=36", False),
        Budget("encoder=4", False),
    )
    ablated: tuple[str, ...] = ABLATED_MODELS
    equal_time: bool = False


WHOLE = Scope({LARGE: AT_BOTH_SIZES, SMALL: tuple(MODELS)}, equal_time=True)
# One that tells whether a finding is the corpus's own
SECOND = Scope({LARGE: AT_BOTH_SIZES}, budgets=(Budget("all=24", True),))
QUICK = Scope(
    {LARGE: ("softmax", *EQUAL_TIME), SMALL: tuple(MODELS)},
    pruned=("softmax",),
    budgets=WHOLE.budgets[:1],
    ablated=("entmax",),
    equal_time=True,
)
SCOPES = {"bible_es_en": WHOLE}
# Further seeds, for narrower intervals of what the claims are most about
MORE_CORPUS = "bible_es_en"
MORE = Scope(
    {LARGE: ("softmax", "entmax", "entmax15")}, budgets=(Budget("all=24", True),), ablated=()
)


def scope_of(
    corpus: str, quick: bool, models: Sequence[str], sizes: Sequence[str], more: bool = False
) -> Scope:
    """What is trained of a corpus, of what was chosen.

    Args:
        quick: whether it is a trial of all kinds of jobs.
        models: chosen names; none stands for all.
        sizes: chosen sizes.
        more: whether it is of further seeds.

    Raises:
        UsageError: a name is none of `MODELS`, or a size none of `SIZES`; or they leave nothing.
    """
    for name in models:
        if name not in MODELS:
            raise UsageError(f"option --models got '{name}': give any of {', '.join(MODELS)}")
    for size in sizes:
        if size not in SIZES:
            raise UsageError(f"option --sizes got '{size}': give any of {', '.join(SIZES)}")
    scope = MORE if more else QUICK if quick else SCOPES.get(corpus, SECOND)
    chosen = set(models or MODELS)
    of_sizes = {
        size: tuple(name for name in names if name in chosen)
        for size, names in scope.models.items()
        if size in (sizes or SIZES)
    }
    if not any(of_sizes.values()):
        options = " and ".join(
            f"option --{name} with '{','.join(given)}'"
            for name, given in (("models", models), ("sizes", sizes))
            if given
        )
        has = "; ".join(
            f"{', '.join(names)} at size {size}" for size, names in scope.models.items()
        )
        what = f"further seeds of {corpus}" if more else corpus
        raise UsageError(f"{options} leaves nothing of {what}, of which is made: {has}")
    large = of_sizes.get(LARGE, ())
    return replace(
        scope,
        models=of_sizes,
        pruned=tuple(name for name in scope.pruned if name in large),
        equal_time=scope.equal_time and set(EQUAL_TIME) <= set(large),
    )
