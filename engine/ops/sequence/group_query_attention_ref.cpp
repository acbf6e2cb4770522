#include "engine/ops/sequence/group_query_attention.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/base/error.h"
#include "engine/ops/registry.h"
#include "engine/ops/support.h"

namespace pare {
namespace {

constexpr std::string_view kDomain = "com.microsoft", kOp = "GroupQueryAttention";

std::string why_not(const OpCall& call) {
  const DType type = call.input(0).dtype;
  if (!is_small_float(type)) return "the queries are none of float32, float16, bfloat16";
  for (const int i : {1, 2, 3, 4, 7, 8, 10, 11})
    if (call.has(i) && call.input(i).dtype != type)
      return "input " + std::to_string(i) + " has another type than the queries";
  for (int i = 12; i < static_cast<int>(call.in.size()); ++i)
    if (call.has(i))
      return "input " + std::to_string(i) +
             ": caches of codes, normalized heads and ragged chunks are not done";
  if (call.has(1) != call.has(2) || call.has(3) != call.has(4)) return "keys without values";
  if (call.node->attr("sliding_window_cache", std::int64_t{0}) != 0) return "sliding_window_cache";
  if (call.node->attr("qk_output", std::int64_t{0}) != 0) return "scores as an output";
  if (call.node->attr("causal", std::int64_t{1}) == 0) return "causal is 0";
  if (call.node->attr("do_rotary", std::int64_t{0}) != 0 && (!call.has(7) || !call.has(8)))
    return "do_rotary without cosines and sines";
  return {};
}

struct Sizes {
  std::int64_t batch, steps, heads, kv_heads, size, past, cache, total;
  bool packed;

  explicit Sizes(const OpCall& call) {
    const Node& node = *call.node;
    const Dims& q = call.in[0].dims;
    heads = node.attr("num_heads", std::int64_t{0}), kv_heads = node.attr("kv_num_heads", std::int64_t{0});
    packed = !call.has(1);
    batch = q[0], steps = q[1];
    size = q[2] / (packed ? heads + 2 * kv_heads : heads);
    past = call.has(3) ? call.in[3].dims[2] : 0;
    total = ints_of(call.in[6])[0];
    cache = std::max(total, past);
  }
};

// The vectors [heads][size] of one token, at `offset` of a row of `stride`.
struct Rows {
  const float* data;
  std::int64_t stride, offset;
  const float* head(std::int64_t row, std::int64_t h, std::int64_t size) const {
    return data + row * stride + offset + h * size;
  }
};

struct Rotation {
  const float *cos = nullptr, *sin = nullptr;
  std::int64_t pairs = 0, places = 0;
  bool interleaved = false;

  void turn(std::vector<double>& x, std::int64_t place) const {
    if (cos == nullptr) return;
    if (place < 0 || place >= places)
      fail(ErrorCode::kBadFile, "GroupQueryAttention: no rotation for place {}", place);
    for (std::int64_t k = 0; k < pairs; ++k) {
      const auto a = static_cast<std::size_t>(interleaved ? 2 * k : k),
                 b = static_cast<std::size_t>(interleaved ? 2 * k + 1 : k + pairs);
      const double c = static_cast<double>(cos[place * pairs + k]),
                   s = static_cast<double>(sin[place * pairs + k]);
      const double real = x[a] * c - x[b] * s, imaginary = x[a] * s + x[b] * c;
      x[a] = real, x[b] = imaginary;
    }
  }
};

// One sample: new keys and values into the cache (float [kv_heads][cache][size]), then the attention of each
// query.
class Sample {
 public:
  Sample(const OpCall& call, const Sizes& n, std::int64_t b, const Rotation& rotation)
      : call_(call), n_(n), b_(b), rotation_(rotation) {
    const std::int64_t keys = ints_of(call.in[5])[static_cast<std::size_t>(b)] + 1;
    if (keys < 1 || keys > n.cache)
      fail(ErrorCode::kBadFile, "GroupQueryAttention: seqlens_k {} in a cache of {}", keys - 1, n.cache);
    const bool prompt = n.total == n.steps;
    old_ = prompt ? 0 : keys - n.steps;
    visible_ = keys;
    if (old_ < 0 || old_ > n.past || old_ + n.steps > n.cache)
      fail(ErrorCode::kBadFile,
           "GroupQueryAttention: {} old and {} new keys in a cache of {}, {} of them past", old_, n.steps,
           n.cache, n.past);
  }

