#include "engine/ops/change_layout.h"

#include <algorithm>
#include <cstring>

#include "engine/base/error.h"

namespace pare::change_layout {
namespace {

constexpr std::int64_t kTile = 32;

std::string why_not(const OpCall& call) {
  const int width = bits(call.in[0].dtype);
  if (width != 8 && width != 16 && width != 32 && width != 64)
    return fmt::format("{} has no elements of 1, 2, 4 or 8 bytes", name(call.in[0].dtype));
  return call.in[0].dims.size() >= 3 ? "" : "the rank is below 3";
}

// The input of each image is a matrix of rows x columns, the output its transpose.
struct Sizes {
  std::int64_t images, rows, columns;
};

Sizes sizes_of(const OpCall& call, bool to_plain) {
  const Dims& d = call.in[0].dims;
  std::int64_t spatial = 1;
  for (std::size_t i = 1; i + 1 < d.size(); ++i) spatial *= d[to_plain ? i : i + 1];
  const std::int64_t channels = to_plain ? d.back() : d[1];
  return to_plain ? Sizes{d[0], spatial, channels} : Sizes{d[0], channels, spatial};
}

template <typename T>
void transpose_tiles(const OpCall& call, const Sizes& s) {
  const T* in = call.in[0].as<T>();
  T* out = call.out[0].mut<T>();
  const std::int64_t strips = (s.rows + kTile - 1) / kTile;
  call.pool->parallel_for(
      s.images * strips, 1 + 16384 / (kTile * s.columns + 1), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          const std::int64_t image = i / strips * s.rows * s.columns, r0 = i % strips * kTile;
          const std::int64_t r1 = std::min(r0 + kTile, s.rows);
          for (std::int64_t c0 = 0; c0 < s.columns; c0 += kTile) {
            const std::int64_t c1 = std::min(c0 + kTile, s.columns);
            for (std::int64_t c = c0; c < c1; ++c)
              for (std::int64_t r = r0; r < r1; ++r)
                out[image + c * s.rows + r] = in[image + r * s.columns + c];
          }
        }
      });
}

template <typename T>
void transpose_plainly(const OpCall& call, const Sizes& s) {
  for (std::int64_t n = 0; n < s.images; ++n)
    for (std::int64_t r = 0; r < s.rows; ++r)
      for (std::int64_t c = 0; c < s.columns; ++c)
        call.out[0].mut<T>()[(n * s.columns + c) * s.rows + r] =
            call.in[0].as<T>()[(n * s.rows + r) * s.columns + c];
}

template <bool kToPlain, bool kTiles>
void run(const OpCall& call) {
  const Sizes s = sizes_of(call, kToPlain);
  const int bytes = bits(call.in[0].dtype) / 8;
  if (kTiles && (s.rows == 1 || s.columns == 1)) {
    std::memcpy(call.out[0].data, call.in[0].data, static_cast<std::size_t>(call.in[0].size() * bytes));
    return;
  }
  const auto transpose = [&](auto element) {
    using T = decltype(element);
    kTiles ? transpose_tiles<T>(call, s) : transpose_plainly<T>(call, s);
  };
  if (bytes == 1) return transpose(std::uint8_t{});
  if (bytes == 2) return transpose(std::uint16_t{});
  if (bytes == 4) return transpose(std::uint32_t{});
  transpose(std::uint64_t{});
}

}  // namespace

Kernel to_channels_last_tiles_kernel() {
  return {"pare",  "ToChannelsLast", Backend::kCpu,   "pare.ToChannelsLast/cpu:tiles",
          why_not, nullptr,          run<false, true>};
}

Kernel to_plain_tiles_kernel() {
  return {"pare", "ToPlain", Backend::kCpu, "pare.ToPlain/cpu:tiles", why_not, nullptr, run<true, true>};
}

Kernel to_channels_last_ref_kernel() {
  return {"pare",  "ToChannelsLast", Backend::kCpu,    "pare.ToChannelsLast/cpu:ref",
          why_not, nullptr,          run<false, false>};
}

Kernel to_plain_ref_kernel() {
  return {"pare", "ToPlain", Backend::kCpu, "pare.ToPlain/cpu:ref", why_not, nullptr, run<true, false>};
}

}  // namespace pare::change_layout
