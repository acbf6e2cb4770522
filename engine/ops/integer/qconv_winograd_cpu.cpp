#include <algorithm>

#include "engine/ops/integer/qconv.h"
#include "engine/ops/integer/qconv_winograd.h"

namespace pare::qconv {
namespace {

constexpr std::int64_t kTiles = 12;  // 2x2 outputs each, transformed and multiplied together
constexpr std::int64_t kEntries = 16;
constexpr int kGroup = 2;  // panels at once: their sums then stay in the first cache

struct Plan {
  const QKernels* kernels;
  QFinishPlan finish;
  Tensor weights;  // [16 entries][panels][steps][16][2] int16
  std::int64_t steps = 0, panels = 0;
  std::vector<std::int32_t> start;    // zeros, one panel group
  std::vector<std::uint8_t> outside;  // channels of real zero

  const std::uint8_t* entry(std::int64_t i) const {
    return weights.as<std::uint8_t>() + i * panels * panel_bytes();
  }
  std::int64_t panel_bytes() const { return steps * kQPanel * 4; }
};

std::string winograd_why_not(const OpCall& call) {
  if (q_kernels() == nullptr) return "needs AVX2";
  if (std::string why = why_not(call); !why.empty()) return why;
  const Geometry g = geometry(call);
  if (g.kh != 3 || g.kw != 3 || g.sh != 1 || g.sw != 1 || g.dh != 1 || g.dw != 1 || g.group != 1)
    return "not a dense 3x3 convolution with stride and dilation 1";
  if (g.c < 16 || g.m < 16) return "fewer than 16 channels";
  const QType x = q_type(call, kQX, kQXZero), w = q_type(call, kQW, kQWZero);
  if (q_kernels()->bytes != nullptr && w.low() == -128) return "products of bytes are faster here";
  return g.k() * 4 <= qgemm_max_k(x, w) ? "" : "four times a sum may leave int32";
}

// U = G w G' of one 3x3 window.
void transform_weights(const std::int32_t* w, std::int32_t* u) {
  const auto row = [](std::int32_t a, std::int32_t b, std::int32_t c, std::int32_t* out, int step) {
    out[0] = 2 * a, out[step] = a + b + c, out[2 * step] = a - b + c, out[3 * step] = 2 * c;
  };
  std::int32_t t[12];  // [4][3]
  for (int j = 0; j < 3; ++j) row(w[j], w[3 + j], w[6 + j], t + j, 3);
  for (int i = 0; i < 4; ++i) row(t[3 * i], t[3 * i + 1], t[3 * i + 2], u + 4 * i, 1);
}

std::shared_ptr<const void> prepare(const OpCall& call) {
  const Geometry g = geometry(call);
  auto plan = std::make_shared<Plan>();
  plan->kernels = q_kernels();
  plan->finish = plan_finish(call, g.m, 1);
  plan->panels = (g.m + kQPanel - 1) / kQPanel;
  // Channels come in sixteens (winograd_input), so steps do.
  plan->steps = (g.c + kQPanel - 1) / kQPanel * kQPanel / 2;
  plan->start.assign(kGroup * kQPanel, 0);
  const QType x = q_type(call, kQX, kQXZero), type = q_type(call, kQW, kQWZero);
  plan->outside.assign(static_cast<std::size_t>(g.c), static_cast<std::uint8_t>(x.zero));
  plan->weights = Tensor::allocate(DType::kI16, {kEntries, plan->panels, plan->steps, kQPanel, 2});
  auto* out = plan->weights.mut<std::int16_t>();
  std::fill(out, out + plan->weights.size(), std::int16_t{0});
  const auto* codes = call.input(kQW).as<std::uint8_t>();
  for (std::int64_t m = 0; m < g.m; ++m) {
    for (std::int64_t c = 0; c < g.c; ++c, codes += 9) {
      std::int32_t w[9], u[kEntries];
      for (int t = 0; t < 9; ++t)
        w[t] = (type.is_signed ? static_cast<std::int8_t>(codes[t]) : codes[t]) - type.zero;
      transform_weights(w, u);
      for (std::int64_t e = 0; e < kEntries; ++e) {
        const std::int64_t panel = e * plan->panels + m / kQPanel;
        out[((panel * plan->steps + c / 2) * kQPanel + m % kQPanel) * 2 + c % 2] =
            static_cast<std::int16_t>(u[e]);
      }
    }
  }
  return plan;
}

// Tiles [first, first + count) times panels [panel, panel + panels) of one call.
class Block {
 public:
  Block(const OpCall& call, const Plan& plan, const Geometry& g, const QFinish& finish)
      : plan_(plan),
        g_(g),
        finish_(finish),
        x_(call.input(kQX).as<std::uint8_t>()),
        type_(q_type(call, kQX, kQXZero)),
        down_((g.oh + 1) / 2),
        across_((g.ow + 1) / 2) {}

  std::int64_t tiles() const { return g_.n * down_ * across_; }

