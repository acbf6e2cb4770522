#include "engine/ops/sequence/recurrent.h"

#include <algorithm>
#include <cmath>

#include "engine/base/error.h"
#include "engine/ops/registry.h"
#include "engine/ops/support.h"

namespace pare {
namespace {

constexpr const char* kFunctions[] = {"Sigmoid",         "Tanh",       "Relu",        "Affine", "LeakyRelu",
                                      "ThresholdedRelu", "ScaledTanh", "HardSigmoid", "Elu",    "Softsign",
                                      "Softplus"};

std::vector<std::string> words(const Node& node, const char* key) {
  const auto found = node.attrs.find(key);
  if (found == node.attrs.end()) return {};
  const auto* list = std::get_if<std::vector<std::string>>(&found->second);
  return list == nullptr ? std::vector<std::string>{} : *list;
}

double default_alpha(const std::string& name) {
  if (name == "LeakyRelu") return static_cast<double>(0.01F);
  if (name == "HardSigmoid") return static_cast<double>(0.2F);
  return 1;
}

int functions_each(const std::string& op) { return op == "LSTM" ? 3 : op == "GRU" ? 2 : 1; }

}  // namespace

double RecurrentFunction::operator()(double x) const {
  if (name == "Sigmoid") return 1 / (1 + std::exp(-x));
  if (name == "Tanh") return std::tanh(x);
  if (name == "Relu") return x < 0 ? 0 : x;
  if (name == "Affine") return alpha * x + beta;
  if (name == "LeakyRelu") return x < 0 ? alpha * x : x;
  if (name == "ThresholdedRelu") return x < alpha ? 0 : x;
  if (name == "ScaledTanh") return alpha * std::tanh(beta * x);
  if (name == "HardSigmoid") return std::clamp(alpha * x + beta, 0.0, 1.0);
  if (name == "Elu") return x < 0 ? alpha * std::expm1(x) : x;
  if (name == "Softsign") return x / (1 + std::fabs(x));
  return std::fmax(x, 0.0) + std::log1p(std::exp(-std::fabs(x)));  // Softplus
}

std::string resolve_recurrent(const OpCall& call, RecurrentLayer& l) {
  const Node& node = *call.node;
  l.op = node.op;
  l.batch_first = node.attr("layout", std::int64_t{0}) != 0;
  l.gates = l.op == "LSTM" ? 4 : l.op == "GRU" ? 3 : 1;
  const Dims &x = call.in[0].dims, &w = call.in[1].dims, &r = call.in[2].dims;
  if (x.size() != 3 || w.size() != 3 || r.size() != 3) return "X, W and R need rank 3";
  l.seq = x[l.batch_first ? 1 : 0];
  l.batch = x[l.batch_first ? 0 : 1];
  l.in = x[2];
  l.directions = w[0];
  l.hidden = r[2];
  const Dims want_w = {l.directions, l.gates * l.hidden, l.in},
             want_r = {l.directions, l.gates * l.hidden, l.hidden};
  if (w != want_w || r != want_r)
    return "W " + to_string(w) + " and R " + to_string(r) + " do not fit X " + to_string(x);
  const std::string direction = node.attr("direction", "forward");
  if (l.directions != (direction == "bidirectional" ? 2 : 1))
    return "the weights do not fit direction " + direction;
  const auto wrong = [&](int i, const Dims& dims) {
    return call.has(i) && call.in[static_cast<std::size_t>(i)].dims != dims;
  };
  const Dims state =
      l.batch_first ? Dims{l.batch, l.directions, l.hidden} : Dims{l.directions, l.batch, l.hidden};
  if (wrong(3, {l.directions, 2 * l.gates * l.hidden}) || wrong(4, {l.batch}) || wrong(5, state) ||
      wrong(6, state) || wrong(7, {l.directions, 3 * l.hidden}))
    return "B, sequence_lens, an initial state or P has the wrong shape";
  l.clip = static_cast<double>(node.attr("clip", 0.0F));
  l.linear_before_reset = node.attr("linear_before_reset", std::int64_t{0}) != 0;
  l.input_forget = node.attr("input_forget", std::int64_t{0}) != 0;
  std::vector<std::string> names = words(node, "activations");
  const int each = functions_each(l.op);
  if (names.empty())
    for (std::int64_t d = 0; d < l.directions; ++d)
      for (int k = 0; k < each; ++k) names.emplace_back(l.op != "RNN" && k == 0 ? "Sigmoid" : "Tanh");
  if (static_cast<std::int64_t>(names.size()) != each * l.directions)
    return "the wrong number of activations";
  const std::vector<float> alphas = node.attr_floats("activation_alpha"),
                           betas = node.attr_floats("activation_beta");
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (std::find(std::begin(kFunctions), std::end(kFunctions), names[i]) == std::end(kFunctions))
      return "activation " + names[i];
    const double beta = names[i] == "HardSigmoid" ? 0.5 : names[i] == "ScaledTanh" ? 1 : 0;
    l.functions.push_back({names[i],
                           i < alphas.size() ? static_cast<double>(alphas[i]) : default_alpha(names[i]),
                           i < betas.size() ? static_cast<double>(betas[i]) : beta});
  }
  return {};
}

