// Runs one kernel on tensors, with guard floats around its output.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/isa.h"
#include "engine/ops/registry.h"

namespace pare::testing {

// Deterministic values in [-1, 1), of full precision.
inline Tensor random_floats(Dims dims, std::uint32_t seed) {
  Tensor t = Tensor::allocate(DType::kF32, std::move(dims));
  std::uint32_t state = seed * 2654435761u + 12345u;
  for (std::int64_t i = 0; i < t.size(); ++i) {
    state = state * 1664525u + 1013904223u;
    t.mut<float>()[i] = static_cast<float>(static_cast<std::int32_t>(state)) * 0x1p-31f;
  }
  return t;
}

inline const Kernel& kernel_named(std::string_view name) {
  for (const Kernel& kernel : cpu_registry().kernels())
    if (kernel.name == name) return kernel;
  throw std::runtime_error(std::string("no such kernel: ") + std::string(name));
}

struct Argument {
  Tensor tensor;  // empty: left out
  bool constant = false;
};

// "" and the output, or why the kernel declines.
inline std::string run_kernel(const Kernel& kernel, const Node& node, const std::vector<Argument>& arguments,
                              const Dims& out_dims, ThreadPool& pool, std::vector<float>& out) {
  constexpr std::int64_t kGuard = 64;
  constexpr float kMark = -12345.678f;
  std::vector<TensorView> in, known;
  for (const Argument& a : arguments) {
    in.push_back(a.tensor.empty() ? TensorView{} : a.tensor.view());
    known.push_back(in.back());
    if (!a.constant) known.back().data = nullptr;
  }
  const std::int64_t count = element_count(out_dims);
  std::vector<float> memory(static_cast<std::size_t>(count + 2 * kGuard), kMark);
  std::vector<TensorView> result = {{DType::kF32, out_dims, nullptr}};
  Scratch scratch;
  OpCall call;
  call.node = &node;
  call.in = known;
  call.out = result;
  call.pool = &pool;
  call.scratch = &scratch;
  if (std::string why = kernel.why_not(call); !why.empty()) return why;
  std::shared_ptr<const void> prepared;
  if (kernel.prepare != nullptr) prepared = kernel.prepare(call);
  result[0].data = memory.data() + kGuard;
  call.in = in;
  call.prepared = prepared.get();
  kernel.run(call);
  for (std::int64_t i = 0; i < kGuard; ++i) {
    EXPECT_EQ(memory[static_cast<std::size_t>(i)], kMark) << kernel.name << " wrote before its output";
    EXPECT_EQ(memory[static_cast<std::size_t>(kGuard + count + i)], kMark)
        << kernel.name << " wrote behind its output";
  }
  out.assign(memory.begin() + kGuard, memory.end() - kGuard);
  return "";
}

inline std::vector<Isa> isa_classes() {
  std::vector<Isa> classes;
  for (const Isa c : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512})
    if (c <= best_isa()) classes.push_back(c);
  return classes;
}

// Sets a class for a scope.
class WithIsa {
 public:
  explicit WithIsa(Isa wanted) : before_(isa()) { set_isa(wanted); }
  ~WithIsa() { set_isa(before_); }
  WithIsa(const WithIsa&) = delete;
  WithIsa& operator=(const WithIsa&) = delete;

 private:
  Isa before_;
};

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

}  // namespace pare::testing
