#include "engine/numeric/quantize.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "engine/base/error.h"
#include "engine/numeric/convert.h"
#include "engine/numeric/integers.h"
#include "engine/numeric/pack.h"
#include "engine/numeric/row_kernels.h"
#include "engine/numeric/table.h"

namespace pare {
namespace {

constexpr std::int64_t kChunk = 2048;     // elements handled at once: buffers stay in the first cache
constexpr std::int64_t kShortInner = 16;  // below, a scale per element is cheaper than a call per channel

// Integer range of a target, or floats.
struct Grid {
  bool is_integer;
  int low = 0, high = 0;
};

bool quantizes(DType type) {
  const FormatInfo* row = find_format(type);
  return row != nullptr && row->bits <= 16 && row->qdq_opset > 0 && type != DType::kE8M0;
}

Grid grid_of(DType type) {
  if (!quantizes(type))
    throw make_error(ErrorCode::kUnsupported, "{} is no target of quantization", name(type));
  if (!is_integer(type)) return {false};
  const FormatInfo& row = format_info(type);
  return {true, static_cast<int>(row.lowest()), static_cast<int>(row.largest)};
}

void check_zero_points(const std::int32_t* zero_points, std::int64_t n, const Grid& grid, DType type) {
  if (zero_points == nullptr) return;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int32_t z = zero_points[i];
    if (grid.is_integer ? z < grid.low || z > grid.high : z != 0)
      throw make_error(ErrorCode::kUsage, "zero point {} (number {}) is not possible for {}", z, i,
                       name(type));
  }
}

// A stretch of the flattened tensor: one scale for all, or one per element.
struct Run {
  std::int64_t begin, count;
  const float* scale;
  const std::int32_t* zero;
  bool each;

  Run part(std::int64_t offset, std::int64_t length) const {
    const std::int64_t step = each ? offset : 0;
    return {begin + offset, length, scale + step, zero + step, each};
  }
};

// Calls body(Run) over the whole tensor, in order, at most kChunk elements at once.
template <typename Body>
void for_each_run(const ScaleLayout& l, const float* scales, const std::int32_t* zero_points, Body&& body) {
  std::vector<std::int32_t> zeros;
  if (zero_points == nullptr) {
    zeros.assign(static_cast<std::size_t>(l.scales()), 0);
    zero_points = zeros.data();
  }
  const auto chunked = [&](const Run& run) {
    for (std::int64_t i = 0; i < run.count; i += kChunk) body(run.part(i, std::min(kChunk, run.count - i)));
  };
  if (l.count() == 0) return;
  if (l.kind == ScaleLayout::Kind::kTensor || (l.kind == ScaleLayout::Kind::kChannel && l.channels == 1)) {
    chunked({0, l.count(), scales, zero_points, false});
  } else if (l.kind == ScaleLayout::Kind::kChannel && l.inner >= kShortInner) {
    for (std::int64_t row = 0; row < l.outer * l.channels; ++row)
      chunked({row * l.inner, l.inner, scales + row % l.channels, zero_points + row % l.channels, false});
  } else if (l.kind == ScaleLayout::Kind::kChannel) {
    const std::int64_t row = l.channels * l.inner;
    std::vector<float> each(static_cast<std::size_t>(row));
    std::vector<std::int32_t> each_zero(static_cast<std::size_t>(row));
    for (std::int64_t i = 0; i < row; ++i) {
      each[static_cast<std::size_t>(i)] = scales[i / l.inner];
      each_zero[static_cast<std::size_t>(i)] = zero_points[i / l.inner];
    }
    for (std::int64_t o = 0; o < l.outer; ++o) chunked({o * row, row, each.data(), each_zero.data(), true});
  } else {
    const std::int64_t blocks = (l.channels + l.block - 1) / l.block;
    for (std::int64_t o = 0; o < l.outer; ++o)
      for (std::int64_t c = 0; c < l.channels; c += l.inner == 1 ? l.block : 1) {
        const std::int64_t at = (o * blocks + c / l.block) * l.inner, begin = (o * l.channels + c) * l.inner;
        const std::int64_t count = l.inner == 1 ? std::min(l.block, l.channels - c) : l.inner;
        chunked({begin, count, scales + at, zero_points + at, l.inner != 1});
      }
  }
}

void divide(const RowKernels& k, const Run& run, const float* x, float* y) {
  if (run.each)
    k.divide_each(x, run.scale, y, run.count);
  else
    k.divide(x, *run.scale, y, run.count);
}

void rescale(const RowKernels& k, const Run& run, const float* x, float* y) {
  if (run.each)
    k.rescale_each(x, run.scale, run.zero, y, run.count);
  else
    k.rescale(x, *run.scale, *run.zero, y, run.count);
}

// Codes of one run, one or two bytes each, from its elements x.
void quantize_run(const RowKernels& k, const Run& run, const Grid& grid, const QuantTarget& target,
                  const float* x, void* codes) {
  static constexpr float kOne = 1;
  float quotient[kChunk];
  Run step = run;
  const bool two_steps = !grid.is_integer || target.precision != DType::kF32;
  std::vector<float> ones;
  if (two_steps) {
    divide(k, run, x, quotient);
    round_through(target.precision, quotient, quotient, run.count);
    x = quotient;
    step.scale = &kOne;  // dividing by 1 changes nothing
    if (run.each && grid.is_integer) {
      ones.assign(static_cast<std::size_t>(run.count), 1.0f);
      step.scale = ones.data();
    }
  }
  if (!grid.is_integer) {
    const auto& format = k.formats[static_cast<int>(target.type)];
    (target.saturate ? format.encode : format.encode_unsaturated)(x, codes, run.count);
  } else if (bits(target.type) == 16) {
    if (step.each)
      k.quantize16_each(x, step.scale, step.zero, grid.low, grid.high, codes, step.count);
    else
      k.quantize16(x, *step.scale, *step.zero, grid.low, grid.high, codes, step.count);
  } else {
    auto* out = static_cast<std::uint8_t*>(codes);
    if (step.each)
      k.quantize8_each(x, step.scale, step.zero, grid.low, grid.high, out, step.count);
    else
      k.quantize8(x, *step.scale, *step.zero, grid.low, grid.high, out, step.count);
  }
}

// Collects one-byte codes in order and writes them packed, a buffer at a time.
class PackingSink {
 public:
  PackingSink(int bits, void* out) : bits_(bits), out_(static_cast<std::uint8_t*>(out)) {}

