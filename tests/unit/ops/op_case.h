// Runs every kernel of an operator on one case: output shapes by the shape rule, guard bytes around outputs,
// one and three threads, every instruction class, and over its own input where the kernel says it may. The
// last kernel that takes the case is the reference.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/isa.h"
#include "engine/ir/schema.h"
#include "engine/numeric/convert.h"
#include "engine/ops/registry.h"

namespace pare::testing {

struct OpCase {
  std::string op;
  std::vector<Tensor> in = {};  // empty: left out
  Attributes attrs = {};
  int outputs = 1;
  // |kernel - reference| <= relative * |reference| + absolute, per element; 0, 0: the same bits but for the
  // payload of NaN.
  double relative = 0, absolute = 0;
  bool constants = false;  // inputs 1, 2, ... are known when the kernel is chosen
  std::string domain = {};
};

inline std::string text(const OpCase& c) {
  std::string s = c.domain + c.op + "(";
  for (const Tensor& t : c.in) s += t.empty() ? "absent " : name(t.dtype()) + to_string(t.dims()) + " ";
  return s + ")";
}

// float32 in [low, high), deterministic.
inline Tensor floats(Dims dims, std::uint32_t seed = 1, float low = -1, float high = 1) {
  Tensor t = Tensor::allocate(DType::kF32, std::move(dims));
  std::uint32_t state = seed * 2654435761u + 12345u;
  for (std::int64_t i = 0; i < t.size(); ++i) {
    state = state * 1664525u + 1013904223u;
    t.mut<float>()[i] = low + (high - low) * static_cast<float>(state >> 8) * 0x1p-24f;
  }
  return t;
}

inline Tensor to_type(const Tensor& t, DType type) {
  Tensor out = Tensor::allocate(type, t.dims());
  convert(t.view(), {type, t.dims(), out.mut<std::byte>()});
  return out;
}

// 1, 2, 3, ...
inline Tensor counting(DType type, Dims dims, int first = 1) {
  Tensor t = Tensor::allocate(DType::kF32, std::move(dims));
  for (std::int64_t i = 0; i < t.size(); ++i)
    t.mut<float>()[i] = static_cast<float>(first) + static_cast<float>(i);
  return to_type(t, type);
}

inline Tensor ints(std::vector<std::int64_t> v) { return Tensor::ints(v); }
inline Tensor of(Dims dims, const std::vector<float>& v) {
  return Tensor::from<float>(DType::kF32, std::move(dims), v);
}

struct OpRun {
  std::string declined;  // why_not's answer; the rest is empty then
  std::vector<Tensor> out;
};

constexpr std::size_t kGuardBytes = 256;

// Outputs between guard bytes; those with open sizes when the kernel asks for them.
class GuardedOutputs final : public OutputAllocator {
 public:
  explicit GuardedOutputs(const std::vector<OutputType>& types) : memory_(types.size()) {
    for (std::size_t i = 0; i < types.size(); ++i) {
      views_.push_back({types[i].dtype, types[i].dims, nullptr});
      if (!types[i].open()) allocate(static_cast<int>(i), types[i].dims);
    }
  }
  void* allocate(int i, const Dims& dims) override {
    const auto at = static_cast<std::size_t>(i);
    TensorView& view = views_[at];
    view.dims = dims;
    if (view.dtype == DType::kString) {
      strings_.push_back(Tensor::allocate(DType::kString, dims));
      return view.data = strings_.back().mut<std::string>();
    }
    const auto bytes = static_cast<std::size_t>(byte_count(view.dtype, dims));
    memory_[at].assign(bytes + 2 * kGuardBytes, std::byte{0xA5});
    return view.data = memory_[at].data() + kGuardBytes;
  }
  const std::vector<TensorView>& views() const { return views_; }
  bool intact() const {
    for (const auto& block : memory_)
      for (std::size_t k = 0; !block.empty() && k < kGuardBytes; ++k)
        if (block[k] != std::byte{0xA5} || block[block.size() - 1 - k] != std::byte{0xA5}) return false;
    return true;
  }

