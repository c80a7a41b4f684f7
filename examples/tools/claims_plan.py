"""What claims.sh trains, and the jobs that it takes.

The runs of a corpus are those of its scope (claims_scope.py); each is named by its model, size, seed and role, such as
``entmax-large-seed2`` or ``softmax-large-seed1-all24-pruned``. Jobs stand by seed, so that the whole
picture of the first is there before that of the second, and within it those first that most others
wait for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from claims_scope import ABLATION_SCORES, EQUAL_TIME, LARGE, MODELS, SIZES, Budget, Scope
from jobs import Job

LIBRARY = Path(__file__).resolve().parents[1] / "lib"
TOOLS = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Setting:
    """What the jobs of one corpus have in common.

    Attributes:
        corpus: the recipe's name.
        recipe: its folder.
        output: where its prepare.sh wrote.
        record: the corpus's folder of the record.
        device: cpu or gpu.
        fingerprint: changes with data, settings and scripts.
        environment: of all jobs.
        speed: options of the measurement of speed.
        code: changes with the installed package. What is measured by other code is measured again,
            and what was trained by it is kept.
    """

    corpus: str
    recipe: Path
    output: Path
    record: Path
    device: str
    fingerprint: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    speed: tuple[str, ...] = ()
    code: str = ""


@dataclass(frozen=True)
class Run:
    """One model of the record, as the record names it."""

    model: str
    size: str
    seed: int
    role: str = "trained"
    budget: Budget | None = None

    @property
    def name(self) -> str:
        base = f"{self.model}-{self.size}-seed{self.seed}"
        if self.role == "trained":
            return base
        return "-".join([base, *([self.budget.name] if self.budget else []), self.role])

    @property
    def baseline(self) -> Run:
        return Run(self.model, self.size, self.seed)


class CorpusJobs:
    """The jobs of one corpus.

    Args:
        setting: what they have in common.
        scope: what is trained.
    """

    def __init__(self, setting: Setting, scope: Scope) -> None:
        self.setting, self.scope = setting, scope

    def of_seed(self, seed: int, first: int) -> Iterator[Job]:
        """All jobs of a seed, each behind those that it needs.

        Args:
            first: the seed whose models tell how fast they train.
        """
        trained = [
            Run(model, size, seed)
            for size in SIZES
            for model in MODELS
            if model in self.scope.models.get(size, ())
        ]
        for run in trained:
            options = MODELS[run.model][1:]
            yield self._step(run, "train", run.size, *options, training=True)
        if self.scope.equal_time:
            yield from self._in_equal_time(seed, first)
        pruned = [run for run in trained if run.size == LARGE and run.model in self.scope.pruned]
        # Those from scratch are trained longest of all, and last
        for scratch in (True, False):
            for run in pruned:
                for budget in self.scope.budgets:
                    if budget.scratch == scratch:
                        yield from self._prune(run, budget)
            if scratch:
                for run in pruned:
                    yield from self._continue(run)
        for run in trained:
            yield from self._look(run, "train")

    def _in_equal_time(self, seed: int, first: int) -> Iterator[Job]:
        """A model trained for as long as another takes, by how fast both train where nothing else runs."""
        model, reference = EQUAL_TIME
        if seed == first:
            yield self._pace(Run(model, LARGE, seed), Run(reference, LARGE, seed))
        run, other = Run(model, LARGE, seed, "equaltime"), Run(reference, LARGE, seed)
        after = (self._pace_name, self._name(other, "train"))
        yield self._step(run, "equaltime", other.name, after=after, training=True)
        yield from self._look(run, "equaltime")

    def _pace(self, *runs: Run) -> Job:
        setting = self.setting
        names = [run.name for run in runs]
        return self._job(
            self._pace_name,
            (
                *(f"{LIBRARY / 'claims_job.sh'}", f"{setting.recipe}", f"{setting.output}"),
                *(setting.device, "pace", "", "", *names),
            ),
            after=tuple(self._name(run, "train") for run in runs),
            products=(setting.output / "pace.json",),
            alone=True,
            at_once=True,
        )

    @property
    def _pace_name(self) -> str:
        return f"{self.setting.corpus}/pace"

    def _prune(self, baseline: Run, budget: Budget) -> Iterator[Job]:
        model, size, seed = baseline.model, baseline.size, baseline.seed
        pruned = Run(model, size, seed, "pruned", budget)
        search, found = self._search_of(pruned), self._name(pruned, "search")
        of_baseline = self._name(baseline, "train")
        yield self._step(
            pruned, "search", baseline.name, budget.text, after=(of_baseline,), folder=search
        )
        yield self._step(pruned, "recover", search, after=(found,), training=True)
        after = (self._name(pruned, "recover"),)
        if budget.scratch:
            scratch = Run(model, size, seed, "scratch", budget)
            whole = (baseline.name, search, pruned.name)
            yield self._step(scratch, "scratch", pruned.name, *whole, after=after, training=True)
            yield from self._look(scratch, "scratch")
        yield from self._look(pruned, "recover", search=search)

    def _continue(self, baseline: Run) -> Iterator[Job]:
        """The baseline, trained for as many updates more as pruning takes."""
        continued = Run(baseline.model, baseline.size, baseline.seed, "continued")
        after = (self._name(baseline, "train"),)
        yield self._step(continued, "continue", baseline.name, after=after, training=True)
        yield from self._look(continued, "continue")

    def _look(self, run: Run, training: str, search: str | None = None) -> Iterator[Job]:
        """What follows a training: what the model does, and what is kept of it."""
        after = [self._name(run, training)]
        yield self._step(run, "measure", after=tuple(after))
        after.append(self._name(run, "measure"))
        if run.role == "trained" and run.model in self.scope.ablated:
            yield self._step(run, "ablate", ABLATION_SCORES[run.size], after=(after[0],))
            after.append(self._name(run, "ablate"))
        yield self._keep(run, tuple(after), search)

    def speed(self, seed: int) -> Job:
        """The measurement of speed, of the trained and pruned models of a seed, which take turns."""
        runs = [
            Run(model, size, seed) for size, models in self.scope.models.items() for model in models
        ]
        if LARGE in self.scope.models:
            runs += [
                Run(model, LARGE, seed, "pruned", budget)
                for model in self.scope.pruned
                for budget in self.scope.budgets
            ]
        setting = self.setting
        product = setting.record / "speed.json"
        where = (
            "--output",
            f"{setting.output}",
            "--json",
            f"{product}",
            "--device",
            setting.device,
        )
        return self._job(
            f"{setting.corpus}/speed",
            (
                *("python3", f"{TOOLS / 'claims_speed.py'}", *(run.name for run in runs)),
                *(*where, *setting.speed),
            ),
            after=tuple(self._name(run, "keep") for run in runs),
            environment=self._by_code,
            products=(product,),
            alone=True,
        )

    @property
    def _by_code(self) -> Mapping[str, str]:
        """The environment of what is done again by other code."""
        return {"CLAIMS_CODE": self.setting.code}

    def _name(self, run: Run, kind: str) -> str:
        return f"{self.setting.corpus}/{run.name}/{kind}"

    def _search_of(self, pruned: Run) -> str:
        return f"{pruned.name.removesuffix('pruned')}search"

    def _step(
        self,
        run: Run,
        kind: str,
        *arguments: str,
        after: tuple[str, ...] = (),
        training: bool = False,
        folder: str | None = None,
    ) -> Job:
        """A step of claims_job.sh; `folder` is of the run where that is not of the same name."""
        setting, name = self.setting, folder or run.name
        in_run = setting.output / "runs" / name
        products = {
            "search": (in_run / "pruned.pt",),
            "measure": (in_run / "analysis" / "analysis.json", in_run / "test.hyp"),
            "ablate": (in_run / "ablation" / "ablation.json",),
        }
        trains = training or kind == "search"
        mapping = MODELS[run.model][0]
        return self._job(
            self._name(run, kind),
            (
                *(f"{LIBRARY / 'claims_job.sh'}", f"{setting.recipe}", f"{setting.output}"),
                *(setting.device, kind, name, mapping, *arguments),
            ),
            after=after,
            environment={
                "SEED": f"{run.seed}",
                **(self._by_code if kind in ("measure", "ablate") else {}),
            },
            products=products.get(kind, (in_run / "checkpoints" / "checkpoint_best.pt",)),
            attempts=in_run / "attempts" if trains else None,
            worked=in_run / "train.log" if trains else None,
        )

    def _keep(self, run: Run, after: tuple[str, ...], search: str | None) -> Job:
        setting = self.setting
        about = {
            "corpus": setting.corpus,
            "run": run.name,
            "model": run.model,
            "size": run.size,
            "seed": f"{run.seed}",
            "role": run.role,
            "budget": run.budget.name if run.budget else None,
            "from-run": run.baseline.name if run.role in ("pruned", "continued") else None,
            "search": search,
        }
        options = [x for k, v in about.items() if v is not None for x in (f"--{k}", v)]
        where = ("--output", f"{setting.output}", "--record", f"{setting.record}")
        return self._job(
            self._name(run, "keep"),
            ("python3", f"{TOOLS / 'claims_record.py'}", *where, *options),
            after=after,
            environment=self._by_code,
            products=(setting.record / f"{run.name}.json.xz",),
        )

    def _job(
        self,
        name: str,
        command: tuple[str, ...],
        *,
        after: tuple[str, ...],
        environment: Mapping[str, str] | None = None,
        products: tuple[Path, ...] = (),
        alone: bool = False,
        attempts: Path | None = None,
        worked: Path | None = None,
        at_once: bool = False,
    ) -> Job:
        setting = self.setting
        return Job(
            name,
            command,
            after,
            {**setting.environment, **(environment or {})},
            setting.fingerprint,
            products,
            alone,
            attempts,
            worked,
            at_once,
        )


def plan(
    corpora: Sequence[CorpusJobs],
    seeds: Sequence[int],
    table: tuple[str, ...] = (),
    more: Sequence[CorpusJobs] = (),
    more_seeds: Sequence[int] = (),
) -> list[Job]:
    """All jobs: by seed, then by corpus, and the measurements of speed at the end.

    Args:
        table: the command that writes the table of what there is, behind each seed but the last.
        more: what is trained of further seeds.
        more_seeds: those.
    """
    jobs: list[Job] = []
    of_seeds = [*((seed, corpora) for seed in seeds), *((seed, more) for seed in more_seeds)]
    for number, (seed, chosen) in enumerate(of_seeds, 1):
        of_seed = [job for corpus in chosen for job in corpus.of_seed(seed, seeds[0])]
        jobs += of_seed
        if table and number < len(of_seeds):
            kept = tuple(job.name for job in of_seed if job.name.endswith("/keep"))
            jobs.append(Job(f"table/seed{seed}", table, kept))
    return [*jobs, *(corpus.speed(seeds[0]) for corpus in corpora)]
