// What the methods of read_linear.cpp share: the tensors of one module by their last names, and scales,
// inputs and codes out of them. Errors as read_linear.h says.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graphsurgeon/checkpoint/quantization_config.h"
#include "graphsurgeon/checkpoint/quantized.h"
#include "graphsurgeon/checkpoint/weights.h"

namespace pare::linear {

inline constexpr std::int64_t kMostSize = std::int64_t{1} << 28;

// The tensors of one module.
class Parts {
 public:
  Parts(const WeightStore& stored, const std::string& module) : stored_(stored), module_(module) {}

  const WeightStore::Entry* find(const char* part) const { return stored_.find(module_ + "." + part); }
  bool has(const char* part) const { return find(part) != nullptr; }
  Tensor need(const char* part, DType type, const Dims& dims) const;  // of one type and these sizes
  Tensor get(const char* part) const { return stored_.get(entry_of(part).name); }
  const WeightStore::Entry& entry_of(const char* part) const;
  Dims matrix(const char* part) const;  // [outs, ins]

  [[noreturn]] void bad(const char* part, const std::string& what) const;
  [[noreturn]] void refuse(const std::string& what) const;
  std::string where() const;

 private:
  const WeightStore& stored_;
  const std::string& module_;
};

std::vector<float> floats_of(const Parts& parts, const char* part);
float number_of(const Parts& parts, const char* part);  // finite
DType float_type(const Parts& parts, const char* part);

// The inputs of the layer; `numbers` false: their format alone, here and below.
void read_inputs(QuantizedLinear& layer, const Parts& parts, const QuantizationArgs& args, bool numbers);

// Codes that are stored one a byte, or two (E2M1, the even column in the low nibble).
void take_bytes(QuantizedLinear& layer, const Tensor& tensor);
void take_nibbles(QuantizedLinear& layer, const Tensor& tensor);
void set_float_codes(QuantizedLinear& layer, DType codes);
void set_integer_codes(QuantizedLinear& layer, int width, bool with_sign, bool symmetric);

// Scales. Which weights share one follows from the sizes and, where these leave a choice, from the config.
void take_float_scales(QuantizedLinear& layer, const Parts& parts, const char* part,
                       const QuantizationArgs& args, bool numbers);
// E8M0 in a tensor of bytes.
void take_power_scales(QuantizedLinear& layer, const Parts& parts, std::int64_t group, bool numbers);
// E4M3 below a float32.
void take_two_levels(QuantizedLinear& layer, const Parts& parts, std::int64_t group, const char* global,
                     bool divides, bool numbers);

}  // namespace pare::linear
