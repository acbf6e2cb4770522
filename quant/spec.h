// What is asked for: formats, target and rules, as plain data. recipes fills it from YAML or flags.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/base/dtype.h"

namespace pare::quant {

// Whose fusions decide where Q/DQ stand (docs/placement.md):
//   tensorrt     explicit quantization: inputs of Conv, ConvTranspose, Gemm, MatMul; the residual input of
//                a skip Add behind a Conv; outputs and biases stay float
//   onnxruntime  what its QDQ fusions need: inputs and outputs of those operators, int32 bias
//   pare         as tensorrt, but residuals stay float: our integer kernels add them so
enum class Target { kPare, kTensorRT, kOnnxRuntime };
Target target_from_name(const std::string& text);  // Error kUsage with the list
const char* name(Target target);

enum class Granularity { kTensor, kChannel, kBlock, kToken };  // kToken: activations, rows of the last axis
const char* name(Granularity granularity);

struct Format {
  DType dtype = DType::kUndefined;  // kUndefined: stays float
  Granularity granularity = Granularity::kTensor;
  int block = 0;  // kBlock only
  bool symmetric = true;
  bool dynamic = false;  // activations: scales are made at run time, from the values themselves

  bool active() const { return dtype != DType::kUndefined; }
  bool operator==(const Format&) const = default;
};
std::string to_string(const Format& format);  // "int8, per channel", "float8_e4m3fn, per tensor"

// Patterns are literal, or full matches of a regular expression behind "re:". Lists mean any.
struct Match {
  std::vector<std::string> name;    // the node's name, or that of a value it computes
  std::vector<std::string> op;      // Conv, Gemm, MatMul ...
  std::vector<std::string> tensor;  // any of the node's inputs
};

struct Rule {
  Match match;
  std::optional<bool> quantize;
  std::optional<Format> weights, activations;
};

struct Spec {
  Target target = Target::kPare;
  Format weights{DType::kI8, Granularity::kChannel, 0, true};
  Format activations{DType::kI8, Granularity::kTensor, 0, true};
  std::vector<Rule> rules;         // in order, later wins
  std::vector<std::string> ops;    // only these operators; {}: all that the target can use
  std::vector<std::string> share;  // kinds of layers that are fused later: "qkv", "gate_up" (share.h)
  std::string method = "auto";     // rtn: amax; search: least squared error; auto: as search
};

// Error kUsage or kUnsupported for what this build cannot do, before any work.
void check(const Spec& spec);

// The two formats behind a scheme name ("int8", "fp8"). Error kUsage with the list.
struct Scheme {
  const char* name;
  const char* meaning;
  Format weights, activations;
};
const std::vector<Scheme>& schemes();
const Scheme& scheme_from_name(const std::string& text);

}  // namespace pare::quant
