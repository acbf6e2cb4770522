// Calls of integer kernels from tables: random codes, parameters, outputs with guard bytes around them.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "engine/base/isa.h"
#include "engine/ops/integer/qlinear.h"
#include "engine/ops/registry.h"

namespace pare::test {

// The classes this processor has; restores the best one at the end.
class EachIsa {
 public:
  ~EachIsa() { set_isa(best_isa()); }
  template <typename Body>
  void operator()(Body&& body) {
    for (int i = 0; i <= static_cast<int>(best_isa()); ++i) {
      set_isa(static_cast<Isa>(i));
      SCOPED_TRACE(name(isa()));
      body();
    }
  }
};

// Codes of every value, the extremes more often than chance would have them.
inline Tensor random_codes(DType type, Dims dims, std::mt19937& rng) {
  Tensor t = Tensor::allocate(type, std::move(dims));
  auto* p = t.mut<std::uint8_t>();
  for (std::int64_t i = 0; i < t.size(); ++i) {
    const unsigned draw = rng();
    const std::uint8_t extremes[] = {0x80, 0x7F, 0x00, 0xFF};
    p[i] = (draw & 7u) == 0 ? extremes[draw >> 3 & 3u] : static_cast<std::uint8_t>(draw >> 8);
  }
  return t;
}

inline Tensor random_floats(Dims dims, float low, float high, std::mt19937& rng) {
  Tensor t = Tensor::allocate(DType::kF32, std::move(dims));
  std::uniform_real_distribution<float> draw(low, high);
  for (std::int64_t i = 0; i < t.size(); ++i) t.mut<float>()[i] = draw(rng);
  return t;
}

inline Tensor code_tensor(DType type, std::int32_t value) {
  const auto byte = static_cast<std::uint8_t>(value);
  return Tensor::copy_of(type, {}, &byte, 1);
}

// One call: inputs by slot (empty: left out), which of them are constants, and the output's type.
struct Call {
  Node node;
  std::vector<Tensor> in;
  std::vector<bool> constant;
  DType out_type = DType::kF32;
  Dims out_dims;

  // Runs the kernel on one thread or three; the bytes of its output. Checks that nothing around it was
  // written.
  std::vector<std::uint8_t> run(const Kernel& kernel, int threads = 3) const {
    constexpr std::size_t kGuard = 256;
    const auto bytes = static_cast<std::size_t>(byte_count(out_type, out_dims));
    std::vector<std::uint8_t> memory(bytes + 2 * kGuard, 0xA5);
    const TensorView out{out_type, out_dims, memory.data() + kGuard};
    static ThreadPool one(1), three(3);  // starting threads would take longer than most calls
    ThreadPool& pool = threads == 1 ? one : three;
    Scratch scratch;
    OpCall call;
    call.node = &node;
    call.pool = &pool;
    call.scratch = &scratch;
    std::vector<TensorView> early = views(false), late = views(true);
    call.in = early;
    const TensorView promised{out_type, out_dims, nullptr};
    call.out = {&promised, 1};
    const std::string why = kernel.why_not(call);
    EXPECT_EQ(why, "");
    if (!why.empty()) return {};
    std::shared_ptr<const void> prepared;
    if (kernel.prepare != nullptr) prepared = kernel.prepare(call);
    call.in = late;
    call.out = {&out, 1};
    call.prepared = prepared.get();
    kernel.run(call);
    for (std::size_t i = 0; i < kGuard; ++i)
      if (memory[i] != 0xA5 || memory[memory.size() - 1 - i] != 0xA5) {
        ADD_FAILURE() << "wrote outside of its output";
        break;
      }
    return {memory.begin() + kGuard, memory.end() - kGuard};
  }

  std::string why_not(const Kernel& kernel) const {
    OpCall call;
    call.node = &node;
    std::vector<TensorView> early = views(false);
    call.in = early;
    const TensorView promised{out_type, out_dims, nullptr};
    call.out = {&promised, 1};
    return kernel.why_not(call);
  }

 private:
  std::vector<TensorView> views(bool all) const {
    std::vector<TensorView> v;
    for (std::size_t i = 0; i < in.size(); ++i) {
      v.push_back(in[i].empty() ? TensorView{} : in[i].view());
      if (!all && !(i < constant.size() && constant[i])) v.back().data = nullptr;
    }
    return v;
  }
};

}  // namespace pare::test
