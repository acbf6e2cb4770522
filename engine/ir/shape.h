// Shapes as a graph knows them before it runs: sizes may be numbers, names or unknown.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/tensor.h"

namespace pare {

// One size. A symbol ("batch") stands for the same unknown number wherever it appears in one graph.
struct Dim {
  std::int64_t value = -1;  // -1: not known
  std::string symbol;       // "" when known or anonymous

  static Dim of(std::int64_t v) { return {v, {}}; }
  static Dim named(std::string s) { return {-1, std::move(s)}; }
  bool known() const { return value >= 0; }
  // Certainly the same number: both known and equal, or the same symbol.
  bool same(const Dim& other) const {
    return known() ? value == other.value : !symbol.empty() && symbol == other.symbol;
  }
};

struct Shape {
  bool ranked = false;  // false: nothing is known, dims is empty
  std::vector<Dim> dims;

  Shape() = default;
  explicit Shape(std::vector<Dim> d) : ranked(true), dims(std::move(d)) {}
  explicit Shape(const Dims& sizes);

  int rank() const { return ranked ? static_cast<int>(dims.size()) : -1; }
  bool concrete() const;           // ranked and every size known
  Dims sizes() const;              // only when concrete()
  bool fits(const Dims& d) const;  // could these sizes be it? (rank equal, known sizes equal)
};

std::string to_string(const Dim& dim);      // "64", "batch", "?"
std::string to_string(const Shape& shape);  // "[batch,3,224,224]", "[...]" when unranked

}  // namespace pare
