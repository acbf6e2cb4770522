// The model in a GGUF file: its config, weights under the names of its family, and tokenizer.
#pragma once

#include <memory>

#include "engine/base/tokenizer_spec.h"
#include "graphsurgeon/checkpoint/config.h"
#include "graphsurgeon/checkpoint/weights.h"
#include "graphsurgeon/gguf/gguf_file.h"

namespace pare {

// Architectures llama (Mistral, SmolLM2 and Mixtral too), qwen2, qwen3, qwen2moe, qwen3moe, gemma, gemma2,
// gemma3, phi3. Rows of attn_q and attn_k of llama lie in GGUF's order, in which neighbours turn together:
// RopeConfig::interleaved says so. Errors: kUnsupported for another architecture, kBadFile for metadata that
// are missing or make no model.
ModelConfig gguf_config(const GgufFile& file);

// Names become those of safetensors checkpoints, one tensor an expert; Gemma's norms lose the 1 that GGUF
// adds. Tensors of no known name keep theirs.
std::unique_ptr<WeightStore> gguf_weights(std::shared_ptr<const GgufFile> file);

// Byte-level BPE ("gpt2", with the pre-tokenizers of docs/text.md), SentencePiece's BPE by scores ("llama"),
// WordPiece
// ("bert") and Unigram without a map of characters ("t5"). Errors: kUnsupported for others, by name;
// kBadFile.
TokenizerSpec gguf_tokenizer(const GgufFile& file);

// How llama.cpp splits text under the name `pre` of tokenizer.ggml.pre. Error kUnsupported for others.
std::vector<TokenizerSpec::Step> gguf_pre_tokenizer(const std::string& pre, const std::string& path);

}  // namespace pare
