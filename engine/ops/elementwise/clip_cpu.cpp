#include <algorithm>
#include <limits>

#include "engine/ops/elementwise/clip.h"
#include "engine/ops/registry.h"
#include "engine/ops/support.h"

namespace pare {
namespace {

std::string vector_why_not(const OpCall& call) {
  return type_reason(call, 0, {DType::kF32, DType::kF16, DType::kBF16});
}

void run_vector(const OpCall& call) {
  const TensorView &x = call.in[0], &y = call.out[0];
  float room = 0;
  const float infinity = std::numeric_limits<float>::infinity();
  const float lo = call.has(1) ? *read_floats(call.in[1], 0, 1, &room) : -infinity;
  const float hi = call.has(2) ? *read_floats(call.in[2], 0, 1, &room) : infinity;
  const auto row = PARE_SIMD_PICK(clip_f32);
  call.pool->parallel_for(x.size(), kElementGrain, [&](std::int64_t begin, std::int64_t end) {
    if (x.dtype == DType::kF32)
      return row(x.as<float>() + begin, lo, hi, y.mut<float>() + begin, end - begin);
    float in[kFloatChunk], out[kFloatChunk];
    for (std::int64_t at = begin; at < end; at += kFloatChunk) {
      const std::int64_t n = std::min(kFloatChunk, end - at);
      row(read_floats(x, at, n, in), lo, hi, out, n);
      write_floats(y, at, n, out);
    }
  });
}

std::string why_not(const OpCall& call) {
  if (is_small_float(call.in[0].dtype) || with_native_type(call.in[0].dtype, [](auto) {})) return {};
  return std::string("input 0 is ") + name(call.in[0].dtype) + ", needs a number";
}

template <typename T>
void clip(const T* x, const T* lo, const T* hi, T* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    T value = x[i];
    if (lo != nullptr && value < *lo) value = *lo;
    if (hi != nullptr && value > *hi) value = *hi;
    y[i] = value;
  }
}

void run(const OpCall& call) {
  const TensorView &x = call.in[0], &y = call.out[0];
  if (with_native_type(x.dtype, [&](auto zero) {
        using T = decltype(zero);
        clip(x.as<T>(), call.has(1) ? call.in[1].as<T>() : nullptr,
             call.has(2) ? call.in[2].as<T>() : nullptr, y.mut<T>(), x.size());
      }))
    return;
  std::vector<float> rooms[3], out(static_cast<std::size_t>(x.size()));
  clip(all_floats(x, rooms[0]), call.has(1) ? all_floats(call.in[1], rooms[1]) : nullptr,
       call.has(2) ? all_floats(call.in[2], rooms[2]) : nullptr, out.data(), x.size());
  write_floats(y, 0, x.size(), out.data());
}

}  // namespace

void add_clip_kernels(Registry& registry) {
  Kernel kernel;
  kernel.op = "Clip";
  kernel.in_place = 1;
  kernel.name = kernel_name("Clip", "vector");
  kernel.why_not = vector_why_not;
  kernel.run = run_vector;
  registry.add(kernel);
  kernel.name = kernel_name("Clip", "reference");
  kernel.why_not = why_not;
  kernel.run = run;
  registry.add(kernel);
}

}  // namespace pare