 private:
  std::vector<TensorView> views_;
  std::vector<std::vector<std::byte>> memory_;
  std::vector<Tensor> strings_;
};

// over: the input whose memory output 0 takes; -1: memory of its own.
inline OpRun run_case(const Kernel& kernel, const OpCase& c, int threads, int over = -1) {
  Graph graph;
  Node node;
  node.domain = c.domain;
  node.op = c.op;
  node.attrs = c.attrs;
  std::vector<TensorView> in, early;
  std::vector<Tensor> copies;  // kernels get copies, so that none can change the case
  for (const Tensor& t : c.in) {
    copies.push_back(t.empty() ? Tensor() : t.clone());
    in.push_back(t.empty() ? TensorView{} : copies.back().view());
    early.push_back(in.back());
    if (!c.constants || early.size() == 1) early.back().data = nullptr;
    node.in.push_back(t.empty() ? ValueId::kNone : static_cast<ValueId>(node.in.size()));
  }
  for (int i = 0; i < c.outputs; ++i) node.out.push_back(static_cast<ValueId>(1000 + i));
  for (std::size_t i = 0; i < node.in.size(); ++i) {
    Value value;
    value.name = "x";
    graph.add_value(value);
  }
  bool read = false;
  const std::vector<OutputType> types = infer_node(graph, node, in, &read);
  GuardedOutputs outputs(types);
  std::vector<TensorView> out = outputs.views(), promised = out;
  for (TensorView& view : promised) view.data = nullptr;
  if (over >= 0) out[0].data = in[static_cast<std::size_t>(over)].data;
  ThreadPool pool(threads);
  Scratch scratch;
  OpCall call;
  call.node = &node;
  call.pool = &pool;
  call.scratch = &scratch;
  call.in = early;
  call.out = promised;
  call.allocator = &outputs;
  OpRun result;
  if (call.has_open_sizes() && !kernel.allocates) {
    result.declined = "decides no sizes";
    return result;
  }
  result.declined = kernel.why_not(call);
  if (!result.declined.empty()) return result;
  std::shared_ptr<const void> prepared;
  if (kernel.prepare != nullptr) prepared = kernel.prepare(call);
  call.prepared = prepared.get();
  call.in = in;
  call.out = out;
  kernel.run(call);
  EXPECT_TRUE(outputs.intact()) << kernel.name << " wrote outside of its output: " << text(c);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const TensorView& made = outputs.views()[i];
    const void* data = out[i].data != nullptr ? out[i].data : made.data;
    result.out.push_back(Tensor::share(made.dtype, made.dims, data, nullptr).clone());
  }
  return result;
}

inline double element(const Tensor& t, std::int64_t i) {
  double value = 0;
  float small = 0;
  switch (t.dtype()) {
    case DType::kF64:
      return t.as<double>()[i];
    case DType::kF16:
    case DType::kBF16:
      decode(t.dtype(), t.as<std::uint16_t>() + i, &small, 1);
      return static_cast<double>(small);
    case DType::kF32:
      return static_cast<double>(t.as<float>()[i]);
    default:
      Tensor wide = Tensor::allocate(DType::kF64, t.dims());
      convert(t.view(), {DType::kF64, t.dims(), wide.mut<double>()});
      value = wide.as<double>()[i];
      return value;
  }
}

inline void expect_close(const Tensor& got, const Tensor& want, double relative, double absolute,
                         const std::string& where) {
  ASSERT_EQ(got.dtype(), want.dtype()) << where;
  ASSERT_EQ(got.dims(), want.dims()) << where;
  if (!is_float(got.dtype())) {
    EXPECT_TRUE(equal_bytes(got, want)) << where;
    return;
  }
  for (std::int64_t i = 0; i < got.size(); ++i) {
    const double a = element(got, i), b = element(want, i);
    if (std::isnan(a) && std::isnan(b)) continue;
    if (a == b && std::signbit(a) == std::signbit(b)) continue;
    if (std::fabs(a - b) <= relative * std::fabs(b) + absolute) continue;
    FAIL() << where << ": element " << i << " is " << a << ", reference " << b;
  }
}

// Every kernel against the reference; returns the reference's outputs.
inline std::vector<Tensor> check_case(const OpCase& c) {
  const auto kernels = cpu_registry().candidates(c.domain, c.op, Backend::kCpu);
  std::vector<const Kernel*> takers;
  for (const Kernel* kernel : kernels)
    if (run_case(*kernel, c, 1).declined.empty()) takers.push_back(kernel);
  if (takers.empty()) {
    ADD_FAILURE() << "no kernel takes " << text(c);
    return {};
  }
  const std::vector<Tensor> want = run_case(*takers.back(), c, 1).out;
  for (const Kernel* kernel : takers) {
    for (int level = 0; level <= static_cast<int>(std::min(best_isa(), Isa::kAvx512)); ++level) {
      set_isa(static_cast<Isa>(level));
      const std::string where = std::string(kernel->name) + " " + name(isa()) + " " + text(c);
      const OpRun run = run_case(*kernel, c, 1);
      if (!run.declined.empty()) continue;  // without the instructions that it needs
      const std::vector<Tensor>&one = run.out, three = run_case(*kernel, c, 3).out;
      for (std::size_t i = 0; i < want.size(); ++i) {
        expect_close(one[i], want[i], c.relative, c.absolute, where);
        EXPECT_TRUE(equal_bytes(one[i], three[i])) << where << " depends on threads";
      }
      for (std::size_t k = 0; k < c.in.size(); ++k) {
        if ((kernel->in_place >> k & 1) == 0 || c.in[k].empty() || c.in[k].bytes() != want[0].bytes())
          continue;
        const OpRun over = run_case(*kernel, c, 3, static_cast<int>(k));
        EXPECT_TRUE(equal_bytes(over.out[0], one[0])) << where << " differs in place of input " << k;
      }
    }
    set_isa(best_isa());
  }
  return want;
}

inline void check_values(const OpCase& c, const std::vector<Tensor>& golden) {
  const std::vector<Tensor> got = check_case(c);
  ASSERT_EQ(got.size(), golden.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    expect_close(got[i], golden[i], c.relative, c.absolute, "golden value of " + text(c));
}

}  // namespace pare::testing
