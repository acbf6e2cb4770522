#include "engine/ops/sequence/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/base/error.h"
#include "engine/ops/registry.h"
#include "engine/ops/support.h"

namespace pare {
namespace {

// A tensor of heads: [batch, heads, seq, size], or the same with seq in front of heads.
struct Heads {
  std::vector<double> data;
  std::int64_t batch = 0, heads = 0, seq = 0, size = 0;
  bool seq_first = false;

  Heads() = default;
  Heads(const TensorView& view, std::int64_t count) : data(doubles_of(view)) {
    seq_first = view.dims.size() == 3;
    batch = view.dims[0];
    heads = seq_first ? count : view.dims[1];
    seq = view.dims[seq_first ? 1 : 2];
    size = seq_first ? view.dims[2] / count : view.dims[3];
  }
  std::int64_t row(std::int64_t b, std::int64_t h, std::int64_t s) const {
    return (seq_first ? (b * seq + s) * heads + h : (b * heads + h) * seq + s) * size;
  }
};

std::string why_not(const OpCall& call) {
  if (std::string reason = float_reason(call, {0, 1, 2, 4, 5}); !reason.empty()) return reason;
  const DType mask = call.input(3).dtype;
  if (call.has(3) && !is_small_float(mask) && !with_native_type(mask, [](auto) {}))
    return std::string("a mask of ") + name(mask);
  if (call.has(4) != call.has(5)) return "one of past_key and past_value is missing";
  return {};
}

}  // namespace

AttentionShape check_attention(const OpCall& call) {
  const auto unfit = [](const char* what) {
    throw make_error(ErrorCode::kBadFile, "{} does not fit Q, K and V", what);
  };
  // [batch, heads, seq, size]
  const auto four = [&](std::size_t i, const char* heads_key) {
    const Dims& d = call.in[i].dims;
    if (d.size() == 4) return d;
    const std::int64_t heads = call.node->attr(heads_key, std::int64_t{1});
    return Dims{d[0], heads, d[1], d[2] / heads};
  };
  const Dims q = four(0, "q_num_heads"), k = four(1, "kv_num_heads"), v = four(2, "kv_num_heads");
  if (k[1] == 0 || q[1] % k[1] != 0 || v[1] != k[1] || k[3] != q[3] || v[2] != k[2] || k[0] != q[0] ||
      v[0] != q[0])
    throw make_error(ErrorCode::kBadFile, "Q {}, K {} and V {} do not fit together",
                     to_string(call.in[0].dims), to_string(call.in[1].dims), to_string(call.in[2].dims));
  AttentionShape shape;
  shape.batch = q[0];
  if (call.has(4)) {
    const Dims &past_k = call.in[4].dims, &past_v = call.in[5].dims;
    if (past_k.size() != 4 || past_k != Dims{q[0], k[1], past_k[2], k[3]} ||
        past_v != Dims{q[0], k[1], past_k[2], v[3]})
      unfit("the past");
    shape.past = past_k[2];
  }
  shape.total = shape.past + k[2];
  if (call.has(3)) {
    const Dims& dims = call.in[3].dims;
    const Dims full = {q[0], q[1], q[2], shape.total};
    if (dims.size() < 2 || dims.size() > 4 || dims.back() > shape.total) unfit("the mask");
    for (std::size_t i = 0; i + 1 < dims.size(); ++i)
      if (dims[i] != 1 && dims[i] != full[4 - dims.size() + i]) unfit("the mask");
  }
  if (call.has(6) && call.in[6].size() != q[0]) unfit("nonpad_kv_seqlen");
  return shape;
}

namespace {

class Attention {
 public:
  explicit Attention(const OpCall& call)
      : call_(call),
        q_(call.in[0], call.node->attr("q_num_heads", std::int64_t{1})),
        k_(call.in[1], call.node->attr("kv_num_heads", std::int64_t{1})),
        v_(call.in[2], call.node->attr("kv_num_heads", std::int64_t{1})) {
    const AttentionShape shape = check_attention(call);
    if (call.has(4)) {
      past_k_ = Heads(call.in[4], 1);
      past_v_ = Heads(call.in[5], 1);
    }
    past_ = shape.past;
    total_ = shape.total;
    if (call.has(3) && call.in[3].dtype != DType::kBool) mask_ = doubles_of(call.in[3]);
    scale_ = static_cast<double>(call.node->attr("scale", 0.0F));
    if (!call.node->has_attr("scale")) scale_ = 1 / std::sqrt(static_cast<double>(q_.size));
    cap_ = static_cast<double>(call.node->attr("softcap", 0.0F));
    mode_ = call.node->attr("qk_matmul_output_mode", std::int64_t{0});
    causal_ = call.node->attr("is_causal", std::int64_t{0}) != 0;
  }

