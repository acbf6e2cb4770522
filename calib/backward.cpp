#include "calib/backward.h"

#include <algorithm>
#include <cmath>

#include "engine/base/error.h"
#include "engine/ops/matmul/whole_product.h"

namespace pare {
namespace {

std::int64_t last(const Tensor& t) { return t.dims().back(); }
std::int64_t rows_of(const Tensor& t) { return last(t) == 0 ? 0 : t.size() / last(t); }

[[noreturn]] void refuse(const Graph& graph, const Node& node, const char* why) {
  const std::string label = node.name.empty() ? graph.value(node.out[0]).name : node.name;
  throw make_error(ErrorCode::kUnsupported, "{} '{}' has no derivative here: {}", node.op, label, why)
      .hint("objective layer looks at layers alone");
}

// c [m][n] (+)= a [m][k] b, b[k][n] at k * stride_k + n * stride_n. One thread.
void small_product(const float* a, std::int64_t lda, const float* b, std::int64_t stride_k,
                   std::int64_t stride_n, float* c, std::int64_t ldc, std::int64_t m, std::int64_t k,
                   std::int64_t n, bool adds, Tensor& packed) {
  const std::int64_t floats = packed_b_floats(k, n);
  if (packed.empty() || packed.size() < floats) packed = Tensor::allocate(DType::kF32, {floats});
  pack_b(b, stride_k, stride_n, k, n, packed.mut<float>());
  GemmTask task = whole_product(a, lda, packed.as<float>(), c, ldc, m, k, n);
  if (adds) {
    task.residual = c;
    task.ldr = ldc;
  }
  PARE_SIMD_PICK(gemm_f32_task)(task);
}

}  // namespace

Backward::Backward(const Graph& graph, ValueId output, std::vector<NodeId> layers, ThreadPool& pool)
    : graph_(graph), output_(output), layers_(std::move(layers)), pool_(pool) {
  wanted_.assign(graph.value_count(), false);
  std::vector<NodeId> path;
  for (const NodeId id : graph.nodes()) {
    const Node& node = graph.node(id);
    bool on_path = std::find(layers_.begin(), layers_.end(), id) != layers_.end();
    for (const ValueId in : node.in) on_path = on_path || wanted(in);
    if (!on_path) continue;
    for (const ValueId out : node.out)
      if (out != ValueId::kNone) wanted_[static_cast<std::size_t>(out)] = true;
    path.push_back(id);
  }
  // Backwards from the output: nodes that reach it.
  std::vector<bool> reached(graph.value_count(), false);
  reached[static_cast<std::size_t>(output)] = true;
  const auto need = [&](ValueId id) {
    if (id == ValueId::kNone || graph_.is_constant(id) || id == output_) return;
    if (std::find(needed_.begin(), needed_.end(), id) == needed_.end()) needed_.push_back(id);
  };
  for (auto it = path.rbegin(); it != path.rend(); ++it) {
    const Node& node = graph.node(*it);
    if (!reached[static_cast<std::size_t>(node.out[0])]) continue;
    walk_.push_back(*it);
    for (const ValueId in : node.in)
      if (wanted(in)) reached[static_cast<std::size_t>(in)] = true;
    const bool layer = std::find(layers_.begin(), layers_.end(), *it) != layers_.end();
    if (layer) need(node.in[0]);
    if (node.is("MatMul") || node.is("Add")) continue;
    if (node.is("Sigmoid")) {
      need(node.out[0]);
    } else if (node.is("Mul") || node.is("RMSNormalization") || node.is("Attention") ||
               node.is("RotaryEmbedding")) {
      for (const ValueId in : node.in) need(in);
    } else {
      refuse(graph, node, "operator");
    }
  }
}

const Tensor& Backward::value(ValueId id) const {
  if (graph_.is_constant(id)) return graph_.value(id).constant;
  const auto it = values_->find(id);
  if (it == values_->end()) fail(ErrorCode::kInternal, "value '{}' is not there", graph_.value(id).name);
  return it->second;
}

void Backward::add(ValueId id, Tensor gradient) {
  const auto [it, fresh] = gradients_.emplace(id, gradient);
  if (fresh) return;
  PARE_ASSERT(it->second.size() == gradient.size());
  Tensor sum = Tensor::allocate(DType::kF32, it->second.dims());
  const float *a = it->second.as<float>(), *b = gradient.as<float>();
  float* out = sum.mut<float>();
  for (std::int64_t i = 0; i < sum.size(); ++i) out[i] = a[i] + b[i];
  it->second = std::move(sum);
}

void Backward::run(const std::map<ValueId, Tensor>& values, Tensor gradient, const Visit& visit) {
  values_ = &values;
  gradients_.clear();
  gradients_.emplace(output_, std::move(gradient));
  for (const NodeId id : walk_) {
    const Node& node = graph_.node(id);
    const auto it = gradients_.find(node.out[0]);
    if (it == gradients_.end()) continue;
    const Tensor dy = std::move(it->second);
    gradients_.erase(it);
    const auto layer = std::find(layers_.begin(), layers_.end(), id);
    if (layer != layers_.end()) visit(static_cast<std::size_t>(layer - layers_.begin()), dy);
    through(node, dy);
  }
  gradients_.clear();
}

void Backward::through(const Node& node, const Tensor& dy) {
  if (node.is("MatMul")) return product(node, dy);
  if (node.is("Mul")) return multiply(node, dy);
  if (node.is("RMSNormalization")) return normalization(node, dy);
  if (node.is("RotaryEmbedding")) return rotation(node, dy);
  if (node.is("Attention")) return attention(node, dy);
  if (node.is("Add")) {
    for (const ValueId in : node.in) {
      if (!wanted(in)) continue;
      if (to_string(graph_.value(in).shape) != to_string(graph_.value(node.out[0]).shape))
        refuse(graph_, node, "shapes that differ");
      add(in, dy);
    }
    return;
  }
  const Tensor& y = value(node.out[0]);  // Sigmoid
  Tensor dx = Tensor::allocate(DType::kF32, dy.dims());
  for (std::int64_t i = 0; i < dx.size(); ++i) {
    const float s = y.as<float>()[i];
    dx.mut<float>()[i] = dy.as<float>()[i] * s * (1 - s);
  }
  add(node.in[0], std::move(dx));
}

void Backward::product(const Node& node, const Tensor& dy) {
  if (!wanted(node.in[0])) return;
  if (!graph_.is_constant(node.in[1]) || graph_.value(node.in[1]).constant.dims().size() != 2)
    refuse(graph_, node, "no constant matrix");
  const Tensor& w = graph_.value(node.in[1]).constant;
  if (w.dtype() != DType::kF32) refuse(graph_, node, "its weight is not float32");
  const std::int64_t k = w.dims()[0], n = w.dims()[1];
  Tensor& packed = packed_[node.in[1]];
  if (packed.empty()) {
    packed = Tensor::allocate(DType::kF32, {packed_b_floats(n, k)});
    pack_b(w.as<float>(), 1, n, n, k, packed.mut<float>());
  }
  std::vector<std::int64_t> dims = dy.dims();
  dims.back() = k;
  Tensor dx = Tensor::allocate(DType::kF32, dims);
  GemmTask task;
  task.a = dy.as<float>();
  task.lda = n;
  task.b = packed.as<float>();
  task.c = dx.mut<float>();
  task.ldc = k;
  task.m = rows_of(dy);
  task.k = n;
  task.n = k;
  gemm_f32(pool_, task);
  add(node.in[0], std::move(dx));
}

void Backward::multiply(const Node& node, const Tensor& dy) {
  for (int side = 0; side < 2; ++side) {
    const ValueId in = node.in[static_cast<std::size_t>(side)];
    if (!wanted(in)) continue;
    const Tensor& other = value(node.in[static_cast<std::size_t>(1 - side)]);
    if (other.size() != dy.size() && other.size() != 1 && other.size() != last(dy))
      refuse(graph_, node, "shapes that differ");
    Tensor dx = Tensor::allocate(DType::kF32, dy.dims());
    const float *o = other.as<float>(), *d = dy.as<float>();
    float* out = dx.mut<float>();
    const std::int64_t n = last(dy), step = other.size() == dx.size() ? n : 0, by = other.size() == 1 ? 0 : 1;
    pool_.parallel_for(rows_of(dy), 16, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r)
        for (std::int64_t i = 0; i < n; ++i) out[r * n + i] = d[r * n + i] * o[r * step + i * by];
    });
    add(in, std::move(dx));
  }
}

