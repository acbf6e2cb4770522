// Checkpoint formats as results: --export compressed_tensors, autoawq, gptq, gptq_v2, modelopt, gguf. From a
// source of layers (stream_source.h, plan_source.h) to a folder that was read back and compared.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "graphsurgeon/checkpoint/write_quantized.h"
#include "quant/audit.h"
#include "quant/placement/spec.h"
#include "recipes/checkpoint/stream_source.h"
#include "recipes/quantize/quantize_model.h"

namespace pare {

// Is `form` (export.model) one of them?
bool is_checkpoint_form(const std::string& form);
std::string checkpoint_forms();  // "compressed_tensors, autoawq, ..."

// The spec as the files of the dialect need it: scales of their types (quantized_layers.h), one global scale
// for layers that are fused, the head and what chooses experts left float (unless `quantize_head`).
quant::Spec checkpoint_spec(const Checkpoint& checkpoint, Dialect dialect, quant::Spec spec,
                            bool quantize_head);

// The same for all choices: transforms that a file of weights can hold. Errors, before any weight is read:
// kUsage for method low_rank, whose products it cannot, and for groups that do not divide; kUnsupported for
// formats, and for GGUF models, that the files cannot hold.
void choose_for_checkpoint(const Checkpoint& checkpoint, Dialect dialect, bool quantize_head,
                           QuantizeChoices& choices);

struct ExportedCheckpoint {
  WrittenCheckpoint written;
  quant::AuditResult audit;
  std::int64_t weight_bytes_before = 0, weight_bytes_after = 0, parameters = 0;
};

// Writes, opens what was written by the ordinary reader, and compares what every layer means with what was
// given, in every bit.
ExportedCheckpoint export_checkpoint(const Checkpoint& checkpoint, const QuantizedSource& source,
                                     Dialect dialect, const std::string& path,
                                     const WriteQuantizedOptions& options);

// A finished plan, by the functions above and below; `outcome` gets global scales that every format holds.
// `original`: as plan_source() has it.
ExportedCheckpoint export_plan(const Checkpoint& checkpoint, QuantizeOutcome& outcome, Dialect dialect,
                               const std::string& path, const WriteQuantizedOptions& options,
                               ThreadPool& pool, const Graph* original = nullptr);

// The same as one GGUF file. With a source: its codes. Without: ggml's own rounding to `type` (Q4_0, Q4_1,
// Q8_0, Q4_K), and the proof is that every tensor reads back within 10 dB of what it was.
ExportedCheckpoint export_gguf(const Checkpoint& checkpoint, const QuantizedSource* source,
                               const std::string& type, const std::string& path, ThreadPool& pool);

}  // namespace pare
