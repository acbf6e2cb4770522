#include "engine/ops/elementwise/random.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>
#include <vector>

#include "engine/base/error.h"
#include "engine/numeric/convert.h"
#include "engine/ops/add_kernel.h"
#include "engine/ops/support.h"

namespace pare {
namespace {

std::uint64_t mixed(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

std::uint64_t key_of(const OpCall& call) {
  constexpr std::uint64_t kStep = 0x9E3779B97F4A7C15ULL;
  const Attributes& attrs = call.node->attrs;
  const auto seed = attrs.find("seed");
  if (seed != attrs.end()) {
    if (const float* value = std::get_if<float>(&seed->second))
      return mixed(std::bit_cast<std::uint32_t>(*value) + kStep);
    return mixed(static_cast<std::uint64_t>(call.node->attr("seed", std::int64_t{0})) + kStep);
  }
  std::uint64_t key = mixed(call.seed + kStep);
  if (call.node->name.empty()) key = mixed(key ^ static_cast<std::uint64_t>(call.node->out[0]));
  for (const char c : call.node->name) key = mixed(key ^ static_cast<unsigned char>(c)) + kStep;
  return key;
}

// Writes count numbers f(i), made in double, into a tensor of any number type.
template <typename F>
void fill(const TensorView& out, const F& f) {
  Tensor wide = Tensor::allocate(DType::kF64, out.dims);
  double* const to = wide.mut<double>();
  for (std::int64_t i = 0; i < out.size(); ++i) to[i] = f(i);
  convert(wide.view(), out);
}

Tensor as_double(const TensorView& view) {
  Tensor wide = Tensor::allocate(DType::kF64, view.dims);
  convert(view, {DType::kF64, view.dims, wide.mut<double>()});
  return wide;
}

bool is_number(DType type) { return type != DType::kString && type != DType::kUndefined; }

std::string number_reason(const OpCall& call) {
  if (!call.in.empty() && !is_number(call.in[0].dtype)) return "input 0 is no number";
  return is_number(call.out[0].dtype) ? "" : "the output is no number";
}

std::string like_reason(const OpCall& call) {
  return is_number(call.out[0].dtype) ? "" : "the output is no number";
}

void run_uniform(const OpCall& call) {
  const std::uint64_t key = key_of(call);
  const double low = static_cast<double>(call.node->attr("low", 0.0F));
  const double high = static_cast<double>(call.node->attr("high", 1.0F));
  fill(call.out[0],
       [&](std::int64_t i) { return low + (high - low) * uniform_draw(key, static_cast<std::uint64_t>(i)); });
}

void run_normal(const OpCall& call) {
  const std::uint64_t key = key_of(call);
  const double mean = static_cast<double>(call.node->attr("mean", 0.0F));
  const double scale = static_cast<double>(call.node->attr("scale", 1.0F));
  fill(call.out[0],
       [&](std::int64_t i) { return mean + scale * normal_draw(key, static_cast<std::uint64_t>(i)); });
}

void run_bernoulli(const OpCall& call) {
  const std::uint64_t key = key_of(call);
  const Tensor p = as_double(call.in[0]);
  fill(call.out[0], [&](std::int64_t i) {
    return uniform_draw(key, static_cast<std::uint64_t>(i)) < p.as<double>()[i] ? 1.0 : 0.0;
  });
}

void run_multinomial(const OpCall& call) {
  const std::uint64_t key = key_of(call);
  const Tensor scores = as_double(call.in[0]);
  const std::int64_t classes = call.in[0].dims[1], samples = call.out[0].dims[1];
  if (classes == 0 && call.out[0].size() > 0) fail(ErrorCode::kBadFile, "Multinomial over no classes");
  std::vector<double> sums(static_cast<std::size_t>(classes));
  std::int64_t row = -1;
  fill(call.out[0], [&](std::int64_t i) {
    if (i / samples != row) {
      row = i / samples;
      const double* const score = scores.as<double>() + row * classes;
      const double most = *std::max_element(score, score + classes);
      double sum = 0;
      for (std::int64_t c = 0; c < classes; ++c)
        sums[static_cast<std::size_t>(c)] = sum += std::exp(score[c] - most);
    }
    const double draw = uniform_draw(key, static_cast<std::uint64_t>(i)) * sums.back();
    const auto found = std::upper_bound(sums.begin(), sums.end(), draw);
    return static_cast<double>(std::min<std::int64_t>(found - sums.begin(), classes - 1));
  });
}

std::string dropout_reason(const OpCall& call) {
  return type_reason(call, 0, {DType::kF32, DType::kF16, DType::kBF16, DType::kF64});
}

void run_dropout(const OpCall& call) {
  const bool training = call.has(2) && *call.in[2].as<std::uint8_t>() != 0;
  double ratio = 0.5;
  if (call.has(1)) ratio = *as_double(call.in[1]).as<double>();
  if (!training) ratio = 0;
  if (!(ratio >= 0 && ratio < 1)) fail(ErrorCode::kBadFile, "Dropout with ratio {}", ratio);
  const std::uint64_t key = key_of(call);
  const auto kept = [&](std::int64_t i) { return uniform_draw(key, static_cast<std::uint64_t>(i)) >= ratio; };
  const Tensor x = as_double(call.in[0]);
  fill(call.out[0], [&](std::int64_t i) { return kept(i) ? x.as<double>()[i] / (1 - ratio) : 0.0; });
  if (call.out.size() > 1 && call.out[1].present())
    for (std::int64_t i = 0; i < x.size(); ++i)
      call.out[1].mut<std::uint8_t>()[i] = static_cast<std::uint8_t>(kept(i) ? 1 : 0);
}

}  // namespace

double uniform_draw(std::uint64_t key, std::uint64_t index) {
  return static_cast<double>(mixed(key + (index + 1) * 0x9E3779B97F4A7C15ULL) >> 11) * 0x1p-53;
}

double normal_draw(std::uint64_t key, std::uint64_t index) {
  const double radius = 1 - uniform_draw(key, 2 * index);  // in (0, 1]: the logarithm is finite
  const double angle = uniform_draw(key, 2 * index + 1);
  return std::sqrt(-2 * std::log(radius)) * std::cos(2 * std::numbers::pi * angle);
}

void add_random_references(Registry& registry) {
  add_kernel(registry, "RandomUniform", "reference", like_reason, run_uniform);
  add_kernel(registry, "RandomUniformLike", "reference", like_reason, run_uniform);
  add_kernel(registry, "RandomNormal", "reference", like_reason, run_normal);
  add_kernel(registry, "RandomNormalLike", "reference", like_reason, run_normal);
  add_kernel(registry, "Bernoulli", "reference", number_reason, run_bernoulli);
  add_kernel(registry, "Multinomial", "reference", number_reason, run_multinomial);
  add_kernel(registry, "Dropout", "training", dropout_reason, run_dropout);
}

}  // namespace pare