void Backward::normalization(const Node& node, const Tensor& dy) {
  const Tensor &x = value(node.in[0]), &scale = value(node.in[1]);
  const std::int64_t n = last(x), axis = node.attr("axis", std::int64_t{-1});
  if ((axis != -1 && axis != static_cast<std::int64_t>(x.dims().size()) - 1) || scale.size() != n)
    refuse(graph_, node, "not along the last axis");
  const auto epsilon = static_cast<double>(node.attr("epsilon", 1e-5f));
  Tensor dx = Tensor::allocate(DType::kF32, x.dims());
  float* out = dx.mut<float>();
  pool_.parallel_for(rows_of(x), 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const float *v = x.as<float>() + r * n, *d = dy.as<float>() + r * n, *w = scale.as<float>();
      double square = 0, along = 0;
      for (std::int64_t i = 0; i < n; ++i) {
        square += static_cast<double>(v[i]) * static_cast<double>(v[i]);
        along += static_cast<double>(d[i] * w[i]) * static_cast<double>(v[i]);
      }
      const double inverse = 1 / std::sqrt(square / static_cast<double>(n) + epsilon);
      const double pull = along * inverse * inverse / static_cast<double>(n);
      for (std::int64_t i = 0; i < n; ++i)
        out[r * n + i] = static_cast<float>(
            inverse * (static_cast<double>(d[i] * w[i]) - pull * static_cast<double>(v[i])));
    }
  });
  add(node.in[0], std::move(dx));
}

