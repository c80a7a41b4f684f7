"""Models without training: in TorchScript and ONNX, and with dropout in inference.

Where fairseq's own class is not enough for TorchScript, there is one here.
"""

from collections.abc import Collection
from typing import Any, Dict, List, Optional, Tuple

import torch
from fairseq.models.transformer_lm import TransformerLanguageModel
from fairseq.modules import FairseqDropout
from torch import Tensor, nn

from fairseq_entmax.criterions.sparse_output import SOFTMAX
from fairseq_entmax.modules.scripting import Scriptable, scriptable


class ForInference(Scriptable):
    """Of a model of this package; stands before fairseq's class among its bases."""

    def scriptable_form(self: Any) -> Any:
        """A model of fairseq's class for ``torch.jit.script`` and ONNX, for inference."""
        if self.output_alpha != SOFTMAX:
            raise ValueError(
                f"a model with --output-alpha {self.output_alpha:g} cannot be scripted or exported as a "
                f"whole: fairseq's scripted search ends in an assertion where words have probability "
                f"zero; script model.encoder and model.decoder, which gives the scores, or generate "
                f"with fairseq-generate"
            )
        model: Any = Scriptable.scriptable_form(self)
        # What is for training alone; a seed may be too large for TorchScript's numbers
        for name in ("attention_options", "monitor", "has_other_factors", "_seed", "_passes"):
            model.__dict__.pop(name, None)
        model._modules.pop("pruning_state", None)
        return model

    def make_generation_fast_(self: Any, **kwargs: Any) -> None:
        """As fairseq's, with ``--retain-dropout-modules`` by names of fairseq's classes too.

        Dropout in an ``EntmaxTransformerEncoder`` is retained by the name ``TransformerEncoder`` as
        well, and by that of any class that it is made of.
        """
        given = kwargs.get("retain_dropout_modules")
        if given is not None:
            kwargs["retain_dropout_modules"] = [*given, *_dropout_named(self, given)]
        super().make_generation_fast_(**kwargs)  # type: ignore[misc]

    def prepare_for_onnx_export_(self: Any, **kwargs: Any) -> None:
        """Make the model, in place, one that ONNX takes; it cannot be trained any more."""
        self._modules.update(scriptable(self)._modules)
        super().prepare_for_onnx_export_(**kwargs)  # type: ignore[misc]


class ScriptableLanguageModel(TransformerLanguageModel):
    """fairseq's ``transformer_lm``, whose own ``forward`` takes arguments of any name."""

    # A set, which TorchScript does not have
    __jit_unused_properties__ = ("supported_targets",)

    def forward(
        self,
        src_tokens: Tensor,
        src_lengths: Optional[Tensor] = None,
        incremental_state: Optional[Dict[str, Dict[str, Optional[Tensor]]]] = None,
    ) -> Tuple[Tensor, Dict[str, List[Optional[Tensor]]]]:
        """Scores of the next word ``(batch, tokens, words)``, and a dictionary as fairseq's."""
        return self.decoder(src_tokens, incremental_state=incremental_state)

    @torch.jit.export
    def get_normalized_probs(
        self,
        net_output: Tuple[Tensor, Optional[Dict[str, List[Optional[Tensor]]]]],
        log_probs: bool,
        sample: Optional[Dict[str, Tensor]] = None,
    ) -> Any:
        """Probabilities of words ``(batch, tokens, words)``, or their logarithms."""
        return self.get_normalized_probs_scriptable(net_output, log_probs, sample)


def _dropout_named(model: nn.Module, names: Collection[str]) -> set[str]:
    """What fairseq calls the dropout in modules of these classes, and of those below them."""
    called: set[str | None] = set()
    for module in model.modules():
        classes = {base.__name__ for base in type(module).__mro__}
        # fairseq's own names are without it
        classes |= {name.removesuffix("Base") for name in classes}
        if classes & set(names):
            children = module.children()
            called |= {child.module_name for child in children if isinstance(child, FairseqDropout)}
    return {name for name in called if name is not None}
