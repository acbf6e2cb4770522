#include "engine/numeric/quantize.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <vector>

#include "engine/base/error.h"
#include "engine/numeric/convert.h"
#include "engine/numeric/integers.h"
#include "engine/numeric/pack.h"
#include "engine/numeric/row_kernels.h"
#include "engine/numeric/table.h"

namespace pare {
namespace {

constexpr std::int64_t kChunk = 2048;    // elements handled at once: buffers stay in the first cache
constexpr std::int64_t kShortRun = 128;  // below, runs are gathered

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
};

// Hands runs on, at most kChunk elements at once. Short ones are gathered into one run with a scale per
// element: a kernel call costs more than writing 16 or 32 scales.
template <typename Body>
class Runs {
 public:
  Runs(Body& body, bool has_zeros) : body_(body), has_zeros_(has_zeros) {
    if (!has_zeros) std::fill_n(zeros_, kChunk, 0);
  }

  // `zero` may be nullptr: zeros.
  void add(std::int64_t begin, std::int64_t count, const float* scale, const std::int32_t* zero, bool each) {
    if (count >= kShortRun) {
      flush();
      for (std::int64_t i = 0; i < count; i += kChunk) {
        const std::int64_t step = each ? i : 0;
        body_(
            {begin + i, std::min(kChunk, count - i), scale + step, has_zeros_ ? zero + step : zeros_, each});
      }
      return;
    }
    reserve(begin, count);
    if (each)
      std::copy_n(scale, count, scales_ + held_);
    else
      std::fill_n(scales_ + held_, count, *scale);
    if (has_zeros_ && each)
      std::copy_n(zero, count, zeros_ + held_);
    else if (has_zeros_)
      std::fill_n(zeros_ + held_, count, *zero);
    held_ += count;
  }

  // Whole blocks of a multiple of 16, short ones.
  void add_blocks(std::int64_t begin, std::int64_t groups, std::int64_t block, const float* scale,
                  const std::int32_t* zero) {
    for (std::int64_t g = 0; g < groups;) {
      reserve(begin + g * block, block);
      const std::int64_t fit = std::min((kChunk - held_) / block, groups - g);
      row_kernels().spread(scale + g, fit, block, scales_ + held_);
      for (std::int64_t i = 0; has_zeros_ && i < fit; ++i)
        std::fill_n(zeros_ + held_ + i * block, block, zero[g + i]);
      held_ += fit * block;
      g += fit;
    }
  }

  void flush() {
    if (held_ > 0) body_({begin_, held_, scales_, zeros_, true});
    held_ = 0;
  }

 private:
  void reserve(std::int64_t begin, std::int64_t count) {
    if (held_ + count > kChunk) flush();
    if (held_ == 0) begin_ = begin;
  }

  Body& body_;
  bool has_zeros_;
  std::int64_t begin_ = 0, held_ = 0;
  float scales_[kChunk];
  std::int32_t zeros_[kChunk];
};

// One row of [channels] in blocks.
template <typename Body>
void add_blocked_row(Runs<Body>& runs, const ScaleLayout& l, std::int64_t begin, const float* scales,
                     const std::int32_t* zeros) {
  std::int64_t whole = 0;
  if (l.block % 16 == 0 && l.block < kShortRun) {
    whole = l.channels / l.block;
    runs.add_blocks(begin, whole, l.block, scales, zeros);
  }
  for (std::int64_t c = whole * l.block, g = whole; c < l.channels; c += l.block, ++g)
    runs.add(begin + c, std::min(l.block, l.channels - c), scales + g, zeros == nullptr ? nullptr : zeros + g,
             false);
}

// Calls body(Run) over the whole tensor, in order, each run no longer than kChunk.
template <typename Body>
void for_each_run(const ScaleLayout& l, const float* scales, const std::int32_t* zeros, Body&& body) {
  if (l.count() == 0) return;
  Runs<std::remove_reference_t<Body>> runs(body, zeros != nullptr);
  const auto zeros_at = [&](std::int64_t i) { return zeros == nullptr ? nullptr : zeros + i; };
  const std::int64_t blocks = (l.channels + l.block - 1) / l.block;
  if (l.kind == ScaleLayout::Kind::kTensor) {
    runs.add(0, l.count(), scales, zeros, false);
  } else if (l.kind == ScaleLayout::Kind::kChannel && l.inner == 1) {
    for (std::int64_t o = 0; o < l.outer; ++o) runs.add(o * l.channels, l.channels, scales, zeros, true);
  } else if (l.kind == ScaleLayout::Kind::kChannel) {
    for (std::int64_t o = 0; o < l.outer; ++o)
      for (std::int64_t c = 0; c < l.channels; ++c)
        runs.add((o * l.channels + c) * l.inner, l.inner, scales + c, zeros_at(c), false);
  } else if (l.inner == 1) {
    for (std::int64_t o = 0; o < l.outer; ++o)
      add_blocked_row(runs, l, o * l.channels, scales + o * blocks, zeros_at(o * blocks));
  } else {
    for (std::int64_t o = 0; o < l.outer; ++o)
      for (std::int64_t c = 0; c < l.channels; ++c) {
        const std::int64_t at = (o * blocks + c / l.block) * l.inner;
        runs.add((o * l.channels + c) * l.inner, l.inner, scales + at, zeros_at(at), true);
      }
  }
  runs.flush();
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
