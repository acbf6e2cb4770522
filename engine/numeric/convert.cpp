#include "engine/numeric/convert.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "engine/base/error.h"
#include "engine/numeric/pack.h"
#include "engine/numeric/row_kernels.h"
#include "engine/numeric/table.h"

namespace pare {
namespace {

constexpr std::int64_t kBlock = 2048;  // elements; a multiple of 8. Two buffers of it stay in the first cache

const RowKernels::Format& kernels_of(DType type) {
  const auto& row = row_kernels().formats[static_cast<int>(type)];
  if (row.encode == nullptr)
    throw make_error(ErrorCode::kUnsupported, "no conversion between float32 and the codes of {}",
                     name(type));
  return row;
}

std::size_t bytes_of(DType type, std::int64_t n) {
  return static_cast<std::size_t>((n * bits(type) + 7) / 8);
}

template <typename T>
T read_at(const void* base, std::int64_t index) {
  T value;
  std::memcpy(&value, static_cast<const char*>(base) + index * static_cast<std::int64_t>(sizeof(T)),
              sizeof(T));
  return value;
}

template <typename T>
void write_at(void* base, std::int64_t index, T value) {
  std::memcpy(static_cast<char*>(base) + index * static_cast<std::int64_t>(sizeof(T)), &value, sizeof(T));
}

// A run of elements in the widest type of their kind.
struct Block {
  enum class Kind { kFloat, kDouble, kInt, kUint } kind = Kind::kFloat;
  union {
    float f[kBlock];
    double d[kBlock];
    std::int64_t i[kBlock];
    std::uint64_t u[kBlock];
  };
  std::int64_t n = 0;
};

template <typename T>
void load_ints(Block& block, const void* data) {
  block.kind = Block::Kind::kInt;
  for (std::int64_t i = 0; i < block.n; ++i) block.i[i] = static_cast<std::int64_t>(read_at<T>(data, i));
}

// Elements [0, block.n) of `data`, whose first lies at a whole byte.
void load(Block& block, DType type, const void* data) {
  switch (type) {
    case DType::kF32:
      block.kind = Block::Kind::kFloat;
      std::memcpy(block.f, data, bytes_of(type, block.n));
      return;
    case DType::kF64:
      block.kind = Block::Kind::kDouble;
      std::memcpy(block.d, data, bytes_of(type, block.n));
      return;
    case DType::kU64:
      block.kind = Block::Kind::kUint;
      std::memcpy(block.u, data, bytes_of(type, block.n));
      return;
    case DType::kI64:
      return load_ints<std::int64_t>(block, data);
    case DType::kI32:
      return load_ints<std::int32_t>(block, data);
    case DType::kU32:
      return load_ints<std::uint32_t>(block, data);
    case DType::kI16:
      return load_ints<std::int16_t>(block, data);
    case DType::kU16:
      return load_ints<std::uint16_t>(block, data);
    case DType::kI8:
      return load_ints<std::int8_t>(block, data);
    case DType::kU8:
      return load_ints<std::uint8_t>(block, data);
    case DType::kBool:
      load_ints<std::uint8_t>(block, data);
      for (std::int64_t i = 0; i < block.n; ++i) block.i[i] = block.i[i] != 0;
      return;
    case DType::kI4:
    case DType::kU4:
    case DType::kI2:
    case DType::kU2:
      block.kind = Block::Kind::kInt;
      for (std::int64_t i = 0; i < block.n; ++i) {
        const int code = packed_code(bits(type), data, i), half = 1 << (bits(type) - 1);
        const bool negative = (type == DType::kI4 || type == DType::kI2) && code >= half;
        block.i[i] = negative ? code - 2 * half : code;
      }
      return;
    default:
      block.kind = Block::Kind::kFloat;
      decode(type, data, block.f, block.n);
  }
}

// float64 -> float32 so that a second rounding, to a format with at most 22 significant bits, gives what one
// rounding of the double would: an inexact result is cut towards zero and its last bit set ("round to odd",
// Boldo and Melquiond 2008).
float round_to_odd(double value) {
  const auto nearest = static_cast<float>(value);
  if (static_cast<double>(nearest) == value || std::isnan(value)) return nearest;
  std::uint32_t code = float_bits(nearest);
  if (std::fabs(static_cast<double>(nearest)) > std::fabs(value)) --code;
  return bits_float(code | 1);
}

// The same for integers: beyond 53 bits the low 11 become one sticky bit, which a double holds exactly.
double sticky(std::int64_t value) {
  if (value > -(std::int64_t{1} << 53) && value < (std::int64_t{1} << 53)) return static_cast<double>(value);
  const bool rest = (value & 0x7FF) != 0;
  return static_cast<double>((value & ~std::int64_t{0x7FF}) | (rest ? 0x800 : 0));
}
double sticky(std::uint64_t value) {
  if (value < (std::uint64_t{1} << 53)) return static_cast<double>(value);
  const bool rest = (value & 0x7FF) != 0;
  return static_cast<double>((value & ~std::uint64_t{0x7FF}) | (rest ? 0x800 : 0));
}

// Applies `body(i, value)` to the elements, each in its own kind's type.
template <typename Body>
void for_each(const Block& block, Body&& body) {
  switch (block.kind) {
    case Block::Kind::kFloat:
      for (std::int64_t i = 0; i < block.n; ++i) body(i, block.f[i]);
      return;
    case Block::Kind::kDouble:
      for (std::int64_t i = 0; i < block.n; ++i) body(i, block.d[i]);
      return;
    case Block::Kind::kInt:
      for (std::int64_t i = 0; i < block.n; ++i) body(i, block.i[i]);
      return;
    case Block::Kind::kUint:
      for (std::int64_t i = 0; i < block.n; ++i) body(i, block.u[i]);
      return;
  }
}

template <typename T, typename V>
T to_integer(V value) {
  if constexpr (std::is_integral_v<V>) {
    return static_cast<T>(value);
  } else {
    const auto v = static_cast<double>(value);
    if (std::isnan(v)) return 0;
    const double limit = std::is_same_v<T, std::uint64_t> ? 0x1p64 : 0x1p63;
    if (v >= limit) return std::numeric_limits<T>::max();
    if (v < -0x1p63) return std::numeric_limits<T>::lowest();
    if (v >= 0x1p63) return static_cast<T>(static_cast<std::uint64_t>(v));
    return static_cast<T>(static_cast<std::int64_t>(v));
  }
}

template <typename T>
void store_ints(const Block& block, void* data) {
  for_each(block, [&](std::int64_t i, auto value) { write_at(data, i, to_integer<T>(value)); });
}

// Out of the 64 bit range the end of the small type's own range, as to_integer has it for whole bytes.
template <typename V>
std::uint8_t to_small_code(V value, int low, int high) {
  if constexpr (!std::is_integral_v<V>) {
    if (static_cast<double>(value) >= 0x1p63) return static_cast<std::uint8_t>(high);
    if (static_cast<double>(value) < -0x1p63) return static_cast<std::uint8_t>(low);
  }
  return static_cast<std::uint8_t>(to_integer<std::int64_t>(value));
}

void store_packed_ints(const Block& block, DType type, void* data) {
  const bool is_signed = type == DType::kI4 || type == DType::kI2;
  const int low = is_signed ? -(1 << (bits(type) - 1)) : 0, high = low + (1 << bits(type)) - 1;
  std::uint8_t codes[kBlock];
  for_each(block, [&](std::int64_t i, auto value) { codes[i] = to_small_code(value, low, high); });
  pack_codes(bits(type), codes, data, block.n);
}

void store_narrow_float(const Block& block, DType type, void* data, const CastOptions& options) {
  float values[kBlock];
  for_each(block, [&](std::int64_t i, auto value) {
    using V = decltype(value);
    if constexpr (std::is_same_v<V, float>)
      values[i] = value;
    else if constexpr (std::is_same_v<V, double>)
      values[i] = round_to_odd(value);
    else
      values[i] = round_to_odd(sticky(value));
  });
  if (type == DType::kE8M0 && options.round != E8m0Round::kUp) {
    auto* codes = static_cast<std::uint8_t*>(data);
    for (std::int64_t i = 0; i < block.n; ++i)
      codes[i] = encode_e8m0(values[i], options.round, options.saturate);
    return;
  }
  encode(type, values, data, block.n, options.saturate);
}

void store(const Block& block, DType type, void* data, const CastOptions& options) {
  switch (type) {
    case DType::kF32:
      return for_each(block, [&](std::int64_t i, auto v) { write_at(data, i, static_cast<float>(v)); });
    case DType::kF64:
      return for_each(block, [&](std::int64_t i, auto v) { write_at(data, i, static_cast<double>(v)); });
    case DType::kBool:
      return for_each(block, [&](std::int64_t i, auto v) { write_at(data, i, std::uint8_t{v != 0}); });
    case DType::kI64:
      return store_ints<std::int64_t>(block, data);
    case DType::kU64:
      return store_ints<std::uint64_t>(block, data);
    case DType::kI32:
      return store_ints<std::int32_t>(block, data);
    case DType::kU32:
      return store_ints<std::uint32_t>(block, data);
    case DType::kI16:
      return store_ints<std::int16_t>(block, data);
    case DType::kU16:
      return store_ints<std::uint16_t>(block, data);
    case DType::kI8:
      return store_ints<std::int8_t>(block, data);
    case DType::kU8:
      return store_ints<std::uint8_t>(block, data);
    case DType::kI4:
    case DType::kU4:
    case DType::kI2:
    case DType::kU2:
      return store_packed_ints(block, type, data);
    default:
      store_narrow_float(block, type, data, options);
  }
}

}  // namespace

void encode(DType to, const float* values, void* codes, std::int64_t n, bool saturate) {
  if (n <= 0) return;
  if (to == DType::kF32) {
    std::memcpy(codes, values, bytes_of(to, n));
    return;
  }
  const auto& kernel = kernels_of(to);
  const auto row = saturate ? kernel.encode : kernel.encode_unsaturated;
  if (bits(to) >= 8) return row(values, codes, n);
  std::uint8_t unpacked[kBlock];
  auto* out = static_cast<std::uint8_t*>(codes);
  for (std::int64_t i = 0; i < n; i += kBlock) {
    const std::int64_t count = std::min(kBlock, n - i);
    row(values + i, unpacked, count);
    pack_codes(bits(to), unpacked, out + bytes_of(to, i), count);
  }
}

void decode(DType from, const void* codes, float* values, std::int64_t n) {
  if (n <= 0) return;
  if (from == DType::kF32) {
    std::memcpy(values, codes, bytes_of(from, n));
    return;
  }
  const auto& kernel = kernels_of(from);
  if (bits(from) >= 8) return kernel.decode(codes, values, n);
  std::uint8_t unpacked[kBlock];
  const auto* in = static_cast<const std::uint8_t*>(codes);
  for (std::int64_t i = 0; i < n; i += kBlock) {
    const std::int64_t count = std::min(kBlock, n - i);
    unpack_codes(bits(from), in + bytes_of(from, i), unpacked, count);
    kernel.decode(unpacked, values + i, count);
  }
}

void round_through(DType format, const float* x, float* y, std::int64_t n, bool saturate) {
  if (format == DType::kF32) {
    if (n > 0 && x != y) std::memcpy(y, x, bytes_of(format, n));
    return;
  }
  const auto& kernel = kernels_of(format);
  const auto row = saturate ? kernel.encode : kernel.encode_unsaturated;
  std::uint16_t codes[kBlock];
  for (std::int64_t i = 0; i < n; i += kBlock) {
    const std::int64_t count = std::min(kBlock, n - i);
    row(x + i, codes, count);
    kernel.decode(codes, y + i, count);
  }
}

void convert(const TensorView& in, const TensorView& out, const CastOptions& options) {
  format_info(in.dtype);
  format_info(out.dtype);
  const std::int64_t n = in.size();
  PARE_ASSERT(out.size() == n);
  if (n == 0) return;
  if (in.dtype == out.dtype) {
    std::memmove(out.data, in.data, bytes_of(in.dtype, n));
    return;
  }
  Block block;
  for (std::int64_t i = 0; i < n; i += kBlock) {
    block.n = std::min(kBlock, n - i);
    load(block, in.dtype, static_cast<const char*>(in.data) + bytes_of(in.dtype, i));
    store(block, out.dtype, static_cast<char*>(out.data) + bytes_of(out.dtype, i), options);
  }
}

}  // namespace pare