namespace {

using Doubles = std::vector<double>;

std::string why_not(const OpCall& call) {
  std::string reason = float_reason(call, {0, 1, 2, 3, 5, 6, 7});
  if (reason.empty() && call.has(4)) reason = type_reason(call, 4, {DType::kI32});
  if (!reason.empty()) return reason;
  RecurrentLayer layer;
  return resolve_recurrent(call, layer);
}

double dot(const double* w, const double* x, std::int64_t n) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += w[i] * x[i];
  return sum;
}

// One sequence in one direction.
class Cell {
 public:
  // in: the inputs in double, empty where left out.
  Cell(const std::vector<Doubles>& in, const RecurrentLayer& layer, std::int64_t direction, std::int64_t item)
      : l_(layer), f_(&layer.functions[static_cast<std::size_t>(direction * functions_each(layer.op))]) {
    const std::int64_t rows = l_.gates * l_.hidden;
    w_ = in[1].data() + direction * rows * l_.in;
    r_ = in[2].data() + direction * rows * l_.hidden;
    if (!in[3].empty()) b_ = in[3].data() + direction * 2 * rows;
    if (!in[7].empty()) p_ = in[7].data() + direction * 3 * l_.hidden;
    h_.assign(static_cast<std::size_t>(l_.hidden), 0);
    c_ = h_;
    const std::int64_t start =
        (l_.batch_first ? item * l_.directions + direction : direction * l_.batch + item) * l_.hidden;
    if (!in[5].empty()) std::copy_n(in[5].data() + start, l_.hidden, h_.begin());
    if (!in[6].empty() && l_.op == "LSTM") std::copy_n(in[6].data() + start, l_.hidden, c_.begin());
  }

  const std::vector<double>& h() const { return h_; }
  const std::vector<double>& c() const { return c_; }

  void step(const double* x) {
    const std::vector<double> in(x, x + l_.in), before = h_;
    if (l_.op == "LSTM") return lstm(in, before);
    if (l_.op == "GRU") return gru(in, before);
    for (std::int64_t k = 0; k < l_.hidden; ++k)
      h_[at(k)] = f_[0](limited(input(0, k, in) + state(0, k, before)));
  }

 private:
  static std::size_t at(std::int64_t k) { return static_cast<std::size_t>(k); }
  double limited(double v) const { return l_.clip > 0 ? std::clamp(v, -l_.clip, l_.clip) : v; }
  // Wg x + Wbg, Rg h + Rbg: row k of gate g.
  double input(std::int64_t g, std::int64_t k, const std::vector<double>& x) const {
    const std::int64_t row = g * l_.hidden + k;
    return dot(w_ + row * l_.in, x.data(), l_.in) + (b_ == nullptr ? 0.0 : b_[row]);
  }
  double state(std::int64_t g, std::int64_t k, const std::vector<double>& h) const {
    const std::int64_t row = g * l_.hidden + k;
    const double bias = b_ == nullptr ? 0.0 : b_[l_.gates * l_.hidden + row];
    return dot(r_ + row * l_.hidden, h.data(), l_.hidden) + bias;
  }
  double peephole(std::int64_t g, std::int64_t k) const {
    return p_ == nullptr ? 0.0 : p_[g * l_.hidden + k];
  }

