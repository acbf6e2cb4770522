#include "engine/ir/shape.h"

#include "engine/base/error.h"

namespace pare {

Shape::Shape(const Dims& sizes) : ranked(true) {
  dims.reserve(sizes.size());
  for (const std::int64_t size : sizes) dims.push_back(Dim::of(size));
}

bool Shape::concrete() const {
  if (!ranked) return false;
  for (const Dim& dim : dims)
    if (!dim.known()) return false;
  return true;
}

Dims Shape::sizes() const {
  PARE_ASSERT(concrete());
  Dims sizes;
  sizes.reserve(dims.size());
  for (const Dim& dim : dims) sizes.push_back(dim.value);
  return sizes;
}

bool Shape::fits(const Dims& d) const {
  if (!ranked) return true;
  if (d.size() != dims.size()) return false;
  for (std::size_t i = 0; i < d.size(); ++i)
    if (dims[i].known() && dims[i].value != d[i]) return false;
  return true;
}

std::string to_string(const Dim& dim) {
  if (dim.known()) return std::to_string(dim.value);
  return dim.symbol.empty() ? "?" : dim.symbol;
}

std::string to_string(const Shape& shape) {
  if (!shape.ranked) return "[...]";
  std::string text = "[";
  for (std::size_t i = 0; i < shape.dims.size(); ++i) text += (i ? "," : "") + to_string(shape.dims[i]);
  return text + "]";
}

}  // namespace pare