  // Room for kChunk more codes.
  std::uint8_t* room() {
    if (held_ > kChunk) flush(held_ / 8 * 8);
    return codes_ + held_;
  }
  void added(std::int64_t n) { held_ += n; }
  void finish() { flush(held_); }

 private:
  void flush(std::int64_t n) {
    pack_codes(bits_, codes_, out_, n);
    out_ += packed_bytes(bits_, n);
    std::memmove(codes_, codes_ + n, static_cast<std::size_t>(held_ - n));
    held_ -= n;
  }

  int bits_;
  std::uint8_t* out_;
  std::int64_t held_ = 0;
  std::uint8_t codes_[2 * kChunk + 8];
};

// Any stretch of packed codes, unpacked into `codes`.
void unpack_range(int width, const void* packed, std::int64_t begin, std::int64_t n, std::uint8_t* codes) {
  const std::int64_t per_byte = 8 / width;
  for (; n > 0 && begin % per_byte != 0; ++begin, --n) *codes++ = packed_code(width, packed, begin);
  unpack_codes(width, static_cast<const std::uint8_t*>(packed) + begin / per_byte, codes, n);
}

void dequantize_int32(const void* codes, const Run& run, const RowKernels& k, float* y) {
  std::int32_t values[kChunk];
  std::memcpy(values, static_cast<const char*>(codes) + run.begin * 4,
              static_cast<std::size_t>(run.count) * 4);
  for (std::int64_t i = 0; i < run.count; ++i) y[run.begin + i] = static_cast<float>(values[i]);
  rescale(k, run, y + run.begin, y + run.begin);
}

void split_dims(const Dims& dims, std::int64_t axis, ScaleLayout& layout) {
  const auto rank = static_cast<std::int64_t>(dims.size());
  if (axis < -rank || axis >= rank)
    throw make_error(ErrorCode::kUsage, "quantization axis {} is outside of a shape {}", axis,
                     to_string(dims))
        .hint("the axis lies between -rank and rank - 1");
  const auto at = static_cast<std::size_t>(axis < 0 ? axis + rank : axis);
  layout.outer = element_count(Dims(dims.begin(), dims.begin() + static_cast<std::ptrdiff_t>(at)));
  layout.channels = dims[at];
  layout.inner = element_count(Dims(dims.begin() + static_cast<std::ptrdiff_t>(at) + 1, dims.end()));
  element_count(dims);
}

}  // namespace

