"""The command `plan`: what it says of files, presets and traffic, and what it refuses in a sentence."""

import json
from io import StringIO

import pytest
from adapter_folders import write_adapter, write_model, write_tensors
from rich.console import Console
from typer.testing import CliRunner

from lora_watch.cli import app
from lora_watch.config import CostSettings
from lora_watch.errors import LoraWatchError
from lora_watch.explore.plan import Asked, make, show

INCIDENT = Asked("llama-3.1-70b", ranks=(16,), count=40, weights="int4", gpus=8, requests_per_second=3.7, slots=4, cpu_slots=40)


def run(*arguments):
    result = CliRunner().invoke(app, ["plan", *map(str, arguments)])
    return result.exit_code, result.stdout, result.stderr


def printed(plan, width=130):
    written = StringIO()
    show(plan, Console(file=written, width=width))
    return written.getvalue()


def test_files_are_counted_to_the_byte(tmp_path):
    write_adapter(tmp_path / "all" / "legal", 8)
    write_adapter(tmp_path / "all" / "sql", 16)
    code, text, _ = run("--model", write_model(tmp_path / "m"), "--adapter", tmp_path / "all", "--format", "json")
    told = json.loads(text)
    assert code == 0
    assert [(one["name"], one["bytes"], one["from_file"]) for one in told["adapters"]] == [
        ("legal", 2 * 2 * 8 * 896, True),
        ("sql", 2 * 2 * 16 * 896, True),
    ]
    assert (told["rank"], told["slot_bytes"], told["slot_bytes_only"]) == (16, 311_296, 81_920)


def test_slot_and_adapter_stand_side_by_side():
    told = printed(make(INCIDENT, CostSettings()))
    assert "65,536,000" in told
    assert "A slot takes 422.9 MB on each GPU, the largest adapter has 65.54 MB in all" in told
    assert "With --lora-target-modules q_proj k_proj v_proj it takes" in told


def test_the_plan_foretells_the_articles_incident():
    assert make(INCIDENT, CostSettings()).chosen.affinity.ratio == pytest.approx(0.074, abs=0.015)


def test_the_bill_has_both_ways(tmp_path):
    asked = Asked(
        "llama-3.1-70b", ranks=(16,), count=12, weights="int4", gpus=5, requests_per_second=40, zipf=0, slots=8,
        pod_requests_per_second=10,
    )  # fmt: skip
    bill = make(asked, CostSettings(gpu_hour_price=3.5)).bill
    assert (bill.shared_gpus, bill.separate_gpus, bill.shared, bill.separate) == (5, 12, 12_775.0, 30_660.0)


def test_without_a_price_money_is_unknown_and_says_how_to_tell_it():
    plan = make(INCIDENT, CostSettings())
    assert plan.bill.shared is None
    assert "Money is unknown without a price" in printed(plan)


def test_a_model_too_large_for_one_gpu_gets_a_pod_of_more_and_says_so():
    plan = make(Asked("llama-3.1-70b", ranks=(16,), count=4, gpus=8), CostSettings())
    assert (plan.pods, plan.gpus_per_pod) == (2, 4)
    assert "--tensor-parallel-size 4" in printed(plan)


def test_gpus_that_make_no_whole_pod_are_told():
    assert "1 GPU left over" in printed(make(Asked("llama-3.1-70b", ranks=(16,), gpus=5, gpus_per_pod=4), CostSettings()))


def test_slots_are_chosen_where_none_are_asked_for():
    plan = make(Asked("llama-3.1-8b", ranks=(16,), count=6, gpus=2, requests_per_second=4), CostSettings())
    assert plan.chosen.affinity.ratio <= 0.01
    assert plan.chosen.kv_share >= 0.9


def test_demand_may_be_given_by_adapter(tmp_path):
    even = make(Asked("llama-3.1-8b", ranks=(16,), count=4, shares=(25, 25, 25, 25), slots=2), CostSettings())
    steep = make(Asked("llama-3.1-8b", ranks=(16,), count=4, shares=(0.97, 0.01, 0.01, 0.01), slots=2), CostSettings())
    assert even.chosen.affinity.ratio == pytest.approx(0.5, abs=0.01)
    assert steep.chosen.affinity.ratio < 0.05


def test_more_adapters_than_files_are_like_the_largest(tmp_path):
    write_adapter(tmp_path / "a", 8)
    plan = make(Asked(str(write_model(tmp_path / "m")), adapters=(tmp_path / "a",), count=5), CostSettings())
    assert [(one.name, one.adapters) for one in plan.adapters] == [("a", 1), ("4 more like a", 4)]
    assert plan.count == 5


def test_an_adapter_that_vllm_refuses_is_named(tmp_path):
    write_adapter(tmp_path / "a", 8, use_dora=True)
    plan = make(Asked(str(write_model(tmp_path / "m")), adapters=(tmp_path / "a",)), CostSettings())
    assert "vLLM will not load a: it is a DoRA adapter" in printed(plan)


