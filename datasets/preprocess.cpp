#include "datasets/preprocess.h"

#include <cmath>
#include <cstring>

#include "engine/base/error.h"
#include "engine/numeric/bf16.h"
#include "engine/numeric/f16.h"

namespace pare {

namespace {

struct Half {
  std::uint16_t code;
};
struct Brain {
  std::uint16_t code;
};

template <typename T>
inline float to_float(T value) {
  return static_cast<float>(value);
}
inline float to_float(Half value) { return decode_f16(value.code); }
inline float to_float(Brain value) { return decode_bf16(value.code); }

template <typename T>
inline T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

// `n` elements, `step` and `out_step` elements apart.
template <typename T>
void arithmetic_row(const std::byte* in, std::int64_t step, float* out, std::int64_t out_step, std::int64_t n,
                    float scale, float mean, float std) {
  if (step == 1 && out_step == 1) {
    for (std::int64_t i = 0; i < n; ++i)
      out[i] = (to_float(load<T>(in + i * static_cast<std::int64_t>(sizeof(T)))) * scale - mean) / std;
  } else {
    const std::int64_t stride = step * static_cast<std::int64_t>(sizeof(T));
    for (std::int64_t i = 0; i < n; ++i)
      out[i * out_step] = (to_float(load<T>(in + i * stride)) * scale - mean) / std;
  }
}

void table_row(const std::byte* in, std::int64_t step, float* out, std::int64_t out_step, std::int64_t n,
               const float* table) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(in);
  for (std::int64_t i = 0; i < n; ++i) out[i * out_step] = table[bytes[i * step]];
}

template <std::size_t kWidth>
void move_row(const std::byte* in, std::int64_t step, std::byte* out, std::int64_t out_step, std::int64_t n) {
  constexpr auto w = static_cast<std::int64_t>(kWidth);
  for (std::int64_t i = 0; i < n; ++i) std::memcpy(out + i * out_step * w, in + i * step * w, kWidth);
}

using ArithmeticRow = void (*)(const std::byte*, std::int64_t, float*, std::int64_t, std::int64_t, float,
                               float, float);

ArithmeticRow arithmetic_row_for(DType type) {
  switch (type) {
    case DType::kBool:
    case DType::kU8:
      return arithmetic_row<std::uint8_t>;
    case DType::kI8:
      return arithmetic_row<std::int8_t>;
    case DType::kU16:
      return arithmetic_row<std::uint16_t>;
    case DType::kI16:
      return arithmetic_row<std::int16_t>;
    case DType::kU32:
      return arithmetic_row<std::uint32_t>;
    case DType::kI32:
      return arithmetic_row<std::int32_t>;
    case DType::kU64:
      return arithmetic_row<std::uint64_t>;
    case DType::kI64:
      return arithmetic_row<std::int64_t>;
    case DType::kF16:
      return arithmetic_row<Half>;
    case DType::kBF16:
      return arithmetic_row<Brain>;
    case DType::kF32:
      return arithmetic_row<float>;
    case DType::kF64:
      return arithmetic_row<double>;
    default:
      throw make_error(ErrorCode::kUnsupported, "data of type {} cannot be scaled", name(type))
          .hint("save the data as integers or floats of up to 64 bits");
  }
}

std::vector<float> per_channel(const char* key, const std::vector<double>& values, double otherwise,
                               std::int64_t channels, bool image) {
  if (values.size() > 1 && !image)
    throw make_error(ErrorCode::kUsage, "'{}' has {} numbers, but without a layout the data has no channels",
                     key, values.size())
        .hint("add layout=nchw, nhwc or nhwc_to_nchw, or give one number");
  if (values.size() > 1 && static_cast<std::int64_t>(values.size()) != channels)
    throw make_error(ErrorCode::kUsage, "'{}' has {} numbers, but the data has {} channels", key,
                     values.size(), channels)
        .hint("give one number, or one a channel");
  std::vector<float> all(static_cast<std::size_t>(channels), static_cast<float>(otherwise));
  for (std::size_t c = 0; c < all.size() && !values.empty(); ++c) {
    all[c] = static_cast<float>(values[values.size() > 1 ? c : 0]);
    if (!std::isfinite(all[c]) || (otherwise == 1 && all[c] == 0))
      throw make_error(ErrorCode::kUsage, "'{}': {} is not usable in float32", key,
                       values[values.size() > 1 ? c : 0])
          .hint("give a number between 1e-38 and 1e38");
  }
  return all;
}

}  // namespace

