// Shared by the writers of checkpoint formats: the tensors of a layer, one after the other, with or without
// their numbers.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "graphsurgeon/checkpoint/dialect.h"

namespace pare {

class LayerTensors {
 public:
  explicit LayerTensors(const QuantizedLinear& layer) : layer_(layer) {}

  bool filled() const { return !layer_.codes.empty(); }

  // MODULE.suffix; `make` is called where numbers are wanted.
  template <typename Make>
  void add(const char* suffix, DType dtype, Dims dims, Make make) {
    StoredTensor tensor{layer_.module + "." + suffix, dtype, std::move(dims), {}};
    if (filled()) tensor.data = make();
    tensors_.push_back(std::move(tensor));
  }
  // One byte a code, as it is.
  void add_codes(const char* suffix, DType dtype);
  // Two E2M1 codes a byte, the even column below.
  void add_fp4(const char* suffix);
  // Scales in the type that they have (E8M0 as U8, which safetensors files use), in `dims`.
  void add_scales(const char* suffix, Dims dims, bool groups_first = false);
  void add_floats(const char* suffix, Dims dims, const std::vector<float>& values);
  // Streams of `bits` a code along the rows, unsigned codes.
  void add_stream(const char* suffix);
  // int32 words.
  template <typename Make>
  void add_words(const char* suffix, Dims dims, Make make) {
    add(suffix, DType::kI32, dims,
        [&] { return Tensor::from<std::uint32_t>(DType::kI32, dims, std::vector<std::uint32_t>(make())); });
  }

  std::vector<StoredTensor> take() { return std::move(tensors_); }

 private:
  const QuantizedLinear& layer_;
  std::vector<StoredTensor> tensors_;
};

// values [rows, cols] -> [cols, rows]
template <typename T>
std::vector<T> transposed(const std::vector<T>& values, std::int64_t rows, std::int64_t cols) {
  std::vector<T> out(values.size());
  constexpr std::int64_t kStep = 64;  // blocks that fit the cache
  for (std::int64_t top = 0; top < rows; top += kStep)
    for (std::int64_t left = 0; left < cols; left += kStep)
      for (std::int64_t c = left; c < std::min(left + kStep, cols); ++c)
        for (std::int64_t r = top; r < std::min(top + kStep, rows); ++r)
          out[static_cast<std::size_t>(c * rows + r)] = values[static_cast<std::size_t>(r * cols + c)];
  return out;
}

// `given` itself where its codes are signed, else a copy that to_signed() changed.
const QuantizedLinear& signed_form(const QuantizedLinear& given, QuantizedLinear& changed);

// Zero points as unsigned codes: signed ones plus 2^(bits - 1).
std::vector<std::uint8_t> zero_codes(const QuantizedLinear& layer);
// Codes as unsigned numbers, whatever they are.
std::vector<std::uint8_t> unsigned_codes(const QuantizedLinear& layer);

// Regular expression that matches `module` and nothing else.
std::string exact_pattern(const std::string& module);

}  // namespace pare