  void run(std::int64_t first, std::int64_t count, std::int64_t panel, std::int64_t panels) const {
    thread_local Tensor memory;
    const std::int64_t v_row = plan_.steps * 2;  // int16 of one tile's entry
    const std::int64_t v_bytes = kEntries * kTiles * v_row * 2;
    const std::int64_t bytes = v_bytes + kEntries * kTiles * kGroup * kQPanel * 4;
    if (memory.empty() || memory.bytes() < bytes) memory = Tensor::allocate(DType::kU8, {bytes});
    auto* v = reinterpret_cast<std::int16_t*>(memory.mut<std::uint8_t>());
    auto* sums = reinterpret_cast<std::int32_t*>(memory.mut<std::uint8_t>() + v_bytes);
    for (std::int64_t t = 0; t < count; ++t) transform(first + t, v + t * v_row, kTiles * v_row);

    for (std::int64_t p = panel; p < panel + panels; p += kGroup) {
      const int group = static_cast<int>(std::min<std::int64_t>(kGroup, panel + panels - p));
      const int columns = group * kQPanel;
      for (std::int64_t e = 0; e < kEntries; ++e)
        for (std::int64_t t = 0; t < count; t += kQMaxRows)
          plan_.kernels->words(reinterpret_cast<const std::uint8_t*>(v + (e * kTiles + t) * v_row), v_row * 2,
                               static_cast<int>(std::min<std::int64_t>(kQMaxRows, count - t)),
                               plan_.entry(e) + p * plan_.panel_bytes(), plan_.panel_bytes(), group,
                               plan_.steps, plan_.start.data(), sums + (e * kTiles + t) * columns);
      for (std::int64_t t = 0; t < count; ++t)
        store(first + t, sums + t * columns, kTiles * columns, p * kQPanel, columns);
    }
  }

 private:
  void transform(std::int64_t tile, std::int16_t* v, std::int64_t entry_stride) const {
    const auto input = PARE_SIMD_PICK(winograd_input);
    const std::int64_t y0 = tile / across_ % down_ * 2 - g_.top, x0 = tile % across_ * 2 - g_.left;
    const std::uint8_t* image = x_ + tile / (across_ * down_) * g_.h * g_.w * g_.c;
    const std::uint8_t* code[kEntries];
    for (std::int64_t i = 0; i < 4; ++i) {
      const std::int64_t y = y0 + i;
      const bool inside = y >= 0 && y < g_.h;
      const std::uint8_t* line = image + (y * g_.w + x0) * g_.c;
      for (std::int64_t j = 0; j < 4; ++j)
        code[4 * i + j] = inside && x0 + j >= 0 && x0 + j < g_.w ? line + j * g_.c : plan_.outside.data();
    }
    input(code, type_.is_signed, type_.zero, g_.c, v, entry_stride);
  }

  void store(std::int64_t tile, const std::int32_t* sums, std::int64_t entry_stride, std::int64_t column,
             int columns) const {
    alignas(64) std::int32_t acc[4 * kGroup * kQPanel];
    PARE_SIMD_PICK(winograd_output)(sums, entry_stride, acc, columns);
    const std::int64_t n = tile / (across_ * down_), oy = tile / across_ % down_ * 2, ox = tile % across_ * 2;
    const int wide = static_cast<int>(std::min<std::int64_t>(2, g_.ow - ox));
    const auto finish = PARE_SIMD_PICK(q_finish);
    for (std::int64_t i = 0; i < std::min<std::int64_t>(2, g_.oh - oy); ++i)
      finish(finish_, acc + 2 * i * columns, columns, (n * g_.oh + oy + i) * g_.ow + ox, wide, column,
             std::min<std::int64_t>(columns, g_.m - column));
  }

  const Plan& plan_;
  const Geometry& g_;
  const QFinish& finish_;
  const std::uint8_t* x_;
  QType type_;
  std::int64_t down_, across_;
};

void run(const OpCall& call) {
  const auto& plan = *static_cast<const Plan*>(call.prepared);
  const Geometry g = geometry(call);
  const QFinish finish = plan.finish.finish_of(call, 0, g.m);
  const Block block(call, plan, g, finish);
  const std::int64_t threads = call.pool->threads();
  // Few tiles: smaller blocks, then columns apart, though each piece transforms its tiles again.
  std::int64_t tiles = kTiles;
  if (threads > 1)
    tiles =
        std::clamp<std::int64_t>(block.tiles() / (threads * 2) / kQMaxRows * kQMaxRows, kQMaxRows, kTiles);
  const std::int64_t pieces = (block.tiles() + tiles - 1) / tiles;
  const std::int64_t groups = (plan.panels + kGroup - 1) / kGroup;
  const std::int64_t cuts = pieces >= threads * 2 ? 1 : std::min(groups, threads);
  const std::int64_t panels = (groups + cuts - 1) / cuts * kGroup;
  call.pool->parallel_for(pieces * cuts, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t first = i / cuts * tiles, panel = i % cuts * panels;
      const std::int64_t left = std::min(panels, plan.panels - panel);
      if (left > 0) block.run(first, std::min(tiles, block.tiles() - first), panel, left);
    }
  });
}

}  // namespace

Kernel winograd_kernel() {
  Kernel kernel{"pare", "QConv", Backend::kCpu, "pare.QConv/cpu:winograd", winograd_why_not, prepare, run};
  kernel.share = PreparedShare::kAll;
  return kernel;
}

}  // namespace pare::qconv