void Backward::rotation(const Node& node, const Tensor& dy) {
  const std::int64_t heads = node.attr("num_heads", std::int64_t{0});
  if (dy.dims().size() != 3 || heads < 1 || node.attr("interleaved", std::int64_t{0}) != 0 ||
      node.attr("rotary_embedding_dim", std::int64_t{0}) != 0 || node.in.size() < 4 ||
      node.in[3] == ValueId::kNone)
    refuse(graph_, node, "a form that is not known");
  const Tensor &cos = value(node.in[1]), &sin = value(node.in[2]), &positions = value(node.in[3]);
  const std::int64_t width = last(dy), half = width / heads / 2, rows = rows_of(dy);
  if (cos.dims().size() != 2 || last(cos) != half || positions.size() != rows)
    refuse(graph_, node, "a form that is not known");
  Tensor dx = Tensor::allocate(DType::kF32, dy.dims());
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* c = cos.as<float>() + positions.as<std::int64_t>()[r] * half;
    const float* s = sin.as<float>() + positions.as<std::int64_t>()[r] * half;
    for (std::int64_t h = 0; h < heads; ++h) {
      const float* d = dy.as<float>() + r * width + h * 2 * half;
      float* out = dx.mut<float>() + r * width + h * 2 * half;
      for (std::int64_t i = 0; i < half; ++i) {
        out[i] = d[i] * c[i] + d[half + i] * s[i];
        out[half + i] = d[half + i] * c[i] - d[i] * s[i];
      }
    }
  }
  add(node.in[0], std::move(dx));
}

