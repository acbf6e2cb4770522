#include "engine/ops/sequence/linear_attention.h"

#include <algorithm>
#include <cmath>

#include "engine/base/error.h"
#include "engine/ops/registry.h"
#include "engine/ops/support.h"

namespace pare {
namespace {

std::string why_not(const OpCall& call) {
  const std::string rule = call.node->attr("update_rule", "gated_delta");
  const bool gated = rule == "gated" || rule == "gated_delta",
             delta = rule == "delta" || rule == "gated_delta";
  if (!gated && !delta && rule != "linear") return "update_rule " + rule;
  if (gated != call.has(4)) return "update_rule " + rule + (gated ? " needs" : " has no") + " decay";
  if (delta != call.has(5)) return "update_rule " + rule + (delta ? " needs" : " has no") + " beta";
  return float_reason(call, {0, 1, 2, 3, 4, 5});
}

// One head of one sample: its state and the rows that a token brings.
struct Head {
  double* state;
  std::size_t d_k, d_v;

  void decay(const double* g, std::size_t step) const {
    for (std::size_t i = 0; i < d_k; ++i) {
      const double factor = std::exp(g[i * step]);
      for (std::size_t j = 0; j < d_v; ++j) state[i * d_v + j] *= factor;
    }
  }
  // out[j] = sum_i state[i][j] * x[i]
  void read(const double* x, double* out) const {
    std::fill_n(out, d_v, 0.0);
    for (std::size_t i = 0; i < d_k; ++i)
      for (std::size_t j = 0; j < d_v; ++j) out[j] += state[i * d_v + j] * x[i];
  }
  void write(const double* k, const double* v) const {
    for (std::size_t i = 0; i < d_k; ++i)
      for (std::size_t j = 0; j < d_v; ++j) state[i * d_v + j] += k[i] * v[j];
  }
};

void run(const OpCall& call) {
  const auto q_heads = static_cast<std::size_t>(call.node->attr("q_num_heads", std::int64_t{1})),
             heads = static_cast<std::size_t>(call.node->attr("kv_num_heads", std::int64_t{1}));
  const Dims &qd = call.in[0].dims, &kd = call.in[1].dims, &vd = call.in[2].dims;
  const auto batch = static_cast<std::size_t>(qd[0]), seq = static_cast<std::size_t>(qd[1]);
  const std::size_t d_k = static_cast<std::size_t>(qd[2]) / q_heads,
                    d_v = static_cast<std::size_t>(vd[2]) / heads, group = q_heads / heads;
  const Dims rows = {qd[0], qd[1]};
  const auto is_rows = [&](int i, std::size_t one, std::size_t other) {  // [batch, seq, one or other]
    if (!call.has(i)) return true;
    const Dims& d = call.input(i).dims;
    return d.size() == 3 && d[0] == rows[0] && d[1] == rows[1] &&
           (d[2] == static_cast<std::int64_t>(one) || d[2] == static_cast<std::int64_t>(other));
  };
  if (kd != Dims{rows[0], rows[1], static_cast<std::int64_t>(heads * d_k)} || vd[0] != rows[0] ||
      vd[1] != rows[1] || !is_rows(4, heads, heads * d_k) || !is_rows(5, heads, 1) ||
      (call.has(3) && call.in[3].dims != call.out[1].dims))
    throw make_error(ErrorCode::kBadFile,
                     "query {}, key {}, value {} and what comes with them do not fit together", to_string(qd),
                     to_string(kd), to_string(vd));
  const std::vector<double> q = doubles_of(call.in[0]), k = doubles_of(call.in[1]),
                            v = doubles_of(call.in[2]);
  std::vector<double> decay, beta, state(static_cast<std::size_t>(call.out[1].size()), 0),
      y(static_cast<std::size_t>(call.out[0].size()));
  if (call.has(3)) state = doubles_of(call.in[3]);
  if (call.has(4)) decay = doubles_of(call.in[4]);
  if (call.has(5)) beta = doubles_of(call.in[5]);
  const std::size_t decays = call.has(4) ? static_cast<std::size_t>(call.in[4].dims[2]) : 0,
                    betas = call.has(5) ? static_cast<std::size_t>(call.in[5].dims[2]) : 0;
  const bool a_head = decays == heads;  // one decay a head, not one a key place (the same when d_k is 1)
  auto scale = static_cast<double>(call.node->attr("scale", 0.0F));
  if (scale == 0) scale = 1 / std::sqrt(static_cast<double>(d_k));
  call.pool->parallel_for(
      static_cast<std::int64_t>(batch * heads), 1, [&](std::int64_t begin, std::int64_t end) {
        std::vector<double> written(d_v), out(d_v);
        for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
          const std::size_t b = i / heads, h = i % heads;
          const Head head = {state.data() + i * d_k * d_v, d_k, d_v};
          for (std::size_t t = 0; t < seq; ++t) {
            const std::size_t token = b * seq + t;
            const double *key = k.data() + (token * heads + h) * d_k,
                         *value = v.data() + (token * heads + h) * d_v;
            if (!decay.empty())
              head.decay(decay.data() + token * decays + (a_head ? h : h * d_k), a_head ? 0 : 1);
            if (!beta.empty()) {
              const double rate = beta[token * betas + (betas == 1 ? 0 : h)];
              head.read(key, written.data());
              for (std::size_t j = 0; j < d_v; ++j) written[j] = rate * (value[j] - written[j]);
              value = written.data();
            }
            head.write(key, value);
            for (std::size_t g = h * group; g < (h + 1) * group; ++g) {
              head.read(q.data() + (token * q_heads + g) * d_k, out.data());
              for (std::size_t j = 0; j < d_v; ++j) y[(token * q_heads + g) * d_v + j] = scale * out[j];
            }
          }
        }
      });
  write_doubles(call.out[0], y);
  if (call.out.size() > 1 && call.out[1].present()) write_doubles(call.out[1], state);
}

// --- CausalConvWithState

std::string conv_why_not(const OpCall& call) {
  const std::string activation = call.node->attr("activation", "none");
  if (activation != "none" && activation != "silu" && activation != "swish")
    return "activation " + activation;
  return float_reason(call, {0, 1, 2, 3});
}

void run_conv(const OpCall& call) {
  const Dims& dims = call.in[0].dims;
  const auto planes = static_cast<std::size_t>(dims[0] * dims[1]),
             channels = static_cast<std::size_t>(dims[1]), length = static_cast<std::size_t>(dims[2]),
             kernel = static_cast<std::size_t>(call.in[1].dims[2]);
  if (kernel < 1 || call.in[1].dims[0] != dims[1] || call.in[1].dims[1] != 1 ||
      (call.has(2) && call.in[2].size() != dims[1]) ||
      (call.has(3) && call.in[3].dims != Dims{dims[0], dims[1], static_cast<std::int64_t>(kernel) - 1}))
    throw make_error(ErrorCode::kBadFile, "weight {} and what comes with it do not fit {}",
                     to_string(call.in[1].dims), to_string(dims));
  const std::vector<double> x = doubles_of(call.in[0]), w = doubles_of(call.in[1]);
  std::vector<double> bias, past, y(planes * length), present(planes * (kernel - 1)),
      line(length + kernel - 1);
  if (call.has(2)) bias = doubles_of(call.in[2]);
  if (call.has(3)) past = doubles_of(call.in[3]);
  const bool silu = call.node->attr("activation", "none") != "none";
  for (std::size_t p = 0; p < planes; ++p) {
    const std::size_t c = p % channels;
    std::fill(line.begin(), line.end(), 0.0);
    if (!past.empty()) std::copy_n(past.data() + p * (kernel - 1), kernel - 1, line.data());
    std::copy_n(x.data() + p * length, length, line.data() + kernel - 1);
    for (std::size_t i = 0; i < length; ++i) {
      double sum = bias.empty() ? 0 : bias[c];
      for (std::size_t k = 0; k < kernel; ++k) sum += w[c * kernel + k] * line[i + k];
      y[p * length + i] = silu ? sum / (1 + std::exp(-sum)) : sum;
    }
    std::copy_n(line.data() + length, kernel - 1, present.data() + p * (kernel - 1));
  }
  write_doubles(call.out[0], y);
  if (call.out.size() > 1 && call.out[1].present()) write_doubles(call.out[1], present);
}

}  // namespace

void add_linear_attention_references(Registry& registry) {
  registry.add(
      {"", "LinearAttention", Backend::kCpu, "LinearAttention/cpu:reference", why_not, nullptr, run});
  registry.add({"", "CausalConvWithState", Backend::kCpu, "CausalConvWithState/cpu:reference", conv_why_not,
                nullptr, run_conv});
}

}  // namespace pare
