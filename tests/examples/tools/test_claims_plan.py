"""examples/tools/claims_plan.py: which models are trained, and what waits for what."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from claims_plan import CorpusJobs, Setting, plan
from claims_scope import MODELS, scope_of
from jobs import Job, fingerprints
from messages import UsageError


def corpus(
    name: str = "bible_es_en",
    quick: bool = False,
    models: tuple[str, ...] = (),
    sizes: tuple[str, ...] = (),
) -> CorpusJobs:
    output = Path("/claims") / name
    setting = Setting(name, Path("/recipes") / name, output, Path("/record") / name, "cpu")
    return CorpusJobs(setting, scope_of(name, quick, models, sizes))


def kept(jobs: list[Job]) -> list[str]:
    """The runs of the record."""
    return sorted(job.name.split("/")[1] for job in jobs if job.name.endswith("/keep"))


def named(jobs: list[Job], name: str) -> Job:
    [job] = [job for job in jobs if job.name == f"bible_es_en/{name}"]
    return job


def test_the_record_has_every_run_of_the_first_corpus() -> None:
    large = ["softmax", "entmax", "entmax15", "sparsemax"]
    expected = [f"{model}-large-seed1" for model in large]
    expected += [f"{model}-small-seed1" for model in MODELS]
    for model in ("softmax", "entmax"):
        roles = ("continued", "all24-pruned", "all24-scratch", "all36-pruned", "encoder4-pruned")
        expected += [f"{model}-large-seed1-{role}" for role in roles]
    expected.append("entmax-large-seed1-equaltime")
    assert kept(plan([corpus()], [1])) == sorted(expected)


def test_of_the_second_corpus_there_are_the_larger_models_and_one_budget() -> None:
    runs = kept(plan([corpus("debian_en_de")], [1]))
    assert {run.split("-")[1] for run in runs} == {"large"}
    assert [run for run in runs if "pruned" in run] == [
        "entmax-large-seed1-all24-pruned",
        "softmax-large-seed1-all24-pruned",
    ]


def test_every_job_stands_behind_those_that_it_needs() -> None:
    corpora = [corpus(), corpus("debian_en_de")]
    assert len(fingerprints(plan(corpora, [1, 2, 3]))) > 300  # refuses what does not


def test_all_of_a_seed_stands_before_the_next_and_speed_at_the_end() -> None:
    jobs = plan([corpus(), corpus("debian_en_de")], [3, 1])
    seeds = [job.environment.get("SEED") for job in jobs if "SEED" in job.environment]
    assert seeds == ["3"] * seeds.count("3") + ["1"] * seeds.count("1")
    alone = [job.name for job in jobs if job.alone]
    assert alone == ["bible_es_en/pace", "bible_es_en/speed", "debian_en_de/speed"]
    assert all(job.alone for job in jobs[-2:])


def test_the_table_is_written_behind_each_seed_but_the_last() -> None:
    jobs = plan([corpus()], [1, 2, 3], ("write",))
    tables = [job for job in jobs if job.command == ("write",)]
    assert [job.name for job in tables] == ["table/seed1", "table/seed2"]
    assert len(tables[0].after) == len(kept(plan([corpus()], [1])))
    assert all("-seed1" in name for name in tables[0].after)


def test_further_seeds_have_what_the_claims_are_most_about_and_come_last() -> None:
    one = corpus()
    more = CorpusJobs(one.setting, scope_of("bible_es_en", False, (), (), more=True))
    jobs = plan([one, corpus("debian_en_de")], [1, 2], ("write",), [more], [4])
    expected = {f"{model}-large-seed4" for model in ("softmax", "entmax", "entmax15")}
    for model in ("softmax", "entmax"):
        roles = ("continued", "all24-pruned", "all24-scratch")
        expected |= {f"{model}-large-seed4-{role}" for role in roles}
    of_seed = [job for job in jobs if job.environment.get("SEED") == "4"]
    assert {run for run in kept(jobs) if "seed4" in run} == expected
    assert {job.name.split("/")[0] for job in of_seed} == {"bible_es_en"}
    assert not [job.name for job in of_seed if job.name.endswith("/ablate")]
    seeds = [job.environment["SEED"] for job in jobs if "SEED" in job.environment]
    assert seeds == sorted(seeds)
    tables = [job.name for job in jobs if job.command == ("write",)]
    assert tables == ["table/seed1", "table/seed2"]


def test_a_pruned_model_comes_of_a_search_in_its_baseline() -> None:
    jobs = plan([corpus()], [2])
    run = "entmax-large-seed2-all24-pruned"
    search, recover = named(jobs, f"{run}/search"), named(jobs, f"{run}/recover")
    found = "entmax-large-seed2-all24-search"
    assert search.after == ("bible_es_en/entmax-large-seed2/train",)
    assert search.command[-5:] == ("search", found, "entmax", "entmax-large-seed2", "all=24")
    assert search.products == (Path(f"/claims/bible_es_en/runs/{found}/pruned.pt"),)
    assert recover.after == (search.name,)
    assert recover.command[-4:] == ("recover", run, "entmax", found)
    keep = " ".join(named(jobs, f"{run}/keep").command)
    assert "--budget all24 --from-run entmax-large-seed2" in keep
    assert f"--search {found}" in keep


def test_a_model_from_scratch_waits_for_the_heads_and_takes_all_updates_of_the_pruned_one() -> None:
    jobs = plan([corpus()], [1])
    base = "softmax-large-seed1"
    scratch = named(jobs, f"{base}-all24-scratch/scratch")
    assert scratch.after == (f"bible_es_en/{base}-all24-pruned/recover",)
    trainings = (base, f"{base}-all24-search", f"{base}-all24-pruned")
    assert scratch.command[-4:] == (f"{base}-all24-pruned", *trainings)
    assert "--from-run" not in named(jobs, f"{base}-all24-scratch/keep").command


def test_learned_alpha_is_trained_for_as_long_as_another_takes_of_each_seed_by_one_pace() -> None:
    jobs = plan([corpus()], [2, 1])
    pace = named(jobs, "pace")
    assert pace.after == (
        *("bible_es_en/entmax-large-seed2/train", "bible_es_en/entmax15-large-seed2/train"),
    )
    assert pace.alone
    assert pace.at_once  # before what would run beside it
    for seed in (2, 1):
        step = named(jobs, f"entmax-large-seed{seed}-equaltime/equaltime")
        assert step.after == (pace.name, f"bible_es_en/entmax15-large-seed{seed}/train")
        last = ("equaltime", f"entmax-large-seed{seed}-equaltime", "entmax")
        assert step.command[-4:] == (*last, f"entmax15-large-seed{seed}")
        keep = named(jobs, f"entmax-large-seed{seed}-equaltime/keep").command
        assert keep[keep.index("--role") + 1] == "equaltime"
        assert "--from-run" not in keep


@pytest.mark.parametrize("models", [("entmax",), ("entmax15",), ("softmax",)])
def test_without_one_of_the_two_there_is_no_equal_time(models: tuple[str, ...]) -> None:
    jobs = plan([corpus(models=models), corpus("debian_en_de")], [1])
    assert not [job.name for job in jobs if "equaltime" in job.name or "pace" in job.name]


def test_heads_are_removed_from_trained_softmax_and_entmax_by_bleu_where_that_is_quick() -> None:
    jobs = plan([corpus()], [1])
    removed = {job.name.split("/")[1]: job.command[-1] for job in jobs if "/ablate" in job.name}
    assert removed == {
        f"{model}-{size}-seed1": scores
        for model in ("softmax", "entmax")
        for size, scores in (("small", "loss,bleu"), ("large", "loss"))
    }


def test_the_seconds_of_trainings_are_kept_with_their_runs() -> None:
    jobs = plan([corpus()], [1])
    kinds = {job.name.split("/")[-1] for job in jobs if job.attempts}
    assert kinds == {"train", "search", "recover", "continue", "scratch", "equaltime"}
    search = named(jobs, "softmax-large-seed1-all24-pruned/search")
    assert search.attempts == search.products[0].parent / "attempts"


def test_what_other_code_measured_is_measured_again_and_what_it_trained_is_kept() -> None:
    def prints(code: str) -> dict[str, str]:
        one = corpus()
        return fingerprints(plan([CorpusJobs(replace(one.setting, code=code), one.scope)], [1]))

    old, new = prints("old"), prints("new")
    again = {name.split("/")[-1] for name in old if old[name] != new[name]}
    left = {name.split("/")[-1] for name in old if old[name] == new[name]}
    assert again == {"measure", "ablate", "keep", "speed"}
    assert left == {"train", "search", "recover", "continue", "scratch", "equaltime", "pace"}


def test_a_mapping_of_one_attention_is_given_beside_softmax() -> None:
    train = named(plan([corpus()], [1]), "sparse-encoder-small-seed1/train")
    assert train.command[-4:] == ("softmax", "small", "--encoder-self-attn-mapping", "sparsemax")


def test_sparsemax_stands_in_all_attentions_and_in_cross_attention_alone() -> None:
    jobs = plan([corpus()], [1])
    everywhere, cross = (
        named(jobs, f"{name}-small-seed1/train") for name in ("sparsemax", "cross-sparsemax")
    )
    assert everywhere.command[-2:] == ("sparsemax", "small")
    assert cross.command[-4:] == ("softmax", "small", "--cross-attn-mapping", "sparsemax")
    assert "cross-sparsemax-large-seed1" not in kept(jobs)


def test_a_choice_of_models_and_sizes_leaves_the_others_out() -> None:
    runs = kept(plan([corpus(models=("entmax15", "cross-fusedmax"), sizes=("small",))], [1]))
    assert runs == ["cross-fusedmax-small-seed1", "entmax15-small-seed1"]


def test_a_trial_has_every_kind_of_job() -> None:
    def kinds(jobs: list[Job]) -> set[str]:
        return {job.name.split("/")[-1] for job in jobs}

    trial = plan([corpus(quick=True)], [1])
    assert {run.split("-small")[0] for run in kept(trial) if "small" in run} == set(MODELS)
    assert kinds(trial) == kinds(plan([corpus()], [1]))


@pytest.mark.parametrize(
    ("models", "sizes", "message"),
    [
        (("softmix",), (), "option --models got 'softmix': give any of softmax, entmax"),
        ((), ("huge",), "option --sizes got 'huge': give any of large, small"),
        (
            ("cross-fusedmax", "sparse-encoder"),
            ("large",),
            "option --models with 'cross-fusedmax,sparse-encoder' and option --sizes with 'large' leaves "
            "nothing of bible_es_en, of which is made: softmax, entmax, entmax15, sparsemax at size large; ",
        ),
    ],
)
def test_an_unknown_choice_is_named(
    models: tuple[str, ...], sizes: tuple[str, ...], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        scope_of("bible_es_en", False, models, sizes)


def test_a_corpus_that_a_choice_leaves_nothing_of_is_named() -> None:
    with pytest.raises(
        UsageError, match=r"--sizes with 'small' leaves nothing of debian_en_de, of which is made: "
    ):
        scope_of("debian_en_de", False, (), ("small",))
    with pytest.raises(UsageError, match="leaves nothing of further seeds of bible_es_en"):
        scope_of("bible_es_en", False, ("sparsemax",), (), more=True)
