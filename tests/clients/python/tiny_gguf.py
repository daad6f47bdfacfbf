"""Writes a llama model of random weights with a byte-level vocabulary: a real engine and tokenizer, text is noise.

Usage: tiny_gguf.py FILE. The weights come from a fixed seed, so every run writes the same half megabyte.
"""

import sys

import gguf
import numpy as np

WIDTH, HEADS, LAYERS, HIDDEN, CONTEXT = 64, 4, 2, 128, 2048
MERGES = [("h", "e"), ("l", "l"), ("t", "h"), ("i", "n"), ("e", "r"), ("a", "n")]
CONTROLS = ("<|bos|>", "<|eos|>", "<|im_start|>", "<|im_end|>")
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def byte_letters():
    """GPT-2's letter for each byte: printable ones stand for themselves."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {byte: chr(byte) for byte in printable}
    return letters | {byte: chr(256 + index) for index, byte in enumerate(others)}


def main():
    random = np.random.default_rng(7)
    letters = byte_letters()
    tokens = [letters[byte] for byte in range(256)] + [left + right for left, right in MERGES]
    kinds = [gguf.TokenType.NORMAL] * len(tokens) + [gguf.TokenType.CONTROL] * len(CONTROLS)
    tokens += CONTROLS

    writer = gguf.GGUFWriter(sys.argv[1], "llama")
    writer.add_name("tiny-random")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_vocab_size(len(tokens))
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges([" ".join(pair) for pair in MERGES])
    writer.add_bos_token_id(len(tokens) - 4)
    writer.add_eos_token_id(len(tokens) - 3)
    writer.add_chat_template(TEMPLATE)

    def weights(name, *shape):
        writer.add_tensor(name, (random.standard_normal(shape) * 0.08).astype(np.float32))

    def ones(name):
        writer.add_tensor(name, np.ones(WIDTH, dtype=np.float32))

    weights("token_embd.weight", len(tokens), WIDTH)
    ones("output_norm.weight")
    weights("output.weight", len(tokens), WIDTH)
    for layer in range(LAYERS):
        ones(f"blk.{layer}.attn_norm.weight")
        ones(f"blk.{layer}.ffn_norm.weight")
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            weights(f"blk.{layer}.{part}.weight", WIDTH, WIDTH)
        weights(f"blk.{layer}.ffn_gate.weight", HIDDEN, WIDTH)
        weights(f"blk.{layer}.ffn_up.weight", HIDDEN, WIDTH)
        weights(f"blk.{layer}.ffn_down.weight", WIDTH, HIDDEN)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
