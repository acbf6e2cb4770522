// A checkpoint as one GGUF file: metadata, the tokenizer, and tensors under ggml's names.
//
//   linear layers   the type asked for: Q4_0, Q4_1, Q8_0, Q4_K, F16, BF16, F32.
//                   Rows that are no whole blocks:
//                   Q4_K falls back to Q4_1, others to F16
//   embedding, head Q8_0 (F16 where rows are no whole blocks); a tied head is not written
//   all others      F32
//
// Rows of attn_q and attn_k of llama are put in ggml's order, in which neighbours turn together.
// Architectures are those that gguf_model.h reads: llama (Mistral, SmolLM2), qwen2, qwen3, phi3; tokenizers
// BPE by bytes with a pre-tokenizer of a known name, and BPE with byte fallback. Source:
// github.com/ggml-org/ggml, docs/gguf.md; llama.cpp, convert_hf_to_gguf.py.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/base/thread_pool.h"
#include "engine/numeric/ggml_blocks.h"
#include "graphsurgeon/checkpoint/checkpoint.h"
#include "graphsurgeon/checkpoint/quantized.h"

namespace pare {

struct GgufWriteOptions {
  std::string type = "Q4_0";       // of linear layers
  std::string embedding = "Q8_0";  // of the embedding and the head
  ThreadPool* pool = nullptr;      // required
  // Codes that exist already, for the layers it has: groups of 32 as Q4_0 (int4) or Q8_0 (int8) with float16
  // scales, MXFP4. Null: ggml's own rounding for every layer.
  const QuantizedSource* layers = nullptr;
  std::map<std::string, std::string> metadata;  // further texts: provenance
};

struct WrittenGguf {
  std::int64_t bytes = 0, tensors = 0;
  std::map<std::string, int> types;  // how many tensors of each type
};

// Errors: kUnsupported for an architecture, tokenizer or layer that GGUF does not hold, all before anything
// is written; kDevice. The file is complete or absent.
WrittenGguf write_gguf(const Checkpoint& checkpoint, const std::string& path,
                       const GgufWriteOptions& options);

// The same errors without writing: `options.layers` may have formats without codes.
void check_gguf_model(const Checkpoint& checkpoint, const GgufWriteOptions& options);

// The row of a checkpoint's tensor that stands at `row` of `rows` in the file: q and k of llama are turned.
std::int64_t gguf_source_row(const Checkpoint& checkpoint, const std::string& tensor, std::int64_t row,
                             std::int64_t rows);
// Why a layer is no GGUF tensor, as dialect.h's why_not; "" when it is.
std::string gguf_why_not(const LinearFormat& layer);
// Error kUnsupported with the first layer that is none, and what would be one; `place` stands in front of it.
void check_gguf(const std::vector<LinearFormat>& layers, const std::string& place);
// A type that is written, by its name in any case ("q4_k"); nullptr for others.
const GgmlType* gguf_written_type(const std::string& name);
std::vector<const GgmlType*> gguf_quantized_types();  // those of them that are no floats

}  // namespace pare