def test_a_hostile_name_of_a_folder_is_shown_and_does_nothing(tmp_path):
    write_adapter(tmp_path / "[bold]$(reboot)\n", 8)
    text = printed(make(Asked(str(write_model(tmp_path / "m")), adapters=(tmp_path,)), CostSettings()))
    assert "[bold]$(reboot)" in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--model", "gpt-9"], "llama-3.1-8b"),
        (["--model", "llama-3.1-8b", "--rank", "1024"], "up to rank 512"),
        (["--model", "llama-3.1-8b", "--modules", "w1"], "no module"),
        (["--model", "llama-3.1-8b", "--modules", ","], "names none"),
        (["--model", "llama-3.1-70b", "--gpus", "1"], "does not fit"),
        (["--model", "llama-3.1-8b", "--gpus-per-pod", "4"], "needs as many"),
        (["--model", "llama-3.1-70b", "--gpus-per-pod", "1"], "does not fit on 1 GPU"),
        (["--model", "llama-3.1-8b", "--slots", "100000"], "do not fit"),
        (["--model", "llama-3.1-8b", "--shares", "a,b"], "numbers"),
        (["--model", "llama-3.1-8b", "--count", "2", "--shares", "1,1"], "come to 2"),
        (["--model", "llama-3.1-8b", "--count", "2", "--shares", "nan,1"], "come to nan"),
        (["--model", "llama-3.1-8b", "--count", "3", "--shares", "0.5,0.5"], "there are 3 adapters"),
        (["--model", "llama-3.1-8b", "--rank", "8", "--rank", "16", "--count", "1"], "can't have 2 ranks"),
        (["--model", "llama-3.1-8b", "--adapter", "/nowhere/at/all"], "holds no adapter_config.json"),
        (["--model", "llama-3.1-8b", "--count", "1000000"], "up to 100,000"),
    ],
)
def test_what_is_impossible_is_refused_in_one_sentence(arguments, said):
    code, _, text = run(*arguments)
    assert code == 2
    assert said in text
    assert len(text.splitlines()) == 1


def test_rank_and_files_together_are_refused(tmp_path):
    with pytest.raises(LoraWatchError, match="not both"):
        make(Asked("llama-3.1-8b", adapters=(tmp_path,), ranks=(8,)), CostSettings())


def test_fewer_adapters_than_files_are_refused(tmp_path):
    write_adapter(tmp_path / "a" / "x")
    write_adapter(tmp_path / "a" / "y")
    with pytest.raises(LoraWatchError, match="less than the 2 adapters"):
        make(Asked(str(write_model(tmp_path / "m")), adapters=(tmp_path / "a",), count=1), CostSettings())


def test_more_than_twenty_adapters_are_cut_and_counted(tmp_path):
    for number in range(23):
        write_adapter(tmp_path / "all" / f"a{number:02}")
    text = printed(make(Asked(str(write_model(tmp_path / "m")), adapters=(tmp_path / "all",)), CostSettings()))
    assert "… 3 more" in text
    assert "a22" not in text


def test_many_that_vllm_refuses_are_counted(tmp_path):
    for number in range(7):
        write_adapter(tmp_path / "all" / f"a{number}", use_dora=True)
    plan = make(Asked(str(write_model(tmp_path / "m")), adapters=(tmp_path / "all",)), CostSettings())
    assert "… nor 2 more" in plan.notes


def test_an_adapter_without_a_safetensors_file_is_taken_at_its_rank_and_that_is_told(tmp_path):
    (write_adapter(tmp_path / "a") / "adapter_model.safetensors").unlink()
    plan = make(Asked(str(write_model(tmp_path / "m")), adapters=(tmp_path / "a",)), CostSettings())
    assert plan.adapters[0].bytes is None
    assert any("bytes are unknown" in note for note in plan.notes)


def test_modules_that_slots_do_not_know_are_told(tmp_path):
    folder = write_adapter(tmp_path / "a")
    write_tensors(folder / "adapter_model.safetensors", {"layers.0.router.lora_A.weight": (8, 256)})
    plan = make(Asked(str(write_model(tmp_path / "m")), adapters=(folder,)), CostSettings())
    assert any("router" in note for note in plan.notes)


def test_pods_that_outnumber_adapters_cost_more_than_deployments_of_their_own():
    plan = make(Asked("llama-3.1-8b", ranks=(8,), count=2, gpus=8, pod_requests_per_second=100), CostSettings())
    assert "Deployments of their own take fewer GPUs" in printed(plan)


@pytest.mark.parametrize("width", [60, 130])
def test_no_line_is_wider_than_the_terminal(width):
    assert max(map(len, printed(make(INCIDENT, CostSettings()), width).splitlines())) <= width