void Backward::attention(const Node& node, const Tensor& dy) {
  const std::int64_t heads = node.attr("q_num_heads", std::int64_t{0}),
                     kv_heads = node.attr("kv_num_heads", std::int64_t{0});
  const bool more_inputs = node.in.size() > 3 && std::any_of(node.in.begin() + 3, node.in.end(),
                                                             [](ValueId id) { return id != ValueId::kNone; });
  const Tensor &q = value(node.in[0]), &k = value(node.in[1]), &v = value(node.in[2]);
  if (more_inputs || node.attr("is_causal", std::int64_t{0}) == 0 || q.dims().size() != 3 || heads < 1 ||
      kv_heads < 1 || heads % kv_heads != 0 || node.attr("softcap", 0.0f) != 0.0f ||
      q.dims()[1] != k.dims()[1])
    refuse(graph_, node, "a form that is not known");
  const std::int64_t samples = q.dims()[0], s = q.dims()[1], d = last(q) / heads, dv = last(v) / kv_heads;
  const std::int64_t lq = last(q), lk = last(k), lv = last(v), lo = last(dy), ratio = heads / kv_heads;
  const float scale = node.attr("scale", static_cast<float>(1 / std::sqrt(static_cast<double>(d))));
  Tensor dq = Tensor::allocate(DType::kF32, q.dims()), dk = Tensor::allocate(DType::kF32, k.dims()),
         dvalue = Tensor::allocate(DType::kF32, v.dims());
  std::fill_n(dk.mut<float>(), dk.size(), 0.0f);
  std::fill_n(dvalue.mut<float>(), dvalue.size(), 0.0f);
  float *to_q = dq.mut<float>(), *to_k = dk.mut<float>(), *to_v = dvalue.mut<float>();
  // One head of keys and all that ask it, in order.
  const auto head = [&](std::int64_t b, std::int64_t kv) {
    const auto square = static_cast<std::size_t>(s * s);
    std::vector<float> p(square), t(square), turned(square);
    Tensor packed;
    const float* keys = k.as<float>() + b * s * lk + kv * d;
    const float* inner = v.as<float>() + b * s * lv + kv * dv;
    for (std::int64_t h = kv * ratio; h < (kv + 1) * ratio; ++h) {
      const float* ask = q.as<float>() + b * s * lq + h * d;
      const float* out = dy.as<float>() + b * s * lo + h * dv;
      small_product(ask, lq, keys, 1, lk, p.data(), s, s, d, s, false, packed);
      small_product(out, lo, inner, 1, lv, t.data(), s, s, dv, s, false, packed);
      for (std::int64_t i = 0; i < s; ++i) {
        float *row = p.data() + i * s, *dp = t.data() + i * s;
        float most = row[0];
        for (std::int64_t j = 1; j <= i; ++j) most = std::max(most, row[j]);
        double sum = 0, along = 0;
        for (std::int64_t j = 0; j <= i; ++j) {
          row[j] = std::exp(scale * (row[j] - most));
          sum += static_cast<double>(row[j]);
        }
        const auto inverse = static_cast<float>(1 / sum);
        for (std::int64_t j = 0; j <= i; ++j) {
          row[j] *= inverse;
          along += static_cast<double>(row[j]) * static_cast<double>(dp[j]);
        }
        for (std::int64_t j = 0; j <= i; ++j) dp[j] = scale * row[j] * (dp[j] - static_cast<float>(along));
        std::fill(row + i + 1, row + s, 0.0f);
        std::fill(dp + i + 1, dp + s, 0.0f);
      }
      const auto turn = [&](const std::vector<float>& from) {
        for (std::int64_t i = 0; i < s; ++i)
          for (std::int64_t j = 0; j < s; ++j)
            turned[static_cast<std::size_t>(j * s + i)] = from[static_cast<std::size_t>(i * s + j)];
      };
      small_product(t.data(), s, keys, lk, 1, to_q + b * s * lq + h * d, lq, s, s, d, false, packed);
      turn(p);
      small_product(turned.data(), s, out, lo, 1, to_v + b * s * lv + kv * dv, lv, s, s, dv, true, packed);
      turn(t);
      small_product(turned.data(), s, ask, lq, 1, to_k + b * s * lk + kv * d, lk, s, s, d, true, packed);
    }
  };
  pool_.parallel_for(samples * kv_heads, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) head(i / kv_heads, i % kv_heads);
  });
  if (wanted(node.in[0])) add(node.in[0], std::move(dq));
  if (wanted(node.in[1])) add(node.in[1], std::move(dk));
  if (wanted(node.in[2])) add(node.in[2], std::move(dvalue));
}

}  // namespace pare
