// A recipe as plain data: the whole grammar of one YAML file, checked and with every default filled in.
// What a key means stands here once; grammar.cpp gives the keys their names, and reading, the canonical text
// and the JSON schema all walk that one description.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "datasets/spec.h"

namespace pare {

struct ModelSpec {
  std::string path;  // ONNX file, checkpoint folder or GGUF; relative to the recipe
};

// A data set: what the readers take.
struct DatasetEntry {
  DatasetSpec spec;
  std::map<std::string, std::string> constants;  // as written; those that are numbers are in spec.constants
};

// How many samples, and what to do with broken ones.
struct CalibrateSpec {
  std::string data;            // a name of `datasets`
  std::string stats;           // use this statistics file instead of collecting
  std::int64_t holdout = 256;  // further samples, never calibrated on, that choose between candidates
  double max_nonfinite = 0;    // share of NaN and Inf values of one tensor above which the run stops
};

struct WeightSpec {
  std::string format;       // "" = as the scheme says; "none" = left alone
  std::string granularity;  // tensor | channel | group | block
  std::int64_t group_size = 0;
  std::optional<bool> symmetric;
  std::string search;  // amax | mse: how a scale is found
};

struct ActivationSpec {
  std::string format;
  std::string granularity;  // tensor | channel | token
  std::string calibrator;   // minmax | entropy | percentile(P) | mse | auto
  std::optional<bool> symmetric;
  std::optional<bool> dynamic;  // scales at run time; per token they always are
  std::string search;           // amax | mse: scales of blocks at run time
};

struct MatchSpec {  // every key given must match; in a list any may; "re:" is a full match
  std::vector<std::string> name, op, tensor, dtype, block;
};

struct RuleSpec {
  MatchSpec match;
  std::optional<bool> quantize;
  std::string method;  // "": quantize.method
  WeightSpec weights;
  ActivationSpec activations;
};

// A language model (or another one that falls into blocks) quantized block by block.
struct BlocksSpec {
  std::string inputs = "quantized";     // what a block is fed by: quantized | float blocks before it
  std::string activations = "float32";  // how samples are held: float32 | bfloat16
  std::int64_t memory = 2048;           // MiB of activations in memory; more go to a file
};

struct QuantizeSpec {
  std::string target = "pare";  // tensorrt | onnxruntime | pare
  std::string scheme;           // see `pare ops --formats`
  std::string method = "auto";
  WeightSpec weights;
  ActivationSpec activations;
  std::vector<RuleSpec> rules;
  std::vector<std::string> ignore, share, ops;
  std::int64_t group_size = 0;
  std::optional<double> alpha;  // smoothquant
  std::int64_t rank = 32;       // low_rank
  std::string kv_cache;         // of language models: fp8 | int8; "": stays float
  std::string inputs =
      "float";  // what layers are solved for: inputs of the float model | of the quantized one
  std::string objective = "layer";    // what weight errors are measured by: the layer's output | the model's
  std::optional<double> output_damp;  // of objective model: evens out what outputs count
  std::string scaling;  // channel factors before other methods: "" | awq | smoothquant | equalize
  bool rotate = false;
  std::optional<bool> bias_correction;
  std::optional<bool> act_order;
  std::string column_order;  // of gptq: "" | natural | diagonal | group_aware
  std::optional<double> damp;
  std::vector<double> percentiles;   // tried by calibrator auto
  std::optional<BlocksSpec> blocks;  // absent: the whole graph at once
};

struct GateSpec {
  std::string metric;  // a metric, or its name with _drop or _drop_rel
  std::optional<double> max, min;
};

struct EvaluateSpec {
  std::string data;
  std::vector<std::string> metrics;
  std::vector<GateSpec> gates;
  std::string baseline;              // report.json of an earlier run: what _drop is measured from
  std::int64_t layer_samples = 256;  // of the data: per-layer figures and clipping
  std::int64_t batch = 0;            // samples at a time; 0: the data set's
  std::string arithmetic = "both";   // fake | integer | both
};

struct BuildSpec {
  std::string device = "auto";
  std::string precision = "as_quantized";
  bool require_cached_tactics = false;
  std::string timing_cache;
  std::map<std::string, std::string> profiles;
};

struct ExportSpec {
  std::string model = "qdq_onnx";
  std::int64_t opset = 0;       // 0: the input's, unless the format needs more
  bool head = false;            // checkpoint formats: lm_head has codes too
  std::int64_t shard_size = 0;  // checkpoint formats: largest file, bytes; 0: 5 GiB
};

struct Recipe {
  std::int64_t version = 1;
  std::string extends;  // only in the text: merged in and gone once a recipe is loaded
  std::string name;
  ModelSpec model;
  std::map<std::string, DatasetEntry> datasets;
  std::vector<std::string> surgery;          // simplify, recognize
  std::vector<std::string> surgery_without;  // names of passes to leave out
  std::optional<CalibrateSpec> calibrate;
  std::optional<QuantizeSpec> quantize;
  std::optional<EvaluateSpec> evaluate;
  std::optional<BuildSpec> build;
  ExportSpec export_as;
  std::vector<std::string> report = {"json", "html", "markdown", "junit"};
  std::int64_t seed = 0;

  std::string folder;  // of the recipe file; what relative paths start from. Not a key
  std::string resolve(const std::string& path) const;  // relative to `folder`
};

}  // namespace pare
