#include "engine/ops/attention.h"

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
  std::vector<float> room;
  const float* data = nullptr;
  std::int64_t batch = 0, heads = 0, seq = 0, size = 0;
  bool seq_first = false;

  Heads() = default;  // moving keeps `data`: the vector's memory goes along
  Heads(Heads&&) = default;
  Heads& operator=(Heads&&) = default;
  Heads(const Heads&) = delete;
  Heads& operator=(const Heads&) = delete;
  Heads(const TensorView& view, std::int64_t count) : data(all_floats(view, room)) {
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
  for (const int i : {0, 1, 2, 4, 5})
    if (call.has(i)) {
      std::string reason = type_reason(call, i, {DType::kF32, DType::kF16, DType::kBF16});
      if (!reason.empty()) return reason;
    }
  if (call.has(3)) {
    std::string reason = type_reason(call, 3, {DType::kF32, DType::kF16, DType::kBF16, DType::kBool});
    if (!reason.empty()) return reason;
  }
  if (call.has(4) != call.has(5)) return "one of past_key and past_value is missing";
  return {};
}

[[noreturn]] void unfit(const char* what) {
  throw make_error(ErrorCode::kBadFile, "{} does not fit Q, K and V", what);
}

class Attention {
 public:
  explicit Attention(const OpCall& call)
      : call_(call),
        q_(call.in[0], call.node->attr("q_num_heads", std::int64_t{1})),
        k_(call.in[1], call.node->attr("kv_num_heads", std::int64_t{1})),
        v_(call.in[2], call.node->attr("kv_num_heads", std::int64_t{1})) {
    if (call.has(4)) {
      past_k_ = Heads(call.in[4], 1);
      past_v_ = Heads(call.in[5], 1);
    }
    past_ = past_k_.seq;
    total_ = past_ + k_.seq;
    if (k_.heads == 0 || q_.heads % k_.heads != 0 || v_.heads != k_.heads || k_.size != q_.size ||
        v_.seq != k_.seq || k_.batch != q_.batch || v_.batch != q_.batch)
      throw make_error(ErrorCode::kBadFile, "Q {}, K {} and V {} do not fit together",
                       to_string(call.in[0].dims), to_string(call.in[1].dims), to_string(call.in[2].dims));
    if (call.has(4) && (past_k_.heads != k_.heads || past_k_.size != k_.size || past_v_.size != v_.size ||
                        past_v_.seq != past_k_.seq || past_k_.batch != q_.batch))
      unfit("the past");
    if (call.has(3)) {
      const Dims& dims = call.in[3].dims;
      const Dims full = {q_.batch, q_.heads, q_.seq, total_};
      if (dims.size() < 2 || dims.size() > 4 || dims.back() > total_) unfit("the mask");
      for (std::size_t i = 0; i + 1 < dims.size(); ++i)
        if (dims[i] != 1 && dims[i] != full[4 - dims.size() + i]) unfit("the mask");
      if (call.in[3].dtype != DType::kBool) mask_ = all_floats(call.in[3], mask_room_);
    }
    if (call.has(6) && call.in[6].size() != q_.batch) unfit("nonpad_kv_seqlen");
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

  void store(std::size_t i, const std::vector<float>& values) const {
    const TensorView& out = call_.out[i];
    if (out.dtype == DType::kF32)
      std::copy(values.begin(), values.end(), out.mut<float>());
    else
      write_floats(out, 0, out.size(), values.data());
  }

  const float* at(const Heads& past, const Heads& now, std::int64_t b, std::int64_t h, std::int64_t s) const {
    return s < past_ ? past.data + past.row(b, h, s) : now.data + now.row(b, h, s - past_);
  }

  std::vector<float> present(const Heads& past, const Heads& now) const {
    std::vector<float> all;
    for (std::int64_t b = 0; b < now.batch; ++b)
      for (std::int64_t h = 0; h < now.heads; ++h)
        for (std::int64_t s = 0; s < total_; ++s) {
          const float* from = at(past, now, b, h, s);
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
    if (mask_ != nullptr) return static_cast<double>(mask_[index]);
    return call_.in[3].as<std::uint8_t>()[index] != 0 ? 0 : kMasked;
  }

  void row(std::int64_t b, std::int64_t h, std::int64_t s) {
    const std::int64_t kv = h / (q_.heads / k_.heads), first = ((b * q_.heads + h) * q_.seq + s) * total_;
    const float* query = q_.data + q_.row(b, h, s);
    std::vector<double> score(static_cast<std::size_t>(total_));
    double largest = -std::numeric_limits<double>::infinity(), sum = 0;
    const auto keep = [&](std::int64_t j, double value) {
      if (!scores_.empty()) scores_[static_cast<std::size_t>(first + j)] = static_cast<float>(value);
    };
    for (std::int64_t j = 0; j < total_; ++j) {
      const float* key = at(past_k_, k_, b, kv, j);
      double dot = 0;
      for (std::int64_t i = 0; i < q_.size; ++i)
        dot += static_cast<double>(query[i]) * static_cast<double>(key[i]);
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
      const float* value = at(past_v_, v_, b, kv, j);
      for (std::size_t i = 0; i < out.size(); ++i) out[i] += weight * static_cast<double>(value[i]);
    }
    const std::int64_t to =
        (q_.seq_first ? (b * q_.seq + s) * q_.heads + h : (b * q_.heads + h) * q_.seq + s) * v_.size;
    for (std::size_t i = 0; i < out.size(); ++i)
      y_[static_cast<std::size_t>(to) + i] = static_cast<float>(out[i]);
  }

  const OpCall& call_;
  Heads q_, k_, v_, past_k_, past_v_;
  std::vector<float> mask_room_, y_, scores_;
  const float* mask_ = nullptr;
  std::int64_t past_ = 0, total_ = 0, mode_ = 0;
  double scale_ = 1, cap_ = 0;
  bool causal_ = false;
};

void run(const OpCall& call) { Attention(call).run(); }

// --- RotaryEmbedding

std::string rotary_why_not(const OpCall& call) {
  for (int i = 0; i < 3; ++i) {
    std::string reason = type_reason(call, i, {DType::kF32, DType::kF16, DType::kBF16});
    if (!reason.empty()) return reason;
  }
  return {};
}

void run_rotary(const OpCall& call) {
  const TensorView &x = call.in[0], &y = call.out[0];
  const Heads heads(x, std::max<std::int64_t>(1, call.node->attr("num_heads", std::int64_t{1})));
  std::vector<float> rooms[2], out(heads.data, heads.data + x.size());
  const float *cosines = all_floats(call.in[1], rooms[0]), *sines = all_floats(call.in[2], rooms[1]);
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
  for (std::int64_t b = 0; b < heads.batch; ++b)
    for (std::int64_t s = 0; s < heads.seq; ++s) {
      std::int64_t line = b * heads.seq + s;
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
          const auto c = static_cast<double>(cosines[line * half + k]),
                     d = static_cast<double>(sines[line * half + k]);
          const auto a = static_cast<double>(heads.data[i]), e = static_cast<double>(heads.data[j]);
          out[static_cast<std::size_t>(i)] = static_cast<float>(a * c - e * d);
          out[static_cast<std::size_t>(j)] = static_cast<float>(a * d + e * c);
        }
    }
  if (y.dtype == DType::kF32)
    std::copy(out.begin(), out.end(), y.mut<float>());
  else
    write_floats(y, 0, y.size(), out.data());
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