  void run() {
    y_.resize(static_cast<std::size_t>(call_.out[0].size()));
    if (wants(3)) scores_.resize(static_cast<std::size_t>(call_.out[3].size()));
    call_.pool->parallel_for(q_.batch * q_.heads, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i)
        for (std::int64_t s = 0; s < q_.seq; ++s) row(i / q_.heads, i % q_.heads, s);
    });
    store(0, y_);
    if (wants(3)) store(3, scores_);
    if (wants(1)) store(1, present(past_k_, k_));
    if (wants(2)) store(2, present(past_v_, v_));
  }

 private:
  bool wants(std::size_t i) const { return i < call_.out.size() && call_.out[i].present(); }

  void store(std::size_t i, const std::vector<double>& values) const { write_doubles(call_.out[i], values); }

  const double* at(const Heads& past, const Heads& now, std::int64_t b, std::int64_t h,
                   std::int64_t s) const {
    return s < past_ ? past.data.data() + past.row(b, h, s) : now.data.data() + now.row(b, h, s - past_);
  }

  std::vector<double> present(const Heads& past, const Heads& now) const {
    std::vector<double> all;
    for (std::int64_t b = 0; b < now.batch; ++b)
      for (std::int64_t h = 0; h < now.heads; ++h)
        for (std::int64_t s = 0; s < total_; ++s) {
          const double* from = at(past, now, b, h, s);
          all.insert(all.end(), from, from + now.size);
        }
    return all;
  }

  // What is added to the score of key j.
  double bias(std::int64_t b, std::int64_t h, std::int64_t s, std::int64_t j) const {
    constexpr double kMasked = -std::numeric_limits<double>::infinity();
    if (causal_ && j > past_ + s) return kMasked;
    if (call_.has(6) && j >= ints_of(call_.in[6])[static_cast<std::size_t>(b)]) return kMasked;
    if (!call_.has(3)) return 0;
    const Dims& dims = call_.in[3].dims;
    if (j >= dims.back()) return kMasked;
    const std::int64_t place[] = {b, h, s};
    std::int64_t index = 0;
    for (std::size_t i = 0; i + 1 < dims.size(); ++i)
      index = index * dims[i] + (dims[i] == 1 ? 0 : place[4 - dims.size() + i]);
    index = index * dims.back() + j;
    if (!mask_.empty()) return mask_[static_cast<std::size_t>(index)];
    return call_.in[3].as<std::uint8_t>()[index] != 0 ? 0 : kMasked;
  }

  void row(std::int64_t b, std::int64_t h, std::int64_t s) {
    const std::int64_t kv = h / (q_.heads / k_.heads), first = ((b * q_.heads + h) * q_.seq + s) * total_;
    const double* query = q_.data.data() + q_.row(b, h, s);
    std::vector<double> score(static_cast<std::size_t>(total_));
    double largest = -std::numeric_limits<double>::infinity(), sum = 0;
    const auto keep = [&](std::int64_t j, double value) {
      if (!scores_.empty()) scores_[static_cast<std::size_t>(first + j)] = value;
    };
    for (std::int64_t j = 0; j < total_; ++j) {
      const double* key = at(past_k_, k_, b, kv, j);
      double dot = 0;
      for (std::int64_t i = 0; i < q_.size; ++i) dot += query[i] * key[i];
      dot *= scale_;
      if (cap_ > 0) dot = cap_ * std::tanh(dot / cap_);
      if (mode_ < 2) keep(j, dot);
      dot += bias(b, h, s, j);
      if (mode_ == 2) keep(j, dot);
      score[static_cast<std::size_t>(j)] = dot;
      largest = dot > largest || dot != dot ? dot : largest;
    }
    for (double& value : score) {
      value = std::exp(value - largest);
      sum += value;
    }
    std::vector<double> out(static_cast<std::size_t>(v_.size), 0);
    for (std::int64_t j = 0; j < total_; ++j) {
      const double weight = score[static_cast<std::size_t>(j)] / sum;
      if (mode_ == 3) keep(j, weight);
      const double* value = at(past_v_, v_, b, kv, j);
      for (std::size_t i = 0; i < out.size(); ++i) out[i] += weight * value[i];
    }
    const std::int64_t to =
        (q_.seq_first ? (b * q_.seq + s) * q_.heads + h : (b * q_.heads + h) * q_.seq + s) * v_.size;
    for (std::size_t i = 0; i < out.size(); ++i) y_[static_cast<std::size_t>(to) + i] = out[i];
  }