  std::int64_t place(std::int64_t step) const {
    if (!call_.has(9)) return old_ + step;
    return ints_of(call_.in[9])[static_cast<std::size_t>(b_ * n_.steps + step)];
  }

  std::vector<float> cache_of(const float* past, const Rows& fresh, bool turn) const {
    std::vector<float> cache(static_cast<std::size_t>(n_.kv_heads * n_.cache * n_.size), 0.0F);
    std::vector<double> x(static_cast<std::size_t>(n_.size));
    for (std::int64_t h = 0; h < n_.kv_heads; ++h) {
      float* const to = cache.data() + h * n_.cache * n_.size;
      if (old_ > 0) std::copy_n(past + (b_ * n_.kv_heads + h) * n_.past * n_.size, old_ * n_.size, to);
      for (std::int64_t s = 0; s < n_.steps; ++s) {
        const float* const from = fresh.head(b_ * n_.steps + s, h, n_.size);
        std::copy_n(from, n_.size, x.begin());
        if (turn) rotation_.turn(x, place(s));
        std::transform(x.begin(), x.end(), to + (old_ + s) * n_.size,
                       [](double v) { return static_cast<float>(v); });
      }
    }
    return cache;
  }

  void attend(const Rows& queries, const std::vector<float>& keys, const std::vector<float>& values,
              const float* bias, const float* sink, float* y) const {
    const Node& node = *call_.node;
    const double given = static_cast<double>(node.attr("scale", 0.0F));
    const double scale = given != 0 ? given : 1 / std::sqrt(static_cast<double>(n_.size));
    const double cap = static_cast<double>(node.attr("softcap", 0.0F));
    const std::int64_t window = node.attr("local_window_size", std::int64_t{-1});
    const bool smooth = node.attr("smooth_softmax", std::int64_t{0}) != 0;
    const std::int64_t shared = n_.heads / n_.kv_heads;
    std::vector<double> q(static_cast<std::size_t>(n_.size)), sum(q.size()), scores;
    for (std::int64_t h = 0; h < n_.heads; ++h)
      for (std::int64_t s = 0; s < n_.steps; ++s) {
        std::copy_n(queries.head(b_ * n_.steps + s, h, n_.size), n_.size, q.begin());
        rotation_.turn(q, place(s));
        const std::int64_t end = std::min(visible_, old_ + s + 1);
        const std::int64_t begin = window >= 0 ? std::max<std::int64_t>(0, old_ + s + 1 - window) : 0;
        const float* const k = keys.data() + h / shared * n_.cache * n_.size;
        const float* const v = values.data() + h / shared * n_.cache * n_.size;
        const double extra = sink != nullptr ? static_cast<double>(sink[h]) : 0;
        const bool has_extra = sink != nullptr || smooth;
        scores.clear();
        double most = has_extra ? extra : -INFINITY, all = 0;
        for (std::int64_t j = begin; j < end; ++j) {
          double score = 0;
          for (std::int64_t i = 0; i < n_.size; ++i)
            score += q[static_cast<std::size_t>(i)] * static_cast<double>(k[j * n_.size + i]);
          score *= scale;
          if (cap > 0) score = cap * std::tanh(score / cap);
          if (bias != nullptr) score += static_cast<double>(bias[bias_at(h, s) + j]);
          scores.push_back(score);
          most = std::max(most, score);
        }
        if (has_extra) all = std::exp(extra - most);
        for (double& score : scores) all += score = std::exp(score - most);
        std::fill(sum.begin(), sum.end(), 0.0);
        for (std::int64_t j = begin; j < end; ++j)
          for (std::int64_t i = 0; i < n_.size; ++i)
            sum[static_cast<std::size_t>(i)] +=
                scores[static_cast<std::size_t>(j - begin)] / all * static_cast<double>(v[j * n_.size + i]);
        std::transform(sum.begin(), sum.end(), y + (s * n_.heads + h) * n_.size,
                       [](double x) { return static_cast<float>(x); });
      }
  }

