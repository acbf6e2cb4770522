#include "engine/base/tensor.h"

#include <cstdlib>
#include <cstring>

#include "engine/base/error.h"

namespace pare {

std::int64_t element_count(const Dims& dims) {
  std::int64_t count = 1;
  bool zero = false;
  for (const std::int64_t d : dims) {
    if (d < 0) fail(ErrorCode::kBadFile, "negative size in shape {}", to_string(dims));
    if (d == 0) {
      zero = true;
    } else if (__builtin_mul_overflow(count, d, &count)) {
      fail(ErrorCode::kBadFile, "the element count of shape {} is not representable", to_string(dims));
    }
  }
  return zero ? 0 : count;
}

std::int64_t byte_count(DType type, const Dims& dims) {
  const std::int64_t count = element_count(dims);
  const std::int64_t width =
      type == DType::kString ? 8 * static_cast<std::int64_t>(sizeof(std::string)) : bits(type);
  std::int64_t all_bits = 0;
  if (__builtin_mul_overflow(count, width, &all_bits) || all_bits > INT64_MAX - 7)
    fail(ErrorCode::kBadFile, "the byte count of {} {} is not representable", name(type), to_string(dims));
  return (all_bits + 7) / 8;
}

std::string to_string(const Dims& dims) {
  std::string text = "[";
  for (std::size_t i = 0; i < dims.size(); ++i) text += (i ? "," : "") + std::to_string(dims[i]);
  return text + "]";
}

Tensor Tensor::allocate(DType type, Dims dims) {
  constexpr std::size_t kAlign = 64;
  // More than any machine here has. Asking for it would mean different things: refusal, an abort under a
  // sanitizer, or an address that overcommitted memory cannot back.
  constexpr std::int64_t kMaxBytes = std::int64_t{1} << 38;
  Tensor tensor;
  const std::int64_t bytes = byte_count(type, dims);
  if (bytes > kMaxBytes)
    throw make_error(ErrorCode::kDevice,
                     "out of memory: {} {} needs {} bytes, more than a tensor may hold ({})", name(type),
                     to_string(dims), bytes, kMaxBytes)
        .hint("is the shape meant? `pare inspect MODEL --layers` shows it");
  if (type == DType::kString) {
    auto strings = std::make_shared<std::vector<std::string>>(static_cast<std::size_t>(element_count(dims)));
    if (strings->empty()) strings->reserve(1);  // no elements, but an address
    tensor.data_ = strings->data();
    tensor.owner_ = std::move(strings);
  } else {
    const std::size_t rounded = (static_cast<std::size_t>(bytes) + kAlign - 1) / kAlign * kAlign;
    void* memory = std::aligned_alloc(kAlign, rounded == 0 ? kAlign : rounded);
    if (memory == nullptr)
      throw make_error(ErrorCode::kDevice, "out of memory: {} {} needs {} bytes", name(type), to_string(dims),
                       bytes)
          .hint("a smaller batch, or fewer samples at once, need less memory");
    tensor.owner_ =
        std::shared_ptr<const void>(memory, [](const void* p) { std::free(const_cast<void*>(p)); });
    tensor.data_ = memory;
  }
  tensor.dtype_ = type;
  tensor.dims_ = std::move(dims);
  tensor.writable_ = true;
  return tensor;
}

Tensor Tensor::share(DType type, Dims dims, const void* data, std::shared_ptr<const void> owner) {
  Tensor tensor;
  tensor.dtype_ = type;
  tensor.dims_ = std::move(dims);
  tensor.data_ = data;
  tensor.owner_ = std::move(owner);
  return tensor;
}

Tensor Tensor::copy_of(DType type, Dims dims, const void* data, std::size_t bytes) {
  PARE_ASSERT(type != DType::kString);
  Tensor tensor = allocate(type, std::move(dims));
  PARE_ASSERT(static_cast<std::size_t>(tensor.bytes()) == bytes);
  if (bytes != 0) std::memcpy(tensor.writable(), data, bytes);
  return tensor;
}

Tensor Tensor::scalar(float value) { return copy_of(DType::kF32, {}, &value, sizeof value); }

Tensor Tensor::ints(const std::vector<std::int64_t>& values) {
  return from(DType::kI64, {static_cast<std::int64_t>(values.size())}, values);
}

std::span<const std::byte> Tensor::byte_span() const {
  return {static_cast<const std::byte*>(data_), static_cast<std::size_t>(bytes())};
}

Tensor Tensor::reshaped(Dims dims) const {
  PARE_ASSERT(element_count(dims) == size());
  Tensor tensor = *this;
  tensor.dims_ = std::move(dims);
  return tensor;
}

Tensor Tensor::clone() const {
  if (empty()) return {};
  Tensor tensor = allocate(dtype_, dims_);
  if (dtype_ == DType::kString) {
    for (std::int64_t i = 0; i < size(); ++i) tensor.mut<std::string>()[i] = as<std::string>()[i];
  } else if (bytes() != 0) {
    std::memcpy(tensor.writable(), data_, static_cast<std::size_t>(bytes()));
  }
  return tensor;
}

namespace {

template <typename T>
std::vector<std::int64_t> widen(const Tensor& tensor) {
  const T* p = tensor.as<T>();
  std::vector<std::int64_t> values(static_cast<std::size_t>(tensor.size()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::int64_t>(p[i]);
  return values;
}

// Numbers of 2 and 4 bits lie packed, the first in the lowest bits.
std::vector<std::int64_t> widen_packed(const Tensor& tensor, int width, bool is_signed) {
  const auto* p = static_cast<const std::uint8_t*>(tensor.data());
  std::vector<std::int64_t> values(static_cast<std::size_t>(tensor.size()));
  const std::size_t each = 8 / static_cast<std::size_t>(width);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const int code = (p[i / each] >> (static_cast<int>(i % each) * width)) & ((1 << width) - 1);
    values[i] = is_signed && code >> (width - 1) != 0 ? code - (1 << width) : code;
  }
  return values;
}

}  // namespace

std::vector<std::int64_t> Tensor::to_ints() const {
  switch (dtype_) {
    case DType::kI64:
      return widen<std::int64_t>(*this);
    case DType::kI32:
      return widen<std::int32_t>(*this);
    case DType::kI16:
      return widen<std::int16_t>(*this);
    case DType::kI8:
      return widen<std::int8_t>(*this);
    case DType::kU64:
      return widen<std::uint64_t>(*this);
    case DType::kU32:
      return widen<std::uint32_t>(*this);
    case DType::kU16:
      return widen<std::uint16_t>(*this);
    case DType::kU8:
    case DType::kBool:
      return widen<std::uint8_t>(*this);
    case DType::kU4:
    case DType::kI4:
      return widen_packed(*this, 4, dtype_ == DType::kI4);
    case DType::kU2:
    case DType::kI2:
      return widen_packed(*this, 2, dtype_ == DType::kI2);
    default:
      fail(ErrorCode::kInternal, "to_ints of a {} tensor", name(dtype_));
  }
}

void* Tensor::writable() {
  PARE_ASSERT(writable_);
  return const_cast<void*>(data_);
}

bool equal_bytes(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || a.dims() != b.dims()) return false;
  if (a.dtype() == DType::kString) {
    for (std::int64_t i = 0; i < a.size(); ++i)
      if (a.as<std::string>()[i] != b.as<std::string>()[i]) return false;
    return true;
  }
  return a.bytes() == 0 || std::memcmp(a.data(), b.data(), static_cast<std::size_t>(a.bytes())) == 0;
}

}  // namespace pare
