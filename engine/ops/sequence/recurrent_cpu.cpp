// RNN, GRU and LSTM with packed weights (recurrent.h).
#include <algorithm>
#include <cmath>

#include "engine/base/error.h"
#include "engine/ops/elementwise/elementwise_unary.h"
#include "engine/ops/matmul/whole_product.h"
#include "engine/ops/registry.h"
#include "engine/ops/sequence/recurrent.h"
#include "engine/ops/support.h"

namespace pare {
namespace {

struct Direction {
  Tensor w, r, r_new;         // packed; r_new: GRU's R of the new state where it is multiplied apart
  std::vector<float> bias;    // added to W x: both biases, but for the next
  std::vector<float> r_bias;  // of GRU's new state with linear_before_reset, inside the product with r
};

struct Prepared {
  RecurrentLayer layer;
  std::vector<Direction> directions;
};

std::string why_not(const OpCall& call) {
  for (int i = 0; i < static_cast<int>(call.in.size()); ++i)
    if (std::string reason = call.has(i) && i != 4 ? type_reason(call, i, {DType::kF32}) : "";
        !reason.empty())
      return reason;
  RecurrentLayer l;
  if (std::string reason = resolve_recurrent(call, l); !reason.empty()) return reason;
  if (call.in[1].data == nullptr || call.in[2].data == nullptr || (call.has(3) && call.in[3].data == nullptr))
    return "the weights are no constants";
  if (call.has(4)) return "sequence_lens";
  if (call.has(7)) return "peepholes";
  if (l.clip > 0 || l.input_forget) return "clip or input_forget";
  const std::size_t each = l.functions.size() / static_cast<std::size_t>(l.directions);
  for (std::size_t i = 0; i < l.functions.size(); ++i) {
    const std::string& name = l.functions[i].name;
    const char* usual = l.op != "RNN" && i % each == 0 ? "Sigmoid" : "Tanh";
    if (name != usual && !(l.op == "RNN" && (name == "Relu" || name == "Sigmoid")))
      return "activation " + name;
  }
  return {};
}

Tensor packed(const float* rows, std::int64_t count, std::int64_t width) {
  Tensor t = Tensor::allocate(DType::kF32, {packed_b_floats(width, count)});
  pack_b(rows, 1, width, width, count, t.mut<float>());
  return t;
}

std::shared_ptr<const void> prepare(const OpCall& call) {
  auto p = std::make_shared<Prepared>();
  RecurrentLayer& l = p->layer;
  const std::string wrong = resolve_recurrent(call, l);
  PARE_ASSERT(wrong.empty());
  const std::int64_t rows = l.gates * l.hidden, h = l.hidden;
  for (std::int64_t d = 0; d < l.directions; ++d) {
    Direction one;
    const float *w = call.in[1].as<float>() + d * rows * l.in, *r = call.in[2].as<float>() + d * rows * h;
    one.w = packed(w, rows, l.in);
    const bool apart = l.op == "GRU" && !l.linear_before_reset;
    one.r = packed(r, apart ? 2 * h : rows, h);
    if (apart) one.r_new = packed(r + 2 * h * h, h, h);
    one.bias.assign(static_cast<std::size_t>(rows), 0);
    if (l.op == "GRU" && l.linear_before_reset) one.r_bias.assign(static_cast<std::size_t>(h), 0);
    if (call.has(3)) {
      const float* b = call.in[3].as<float>() + d * 2 * rows;
      for (std::int64_t i = 0; i < rows; ++i) {
        const bool inside = !one.r_bias.empty() && i >= 2 * h;
        one.bias[static_cast<std::size_t>(i)] = inside ? b[i] : b[i] + b[rows + i];
        if (inside) one.r_bias[static_cast<std::size_t>(i - 2 * h)] = b[rows + i];
      }
    }
    p->directions.push_back(std::move(one));
  }
  return p;
}

void apply(UnaryOp op, float* x, std::int64_t n) {
  UnaryParams params;
  params.op = op;
  PARE_SIMD_PICK(unary_f32)(params, x, x, n);
}

GemmTask product(const float* a, std::int64_t lda, const Tensor& b, std::int64_t k, float* c,
                 std::int64_t ldc, std::int64_t m, std::int64_t n) {
  return whole_product(a, lda, b.as<float>(), c, ldc, m, k, n);
}

// One direction of samples [first, last), all steps.
class Run {
 public:
  Run(const OpCall& call, const Prepared& p, std::int64_t direction, const float* wx, std::int64_t first,
      std::int64_t last)
      : call_(call),
        l_(p.layer),
        d_(p.directions[static_cast<std::size_t>(direction)]),
        direction_(direction),
        wx_(wx),
        first_(first),
        items_(last - first),
        h_(state(5)),
        c_(state(6)),
        gates_(static_cast<std::size_t>(items_ * l_.gates * l_.hidden)),
        extra_(h_.size()) {}