  void lstm(const std::vector<double>& x, const std::vector<double>& before) {
    for (std::int64_t k = 0; k < l_.hidden; ++k) {
      const double old = c_[at(k)];
      const auto sum = [&](std::int64_t g) { return input(g, k, x) + state(g, k, before); };
      const double i = f_[0](limited(sum(0) + peephole(0, k) * old));
      const double forget = l_.input_forget ? 1 - i : f_[0](limited(sum(2) + peephole(2, k) * old));
      const double fresh = f_[1](limited(sum(3)));
      c_[at(k)] = forget * old + i * fresh;
      const double o = f_[0](limited(sum(1) + peephole(1, k) * c_[at(k)]));
      h_[at(k)] = o * f_[2](c_[at(k)]);
    }
  }

  void gru(const std::vector<double>& x, const std::vector<double>& before) {
    std::vector<double> reset(before.size()), update(before.size()), masked(before.size());
    for (std::int64_t k = 0; k < l_.hidden; ++k) {
      update[at(k)] = f_[0](limited(input(0, k, x) + state(0, k, before)));
      reset[at(k)] = f_[0](limited(input(1, k, x) + state(1, k, before)));
      masked[at(k)] = reset[at(k)] * before[at(k)];
    }
    for (std::int64_t k = 0; k < l_.hidden; ++k) {
      const double past = l_.linear_before_reset ? reset[at(k)] * state(2, k, before) : state(2, k, masked);
      const double fresh = f_[1](limited(input(2, k, x) + past));
      h_[at(k)] = (1 - update[at(k)]) * fresh + update[at(k)] * before[at(k)];
    }
  }

  const RecurrentLayer& l_;
  const RecurrentFunction* f_;
  const double *w_ = nullptr, *r_ = nullptr, *b_ = nullptr, *p_ = nullptr;
  std::vector<double> h_, c_;
};

void run(const OpCall& call) {
  RecurrentLayer l;
  const std::string wrong = resolve_recurrent(call, l);
  PARE_ASSERT(wrong.empty());
  std::vector<Doubles> in(8);
  for (std::size_t i = 0; i < in.size() && i < call.in.size(); ++i)
    if (i != 4 && call.in[i].present()) in[i] = doubles_of(call.in[i]);
  std::vector<Doubles> out(3);
  for (std::size_t i = 0; i < out.size() && i < call.out.size(); ++i)
    if (call.out[i].present()) out[i].assign(static_cast<std::size_t>(call.out[i].size()), 0);
  const bool reverse_only = call.node->attr("direction", "forward") == "reverse";
  for (std::int64_t k = 0; call.has(4) && k < l.batch; ++k)
    if (call.in[4].as<std::int32_t>()[k] < 0 || call.in[4].as<std::int32_t>()[k] > l.seq)
      throw make_error(ErrorCode::kBadFile, "a sequence of {} steps in {}", call.in[4].as<std::int32_t>()[k],
                       l.seq);
  call.pool->parallel_for(l.directions * l.batch, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t k = begin; k < end; ++k) {
      const std::int64_t d = k / l.batch, b = k % l.batch;
      const bool reverse = reverse_only || d == 1;
      const std::int64_t steps = call.has(4) ? call.in[4].as<std::int32_t>()[b] : l.seq;
      Cell cell(in, l, d, b);
      const auto store = [](const Doubles& from, Doubles& to, std::int64_t at) {
        if (!to.empty()) std::copy(from.begin(), from.end(), to.begin() + at);
      };
      for (std::int64_t s = 0; s < steps; ++s) {
        const std::int64_t t = reverse ? steps - 1 - s : s;
        cell.step(in[0].data() + (l.batch_first ? b * l.seq + t : t * l.batch + b) * l.in);
        store(cell.h(), out[0],
              (l.batch_first ? (b * l.seq + t) * l.directions + d : (t * l.directions + d) * l.batch + b) *
                  l.hidden);
      }
      const std::int64_t to = (l.batch_first ? b * l.directions + d : d * l.batch + b) * l.hidden;
      store(cell.h(), out[1], to);
      store(cell.c(), out[2], to);
    }
  });
  for (std::size_t i = 0; i < out.size() && i < call.out.size(); ++i)
    if (call.out[i].present()) write_doubles(call.out[i], out[i]);
}

}  // namespace

void add_recurrent_references(Registry& registry) {
  Kernel kernel;
  kernel.why_not = why_not;
  kernel.run = run;
  for (const char* op : {"RNN", "GRU", "LSTM"}) {
    kernel.op = op;
    kernel.name = kernel_name(op, "reference");
    registry.add(kernel);
  }
}

}  // namespace pare
