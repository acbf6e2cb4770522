#include "engine/ops/conv/channels_last.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/base/grain.h"
#include "engine/ops/register_linear.h"
#include "engine/ops/registry.h"

namespace pare {
namespace {

// --- pools

std::vector<std::int64_t> ints_or(const Node& node, const char* key, std::size_t count,
                                  std::int64_t otherwise) {
  std::vector<std::int64_t> values = node.attr_ints(key);
  if (values.empty()) values.assign(count, otherwise);
  return values;
}

std::string pool_why_not(const OpCall& call) {
  PoolGeometry g;
  return resolve_pool(call, g);
}

std::shared_ptr<const void> pool_prepare(const OpCall& call) {
  auto g = std::make_shared<PoolGeometry>();
  resolve_pool(call, *g);
  return g;
}

void pool_run(const OpCall& call) {
  const auto& g = *static_cast<const PoolGeometry*>(call.prepared);
  if (call.out[0].size() == 0) return;
  const auto lines = PARE_SIMD_PICK(pool_lines);
  constexpr std::int64_t kWorthAThread = 1 << 15;  // values read
  const std::int64_t grain = grain_for(kWorthAThread, g.ow * g.c * g.kh * g.kw);
  call.pool->parallel_for(g.n * g.oh, grain, [&](std::int64_t begin, std::int64_t end) {
    lines(g, call.in[0].as<float>(), call.out[0].mut<float>(), begin, end);
  });
}

double pool_value(const PoolGeometry& g, const float* image, std::int64_t oy, std::int64_t ox,
                  std::int64_t c) {
  double value = g.max ? -HUGE_VAL : 0;
  std::int64_t count = 0;
  for (std::int64_t ky = 0; ky < g.kh; ++ky) {
    for (std::int64_t kx = 0; kx < g.kw; ++kx) {
      const std::int64_t iy = oy * g.sh - g.top + ky * g.dh, ix = ox * g.sw - g.left + kx * g.dw;
      const bool in_x = iy >= 0 && iy < g.h && ix >= 0 && ix < g.w;
      const bool in_pads = iy >= -g.top && iy < g.h + g.bottom && ix >= -g.left && ix < g.w + g.right;
      if (in_x || (in_pads && g.count_pad)) ++count;
      if (!in_x) continue;
      const auto v = static_cast<double>(image[(iy * g.w + ix) * g.c + c]);
      if (!g.max)
        value += v;
      else if (std::isnan(v) || v > value)
        value = v;
    }
  }
  return g.max ? value : value / static_cast<double>(count);
}

void pool_reference(const OpCall& call) {
  PoolGeometry g;
  resolve_pool(call, g);
  float* y = call.out[0].mut<float>();
  for (std::int64_t n = 0; n < g.n; ++n)
    for (std::int64_t oy = 0; oy < g.oh; ++oy)
      for (std::int64_t ox = 0; ox < g.ow; ++ox)
        for (std::int64_t c = 0; c < g.c; ++c)
          *y++ = static_cast<float>(pool_value(g, call.in[0].as<float>() + n * g.h * g.w * g.c, oy, ox, c));
}

// --- layouts

bool to_plain(const OpCall& call) { return call.node->op == "ToPlain"; }

std::string layout_why_not(const OpCall& call) {
  if (call.in.size() != 1 || call.out.size() != 1) return "needs one input and one output";
  const Dims &x = call.in[0].dims, &y = call.out[0].dims;
  if (x.size() < 3 || y.size() != x.size()) return "no spatial axes";
  if (call.in[0].dtype == DType::kString || bits(call.in[0].dtype) % 8 != 0)
    return "elements are no whole bytes";
  if (element_count(x) != element_count(y)) return "input and output differ in size";
  return "";
}

struct Planes {  // of one sample: from[rows][columns] to [columns][rows]
  std::int64_t samples, rows, columns, bytes;
};

Planes planes_of(const OpCall& call) {
  const Dims& x = call.in[0].dims;
  const std::int64_t channels = to_plain(call) ? x.back() : x[1];
  std::int64_t positions = 1;
  for (std::size_t i = 1; i < x.size(); ++i) positions *= x[i];
  positions = channels == 0 ? 0 : positions / channels;
  const std::int64_t bytes = bits(call.in[0].dtype) / 8;
  return to_plain(call) ? Planes{x[0], positions, channels, bytes} : Planes{x[0], channels, positions, bytes};
}

template <typename T>
void move_rows(const Planes& p, const T* from, T* to, std::int64_t begin, std::int64_t end) {
  constexpr std::int64_t kBlock = 16;
  for (std::int64_t first = 0; first < p.columns; first += kBlock)
    for (std::int64_t i = begin; i < end; ++i)
      for (std::int64_t j = first; j < std::min(p.columns, first + kBlock); ++j)
        to[j * p.rows + i] = from[i * p.columns + j];
}

void move_sample(const Planes& p, const std::byte* from, std::byte* to, std::int64_t begin,
                 std::int64_t end) {
  switch (p.bytes) {
    case 1:
      return move_rows(p, reinterpret_cast<const std::uint8_t*>(from), reinterpret_cast<std::uint8_t*>(to),
                       begin, end);
    case 2:
      return move_rows(p, reinterpret_cast<const std::uint16_t*>(from), reinterpret_cast<std::uint16_t*>(to),
                       begin, end);
    case 4:
      return PARE_SIMD_PICK(transpose_words)(reinterpret_cast<const std::uint32_t*>(from) + begin * p.columns,
                                             p.columns, reinterpret_cast<std::uint32_t*>(to) + begin, p.rows,
                                             end - begin, p.columns);
    case 8:
      return move_rows(p, reinterpret_cast<const std::uint64_t*>(from), reinterpret_cast<std::uint64_t*>(to),
                       begin, end);
    default:
      for (std::int64_t i = begin; i < end; ++i)
        for (std::int64_t j = 0; j < p.columns; ++j)
          std::memcpy(to + (j * p.rows + i) * p.bytes, from + (i * p.columns + j) * p.bytes,
                      static_cast<std::size_t>(p.bytes));
  }
}

void layout_run(const OpCall& call) {
  const Planes p = planes_of(call);
  const std::int64_t sample = p.rows * p.columns * p.bytes;
  if (p.samples * sample == 0) return;
  const auto* from = static_cast<const std::byte*>(call.in[0].data);
  auto* to = static_cast<std::byte*>(call.out[0].data);
  if (p.rows == 1 || p.columns == 1) {
    std::memcpy(to, from, static_cast<std::size_t>(p.samples * sample));
    return;
  }
  constexpr std::int64_t kBlock = 64;  // rows of a piece
  const std::int64_t blocks = (p.rows + kBlock - 1) / kBlock;
  constexpr std::int64_t kWorthAThread = 1 << 14;  // elements
  const std::int64_t grain = grain_for(kWorthAThread, p.columns * std::min(p.rows, kBlock));
  call.pool->parallel_for(p.samples * blocks, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t row = i % blocks * kBlock, offset = i / blocks * sample;
      move_sample(p, from + offset, to + offset, row, std::min(p.rows, row + kBlock));
    }
  });
}