  void steps() {
    const bool reverse = direction_ == 1 || call_.node->attr("direction", "forward") == "reverse";
    for (std::int64_t s = 0; s < l_.seq; ++s) step(reverse ? l_.seq - 1 - s : s);
    store_state(1, h_);
    if (l_.op == "LSTM") store_state(2, c_);
  }

 private:
  bool wants(std::size_t i) const { return i < call_.out.size() && call_.out[i].present(); }
  std::int64_t state_place(std::int64_t item) const {
    const std::int64_t b = first_ + item;
    return (l_.batch_first ? b * l_.directions + direction_ : direction_ * l_.batch + b) * l_.hidden;
  }

  std::vector<float> state(int input) const {
    std::vector<float> all(static_cast<std::size_t>(items_ * l_.hidden), 0);
    if (call_.has(input))
      for (std::int64_t i = 0; i < items_; ++i)
        std::copy_n(call_.input(input).as<float>() + state_place(i), l_.hidden, all.data() + i * l_.hidden);
    return all;
  }
  void store_state(std::size_t output, const std::vector<float>& all) const {
    if (!wants(output)) return;
    for (std::int64_t i = 0; i < items_; ++i)
      std::copy_n(all.data() + i * l_.hidden, l_.hidden, call_.out[output].mut<float>() + state_place(i));
  }

  void step(std::int64_t t) {
    const std::int64_t rows = l_.gates * l_.hidden, h = l_.hidden;
    const bool apart = l_.op == "GRU";
    GemmTask task = product(h_.data(), h, d_.r, h, gates_.data(), rows, items_, apart ? 2 * h : rows);
    task.residual = wx_ + (l_.batch_first ? first_ * l_.seq + t : t * l_.batch + first_) * rows;
    task.ldr = l_.batch_first ? l_.seq * rows : rows;
    if (apart)
      gru(task);
    else
      gemm_f32(*call_.pool, task);
    for (std::int64_t i = 0; i < items_ && !apart; ++i) {
      float *gate = gates_.data() + i * rows, *own = h_.data() + i * h;
      if (l_.op == "LSTM") {
        lstm(gate, own, c_.data() + i * h);
      } else {
        apply(l_.functions[static_cast<std::size_t>(direction_)].name == "Relu"      ? UnaryOp::kRelu
              : l_.functions[static_cast<std::size_t>(direction_)].name == "Sigmoid" ? UnaryOp::kSigmoid
                                                                                     : UnaryOp::kTanh,
              gate, h);
        std::copy_n(gate, h, own);
      }
    }
    if (!wants(0)) return;
    for (std::int64_t i = 0; i < items_; ++i) {
      const std::int64_t b = first_ + i;
      const std::int64_t place = l_.batch_first ? (b * l_.seq + t) * l_.directions + direction_
                                                : (t * l_.directions + direction_) * l_.batch + b;
      std::copy_n(h_.data() + i * h, h, call_.out[0].mut<float>() + place * h);
    }
  }

  void lstm(float* gate, float* own, float* cell) {
    const std::int64_t h = l_.hidden;
    apply(UnaryOp::kSigmoid, gate, 3 * h);
    apply(UnaryOp::kTanh, gate + 3 * h, h);
    for (std::int64_t k = 0; k < h; ++k)
      own[k] = cell[k] = gate[2 * h + k] * cell[k] + gate[k] * gate[3 * h + k];
    apply(UnaryOp::kTanh, own, h);
    for (std::int64_t k = 0; k < h; ++k) own[k] *= gate[h + k];
  }