 private:
  std::int64_t bias_at(std::int64_t h, std::int64_t s) const {
    const Dims& dims = call_.in[10].dims;
    return (((dims[0] == 1 ? 0 : b_) * dims[1] + (dims[1] == 1 ? 0 : h)) * dims[2] + s) * dims[3];
  }

  const OpCall& call_;
  const Sizes& n_;
  std::int64_t b_;
  const Rotation& rotation_;
  std::int64_t old_ = 0, visible_ = 0;  // keys of the cache before this call, and with the new ones
};

void run(const OpCall& call) {
  const Sizes n(call);
  std::vector<float> rooms[12];
  const auto floats = [&](int i) {
    return call.has(i) ? all_floats(call.in[static_cast<std::size_t>(i)], rooms[i]) : nullptr;
  };
  const std::int64_t q_width = n.heads * n.size, kv_width = n.kv_heads * n.size;
  const float* const q = floats(0);
  const std::int64_t row = n.packed ? q_width + 2 * kv_width : q_width;
  const Rows queries{q, row, 0};
  const Rows keys = n.packed ? Rows{q, row, q_width} : Rows{floats(1), kv_width, 0};
  const Rows values = n.packed ? Rows{q, row, q_width + kv_width} : Rows{floats(2), kv_width, 0};
  Rotation rotation;
  if (call.node->attr("do_rotary", std::int64_t{0}) != 0) {
    rotation = {floats(7), floats(8), call.in[7].dims[1], call.in[7].dims[0],
                call.node->attr("rotary_interleaved", std::int64_t{0}) != 0};
    if (2 * rotation.pairs > n.size || call.in[8].dims != call.in[7].dims)
      fail(ErrorCode::kBadFile, "GroupQueryAttention: {} pairs to turn in heads of {}", rotation.pairs,
           n.size);
  }
  if (call.has(10) && (call.in[10].dims.size() != 4 || call.in[10].dims[3] < n.total))
    fail(ErrorCode::kBadFile, "GroupQueryAttention: attention_bias {} for {} keys",
         to_string(call.in[10].dims), n.total);
  const float *past_k = floats(3), *past_v = floats(4), *bias = floats(10), *sink = floats(11);
  const std::int64_t cached = n.kv_heads * n.cache * n.size, out = n.steps * q_width;
  call.pool->parallel_for(n.batch, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t b = begin; b < end; ++b) {
      const Sample sample(call, n, b, rotation);
      const std::vector<float> k = sample.cache_of(past_k, keys, true),
                               v = sample.cache_of(past_v, values, false);
      std::vector<float> y(static_cast<std::size_t>(out));
      sample.attend(queries, k, v, bias, sink, y.data());
      const float* const results[] = {y.data(), k.data(), v.data()};
      for (int i = 0; i < 3; ++i) {
        if (!call.wants(i)) continue;
        const TensorView& to = call.out[static_cast<std::size_t>(i)];
        const std::int64_t count = i == 0 ? out : cached;
        float* const room = floats_to_write(to, b * count, const_cast<float*>(results[i]));
        std::copy_n(results[i], room == results[i] ? 0 : count, room);
        write_floats(to, b * count, count, room);
      }
    }
  });
}

}  // namespace

void add_group_query_attention(Registry& registry) {
  Kernel kernel;
  kernel.domain = kDomain;
  kernel.op = kOp;
  kernel.name = "com.microsoft.GroupQueryAttention/cpu:reference";
  kernel.why_not = why_not;
  kernel.run = run;
  registry.add(kernel);
}

}  // namespace pare