void layout_reference(const OpCall& call) {
  const Planes p = planes_of(call);
  const auto* from = static_cast<const std::byte*>(call.in[0].data);
  auto* to = static_cast<std::byte*>(call.out[0].data);
  for (std::int64_t n = 0; n < p.samples; ++n)
    for (std::int64_t i = 0; i < p.rows; ++i)
      for (std::int64_t j = 0; j < p.columns; ++j)
        std::memcpy(to + ((n * p.columns + j) * p.rows + i) * p.bytes,
                    from + ((n * p.rows + i) * p.columns + j) * p.bytes, static_cast<std::size_t>(p.bytes));
}

}  // namespace

std::string resolve_pool(const OpCall& call, PoolGeometry& g) {
  if (call.in.size() != 1 || call.out.size() != 1) return "needs one input and one output";
  const TensorView &x = call.in[0], &y = call.out[0];
  if (x.dtype != DType::kF32 || y.dtype != DType::kF32) return "float32 only";
  const std::size_t rank = x.dims.size();
  if ((rank != 3 && rank != 4) || y.dims.size() != rank) return "one or two spatial axes only";
  const bool two = rank == 4;
  g.n = x.dims[0];
  g.c = x.dims.back();
  if (y.dims[0] != g.n || y.dims.back() != g.c) return "sizes of input and output do not fit";
  g.h = two ? x.dims[1] : 1;
  g.w = x.dims[rank - 2];
  g.oh = two ? y.dims[1] : 1;
  g.ow = y.dims[rank - 2];
  const Node& node = *call.node;
  g.max = node.op == "MaxPool";
  if (node.op == "GlobalAveragePool") {
    if (g.oh != 1 || g.ow != 1) return "the output has more than one position";
    g.kh = g.h;
    g.kw = g.w;
    return "";
  }
  const std::size_t axes = rank - 2;
  const auto kernel = node.attr_ints("kernel_shape");
  const auto strides = ints_or(node, "strides", axes, 1), dilations = ints_or(node, "dilations", axes, 1);
  const auto pads = ints_or(node, "pads", 2 * axes, 0);
  if (kernel.size() != axes || strides.size() != axes || dilations.size() != axes || pads.size() != 2 * axes)
    return "kernel_shape, strides, dilations or pads do not fit the axes";
  if (node.attr("auto_pad", "NOTSET") != "NOTSET") return "explicit pads only";
  for (const auto& list : {kernel, strides, dilations})
    for (const std::int64_t v : list)
      if (v < 1) return "an attribute below 1";
  g.count_pad = node.attr("count_include_pad", std::int64_t{0}) != 0;
  g.kw = kernel[axes - 1], g.sw = strides[axes - 1], g.dw = dilations[axes - 1];
  g.left = pads[axes - 1], g.right = pads[2 * axes - 1];
  if (two) {
    g.kh = kernel[0], g.sh = strides[0], g.dh = dilations[0];
    g.top = pads[0], g.bottom = pads[2];
  }
  return "";
}

void register_channels_last(Registry& registry) {
  struct Entry {
    const char *op, *kernel, *reference;
    bool pool;
  };
  const Entry entries[] = {
      {"MaxPool", "pare.MaxPool/cpu:channels", "pare.MaxPool/cpu:reference", true},
      {"AveragePool", "pare.AveragePool/cpu:channels", "pare.AveragePool/cpu:reference", true},
      {"GlobalAveragePool", "pare.GlobalAveragePool/cpu:channels", "pare.GlobalAveragePool/cpu:reference",
       true},
      {"ToChannelsLast", "pare.ToChannelsLast/cpu:blocks", "pare.ToChannelsLast/cpu:reference", false},
      {"ToPlain", "pare.ToPlain/cpu:blocks", "pare.ToPlain/cpu:reference", false},
  };
  for (const Entry& e : entries) {
    Kernel kernel;
    kernel.domain = "pare";
    kernel.op = e.op;
    kernel.name = e.kernel;
    kernel.why_not = e.pool ? pool_why_not : layout_why_not;
    kernel.prepare = e.pool ? pool_prepare : nullptr;
    kernel.run = e.pool ? pool_run : layout_run;
    registry.add(kernel);
    kernel.name = e.reference;
    kernel.prepare = nullptr;
    kernel.run = e.pool ? pool_reference : layout_reference;
    registry.add(kernel);
  }
}

}  // namespace pare