  // z and r first; the new state needs r, before (r . h) or behind its own product.
  void gru(GemmTask task) {
    const std::int64_t rows = l_.gates * l_.hidden, h = l_.hidden;
    if (l_.linear_before_reset) {  // R h alone for the new state: its W x waits
      GemmTask all = task;
      all.n = rows;
      all.residual = nullptr;
      gemm_f32(*call_.pool, all);
    } else {
      gemm_f32(*call_.pool, task);
    }
    for (std::int64_t i = 0; i < items_; ++i) {
      float *gate = gates_.data() + i * rows, *own = h_.data() + i * h, *reset = extra_.data() + i * h;
      const float* x = task.residual + i * task.ldr;
      if (l_.linear_before_reset)
        for (std::int64_t k = 0; k < 2 * h; ++k) gate[k] += x[k];
      apply(UnaryOp::kSigmoid, gate, 2 * h);
      if (l_.linear_before_reset)
        for (std::int64_t k = 0; k < h; ++k)
          gate[2 * h + k] =
              x[2 * h + k] + gate[h + k] * (gate[2 * h + k] + d_.r_bias[static_cast<std::size_t>(k)]);
      else
        for (std::int64_t k = 0; k < h; ++k) reset[k] = gate[h + k] * own[k];
    }
    if (!l_.linear_before_reset) {
      GemmTask fresh = product(extra_.data(), h, d_.r_new, h, gates_.data() + 2 * h, rows, items_, h);
      fresh.residual = task.residual + 2 * h;
      fresh.ldr = task.ldr;
      gemm_f32(*call_.pool, fresh);
    }
    for (std::int64_t i = 0; i < items_; ++i) {
      float *gate = gates_.data() + i * rows, *own = h_.data() + i * h;
      apply(UnaryOp::kTanh, gate + 2 * h, h);
      for (std::int64_t k = 0; k < h; ++k) own[k] = (1 - gate[k]) * gate[2 * h + k] + gate[k] * own[k];
    }
  }

  const OpCall& call_;
  const RecurrentLayer& l_;
  const Direction& d_;
  std::int64_t direction_;
  const float* wx_;
  std::int64_t first_, items_;
  std::vector<float> h_, c_, gates_, extra_;
};

void run(const OpCall& call) {
  const auto& p = *static_cast<const Prepared*>(call.prepared);
  const RecurrentLayer& l = p.layer;
  const std::int64_t rows = l.gates * l.hidden, all = l.seq * l.batch;
  if (l.batch == 0 || l.hidden == 0) return;
  float* wx = call.scratch->take<float>(std::max<std::int64_t>(1, l.directions * all * rows));
  for (std::int64_t d = 0; d < l.directions; ++d) {
    const Direction& one = p.directions[static_cast<std::size_t>(d)];
    GemmTask task = product(call.in[0].as<float>(), l.in, one.w, l.in, wx + d * all * rows, rows, all, rows);
    task.bias = one.bias.data();
    gemm_f32(*call.pool, task);
  }
  const std::int64_t blocks =
      std::clamp<std::int64_t>((call.pool->threads() + l.directions - 1) / l.directions, 1, l.batch);
  const auto unit = [&](std::int64_t i) {
    const std::int64_t d = i / blocks, block = i % blocks;
    Run(call, p, d, wx + d * all * rows, l.batch * block / blocks, l.batch * (block + 1) / blocks).steps();
  };
  if (blocks * l.directions == 1) return unit(0);  // then the products of a step share the threads
  call.pool->parallel_for(blocks * l.directions, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) unit(i);
  });
}

}  // namespace

void add_recurrent_kernels(Registry& registry) {
  Kernel kernel;
  kernel.why_not = why_not;
  kernel.prepare = prepare;
  kernel.run = run;
  for (const char* op : {"RNN", "GRU", "LSTM"}) {
    kernel.op = op;
    kernel.name = kernel_name(op, "packed");
    registry.add(kernel);
  }
}

}  // namespace pare
