// Operators that draw at random: RandomNormal, RandomUniform, their Like forms, Bernoulli, Multinomial, and
// Dropout in training.
//
// Draw i of a node is a function of (key, i) alone, so results depend on neither threads nor processors. The
// key is the node's attribute `seed`; without one, the session's seed and the node's name (the output's id
// when it has none). Every run of a node draws the same numbers again. Draws belong to places of the tensor:
// another batch gives other draws.
//
//   RandomUniform  low + (high - low) * u, u in [0, 1) with 53 bits
//   RandomNormal   mean + scale * n, n by Box and Muller from two draws
//   Bernoulli      1 where u < p; p NaN gives 0
//   Multinomial    classes by unnormalized log-probabilities, one row a sample; -inf is never drawn
//   Dropout        x / (1 - ratio) where u >= ratio, else 0; mask tells which. ratio in [0, 1)
//
// Source: ONNX RandomNormal-22, Bernoulli-22, Multinomial-22, Dropout-22; the mixing function is SplitMix64
// (Steele, Lea, Flood 2014).
#pragma once

#include <cstdint>

namespace pare {

// In [0, 1), 53 bits.
double uniform_draw(std::uint64_t key, std::uint64_t index);
double normal_draw(std::uint64_t key, std::uint64_t index);  // mean 0, variance 1

class Registry;
void add_random_references(Registry& registry);

}  // namespace pare
