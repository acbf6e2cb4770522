// Tensors: dense, row-major, little-endian. Elements below 8 bits are packed over the flattened tensor,
// the first element in the low bits (ONNX packing), so a tensor of n elements has ceil(n*bits/8) bytes.
//
//   TensorView   borrows: dtype, dims, pointer. Kernels see only these.
//   Tensor       owns, or shares ownership of what it points into (a mapped file, another tensor).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/base/dtype.h"

namespace pare {

using Dims = std::vector<std::int64_t>;  // concrete sizes, all >= 0; empty is a scalar

// Product of the sizes. Error kBadFile if it, or any factor, is negative or overflows int64.
std::int64_t element_count(const Dims& dims);
// ceil(count * bits / 8), overflow-checked. String tensors: sizeof(std::string) an element.
std::int64_t byte_count(DType type, const Dims& dims);
std::string to_string(const Dims& dims);  // "[1,3,224,224]"

struct TensorView {
  DType dtype = DType::kUndefined;
  Dims dims;
  void* data = nullptr;  // 64-byte aligned when it comes from a Tensor that allocated

  bool present() const { return dtype != DType::kUndefined; }  // false: an optional input left out
  std::int64_t size() const { return element_count(dims); }
  template <typename T>
  const T* as() const {
    return static_cast<const T*>(data);
  }
  template <typename T>
  T* mut() const {
    return static_cast<T*>(data);
  }
};

class Tensor {
 public:
  Tensor() = default;

  // Uninitialised memory, 64-byte aligned. Strings are constructed empty.
  // Error kDevice when memory is not to be had.
  static Tensor allocate(DType type, Dims dims);
  // Points into memory that `owner` keeps alive. Not to be written to.
  static Tensor share(DType type, Dims dims, const void* data, std::shared_ptr<const void> owner);

  template <typename T>
  static Tensor from(DType type, Dims dims, const std::vector<T>& values) {
    return copy_of(type, std::move(dims), values.data(), values.size() * sizeof(T));
  }
  static Tensor copy_of(DType type, Dims dims, const void* data, std::size_t bytes);  // bytes must match
  static Tensor scalar(float value);
  static Tensor ints(const std::vector<std::int64_t>& values);  // int64, rank 1

  bool empty() const { return dtype_ == DType::kUndefined; }  // no tensor at all
  DType dtype() const { return dtype_; }
  const Dims& dims() const { return dims_; }
  std::int64_t size() const { return element_count(dims_); }
  std::int64_t bytes() const { return byte_count(dtype_, dims_); }
  const void* data() const { return data_; }
  std::span<const std::byte> byte_span() const;
  template <typename T>
  const T* as() const {
    return static_cast<const T*>(data_);
  }
  // Only for a tensor made by allocate() or copy_of(). Others sharing it see the change.
  template <typename T>
  T* mut() {
    return static_cast<T*>(writable());
  }
  TensorView view() const { return {dtype_, dims_, const_cast<void*>(data_)}; }
  Tensor reshaped(Dims dims) const;  // same memory; the element count must match
  Tensor clone() const;
  // Elements as int64 (any integer type or bool). Error kInternal for others.
  std::vector<std::int64_t> to_ints() const;

 private:
  void* writable();

  DType dtype_ = DType::kUndefined;
  Dims dims_;
  const void* data_ = nullptr;
  std::shared_ptr<const void> owner_;
  bool writable_ = false;
};

// Same dtype, dims and bytes.
bool equal_bytes(const Tensor& a, const Tensor& b);

}  // namespace pare