ScaleLayout ScaleLayout::per_tensor(std::int64_t count) { return {Kind::kTensor, 1, 1, count, 1}; }

ScaleLayout ScaleLayout::per_channel(const Dims& dims, std::int64_t axis) {
  ScaleLayout layout;
  layout.kind = Kind::kChannel;
  split_dims(dims, axis, layout);
  return layout;
}

ScaleLayout ScaleLayout::blocked(const Dims& dims, std::int64_t axis, std::int64_t block) {
  if (block < 1) fail(ErrorCode::kUsage, "a block of {} elements cannot share a scale", block);
  ScaleLayout layout;
  layout.kind = Kind::kBlock;
  split_dims(dims, axis, layout);
  layout.block = block;
  return layout;
}

std::int64_t ScaleLayout::scales() const {
  if (kind == Kind::kTensor) return 1;
  if (kind == Kind::kChannel) return channels;
  return outer * ((channels + block - 1) / block) * inner;
}

void quantize(const float* x, const ScaleLayout& layout, const float* scales, const std::int32_t* zero_points,
              const QuantTarget& target, void* codes) {
  const Grid grid = grid_of(target.type);
  check_zero_points(zero_points, layout.scales(), grid, target.type);
  const RowKernels& k = row_kernels();
  const int width = bits(target.type);
  if (width >= 8) {
    for_each_run(layout, scales, zero_points, [&](const Run& run) {
      quantize_run(k, run, grid, target, x + run.begin, static_cast<char*>(codes) + run.begin * (width / 8));
    });
    return;
  }
  PackingSink sink(width, codes);
  for_each_run(layout, scales, zero_points, [&](const Run& run) {
    quantize_run(k, run, grid, target, x + run.begin, sink.room());
    sink.added(run.count);
  });
  sink.finish();
}

void dequantize(DType type, const void* codes, const ScaleLayout& layout, const float* scales,
                const std::int32_t* zero_points, float* y) {
  const RowKernels& k = row_kernels();
  if (type == DType::kI32) {
    check_zero_points(zero_points, layout.scales(), {false}, type);
    for_each_run(layout, scales, zero_points, [&](const Run& run) { dequantize_int32(codes, run, k, y); });
    return;
  }
  check_zero_points(zero_points, layout.scales(), grid_of(type), type);
  const auto& format = k.formats[static_cast<int>(type)];
  const int width = bits(type);
  for_each_run(layout, scales, zero_points, [&](const Run& run) {
    float* out = y + run.begin;
    if (width >= 8) {
      format.decode(static_cast<const char*>(codes) + run.begin * (width / 8), out, run.count);
    } else {
      std::uint8_t unpacked[kChunk];
      unpack_range(width, codes, run.begin, run.count, unpacked);
      format.decode(unpacked, out, run.count);
    }
    rescale(k, run, out, out);
  });
}

void fake_quantize(const float* x, const ScaleLayout& layout, const float* scales,
                   const std::int32_t* zero_points, const QuantTarget& target, float* y) {
  const Grid grid = grid_of(target.type);
  check_zero_points(zero_points, layout.scales(), grid, target.type);
  const RowKernels& k = row_kernels();
  const auto& format = k.formats[static_cast<int>(target.type)];
  for_each_run(layout, scales, zero_points, [&](const Run& run) {
    const float* in = x + run.begin;
    float* out = y + run.begin;
    if (grid.is_integer && target.precision == DType::kF32) {
      if (run.each)
        k.fake_each(in, run.scale, run.zero, grid.low, grid.high, out, run.count);
      else
        k.fake(in, *run.scale, *run.zero, grid.low, grid.high, out, run.count);
      return;
    }
    std::uint16_t codes[kChunk];
    quantize_run(k, run, grid, target, in, codes);
    format.decode(codes, out, run.count);
    rescale(k, run, out, out);
  });
}

}  // namespace pare
