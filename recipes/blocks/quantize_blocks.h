// A model quantized block by block (graphsurgeon/block_cut.h). Each block is a graph of its own whose data
// are the activations that the blocks before it leave, so everything that quantize_model() does for a model
// it does for a block: statistics, Gram matrices, transforms, codes, scoring by the block's output on
// held-out samples. At any time memory holds one block's weights in float32 with its matrices, and the
// activations of the samples at one place (activation_store.h).
//
//   inputs: quantized   a block is fed by the quantized blocks before it, so its codes answer for what they
//   lost inputs: float       by the float ones, as a whole-graph run sees it
//
// What a finished block gave is a file in the folder: a run that was killed takes it over and ends with the
// same bytes. Nothing depends on threads or batch size.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "graphsurgeon/block_cut.h"
#include "recipes/blocks/activation_store.h"
#include "recipes/blocks/block_outcome.h"
#include "recipes/quantize/quantize_model.h"

namespace pare {

struct BlockOptions {
  std::string inputs = "quantized";                   // or float
  DType activations = DType::kF32;                    // or kBF16
  std::int64_t memory_bytes = std::int64_t{2} << 30;  // of activations; more go to a file
};

struct BlocksInput {
  const Graph* graph = nullptr;  // float, the whole model; weights may be views
  Dataset* data = nullptr;       // calibration samples, behind them the held-out ones
  std::int64_t samples = 0;      // of calibration
  SampleRange held_out;          // may be empty
  ThreadPool* pool = nullptr;    // required
  Progress* progress = nullptr;
  std::string folder;      // of the journal and of spilled activations; it must be there
  std::string base;        // what decides the result beside model, choices and data
  bool temporary = false;  // nobody resumes from the folder
  int models = 1;          // that will be written on the disk of `folder`: ONNX, a checkpoint
  std::function<void(const std::string&)> message;  // a line a block; may be empty
};

struct BlocksOutcome {
  QuantizeOutcome whole;
  std::vector<BlockRecord> blocks;
  DigestSum data_hash;
  std::int64_t samples = 0;
  std::int64_t activation_bytes = 0;  // held at most
  bool activations_in_file = false;
  std::int64_t resumed = 0;                              // blocks that were taken over
  std::int64_t journal_foreseen = 0, journal_bytes = 0;  // of the blocks' files
};

// Nothing in the block gets a format or codes. Such a block is passed on as it is: its weights stay views, it
// takes no memory, and its file holds the graph alone.
bool stays_float(const Graph& graph, const GraphBlock& block, const QuantizeChoices& choices,
                 ThreadPool& pool);

// Errors: kDevice where the disk has no room for the files of finished blocks and the models
// (journal_size.h), before any work; kUnsupported where the model has no blocks, for target onnxruntime with
// quantized activations; those of quantize_model() with the block's name.
BlocksOutcome quantize_blocks(const BlocksInput& input, const QuantizeChoices& choices,
                              const BlockOptions& options);

}  // namespace pare
