// pare.CachedAttention: one new token reads the caches where they lie; several go through Attention, which
// takes the past as tensors.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/grain.h"
#include "engine/ops/axis/softmax.h"
#include "engine/ops/registry.h"
#include "engine/ops/sequence/attention.h"
#include "engine/ops/sequence/cached_attention.h"
#include "engine/ops/thread_slots.h"

namespace pare {

void store_keys(const float* k, std::int64_t seq, std::int64_t kv_heads, std::int64_t size,
                std::int64_t blocks, std::int64_t past, float* keys) {
  for (std::int64_t s = 0; s < seq; ++s)
    for (std::int64_t h = 0; h < kv_heads; ++h) {
      const std::int64_t block = (past + s) / kKeysOfBlock, lane = (past + s) % kKeysOfBlock;
      float* to = keys + (h * blocks + block) * size * kKeysOfBlock + lane;
      for (std::int64_t d = 0; d < size; ++d) to[d * kKeysOfBlock] = k[(s * kv_heads + h) * size + d];
    }
}

void store_values(const float* v, std::int64_t seq, std::int64_t kv_heads, std::int64_t size,
                  std::int64_t blocks, std::int64_t past, float* values) {
  for (std::int64_t s = 0; s < seq; ++s)
    for (std::int64_t h = 0; h < kv_heads; ++h)
      std::copy_n(v + (s * kv_heads + h) * size, size,
                  values + (h * blocks * kKeysOfBlock + past + s) * size);
}

namespace {

struct Shape {
  std::int64_t batch = 0, seq = 0, heads = 0, kv_heads = 0, size = 0, blocks = 0;
};

std::string resolve(const OpCall& call, Shape& s) {
  for (int i = 0; i < 5; ++i)
    if (call.input(i).dtype != DType::kF32) return "float32 only";
  if (call.input(5).dtype != DType::kI64 || call.input(5).size() != 1) return "past is no single int64";
  const TensorView &q = call.in[0], &k = call.in[1], &keys = call.in[3];
  s.heads = call.node->attr("q_num_heads", std::int64_t{0});
  s.kv_heads = call.node->attr("kv_num_heads", std::int64_t{0});
  if (q.dims.size() != 3 || k.dims.size() != 3 || keys.dims.size() != 5 || s.heads <= 0 || s.kv_heads <= 0 ||
      s.heads % s.kv_heads != 0 || q.dims[2] % s.heads != 0)
    return "sizes that do not fit";
  s.batch = q.dims[0];
  s.seq = q.dims[1];
  s.size = q.dims[2] / s.heads;
  s.blocks = keys.dims[2];
  const Dims rows = {s.batch, s.seq, s.kv_heads * s.size};
  if (k.dims != rows || call.in[2].dims != rows ||
      keys.dims != Dims{s.batch, s.kv_heads, s.blocks, s.size, kKeysOfBlock} ||
      call.in[4].dims != Dims{s.batch, s.kv_heads, s.blocks * kKeysOfBlock, s.size})
    return "sizes that do not fit";
  return s.size == 0 ? "no elements" : "";
}

std::string why_not(const OpCall& call) {
  Shape shape;
  return resolve(call, shape);
}

std::int64_t past_of(const OpCall& call, const Shape& s) {
  const std::int64_t past = *call.in[5].as<std::int64_t>();
  if (past < 0 || past > s.blocks * kKeysOfBlock)
    fail(ErrorCode::kUsage, "the past has {} tokens, and the cache room for {}", past,
         s.blocks * kKeysOfBlock);
  return past;
}

float scale_of(const OpCall& call, const Shape& s) {
  return call.node->has_attr("scale") ? call.node->attr("scale", 0.0F)
                                      : static_cast<float>(1 / std::sqrt(static_cast<double>(s.size)));
}

// The same question for Attention, with the past and the window as tensors.
void run_as_attention(const OpCall& call, bool reference) {
  Shape s;
  PARE_ASSERT(resolve(call, s).empty());
  if (call.out[0].size() == 0) return;
  const std::int64_t past = past_of(call, s), total = past + s.seq;
  const std::int64_t window = call.node->attr("window", std::int64_t{0});
  Node node = *call.node;
  node.domain.clear();
  node.op = "Attention";
  node.attrs["is_causal"] = std::int64_t{1};
  Tensor keys, values, mask;
  std::vector<TensorView> in = {call.in[0], call.in[1], call.in[2], {}};
  if (window > 0) {
    mask = Tensor::allocate(DType::kBool, {s.seq, total});
    for (std::int64_t i = 0; i < s.seq; ++i)
      for (std::int64_t j = 0; j < total; ++j)
        mask.mut<std::uint8_t>()[i * total + j] = past + i - j < window ? 1 : 0;
    in[3] = mask.view();
  }
  if (past > 0) {
    keys = Tensor::allocate(DType::kF32, {s.batch, s.kv_heads, past, s.size});
    values = Tensor::allocate(DType::kF32, {s.batch, s.kv_heads, past, s.size});
    for (std::int64_t h = 0; h < s.batch * s.kv_heads; ++h) {
      const float* k = call.in[3].as<float>() + h * s.blocks * s.size * kKeysOfBlock;
      for (std::int64_t p = 0; p < past; ++p)
        for (std::int64_t d = 0; d < s.size; ++d)
          keys.mut<float>()[(h * past + p) * s.size + d] =
              k[(p / kKeysOfBlock * s.size + d) * kKeysOfBlock + p % kKeysOfBlock];
      std::copy_n(call.in[4].as<float>() + h * s.blocks * kKeysOfBlock * s.size, past * s.size,
                  values.mut<float>() + h * past * s.size);
    }
    in.push_back(keys.view());
    in.push_back(values.view());
  }
  OpCall inner = call;
  inner.node = &node;
  inner.in = in;
  inner.prepared = nullptr;
  if (reference)
    cpu_registry().candidates("", "Attention", Backend::kCpu).back()->run(inner);
  else
    cpu_registry().pick(inner, Backend::kCpu, true).run(inner);
}

// One token a sample.
void run_step(const OpCall& call, const Shape& s) {
  const std::int64_t past = past_of(call, s), total = past + 1, group = s.heads / s.kv_heads;
  const std::int64_t stride = (total + kKeysOfBlock - 1) / kKeysOfBlock * kKeysOfBlock;
  const std::int64_t window = call.node->attr("window", std::int64_t{0});
  const float scale = scale_of(call, s), cap = call.node->attr("softcap", 0.0F);
  const auto scores_of = PARE_SIMD_PICK(cached_scores);
  const auto values_of = PARE_SIMD_PICK(cached_values);
  const auto softmax = PARE_SIMD_PICK(softmax_rows);
  constexpr std::int64_t kRows = 4;
  float* scratch = call.scratch->take<float>(kRows * stride * call.pool->threads());
  ThreadSlots slots(*call.pool);
  // A thread more is worth some ten thousand multiply-adds.
  const std::int64_t work = 2 * total * s.size * group;
  call.pool->parallel_for(
      s.batch * s.kv_heads, grain_for(1 << 15, work), [&](std::int64_t begin, std::int64_t end) {
        const ThreadSlots::Slot slot(slots);
        float* scores = scratch + slot.index() * kRows * stride;
        for (std::int64_t unit = begin; unit < end; ++unit) {
          const std::int64_t b = unit / s.kv_heads, kv = unit % s.kv_heads;
          const float* keys = call.in[3].as<float>() + unit * s.blocks * s.size * kKeysOfBlock;
          const float* values = call.in[4].as<float>() + unit * s.blocks * kKeysOfBlock * s.size;
          const float* k = call.in[1].as<float>() + unit * s.size;
          const float* v = call.in[2].as<float>() + unit * s.size;
          for (std::int64_t first = 0; first < group; first += kRows) {
            const std::int64_t rows = std::min(kRows, group - first),
                               at = (b * s.heads + kv * group + first) * s.size;
            const float* q = call.in[0].as<float>() + at;
            scores_of(q, rows, s.size, keys, past, scale, scores, stride);
            for (std::int64_t r = 0; r < rows; ++r) {
              float* row = scores + r * stride;
              float sum = 0;
              for (std::int64_t d = 0; d < s.size; ++d) sum = std::fma(q[r * s.size + d], k[d], sum);
              row[past] = scale != 1.0f ? scale * sum : sum;
              if (cap > 0)
                for (std::int64_t j = 0; j < total; ++j) row[j] = cap * std::tanh(row[j] / cap);
              if (window > 0)
                for (std::int64_t j = 0; j <= past - window; ++j)
                  row[j] += -std::numeric_limits<float>::infinity();
              softmax(row, row, 1, total, false);
            }
            values_of(scores, rows, stride, values, past, v, s.size, call.out[0].mut<float>() + at);
          }
        }
      });
}

void run(const OpCall& call) {
  Shape s;
  PARE_ASSERT(resolve(call, s).empty());
  if (call.out[0].size() == 0) return;
  if (s.seq == 1)
    run_step(call, s);
  else
    run_as_attention(call, false);
}

}  // namespace

void add_cached_attention_kernels(Registry& registry) {
  registry.add(
      {"pare", "CachedAttention", Backend::kCpu, "pare.CachedAttention/cpu:in place", why_not, nullptr, run});
  registry.add({"pare", "CachedAttention", Backend::kCpu, "pare.CachedAttention/cpu:reference", why_not,
                nullptr, [](const OpCall& call) { run_as_attention(call, true); }});
}

}  // namespace pare
