"""Gates on heads, and a frozen decoder for pruning the encoder."""

from dataclasses import dataclass
from typing import Any

from fairseq_entmax.attention import GATES, Gate, PruningState, attention_modules, gates
from fairseq_entmax.attentions import ATTENTIONS, CROSS, SIDES
from fairseq_entmax.models import values
from fairseq_entmax.models.feature import Feature, ModelOptions, option


def parse_attentions(value: Any) -> tuple[str, ...]:
    """Names of attentions, separated by commas, in the order of :data:`ATTENTIONS`."""
    names = values.parts(value) if value else []
    for name in names:
        if name not in ATTENTIONS:
            raise ValueError(f"unknown attention {name!r}; allowed: {', '.join(ATTENTIONS)}")
    if len(set(names)) < len(names):
        raise ValueError(f"an attention is named twice in {value!r}")
    return tuple(attention for attention in ATTENTIONS if attention in names)


def parse_gate(value: Any) -> str:
    if value not in GATES:
        raise ValueError(f"unknown gate {value!r}; allowed: {', '.join(GATES)}")
    return str(value)


@dataclass
class Gates(Feature):
    """Gates on the heads of some attentions, and the state of the penalty on them."""

    name = "gates"
    head_gates: tuple[str, ...] | None = option(
        None,
        f"attentions whose heads get gates: any of {', '.join(ATTENTIONS)}; train them with "
        "--criterion label_smoothed_cross_entropy_with_head_l0 or another …_with_head_l0",
        parse_attentions,
        "ATTENTION,...",
        "none",
    )
    gate: str = option(
        gates.HARD_CONCRETE,
        lambda: f"type of gates: {', '.join(GATES)}; with subset, exactly --target-heads are open",
        parse_gate,
        "GATE",
    )
    gate_temperature: float = option(
        gates.TEMPERATURE,
        "temperature beta of the gates, from 0.01 to below 1; with subset, it falls to 0.01",
        gates.check_temperature,
        "NUMBER",
    )
    gate_stretch: tuple[float, float] = option(
        ",".join(map(str, gates.STRETCH)),
        "stretch limits of hard-concrete gates, gamma below 0 and zeta above 1, given after an equals sign; "
        "or one number e for -e and 1 + e",
        gates.check_stretch,
        "GAMMA,ZETA",
    )
    gate_init: float = option(
        gates.INIT,
        "initial log a of every gate, from -10 to 10; from 2.4 on, with the other defaults, a gate "
        "starts as 1 in evaluation",
        gates.check_init,
        "NUMBER",
    )
    gate_lr_factor: float = option(
        gates.LR_FACTOR,
        "learning rate factor of log a, from 0.001 to 10000",
        values.check_factor,
        "NUMBER",
    )

    def fit(self, options: ModelOptions, args: Any) -> None:
        for attention in self.head_gates or ():
            side = SIDES[attention]
            if attention not in options.heads:
                raise ValueError(
                    f"--head-gates: this model has no {attention} attention, only {', '.join(options.heads)}"
                )
            if not sum(options.heads[attention]):
                raise ValueError(
                    f"--head-gates: {attention} attention has no heads to put gates on"
                )
            if attention == CROSS and getattr(args, "no_cross_attention", False):
                raise ValueError(
                    "--head-gates: --no-cross-attention leaves no cross attention to gate"
                )
            layerdrop = getattr(args, f"{side}_layerdrop", 0)
            if layerdrop:
                raise ValueError(
                    f"--head-gates: --{side}-layerdrop {layerdrop} skips layers, and so gates, in "
                    f"some updates: leave it out while heads are pruned"
                )
            if GATES[self.gate].draws_together and getattr(args, "checkpoint_activations", False):
                raise ValueError(
                    f"--gate {self.gate} draws all layers' gates at once, but --checkpoint-activations "
                    "would draw each again: leave one out"
                )
            if side == "decoder" and getattr(args, "freeze_decoder", False):
                raise ValueError(
                    f"--head-gates {attention}: --freeze-decoder stops the decoder from "
                    f"learning, so only encoder-self can have gates"
                )

    def build(self, options: ModelOptions, attention: str, layer: int) -> Gate:
        """Make the gates of one attention in one layer that has heads."""
        features, gate = options.features.values(), GATES[self.gate]
        is_stretched = issubclass(gate, gates.HardConcreteGate)
        return gate(
            options.heads[attention][layer],
            temperature=self.gate_temperature,
            **({"stretch": self.gate_stretch} if is_stretched else {}),
            init=self.gate_init,
            lr_factor=self.gate_lr_factor,
            protected=sum((one.protected(attention, layer) for one in features), ()),
        )

    def attach(self, model: Any, args: Any) -> None:
        for attention, layer, module in attention_modules(model):
            if attention in (self.head_gates or ()) and module.num_heads:
                module.gate = self.build(model.attention_options, attention, layer)
        model.pruning_state = PruningState() if model.head_gates() else None


@dataclass
class FrozenDecoder(Feature):
    name = "frozen_decoder"
    freeze_decoder: bool = option(
        False,
        "do not train the parameters of the decoder, including shared embeddings; for pruning "
        "the encoder of a trained model",
    )

    def fit(self, options: ModelOptions, args: Any) -> None:
        if self.freeze_decoder and CROSS not in options.attentions:
            raise ValueError(
                "--freeze-decoder needs a model with an encoder and a decoder, unlike this one: leave it out"
            )

    def attach(self, model: Any, args: Any) -> None:
        for name, parameter in model.named_parameters(remove_duplicate=False):
            if self.freeze_decoder and name.startswith("decoder."):
                parameter.requires_grad_(False)
