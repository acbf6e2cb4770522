#include "engine/ops/conv/conv_depthwise.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/base/grain.h"
#include "engine/ops/thread_slots.h"

namespace pare {
namespace {

struct Prepared {
  ConvGeometry geometry;
  Activation act;
  Tensor weights, zeros;
};

std::string why_not(const OpCall& call) {
  ConvGeometry g;
  if (std::string why = packed_conv_why_not(call, g); !why.empty()) return why;
  if (g.group != g.c || g.m != g.c) return "not one channel a group with one output each";
  return "";
}

std::shared_ptr<const void> prepare(const OpCall& call) {
  auto p = std::make_shared<Prepared>();
  ConvGeometry& g = p->geometry;
  const std::string why = resolve_conv(call, g, p->act);
  PARE_ASSERT(why.empty());
  if (call.prepared != nullptr) {
    const auto& other = *static_cast<const Prepared*>(call.prepared);
    p->weights = other.weights;
    p->zeros = other.zeros;
    return p;
  }
  const std::int64_t taps = g.kh * g.kw;
  p->weights = Tensor::allocate(DType::kF32, {taps * g.c});
  for (std::int64_t c = 0; c < g.c; ++c)
    for (std::int64_t tap = 0; tap < taps; ++tap)
      p->weights.mut<float>()[tap * g.c + c] = call.in[1].as<float>()[c * taps + tap];
  p->zeros = Tensor::allocate(DType::kF32, {g.c});
  std::fill_n(p->zeros.mut<float>(), g.c, 0.0f);
  return p;
}

void run(const OpCall& call) {
  const auto& p = *static_cast<const Prepared*>(call.prepared);
  const ConvGeometry& g = p.geometry;
  if (g.rows() == 0 || g.c == 0) return;
  DepthwiseTask task;
  task.geometry = &g;
  task.act = &p.act;
  task.x = call.in[0].as<float>();
  task.weights = p.weights.as<float>();
  task.zeros = p.zeros.as<float>();
  if (call.has(2)) task.bias = call.in[2].as<float>();
  if (call.has(3)) task.residual = call.in[3].as<float>();
  task.y = call.out[0].mut<float>();
  const std::int64_t taps = g.kh * g.kw;
  const float** room = call.scratch->take<const float*>(taps * call.pool->threads());
  const auto lines = PARE_SIMD_PICK(depthwise_lines);
  ThreadSlots slots(*call.pool);
  constexpr std::int64_t kWorthAThread = 1 << 15;  // products
  const std::int64_t grain = grain_for(kWorthAThread, g.ow * g.c * taps);
  call.pool->parallel_for(g.n * g.oh, grain, [&](std::int64_t begin, std::int64_t end) {
    const ThreadSlots::Slot slot(slots);
    DepthwiseTask mine = task;
    mine.taps = room + slot.index() * taps;
    lines(mine, begin, end);
  });
}

}  // namespace

Kernel conv_depthwise_kernel() {
  Kernel kernel;
  kernel.domain = "pare";
  kernel.op = "Conv";
  kernel.name = "pare.Conv/cpu:depthwise";
  kernel.why_not = why_not;
  kernel.prepare = prepare;
  kernel.share = PreparedShare::kConstants;
  kernel.run = run;
  kernel.in_place = 1u << 3;  // the residual
  return kernel;
}

}  // namespace pare
