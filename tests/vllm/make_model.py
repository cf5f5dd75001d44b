"""A random Llama of 1.4 million parameters, its tokenizer and LoRA adapters in PEFT form. Usage: make_model.py DIR [COUNT]"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

CONFIG = LlamaConfig(
    vocab_size=512,
    hidden_size=256,
    intermediate_size=512,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=64,
    max_position_embeddings=2048,
    bos_token_id=1,
    eos_token_id=2,
    tie_word_embeddings=False,
    dtype="bfloat16",
)


def tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level BPE, trained on one sentence."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer, bpe.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=512, special_tokens=["<unk>", "<s>", "</s>"], initial_alphabet=alphabet)
    bpe.train_from_iterator(["which adapter sits in which slot is what we would like to know"], trainer)
    template = "{% for message in messages %}{{ message['content'] }} {% endfor %}"
    special = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    return PreTrainedTokenizerFast(tokenizer_object=bpe, chat_template=template, **special)


def adapter(model: LlamaForCausalLM, rank: int, seed: int) -> dict[str, torch.Tensor]:
    """Random A and B for every linear layer of the model's blocks: no two adapters answer alike."""
    random = torch.Generator().manual_seed(seed)
    weights = {}
    for name, module in model.model.named_modules():
        if isinstance(module, torch.nn.Linear):
            for part, shape in (("A", (rank, module.in_features)), ("B", (module.out_features, rank))):
                values = torch.randn(*shape, generator=random) * 0.1
                weights[f"base_model.model.model.{name}.lora_{part}.weight"] = values.to(torch.bfloat16)
    return weights


def main() -> None:
    """Write ``model/`` and ``adapters/adapter-00`` … into the directory; ranks 8 and 16 in turn."""
    root = Path(sys.argv[1]).resolve()
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 12
    torch.manual_seed(0)
    model = LlamaForCausalLM(CONFIG).to(torch.bfloat16)
    model.save_pretrained(root / "model")
    tokenizer().save_pretrained(root / "model")
    targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    for i in range(count):
        rank, to = (8, 16)[i % 2], root / "adapters" / f"adapter-{i:02d}"
        to.mkdir(parents=True, exist_ok=True)
        config = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": rank, "lora_alpha": rank, "lora_dropout": 0.0}
        config |= {"base_model_name_or_path": str(root / "model"), "target_modules": targets, "bias": "none"}
        (to / "adapter_config.json").write_text(json.dumps(config))
        save_file(adapter(model, rank, seed=i), to / "adapter_model.safetensors", metadata={"format": "pt"})


if __name__ == "__main__":
    main()
