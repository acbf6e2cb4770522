// From a raw sample to what the model sees: layout, channel order, arithmetic, in one pass over memory.
//
//   out = (float32(x) * scale - mean) / std       three float32 operations, each rounded to nearest even
//
// scale, mean and std are rounded to float32 once; integers and float64 likewise before the product. Without
// arithmetic the elements are moved unchanged. A NaN stays a NaN.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "datasets/spec.h"
#include "engine/base/tensor.h"

namespace pare {

struct Preprocess {
  DType from = DType::kUndefined, to = DType::kUndefined;
  Dims sample_in, sample_out;
  bool arithmetic = false;
  std::int64_t channels = 1, area = 1;  // of the input: elements = channels * area
  bool channels_last_in = false, channels_last_out = false;
  bool reverse_channels = false;
  bool append_alpha = false;  // a channel of `alpha` behind the others, in the output alone
  float alpha = 0;
  float scale = 1;
  std::vector<float> mean, std;   // one a channel of the output
  std::vector<float> byte_table;  // uint8 only: [channels][256], the same arithmetic done beforehand

  // Elements pass as they are, so samples that lie one behind the other need no copy.
  bool is_identity() const;
  // One sample; `in` at any alignment.
  void run(const std::byte* in, std::byte* out) const;
};

// The dimension of sample_in that is the width of an image.
std::size_t width_axis(const Preprocess& preprocess);

// `image`: layout and channel order apply to this column. Errors, kUsage: mean or std of a length that is
// neither 1 nor the number of channels, more than one without a layout, a layout or channel order for
// samples that are no images, a type that has no arithmetic, alpha without three channels or without float32.
Preprocess make_preprocess(const DatasetSpec& spec, DType dtype, const Dims& sample, bool image,
                           bool arithmetic);

}  // namespace pare
