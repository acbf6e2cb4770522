// Einsum of two float32 inputs as a matrix product: both are rearranged to [batch, rows, inner] and [batch,
// inner, columns], multiplied, and the result is rearranged.
#include <algorithm>

#include "engine/ir/einsum.h"
#include "engine/ops/matmul/einsum.h"
#include "engine/ops/matmul/gemm_f32.h"
#include "engine/ops/movement/strided_copy.h"
#include "engine/ops/registry.h"
#include "engine/ops/support.h"

namespace pare {
namespace {

struct Product {
  std::vector<int> batch, rows, columns, inner;  // labels, those of the output in its order
  Dims sizes;                                    // of each label
  EinsumLabels labels;
};

std::string make_product(const OpCall& call, Product& p) {
  if (call.in.size() != 2) return "not two inputs";
  for (const int i : {0, 1})
    if (std::string reason = type_reason(call, i, {DType::kF32}); !reason.empty()) return reason;
  std::vector<int> ranks;
  for (const TensorView& x : call.in) ranks.push_back(static_cast<int>(x.dims.size()));
  p.labels = parse_einsum(call.node->attr("equation", ""), ranks);  // the shape rule has read it
  p.sizes.assign(static_cast<std::size_t>(p.labels.count), -1);
  std::vector<int> where(p.sizes.size(), 0);  // bit i: input i has it
  for (std::size_t i = 0; i < 2; ++i)
    for (std::size_t a = 0; a < p.labels.in[i].size(); ++a) {
      const auto label = static_cast<std::size_t>(p.labels.in[i][a]);
      if ((where[label] >> i & 1) != 0) return "a label twice in a term";
      where[label] |= 1 << i;
      if (p.sizes[label] >= 0 && p.sizes[label] != call.in[i].dims[a]) return "a repeated axis";
      p.sizes[label] = call.in[i].dims[a];
    }
  for (int label = 0; label < p.labels.count; ++label) {
    const bool put_out = label < static_cast<int>(p.labels.out.size());
    const int in = where[static_cast<std::size_t>(label)];
    if (!put_out && in != 3) return "a sum over an axis of one input";
    (in == 3 ? (put_out ? p.batch : p.inner) : in == 1 ? p.rows : p.columns).push_back(label);
  }
  if (p.inner.empty()) return "no sum";
  if (element_count(call.out[0].dims) == 0 || element_count(call.in[0].dims) == 0) return "no elements";
  return {};
}

std::string why_not(const OpCall& call) {
  Product p;
  return make_product(call, p);
}

// Labels of three groups, one after the other.
std::vector<int> joined(const std::vector<int>& a, const std::vector<int>& b, const std::vector<int>& c) {
  std::vector<int> all = a;
  all.insert(all.end(), b.begin(), b.end());
  all.insert(all.end(), c.begin(), c.end());
  return all;
}

Dims strides_of(const std::vector<int>& order, const Dims& sizes) {  // by label, row-major in this order
  Dims strides(sizes.size(), 0);
  std::int64_t step = 1;
  for (std::size_t i = order.size(); i-- > 0;) {
    strides[static_cast<std::size_t>(order[i])] = step;
    step *= sizes[static_cast<std::size_t>(order[i])];
  }
  return strides;
}

// From one order of the same labels to another; the data itself when that is no change.
const float* rearranged(const OpCall& call, const float* x, const std::vector<int>& from,
                        const std::vector<int>& to, const Dims& sizes, float* room) {
  if (from == to) return x;
  StridedCopy copy;
  const Dims in = strides_of(from, sizes), out = strides_of(to, sizes);
  for (const int label : to) {
    const auto at = static_cast<std::size_t>(label);
    copy.dims.push_back(sizes[at]);
    copy.in_strides.push_back(in[at]);
    copy.out_strides.push_back(out[at]);
  }
  strided_copy(copy, sizeof(float), x, room, *call.pool);
  return room;
}

std::int64_t product_of_labels(const std::vector<int>& labels, const Dims& sizes) {
  std::int64_t all = 1;
  for (const int label : labels) all *= sizes[static_cast<std::size_t>(label)];
  return all;
}

void run(const OpCall& call) {
  Product p;
  make_product(call, p);
  const std::int64_t batch = product_of_labels(p.batch, p.sizes), m = product_of_labels(p.rows, p.sizes),
                     n = product_of_labels(p.columns, p.sizes), k = product_of_labels(p.inner, p.sizes);
  const std::vector<int> a_order = joined(p.batch, p.rows, p.inner),
                         b_order = joined(p.batch, p.inner, p.columns),
                         y_order = joined(p.batch, p.rows, p.columns);
  const auto round_up = [](std::int64_t v) { return (v + 15) / 16 * 16; };
  const std::int64_t packed = round_up(packed_b_floats(k, n)), a_floats = round_up(batch * m * k),
                     b_floats = round_up(batch * k * n), y_floats = round_up(batch * m * n);
  float* room = call.scratch->take<float>(packed + a_floats + b_floats + y_floats);
  const float* a = rearranged(call, call.in[0].as<float>(), p.labels.in[0], a_order, p.sizes, room + packed);
  const float* b =
      rearranged(call, call.in[1].as<float>(), p.labels.in[1], b_order, p.sizes, room + packed + a_floats);
  const bool direct = y_order == p.labels.out;
  float* y = direct ? call.out[0].mut<float>() : room + packed + a_floats + b_floats;
  for (std::int64_t i = 0; i < batch; ++i) {
    pack_b(b + i * k * n, n, 1, k, n, room);
    GemmTask task;
    task.a = a + i * m * k;
    task.lda = k;
    task.b = room;
    task.c = y + i * m * n;
    task.ldc = n;
    task.m = m;
    task.k = k;
    task.n = n;
    gemm_f32(*call.pool, task);
  }
  if (!direct) rearranged(call, y, y_order, p.labels.out, p.sizes, call.out[0].mut<float>());
}

}  // namespace

Kernel einsum_product_kernel() {
  return {"", "Einsum", Backend::kCpu, "Einsum/cpu:product", why_not, nullptr, run};
}

}  // namespace pare
