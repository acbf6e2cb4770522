// Frequencies of rotary embeddings, and their tables.
#include <algorithm>
#include <cmath>

#include "engine/base/error.h"
#include "graphsurgeon/families/builder.h"

namespace pare {
namespace {

constexpr double kPi = 3.14159265358979323846;

// The longest wavelengths are stretched by `factor`, the shortest stay, those between are mixed.
float llama3_frequency(float frequency, const RopeConfig& rope, double original) {
  const double length = 2 * kPi / frequency, low = original / rope.low_frequency,
               high = original / rope.high_frequency;
  if (length < high) return frequency;
  const auto stretched = static_cast<float>(frequency / rope.factor);
  if (length > low) return stretched;
  const double mix = (original / length - rope.low_frequency) / (rope.high_frequency - rope.low_frequency);
  return static_cast<float>((1 - mix) * stretched + mix * frequency);
}

// Peng et al., YaRN (arXiv 2309.00071), section 3.2: the ramp between pairs that turn often and seldom.
float yarn_frequency(float frequency, double i, double dim, const RopeConfig& rope, double original) {
  const auto pair_of = [&](double turns) {
    return dim * std::log(original / (turns * 2 * kPi)) / (2 * std::log(rope.theta));
  };
  const double low = std::max(std::floor(pair_of(rope.beta_fast)), 0.0);
  double high = std::min(std::ceil(pair_of(rope.beta_slow)), dim - 1);
  if (low == high) high += 0.001;
  const double ramp = std::clamp((i - low) / (high - low), 0.0, 1.0);
  return static_cast<float>(frequency / rope.factor * ramp + frequency * (1 - ramp));
}

}  // namespace

RopeTables make_rope_tables(const RopeConfig& rope, std::int64_t head_size, std::int64_t context,
                            std::int64_t positions) {
  const auto dim = static_cast<std::int64_t>(static_cast<double>(head_size) * rope.partial);
  const std::int64_t pairs = dim / 2;
  if (pairs < 1 || dim % 2 != 0)
    fail(ErrorCode::kBadFile, "{} places of a head of {} cannot turn in pairs", dim, head_size);
  const double original = static_cast<double>(rope.original_context > 0 ? rope.original_context : context);
  double factor = rope.factor, attention = rope.attention_factor;
  std::vector<double> by_pair(static_cast<std::size_t>(pairs), 1.0);
  if (rope.type == "factors") {
    by_pair = rope.short_factor;
    if (static_cast<std::int64_t>(by_pair.size()) != pairs)
      fail(ErrorCode::kBadFile, "there are {} factors of frequencies for {} pairs", by_pair.size(), pairs);
  }
  if (rope.type == "longrope") {
    // The long factors hold for texts longer than the original context: builder.cpp asks for both tables.
    by_pair = static_cast<double>(positions) > original ? rope.long_factor : rope.short_factor;
    if (static_cast<std::int64_t>(by_pair.size()) != pairs)
      fail(ErrorCode::kBadFile, "longrope has {} factors for {} pairs", by_pair.size(), pairs);
    factor = static_cast<double>(context) / original;
    if (attention == 0) attention = factor <= 1 ? 1 : std::sqrt(1 + std::log(factor) / std::log(original));
  }
  if (rope.type == "yarn" && attention == 0) attention = factor <= 1 ? 1 : 0.1 * std::log(factor) + 1;
  if (attention == 0) attention = 1;

  std::vector<float> frequencies;
  for (std::int64_t i = 0; i < pairs; ++i) {
    const auto exponent = static_cast<float>(2 * i) / static_cast<float>(dim);
    const auto power = static_cast<float>(std::pow(rope.theta, static_cast<double>(exponent)));
    float f = 1.0F / (static_cast<float>(by_pair[static_cast<std::size_t>(i)]) * power);
    if (rope.type == "linear") f = static_cast<float>(f / factor);
    if (rope.type == "llama3") f = llama3_frequency(f, rope, original);
    if (rope.type == "yarn")
      f = yarn_frequency(f, static_cast<double>(i), static_cast<double>(dim), rope, original);
    frequencies.push_back(f);
  }
  RopeTables tables{Tensor::allocate(DType::kF32, {positions, pairs}),
                    Tensor::allocate(DType::kF32, {positions, pairs})};
  auto *cosines = tables.cosines.mut<float>(), *sines = tables.sines.mut<float>();
  for (std::int64_t p = 0; p < positions; ++p)
    for (std::int64_t i = 0; i < pairs; ++i) {
      const double angle =
          static_cast<float>(p) * frequencies[static_cast<std::size_t>(i)];  // a float product
      cosines[p * pairs + i] = static_cast<float>(std::cos(angle)) * static_cast<float>(attention);
      sines[p * pairs + i] = static_cast<float>(std::sin(angle)) * static_cast<float>(attention);
    }
  return tables;
}

}  // namespace pare