  const OpCall& call_;
  Heads q_, k_, v_, past_k_, past_v_;
  std::vector<double> mask_, y_, scores_;
  std::int64_t past_ = 0, total_ = 0, mode_ = 0;
  double scale_ = 1, cap_ = 0;
  bool causal_ = false;
};

void run(const OpCall& call) { Attention(call).run(); }

// --- RotaryEmbedding

std::string rotary_why_not(const OpCall& call) { return float_reason(call, {0, 1, 2}); }

void run_rotary(const OpCall& call) {
  const TensorView &x = call.in[0], &y = call.out[0];
  const Heads heads(x, std::max<std::int64_t>(1, call.node->attr("num_heads", std::int64_t{1})));
  std::vector<double> out = heads.data;
  const std::vector<double> cosines = doubles_of(call.in[1]), sines = doubles_of(call.in[2]);
  std::int64_t dim = call.node->attr("rotary_embedding_dim", std::int64_t{0});
  if (dim == 0) dim = heads.size;
  const Dims& cache = call.in[1].dims;
  const std::int64_t half = dim / 2;
  const bool by_position = call.has(3);
  const Dims want = {heads.batch, heads.seq, half};
  const bool fits = by_position ? cache.size() == 2 && cache[1] == half : cache == want;
  if (dim > heads.size || dim < 0 || dim % 2 != 0 || !fits || call.in[2].dims != cache)
    throw make_error(ErrorCode::kBadFile, "cos {} and sin {} do not fit {} with {} rotated places",
                     to_string(cache), to_string(call.in[2].dims), to_string(x.dims), dim);
  std::vector<std::int64_t> positions;
  if (by_position) positions = ints_of(call.in[3]);
  if (by_position && static_cast<std::int64_t>(positions.size()) != heads.batch * heads.seq)
    throw make_error(ErrorCode::kBadFile, "position_ids {} do not fit {}", to_string(call.in[3].dims),
                     to_string(x.dims));
  const bool interleaved = call.node->attr("interleaved", std::int64_t{0}) != 0;
  call.pool->parallel_for(heads.batch * heads.seq, 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t at = begin; at < end; ++at) {
      const std::int64_t b = at / heads.seq, s = at % heads.seq;
      std::int64_t line = at;
      if (by_position) {
        line = positions[static_cast<std::size_t>(line)];
        if (line < 0 || line >= cache[0])
          throw make_error(ErrorCode::kBadFile, "position {} of {} cached ones", line, cache[0]);
      }
      for (std::int64_t h = 0; h < heads.heads; ++h)
        for (std::int64_t k = 0; k < half; ++k) {
          const std::int64_t row = heads.row(b, h, s);
          const std::int64_t i = row + (interleaved ? 2 * k : k),
                             j = row + (interleaved ? 2 * k + 1 : half + k);
          const auto at_line = static_cast<std::size_t>(line * half + k);
          const double c = cosines[at_line], d = sines[at_line];
          const double a = heads.data[static_cast<std::size_t>(i)],
                       e = heads.data[static_cast<std::size_t>(j)];
          out[static_cast<std::size_t>(i)] = a * c - e * d;
          out[static_cast<std::size_t>(j)] = a * d + e * c;
        }
    }
  });
  write_doubles(y, out);
}

}  // namespace

void add_attention_references(Registry& registry) {
  Kernel kernel;
  kernel.op = "Attention";
  kernel.name = kernel_name(kernel.op, "reference");
  kernel.why_not = why_not;
  kernel.run = run;
  registry.add(kernel);
  kernel.op = "RotaryEmbedding";
  kernel.name = kernel_name(kernel.op, "reference");
  kernel.why_not = rotary_why_not;
  kernel.run = run_rotary;
  registry.add(kernel);
}

}  // namespace pare