Preprocess make_preprocess(const DatasetSpec& spec, DType dtype, const Dims& sample, bool image,
                           bool arithmetic) {
  Preprocess p;
  p.from = dtype;
  p.arithmetic = arithmetic;
  p.to = arithmetic ? DType::kF32 : dtype;
  p.sample_in = p.sample_out = sample;
  p.area = element_count(sample);
  if (image) {
    if (sample.size() != 2 && sample.size() != 3)
      throw make_error(ErrorCode::kUsage, "layout={} is for images, but a sample has the shape {}",
                       name(spec.layout), to_string(sample))
          .hint("images have three dimensions, or two with one channel; leave 'layout' out for other data");
    const bool last_in = spec.layout == DataLayout::kNhwc || spec.layout == DataLayout::kNhwcToNchw;
    const bool last_out = spec.layout == DataLayout::kNhwc || spec.layout == DataLayout::kNchwToNhwc;
    Dims hw = sample;  // height and width
    if (sample.size() == 3) {
      p.channels = last_in ? sample[2] : sample[0];
      hw = last_in ? Dims{sample[0], sample[1]} : Dims{sample[1], sample[2]};
    }
    p.area = element_count(hw);
    p.sample_out = last_out ? Dims{hw[0], hw[1], p.channels} : Dims{p.channels, hw[0], hw[1]};
    p.channels_last_in = last_in;
    p.channels_last_out = last_out;
  }
  if (spec.channels == "bgr" && spec.layout != DataLayout::kUnset && image) {
    if (p.channels != 3)
      throw make_error(ErrorCode::kUsage,
                       "channels=bgr is for three channels, but the data has {} (sample {}, layout={})",
                       p.channels, to_string(sample), name(spec.layout))
          .hint("leave channels away, or give layout= so that three channels are found");
    p.reverse_channels = true;
  }
  if (spec.alpha && image) {
    if (p.channels != 3 || !arithmetic)
      throw make_error(ErrorCode::kUsage,
                       "alpha is a fourth channel of float32, but the data has {} channels{}", p.channels,
                       arithmetic ? "" : " and no arithmetic")
          .hint("images of three channels with scale=1 or another scale can have one");
    p.append_alpha = true;
    p.alpha = static_cast<float>(*spec.alpha);
    p.sample_out[p.channels_last_out ? 2 : 0] = 4;
  }
  if (!arithmetic) return p;

  const ArithmeticRow row = arithmetic_row_for(dtype);
  p.scale = static_cast<float>(spec.scale.value_or(1.0));
  if (!std::isfinite(p.scale) || p.scale == 0)
    throw make_error(ErrorCode::kUsage, "'scale' is not usable in float32").hint("for example scale=1/255");
  p.mean = per_channel("mean", spec.mean, 0, p.channels, image);
  p.std = per_channel("std", spec.std, 1, p.channels, image);
  if (dtype == DType::kU8) {
    std::uint8_t all[256];
    for (int i = 0; i < 256; ++i) all[i] = static_cast<std::uint8_t>(i);
    p.byte_table.resize(static_cast<std::size_t>(p.channels) * 256);
    for (std::size_t c = 0; c < p.mean.size(); ++c)
      row(reinterpret_cast<const std::byte*>(all), 1, p.byte_table.data() + c * 256, 1, 256, p.scale,
          p.mean[c], p.std[c]);
  }
  return p;
}

std::size_t width_axis(const Preprocess& p) { return p.sample_in.size() == 3 && !p.channels_last_in ? 2 : 1; }

bool Preprocess::is_identity() const {
  const bool moves = channels > 1 && area > 1 && channels_last_in != channels_last_out;
  return !arithmetic && !moves && !reverse_channels;
}

void Preprocess::run(const std::byte* in, std::byte* out) const {
  const auto width = static_cast<std::int64_t>(bits(from) / 8);
  if (is_identity()) {
    std::memcpy(out, in, static_cast<std::size_t>(channels * area * width));
    return;
  }
  const std::int64_t step = channels_last_in ? channels : 1;
  const std::int64_t out_step = channels_last_out ? channels + (append_alpha ? 1 : 0) : 1;
  if (append_alpha) {
    float* floats = reinterpret_cast<float*>(out) + (channels_last_out ? channels : channels * area);
    for (std::int64_t i = 0; i < area; ++i) floats[i * out_step] = alpha;
  }
  for (std::int64_t c = 0; c < channels; ++c) {
    const std::int64_t source = reverse_channels ? channels - 1 - c : c;
    const std::byte* from_row = in + width * (channels_last_in ? source : source * area);
    const std::int64_t to_row = channels_last_out ? c : c * area;
    if (arithmetic) {
      float* floats = reinterpret_cast<float*>(out) + to_row;
      const auto k = static_cast<std::size_t>(c);
      if (!byte_table.empty())
        table_row(from_row, step, floats, out_step, area, byte_table.data() + k * 256);
      else
        arithmetic_row_for(from)(from_row, step, floats, out_step, area, scale, mean[k], std[k]);
    } else if (width == 1) {
      move_row<1>(from_row, step, out + to_row, out_step, area);
    } else if (width == 2) {
      move_row<2>(from_row, step, out + to_row * 2, out_step, area);
    } else if (width == 4) {
      move_row<4>(from_row, step, out + to_row * 4, out_step, area);
    } else {
      move_row<8>(from_row, step, out + to_row * 8, out_step, area);
    }
  }
}

}  // namespace pare
